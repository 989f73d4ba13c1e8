//! The mount beneath the interception of who is not root, who has no mount namespace of his own: at an empty directory of
//! his (`arck run --mount DIR`), by fusermount3, seen by all his programs.
//!
//! # Invariants
//! * Several `arck run` have one mount. It ends when none of them is there any more, nor a process of their commands: they share a
//!   lock (`locks::Place`), which the process that serves the mount takes for itself to end. Who comes
//!   meanwhile waits for that end.
//! * Who mounts has the directory beneath locked for himself: nobody mounts there at the same time, of whatever pool, nor uses it
//!   without a mount ([`hold`](super::hold)).
//! * A directory that was made for it is one that nobody may write, while it is not mounted, and is removed in the end.
//! * Nothing is asked of the mount itself, whose process may be stopped: the kernel's table, and that process's lock, say whether
//!   it is there.

use super::beneath::Server;
use super::locks::{self, Place, leave_mount, share_mount, try_at_most};
use super::pool::User;
use super::telling::plain;
use arck_mount::beneath;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, openat};
use rustix::io::Errno;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Mode of a mount point that `arck run` has made: nobody writes, and the bit by which it is known.
pub const OF_ARCK: u32 = 0o1555;
/// While it is mounted at.
const OPEN: u32 = 0o1700;
/// How often it is looked at again what others change meanwhile.
const TRIES: usize = 16;
/// How long somebody else's mounting, or the end of his mount, is waited for.
const OTHERS_LIMIT: Duration = Duration::from_secs(2);
/// How long the end of a mount is waited for; it goes on by itself after that.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks for it.
const END_PAUSE: Duration = Duration::from_millis(1);

/// An `arck run`'s part in such a mount.
pub struct OwnMount {
    lock: Arc<OwnedFd>,
    place: Place,
    pool: PathBuf,
    mount: PathBuf,
}

impl OwnMount {
    /// Mounts, unless that is done. Blocks while somebody else mounts there, or a mount ends.
    ///
    /// # Errors
    /// One line: why it is not mounted.
    pub fn begin(pool: &Path, mount: &Path, user: &User) -> Result<OwnMount, String> {
        let place = Place::of(mount);
        let lock = user
            .use_lock()
            .ok_or("the pool is another user's".to_owned())?;
        let failed = |errno: Errno| format!("{}: {}", mount.display(), plain(&errno.into()));
        let share = || share_mount(&lock, place);
        if !try_at_most(OTHERS_LIMIT, share).map_err(failed)? {
            return Err("one that was mounted before does not end".to_owned());
        }
        // From here on it is let go when this is dropped.
        let own = OwnMount {
            lock,
            place,
            pool: pool.to_path_buf(),
            mount: mount.to_path_buf(),
        };
        for _ in 0..TRIES {
            if own.is_mounted() {
                return Ok(own);
            }
            // One is about to be mounted; or was told to end, and does.
            let settled = || match locks::is_mount_served(&own.lock, place) && !own.is_mounted() {
                true => Err(Errno::AGAIN),
                false => Ok(()),
            };
            if !try_at_most(OTHERS_LIMIT, settled).map_err(failed)? {
                break;
            }
            let Some(point) = Point::lock(mount).map_err(failed)? else {
                continue;
            };
            // By whoever had it locked before.
            if own.is_mounted() {
                return Ok(own);
            }
            return own.mount_at(user, &point).map(|()| own);
        }
        Err(failed(Errno::BUSY))
    }

    /// Whether it is there, and served. What was left by a process that was killed is detached.
    fn is_mounted(&self) -> bool {
        let Some(number) = beneath::own_mount_at(&self.pool, &self.mount) else {
            return false;
        };
        let is_served = locks::is_mount_served(&self.lock, self.place);
        if !is_served {
            beneath::give_up_own(number);
        }
        is_served
    }

    fn mount_at(&self, user: &User, point: &Point) -> Result<(), String> {
        let (pool, mount) = (&*self.pool, &*self.mount);
        let lock = locks::serve_mount(pool, self.place).map_err(|errno| plain(&errno.into()))?;
        let mounted = point.open().and_then(|()| beneath::mount_own(pool, mount));
        let begun = mounted.and_then(|device| {
            let made = point.is_made.then_some(&point.directory);
            let server = Server::of_device(device, pool, mount, user, made, Some(&lock));
            // It is waited for by its lock.
            server.and_then(Server::begin).map(drop)
        });
        if begun.is_err()
            && let Some(number) = beneath::own_mount_at(pool, mount)
        {
            beneath::give_up_own(number);
        }
        point.close(mount, begun.is_ok());
        begun
    }

    /// The command has ended. Where nobody else uses the mount, it is there no more when this returns, and what was done
    /// through it is folded. Blocks at most [`END_LIMIT`].
    pub fn end(self) {
        leave_mount(&self.lock, self.place);
        let end = Instant::now() + END_LIMIT;
        loop {
            if locks::is_mount_used(&self.lock, self.place) {
                return;
            }
            if !locks::is_mount_served(&self.lock, self.place) {
                break;
            }
            if Instant::now() >= end {
                return;
            }
            std::thread::sleep(END_PAUSE);
        }
        // Its process may have been killed. Who comes now looks for himself.
        if let Some(number) = beneath::own_mount_at(&self.pool, &self.mount) {
            beneath::give_up_own(number);
        }
        if let Ok(Some(point)) = Point::lock_there(&self.mount) {
            point.close(&self.mount, false);
        }
    }
}

impl Drop for OwnMount {
    fn drop(&mut self) {
        leave_mount(&self.lock, self.place);
    }
}

/// For a process that was to serve a mount, and is not told to begin: `arck run` was killed.
pub fn give_up(pool: &Path, mount: &Path, point: Option<OwnedFd>) {
    if let Some(number) = beneath::own_mount_at(pool, mount) {
        beneath::give_up_own(number);
    }
    if let Some(directory) = point {
        let is_made = true;
        Point { directory, is_made }.close(mount, false);
    }
}

/// The directory beneath, locked for this `arck run` alone.
struct Point {
    directory: OwnedFd,
    /// An `arck run` has made it.
    is_made: bool,
}

impl Point {
    /// Makes it, if it is missing. Blocks while another one mounts there. `None`: it is to be looked at again.
    ///
    /// # Errors
    /// EBUSY: it is used without a mount. EEXIST: it is no directory, or leads somewhere else.
    fn lock(mount: &Path) -> Result<Option<Point>, Errno> {
        match DirBuilder::new().mode(OF_ARCK).create(mount) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
        Point::lock_there(mount)
    }

    fn lock_there(mount: &Path) -> Result<Option<Point>, Errno> {
        // Not what is mounted there, which may be stopped.
        if beneath::is_mount_point(mount) {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match openat(CWD, mount, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            directory => directory?,
        };
        let alone = || match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) => {
                // Who mounts has it for himself; who uses it without a mount shares it.
                flock(&directory, FlockOperation::NonBlockingLockShared)?;
                Err(Errno::BUSY)
            }
            locked => locked,
        };
        if !try_at_most(OTHERS_LIMIT, alone)? {
            return Err(Errno::BUSY);
        }
        let status = fstat(&directory)?;
        let is_made = is_made_by_arck(&status);
        // Who had it locked may have removed it.
        let is_there = status.st_nlink > 0;
        Ok(is_there.then_some(Point { directory, is_made }))
    }

    /// For fusermount3, which wants a directory that its user may write.
    fn open(&self) -> Result<(), String> {
        match self.is_made {
            true => fchmod(&self.directory, Mode::from_raw_mode(OPEN))
                .map_err(|errno| plain(&errno.into())),
            false => Ok(()),
        }
    }

    /// It is mounted at now, and others may see that; or it is not, and one that was made is removed.
    fn close(&self, mount: &Path, is_mounted: bool) {
        if !self.is_made {
            return;
        }
        let _ = fchmod(&self.directory, Mode::from_raw_mode(OF_ARCK));
        match is_mounted {
            // As `hold` has it.
            true => drop(flock(
                &self.directory,
                FlockOperation::NonBlockingLockShared,
            )),
            // Where somebody has put something into it, it stays.
            false => drop(std::fs::remove_dir(mount)),
        }
    }
}

/// Whether it is as an `arck run` makes one, with whatever is masked, or as it is while one mounts there, and was killed.
fn is_made_by_arck(status: &Stat) -> bool {
    let (sticky, write) = (0o1000, 0o222);
    status.st_uid == rustix::process::geteuid().as_raw()
        && (status.st_mode & (sticky | write) == sticky || status.st_mode & 0o7777 == OPEN)
}
