//! The file of a spool, and the lock that says whose it is.
//!
//! # Invariants
//! * The lock is had from before the file is looked into until nobody uses it any more.
//! * A forked child, which has the descriptor too, does not let go of what is its parent's.

use crate::target::{FileIdentity, Target};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// A file that this process alone has as a spool.
pub struct Locked<T> {
    file: T,
    lock: OwnedFd,
    process: u32,
}

impl<T: Target> Locked<T> {
    /// Locks a file, by a descriptor that stands for it. Never blocks.
    ///
    /// # Errors
    /// EBUSY: it is locked, by another process or by this one.
    pub fn new(file: T, lock: OwnedFd) -> Result<Locked<T>, Errno> {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(Errno::BUSY),
            other => other?,
        }
        Ok(Locked {
            file,
            lock,
            process: std::process::id(),
        })
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        // Children that were forked meanwhile would keep the lock by their descriptors.
        if self.process == std::process::id() {
            let _ = flock(&self.lock, FlockOperation::Unlock);
        }
    }
}

impl<T: Target> Target for Locked<T> {
    fn identity(&self) -> FileIdentity {
        self.file.identity()
    }
    fn size(&self) -> Result<u64, Errno> {
        self.file.size()
    }
    fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
        self.file.read(buffer, position)
    }
    fn write(&self, bytes: &[u8], position: u64) -> Result<usize, Errno> {
        self.file.write(bytes, position)
    }
    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno> {
        self.file.append(bytes)
    }
    fn sync(&self, data_only: bool) -> Result<(), Errno> {
        self.file.sync(data_only)
    }
    fn is_durable(&self) -> bool {
        self.file.is_durable()
    }
}
