//! Exclusive I/O: reads and writes of file data that take an inode's lock several times and still look
//! like one to all threads of the session.
//!
//! What fits in one step is atomic by the inode's lock alone. A longer write, or one of several
//! buffers, holds the inode's *exclusive I/O* besides, and says so by a flag that everybody who has got
//! the inode's lock, or that of some bytes, looks at: one load from a cache line that the lock has just brought. Nobody
//! waits for exclusive I/O under another lock. A write that goes over bytes of the file in place, and does
//! more than that, takes exclusive I/O too: it may have to begin again after it has stored the one and
//! before it has published the other.
//!
//! # Invariants
//! * [`flag::EXCLUSIVE`] is set and cleared by the holder of the exclusive I/O. It is set under the inode's lock:
//!   whoever has had that lock before is done.
//! * Exclusive I/O is held across the attempts of one call and what they ask of the controller, so it is
//!   taken outside of operations, and before every lock but that of a description.
//! * Exclusive I/O holds within the session: another session may become the file's owner between two steps
//!   of a write that is longer than one.

pub use crate::attempt::whole::Exclusive;
use crate::need::{Attempt, Need};
use crate::views::{CachedInode, Viewing, flag};

impl Viewing<'_> {
    /// That no other thread has its exclusive I/O on the inode. Under the inode's lock.
    #[inline(always)]
    pub fn heed_exclusive(&self, inode: &CachedInode) -> Attempt<()> {
        match inode.has(flag::EXCLUSIVE) {
            false => Ok(()),
            true => self.heed_exclusive_of(inode),
        }
    }

    /// That this thread has its exclusive I/O on the inode: what it stores is not seen before it is done,
    /// however often it has to begin again. Under the inode's lock.
    pub fn has_exclusive(&self, inode: &CachedInode) -> Attempt<()> {
        match inode.has(flag::EXCLUSIVE) && inode.exclusive.holder() == Some(self.slot().holder()) {
            true => Ok(()),
            false => Err(Need::OwnExclusive(inode.number()).into()),
        }
    }

    /// Before an attempt is made again that others may have seen the effect of: nobody comes in
    /// between, unless somebody has been waiting with the exclusive I/O for the inode's lock. Under it.
    #[cold]
    pub fn keep_exclusive(&self, inode: &'static CachedInode) {
        let holder = self.slot().holder();
        if let Some(held) = inode.exclusive.try_lock(holder) {
            inode.set(flag::EXCLUSIVE, true);
            self.keep(Exclusive { inode, _held: held });
        }
    }

    #[cold]
    fn heed_exclusive_of(&self, inode: &CachedInode) -> Attempt<()> {
        match inode.exclusive.holder() {
            Some(holder) if holder != self.slot().holder() => {
                Err(Need::Exclusive(inode.number()).into())
            }
            _ => Ok(()),
        }
    }
}
