//! Root acts as a pool's owner, so that the owner can go on using the pool afterwards.
//!
//! A pool belongs to the owner of its directory. Its files are made by whoever serves it, and
//! only they can open them: a single use by root (`sudo arck run`) would leave files that lock
//! the owner out of the pool.
//!
//! Invariant: nothing is made in a pool's directory under another user than the directory's. Whoever may write the
//! directory above can put another one at the pool's path at any moment: so the owner is asked of the directory
//! that is used, by its descriptor, and where a path was asked, whoever opens it asks again
//! (`arck_controller`, `arck_check`).

use rustix::fd::AsFd;
use rustix::process::geteuid;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// User and group that a pool's files have to belong to, if this process is root and they are
/// not root's. `None` where there is nothing to change, or no such directory.
fn other_owner(pool: &Path) -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let metadata = std::fs::metadata(pool).ok()?;
    (metadata.uid() != 0).then(|| (metadata.uid(), metadata.gid()))
}

/// Whether the pool's directory belongs to the user of this process.
pub fn is_owner(pool: &Path) -> bool {
    std::fs::metadata(pool).is_ok_and(|metadata| metadata.uid() == geteuid().as_raw())
}

/// Whose the pool's directory is, if it is another user's.
pub fn other_user(pool: &Path) -> Option<u32> {
    let user = std::fs::metadata(pool).ok()?.uid();
    (user != geteuid().as_raw()).then_some(user)
}

/// For whatever works on a pool's files itself: root becomes the pool's owner, for good. Others stay who
/// they are.
///
/// # Errors
/// One line: the system does not let this process become that user.
pub fn become_owner(pool: &Path) -> Result<(), String> {
    let Some((user, group)) = other_owner(pool) else {
        return Ok(());
    };
    // SAFETY: no memory is involved but an empty list; libc changes all threads.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(group, group, group) == 0
            && libc::setresuid(user, user, user) == 0
    };
    if done {
        return Ok(());
    }
    Err(format!(
        "the pool {} belongs to user {user}, and becoming that user failed: {}; run this as that \
         user",
        pool.display(),
        crate::run::plain(&io::Error::last_os_error())
    ))
}

/// For `arck run`, which stays root: opens one of the files of a pool's directory as its owner would.
/// `open` runs on this thread with the owner's rights to files, and with no others.
pub fn as_owner<R>(directory: impl AsFd, open: impl FnOnce() -> R) -> R {
    let owner = rustix::fs::fstat(directory).map(|status| (status.st_uid, status.st_gid));
    let (user, group) = match owner {
        Ok((user, group)) if geteuid().is_root() && user != 0 => (user, group),
        _ => return open(),
    };
    // SAFETY: no memory is involved; only this thread's rights to files change. The calls give
    // what was before, and there is nobody to tell of a failure but the open itself.
    let (user, group) = unsafe {
        let group = libc::setfsgid(group);
        (libc::setfsuid(user), group)
    };
    let result = open();
    // SAFETY: as above.
    unsafe {
        libc::setfsuid(user as u32);
        libc::setfsgid(group as u32);
    }
    result
}
