//! The pool's lock: who looks has it together with others who look, who serves or repairs alone.
//!
//! Invariant: nothing of a pool that is not served is read before the lock is held.

use crate::error::{Error, Result};
use crate::memory;
use arck_core_state::layout;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// The pool's lock, held until it is dropped.
pub(crate) struct Lock(OwnedFd);

impl Drop for Lock {
    /// Closing would do, but for a moment a child that was just forked has the file open too.
    fn drop(&mut self) {
        // Fails only for a descriptor that is none.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Lock {
    /// Takes it together with others who look; whether somebody serves the pool.
    pub fn shared(path: &Path, directory: &OwnedFd) -> Result<(Option<Lock>, bool)> {
        let failed = |operation| Error::system(&path.join(layout::LOCK), operation);
        let file = match memory::open(directory, layout::LOCK) {
            Ok(file) => file,
            // Nobody ever served it.
            Err(Errno::NOENT) => return Ok((None, false)),
            Err(errno) => return Err(failed("open")(errno)),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok((Some(Lock(file)), false)),
            Err(Errno::WOULDBLOCK) => Ok((None, true)),
            Err(errno) => Err(failed("flock")(errno)),
        }
    }

    /// Of a pool that nobody ever served; it is not taken yet.
    pub fn made(path: &Path, directory: &OwnedFd) -> Result<Lock> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::openat(directory, layout::LOCK, flags, mode)
            .map(Lock)
            .map_err(Error::system(&path.join(layout::LOCK), "open"))
    }

    /// Keeps others from looking too. False: somebody does.
    pub fn take_alone(&self, path: &Path) -> Result<bool> {
        match rustix::fs::flock(&self.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(Error::system(&path.join(layout::LOCK), "flock")(errno)),
        }
    }

    /// Whether nobody has it any more who serves the pool.
    pub fn is_left(directory: &OwnedFd) -> bool {
        let flags = FlockOperation::NonBlockingLockShared;
        memory::open(directory, layout::LOCK)
            .is_ok_and(|file| rustix::fs::flock(&file, flags).is_ok())
    }
}

/// See [`open_to_change`](super::load::open_to_change).
pub(crate) fn refuse_others(path: &Path, directory: &OwnedFd) -> Result<()> {
    let status = rustix::fs::fstat(directory).map_err(Error::system(path, "fstat"))?;
    if rustix::process::geteuid().is_root() && status.st_uid != 0 {
        return Err(Error::Replaced {
            path: path.into(),
            owner: status.st_uid,
        });
    }
    Ok(())
}
