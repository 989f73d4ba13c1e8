//! The mount beneath the interception of who is not root, who has no mount namespace of his own: at an empty directory of
//! his (`arck run --mount DIR`), by fusermount3, seen by all his programs.
//!
//! # Invariants
//! * Several `arck run` have one mount. It ends when none of them is there any more, nor a process of their commands: they share a
//!   lock (`locks::share_mount`), which the process that serves the mount takes for itself to end. Who comes
//!   meanwhile waits for that end.
//! * Who mounts has the start lock: nobody mounts at the same time.
//! * A directory that was made for it is one that nobody may write, while it is not mounted, and is removed in the end.

use super::beneath::Server;
use super::locks::{self, leave_mount, share_mount, take_start_lock, try_for};
use super::pool::User;
use super::telling::plain;
use arck_mount::beneath;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, fchmod, flock, fstat, openat};
use rustix::io::Errno;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Mode of a mount point that `arck run` has made: nobody writes, and the bit by which it is known.
pub const OF_ARCK: u32 = 0o1555;
/// While it is mounted at.
const OPEN: Mode = Mode::RWXU;
/// How long the end of a mount is waited for; it goes on by itself after that.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks for it.
const END_PAUSE: Duration = Duration::from_millis(1);

/// An `arck run`'s part in such a mount.
pub struct OwnMount {
    lock: Arc<OwnedFd>,
}

impl OwnMount {
    /// Mounts, unless that is done. Blocks while another one is mounted or ends.
    ///
    /// # Errors
    /// One line: why it is not mounted.
    pub fn begin(pool: &Path, mount: &Path, user: &User) -> Result<OwnMount, String> {
        let lock = user
            .use_lock()
            .ok_or("the pool is another user's".to_owned())?;
        let failed = |errno: Errno| format!("{}: {}", mount.display(), plain(&errno.into()));
        let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let pool_directory = openat(CWD, pool, directory, Mode::empty()).map_err(failed)?;
        take_start_lock(pool, &pool_directory)?;
        if !try_for(|| share_mount(&lock)).map_err(failed)? {
            return Err("one that was mounted before does not end".to_owned());
        }
        // From here on it is let go when this is dropped.
        let own = OwnMount { lock };
        if beneath::is_mounted_at(pool, mount) {
            return Ok(own);
        }
        // What a process that was killed has left there would hide that the directory was made for it.
        beneath::detach_dead(mount);
        let made = make(mount).map_err(failed)?;
        let mounted = own.mount_at(pool, mount, user, made.as_ref());
        if let Some(point) = &made {
            // Of what lies beneath the mount, if there is one.
            let _ = fchmod(point, Mode::from_raw_mode(OF_ARCK));
            if mounted.is_err() {
                let _ = std::fs::remove_dir(mount);
            }
        }
        mounted.map(|()| own)
    }

    fn mount_at(
        &self,
        pool: &Path,
        mount: &Path,
        user: &User,
        made: Option<&OwnedFd>,
    ) -> Result<(), String> {
        let lock = locks::serve_mount(pool).map_err(|errno| plain(&errno.into()))?;
        let device = beneath::mount_own(pool, mount)?;
        let serving = Server::of_device(device, pool, mount, user, made, Some(&lock));
        let begun = serving.and_then(Server::begin);
        if begun.is_err() {
            beneath::give_up_own(mount);
        }
        // It is waited for by its lock.
        begun.map(drop)
    }

    /// The command has ended. Where nobody else uses the mount, it is there no more when this returns, and what was done
    /// through it is folded. Blocks at most [`END_LIMIT`].
    pub fn end(self) {
        leave_mount(&self.lock);
        let end = Instant::now() + END_LIMIT;
        while locks::is_mount_ending(&self.lock) && Instant::now() < end {
            std::thread::sleep(END_PAUSE);
        }
    }
}

impl Drop for OwnMount {
    fn drop(&mut self) {
        leave_mount(&self.lock);
    }
}

/// The mount point, if an `arck run` makes it, or has made it and left it: locked, and opened for fusermount3, which wants a directory that its
/// user may write.
fn make(mount: &Path) -> Result<Option<OwnedFd>, Errno> {
    let is_new = match DirBuilder::new().mode(OF_ARCK).create(mount) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let point = openat(CWD, mount, flags, Mode::empty())?;
    let status = fstat(&point)?;
    let is_own = status.st_uid == rustix::process::geteuid().as_raw();
    let is_left = status.st_mode & 0o7777 == OF_ARCK && status.st_nlink > 0;
    if !is_own || !(is_new || is_left) {
        return Ok(None);
    }
    // Shared by whoever uses it: see `hold`.
    flock(&point, FlockOperation::NonBlockingLockShared)?;
    fchmod(&point, OPEN)?;
    Ok(Some(point))
}
