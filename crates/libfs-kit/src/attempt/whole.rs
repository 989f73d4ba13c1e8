//! Holding an inode as a whole, and the exclusive I/O on its data: what a call keeps from one attempt to the next.
//!
//! The rules are those of [`locks`](crate::views::locks) and of [exclusive I/O](crate::views::exclusive).

use crate::Session;
use crate::region::{Holder, LockGuard, ReadWriteLock, WriteGuard};
use crate::state::inodes::{CachedInode, STRIPES, Shard, Stripe, Striped, flag};
use arck_core_state::branch::TAILS;
use std::sync::atomic::Ordering;

/// An inode held alone, with all its stripes.
pub struct Whole {
    pub(crate) stripes: Option<AllStripes>,
    pub(crate) _inode: WriteGuard<'static>,
}

/// Stripes of an inode, from the first on, all of them as a rule, held until dropped. A few words: locks are taken and
/// handed on by value at every operation.
pub(crate) struct AllStripes {
    striped: &'static Striped,
    held: usize,
}

impl AllStripes {
    /// Takes all, each by `lock`; `None`, with none held, if that does not get one.
    #[inline(never)]
    pub(crate) fn take(
        striped: &'static Striped,
        lock: impl Fn(&'static ReadWriteLock) -> Option<WriteGuard<'static>>,
    ) -> Option<AllStripes> {
        let mut all = AllStripes { striped, held: 0 };
        for place in 0..STRIPES {
            lock(&striped.stripe(place).lock)?.keep();
            all.held += 1;
        }
        Some(all)
    }
}

impl Drop for AllStripes {
    fn drop(&mut self) {
        for place in 0..self.held {
            self.striped.stripe(place).lock.end_kept_write();
        }
    }
}

impl Striped {
    pub(crate) fn stripe(&self, place: usize) -> &Stripe {
        &self.stripes[place % STRIPES].stripe
    }
    pub(crate) fn shard(&self, place: usize) -> &Shard {
        &self.shards[place % TAILS].shard
    }
}

#[inline(always)]
pub(crate) fn striped(session: &'static Session, inode: &CachedInode) -> Option<&'static Striped> {
    let region = session.region();
    region.try_get(inode.striped.load(Ordering::Acquire))
}

/// As [`Viewing::lock_whole`](crate::views::Viewing::lock_whole).
#[inline(always)]
pub fn lock_whole(session: &'static Session, holder: Holder, inode: &'static CachedInode) -> Whole {
    let lock = inode.lock.write(holder);
    with_stripes(session, holder, inode, lock)
}

#[inline(always)]
pub(crate) fn with_stripes(
    session: &'static Session,
    holder: Holder,
    inode: &'static CachedInode,
    lock: WriteGuard<'static>,
) -> Whole {
    let stripes = striped(session, inode);
    Whole {
        stripes: stripes
            .and_then(|striped| AllStripes::take(striped, |lock| Some(lock.write(holder)))),
        _inode: lock,
    }
}

/// One thread's exclusive I/O on an inode's data, until dropped.
#[must_use = "the exclusive I/O ends when this is dropped"]
pub struct Exclusive {
    pub(crate) inode: &'static CachedInode,
    pub(crate) _held: LockGuard<'static>,
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        // Before the lock goes, which is when others look again.
        self.inode.set(flag::EXCLUSIVE, false);
    }
}

impl Exclusive {
    /// Waits for the exclusive I/O. Outside of operations, and the thread has no exclusive I/O yet.
    pub fn on(session: &'static Session, inode: &'static CachedInode, holder: Holder) -> Exclusive {
        let held = inode.exclusive.lock(holder);
        let exclusive = Exclusive { inode, _held: held };
        let _locked = lock_whole(session, holder, inode);
        inode.set(flag::EXCLUSIVE, true);
        exclusive
    }
}
