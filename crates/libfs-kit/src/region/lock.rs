//! Mutual exclusion between threads of all processes of a trust group.
//!
//! Invariant: the lock word is 0 exactly while nobody holds the lock, and otherwise names the
//! holder, so that a surviving member can tell a lock that died with its holder from one that is
//! merely busy. The contended bit is set before anybody sleeps; whoever releases the lock with
//! that bit set wakes a sleeper, and a thread that slept takes the lock with the bit set, because
//! there may be more sleepers.

use super::departed;
use super::holder::Holder;
use super::primitive::{self, AtomicU32};
use std::sync::atomic::Ordering;

/// Set in a lock word while somebody may be asleep on it.
pub(super) const CONTENDED: u32 = 1 << 31;

/// A mutual-exclusion lock of four bytes; all zero bytes are a free lock.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Lock {
    word: AtomicU32,
}

/// Holds a [`Lock`] until dropped.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct LockGuard<'a> {
    lock: &'a Lock,
}

impl Lock {
    /// A free lock.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the lock for `holder`, sleeping while somebody else has it. Not recursive: a thread
    /// that asks for a lock it holds waits for ever.
    pub fn lock(&self, holder: Holder) -> LockGuard<'_> {
        self.try_lock(holder)
            .unwrap_or_else(|| self.lock_contended(holder))
    }

    /// Takes the lock if it is free; never sleeps.
    pub fn try_lock(&self, holder: Holder) -> Option<LockGuard<'_>> {
        self.word
            .compare_exchange(0, holder.word(), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| LockGuard { lock: self })
    }

    #[cold]
    fn lock_contended(&self, holder: Holder) -> LockGuard<'_> {
        for round in 0..primitive::SPIN_LIMIT {
            if self.word.load(Ordering::Relaxed) == 0
                && let Some(guard) = self.try_lock(holder)
            {
                return guard;
            }
            primitive::pause(round);
        }
        loop {
            let seen = self.word.load(Ordering::Relaxed);
            if seen == 0 {
                // Others may sleep, and only the word can say so: keep the contended bit.
                let mine = holder.word() | CONTENDED;
                if self
                    .word
                    .compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    return LockGuard { lock: self };
                }
                continue;
            }
            if seen & CONTENDED == 0
                && self
                    .word
                    .compare_exchange(seen, seen | CONTENDED, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            primitive::wait(&self.word, seen | CONTENDED);
            let waited_for = seen | CONTENDED;
            if self.word.load(Ordering::Relaxed) == waited_for
                && departed::may_take_over(&self.word, Holder::from_word(seen))
            {
                let mine = holder.word() | CONTENDED;
                if self
                    .word
                    .compare_exchange(waited_for, mine, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    return LockGuard { lock: self };
                }
            }
        }
    }

    fn release(&self) {
        if self.word.swap(0, Ordering::Release) & CONTENDED != 0 {
            primitive::wake_one(&self.word);
        }
    }

    /// Who holds the lock at this moment; `None` if nobody does.
    pub fn holder(&self) -> Option<Holder> {
        Holder::from_word(self.word.load(Ordering::Acquire))
    }

    /// Frees the lock, whoever has it: for one that nobody can be using.
    pub fn reset(&self) {
        self.word.store(0, Ordering::Release);
    }

    /// Frees the lock if a thread of the dead member `member` holds it, and says whether it did.
    /// What the lock protects may be half changed; the caller must have repaired or dropped it.
    pub fn release_dead(&self, member: u16) -> bool {
        let seen = self.word.load(Ordering::Acquire);
        let held_by_dead = Holder::from_word(seen).is_some_and(|holder| holder.member == member);
        // The dead never change their word; waiters may still add the contended bit.
        let freed = held_by_dead
            && (self
                .word
                .compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
                || self
                    .word
                    .compare_exchange(seen | CONTENDED, 0, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok());
        if freed {
            primitive::wake_all(&self.word);
        }
        freed
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        self.lock.release();
    }
}
