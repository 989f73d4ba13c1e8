//! Holding an inode as a whole, and the exclusive I/O on its data: what a call keeps from one attempt to the next.
//!
//! The rules are those of [`locks`](super::locks) and [`exclusive`](super::exclusive I/O).

use crate::Session;
use crate::region::{Holder, LockGuard, WriteGuard};
use crate::state::inodes::{CachedInode, STRIPES, Shard, Stripe, Striped, flag};
use arck_core_state::branch::TAILS;
use std::sync::atomic::Ordering;

/// An inode held alone, with all its stripes.
pub struct Whole {
    pub(super) stripes: Stripes,
    pub(super) _inode: WriteGuard<'static>,
}

pub(super) type Stripes = [Option<WriteGuard<'static>>; STRIPES];

impl Striped {
    pub(super) fn stripe(&self, place: usize) -> &Stripe {
        &self.stripes[place % STRIPES].stripe
    }
    pub(super) fn shard(&self, place: usize) -> &Shard {
        &self.shards[place % TAILS].shard
    }
}

#[inline(always)]
pub(super) fn striped(session: &'static Session, inode: &CachedInode) -> Option<&'static Striped> {
    let region = session.region();
    region.try_get(inode.striped.load(Ordering::Acquire))
}

/// As [`Context::lock_whole`](crate::engine::Context::lock_whole).
#[inline(always)]
pub fn lock_whole(session: &'static Session, holder: Holder, inode: &'static CachedInode) -> Whole {
    let lock = inode.lock.write(holder);
    with_stripes(session, holder, inode, lock)
}

#[inline(always)]
pub(super) fn with_stripes(
    session: &'static Session,
    holder: Holder,
    inode: &'static CachedInode,
    lock: WriteGuard<'static>,
) -> Whole {
    let mut stripes = [const { None }; STRIPES];
    if let Some(striped) = striped(session, inode) {
        for (place, held) in stripes.iter_mut().enumerate() {
            *held = Some(striped.stripe(place).lock.write(holder));
        }
    }
    Whole {
        stripes,
        _inode: lock,
    }
}

/// One thread's exclusive I/O on an inode's data, until dropped.
#[must_use = "the exclusive I/O ends when this is dropped"]
pub struct Exclusive {
    pub(super) inode: &'static CachedInode,
    pub(super) _held: LockGuard<'static>,
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
