//! Inode numbers that are used again: those of inodes that died before they were born.
//!
//! Invariant: a number is handed out only when no thread can still look at the inode that had it:
//! two epochs of the region later. A thread's own dead (`spares`) need no lock; the session's
//! queue of them has `reuse_lock`.

use crate::engine::{Attempt, Context, Fix};
use crate::state::CachedInode;
use arck_core_state::InodeNumber;
use arck_libfs_kit::region::Offset;
use std::sync::atomic::Ordering;

/// Dead inodes that a thread keeps for itself at most.
const DEAD_MOST: u32 = 64;

impl<'a> Context<'a> {
    /// Queues the number of an inode that died unborn, until no thread looks at it any more: with
    /// the thread's own first, many of which are handed on at once.
    pub fn queue_reuse(&self, inode: &'static CachedInode) {
        let region = self.session.region();
        let offset = self.offset_of(inode.number());
        inode.reuse_epoch.store(region.epoch(), Ordering::Relaxed);
        inode.reuse_next.store(Offset::NULL, Ordering::Relaxed);
        let Some(dead) = self.spares.dead(self.slot()) else {
            return self.hand_on(offset, inode);
        };
        match region.try_get(dead.last.load(Ordering::Relaxed)) {
            Some(last) => last.reuse_next.store(offset, Ordering::Relaxed),
            None => dead.first.store(offset, Ordering::Relaxed),
        }
        dead.last.store(offset, Ordering::Relaxed);
        let count = dead.count.load(Ordering::Relaxed) + 1;
        dead.count.store(count, Ordering::Relaxed);
        if count < DEAD_MOST {
            return;
        }
        let first = dead.first.swap(Offset::NULL, Ordering::Relaxed);
        dead.last.store(Offset::NULL, Ordering::Relaxed);
        dead.count.store(0, Ordering::Relaxed);
        self.hand_on(first, inode);
    }

    /// Appends a list of dead inodes, from `first` to `last`, to the session's queue.
    fn hand_on(&self, first: Offset<CachedInode>, last: &'static CachedInode) {
        let region = self.session.region();
        let end = self.offset_of(last.number());
        let _locked = self.state.reuse_lock.lock(self.slot().holder());
        match region.try_get(self.state.reuse_last.load(Ordering::Relaxed)) {
            Some(last) => last.reuse_next.store(first, Ordering::Relaxed),
            None => self.state.reuse_first.store(first, Ordering::Relaxed),
        }
        self.state.reuse_last.store(end, Ordering::Relaxed);
    }

    /// A number of the thread's own dead, if the oldest has been dead long enough.
    fn take_dead_number(&self) -> Option<InodeNumber> {
        let region = self.session.region();
        let dead = self.spares.dead(self.slot())?;
        let first = region.try_get(dead.first.load(Ordering::Relaxed))?;
        if first.reuse_epoch.load(Ordering::Relaxed) + 2 > region.epoch() {
            return None;
        }
        let next = first.reuse_next.load(Ordering::Relaxed);
        dead.first.store(next, Ordering::Relaxed);
        if next.is_null() {
            dead.last.store(Offset::NULL, Ordering::Relaxed);
        }
        let count = dead.count.load(Ordering::Relaxed);
        dead.count.store(count.saturating_sub(1), Ordering::Relaxed);
        Some(first.number())
    }

    /// An unborn number: one that died long enough ago, or a new one from the stock.
    pub fn take_number(&self) -> Attempt<InodeNumber> {
        let taken = self.spares.take_number(self.slot(), || {
            self.take_dead_number()
                .or_else(|| self.take_shared_number())
        });
        match taken {
            Some(number) => Ok(number),
            // Or this thread has no spares.
            None => Ok(self.take_shared_number().ok_or(Fix::Numbers)?),
        }
    }

    fn take_shared_number(&self) -> Option<InodeNumber> {
        let region = self.session.region();
        {
            let _locked = self.state.reuse_lock.lock(self.slot().holder());
            if let Some(first) = region.try_get(self.state.reuse_first.load(Ordering::Relaxed))
                && first.reuse_epoch.load(Ordering::Relaxed) + 2 <= region.epoch()
            {
                let next = first.reuse_next.load(Ordering::Relaxed);
                self.state.reuse_first.store(next, Ordering::Relaxed);
                if next.is_null() {
                    self.state.reuse_last.store(Offset::NULL, Ordering::Relaxed);
                }
                return Some(first.number());
            }
        }
        self.session.state().numbers.take(self.session, self.slot())
    }
}
