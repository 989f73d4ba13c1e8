//! A mount beneath the interception: for what the preload library does not reach.
//!
//! That of root's command is in a mount namespace of its own. The command's `arck run` mounts, in the namespace that it has made, by a device that it has opened; a process outside
//! of the namespace serves it, so that the namespace, and with it the mount, ends with the last of the command's
//! processes. That process opens no session before somebody asks for something.
//!
//! That of another user's is at a directory of his own, where all his programs see it.
//!
//! # Invariant
//! * What is asked before anybody serves waits, and is answered when he does.

pub use crate::mounted::Mounted;
use crate::point::{self, KIND, KIND_OF_RUN, Point};
pub use crate::point::{MountNumber, device};
use crate::{helper, mounted};
use arckfs::ConnectOptions;
use rustix::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Mounts a pool at a directory of this thread's mount namespace, which is root's to do; `point`: the directory, open,
/// where it is the host's, which has to be what the path says without links. Whoever has the device serves it.
///
/// # Errors
/// One line.
pub fn mount(
    pool: &Path,
    directory: &Path,
    point: Option<&OwnedFd>,
    device: &OwnedFd,
) -> Result<(), String> {
    let mounted = match point {
        Some(point) => mounted::mount_on(pool, directory, point, false, device),
        // What lies there is another mount of ours.
        None => mounted::mount(pool, directory, false, device),
    };
    mounted.map_err(|errno| format!("mounting at {} failed: {errno}", directory.display()))
}

/// Mounts a pool at an empty directory of this user's, who is not root; the device by which it is served. Blocks.
///
/// # Errors
/// One line that says what is wrong and what to do.
pub fn mount_own(pool: &Path, directory: &Path) -> Result<OwnedFd, String> {
    let point = Point::find(directory, false)?;
    if point.path() != directory {
        return Err(format!(
            "{} leads to {} by a link; name that",
            directory.display(),
            point.path().display()
        ));
    }
    helper::mount(pool, directory, false, KIND_OF_RUN)
}

/// What [`mount_own`] has mounted at a directory, if that is the last of what is mounted there. Asks the kernel alone.
pub fn own_mount_at(pool: &Path, directory: &Path) -> Option<MountNumber> {
    let last = last_at(directory)?;
    (last.kind == KIND_OF_RUN && is_ours(&last, pool)).then_some(last.number)
}

/// Whether anything is mounted at a directory. Asks the kernel alone.
pub fn is_mount_point(directory: &Path) -> bool {
    last_at(directory).is_some()
}

fn last_at(directory: &Path) -> Option<point::Mount> {
    let mounts = point::mounts().into_iter().rev();
    { mounts }.find(|mount| mount.at == directory)
}

/// Detaches one that nobody serves, wherever it is now.
pub fn give_up_own(number: MountNumber) {
    // What is left is detached by the next one.
    let _ = point::detach_one(Some(number));
}

/// What serves the mount of this device, which is at that directory; this process need not see it there, and if it does
/// can end it. Opens no session. Blocks until the kernel has answered.
///
/// # Errors
/// One line.
pub fn served(pool: &Path, directory: &Path, device: OwnedFd) -> Result<Mounted, String> {
    Mounted::beneath(
        ConnectOptions {
            pool: pool.to_path_buf(),
            mount: directory.as_os_str().as_encoded_bytes().to_vec(),
            group: Vec::new(),
            resolver: arckfs::Resolver::default(),
        },
        device,
    )
}

/// Where a pool is mounted in this process's namespace by root or its own user for longer than an `arck run` takes, if it
/// is: the last of its mounts. Others could have the kernel show anything as the pool.
pub fn mounted_at(pool: &Path) -> Option<PathBuf> {
    let mounts = point::mounts().into_iter().rev();
    let found = { mounts }.find(|mount| mount.kind == KIND && is_ours(mount, pool))?;
    // One whose process is gone shows nothing.
    std::fs::metadata(&found.at).is_ok().then_some(found.at)
}

/// Whether a mount is that pool's, of root's or this user's.
fn is_ours(mount: &point::Mount, pool: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    mount.is_of_arck()
        && mount.source == point::source_of(pool)
        && mount.user.is_some_and(|user| user == 0 || user == own)
}

/// Whether the last of what is mounted at a directory ends with an `arck run`, which [has made it](mount_own).
pub fn is_of_run(directory: &Path) -> bool {
    last_at(directory).is_some_and(|mount| mount.kind == KIND_OF_RUN)
}

/// Whether the last of what is mounted at a directory is that pool's mount, of root's or this user's.
pub fn is_mounted_at(pool: &Path, directory: &Path) -> bool {
    last_at(directory).is_some_and(|mount| is_ours(&mount, pool))
        && std::fs::metadata(directory).is_ok()
}
