//! Many readers or one writer, between threads of all processes of a trust group.
//!
//! One word. Invariant: with [`WRITER`] set it names the writer, otherwise its low bits count the
//! readers; 0 is free. [`CONTENDED`] is set before anybody sleeps, and whoever makes the lock free
//! clears it and wakes everybody. A reader that finds the bit set beside other readers waits (the
//! sleeper is a writer, or was), so a stream of readers cannot keep a writer out for ever; for the
//! same reason reading is **not recursive**.

use super::departed;
use super::holder::Holder;
use super::lock::CONTENDED;
use super::primitive::{self, AtomicU32};
use std::sync::atomic::Ordering;

const WRITER: u32 = 1 << 30;
const READERS: u32 = WRITER - 1;

/// Who holds a [`ReadWriteLock`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holders {
    /// Nobody.
    None,
    /// That many readers; they are not named.
    Readers(u32),
    /// One writer.
    Writer(Holder),
}

/// A readers-writer lock of four bytes; all zero bytes are a free lock.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct ReadWriteLock {
    word: AtomicU32,
}

/// Holds a [`ReadWriteLock`] for reading until dropped.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct ReadGuard<'a> {
    lock: &'a ReadWriteLock,
}

/// Holds a [`ReadWriteLock`] for writing until dropped.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct WriteGuard<'a> {
    lock: &'a ReadWriteLock,
}

impl ReadWriteLock {
    /// A free lock.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the lock for reading; sleeps while a writer has it or waits for it. A thread must not
    /// ask twice.
    pub fn read(&self) -> ReadGuard<'_> {
        self.wait_until(Self::with_reader);
        ReadGuard { lock: self }
    }

    /// As [`read`](Self::read); and whether others read at the same moment, so that the lock's line goes from one
    /// processor to the other.
    pub fn read_in_company(&self) -> (ReadGuard<'_>, bool) {
        let seen = self.word.load(Ordering::Relaxed);
        let Some(new) = Self::with_reader(seen) else {
            return (self.read(), false);
        };
        let exchanged = self
            .word
            .compare_exchange(seen, new, Ordering::Acquire, Ordering::Relaxed);
        match exchanged {
            Ok(_) => (ReadGuard { lock: self }, seen & READERS != 0),
            Err(now) => (self.read(), now & WRITER == 0),
        }
    }

    /// Takes the lock for reading if no writer has it or waits for it; never sleeps.
    pub fn try_read(&self) -> Option<ReadGuard<'_>> {
        self.attempt(&Self::with_reader)
            .is_ok()
            .then(|| ReadGuard { lock: self })
    }

    /// Takes the lock for writing; sleeps while anybody has it.
    pub fn write(&self, holder: Holder) -> WriteGuard<'_> {
        self.wait_until(|seen| Self::with_writer(seen, holder));
        WriteGuard { lock: self }
    }

    /// Takes the lock for writing if it is free; never sleeps.
    pub fn try_write(&self, holder: Holder) -> Option<WriteGuard<'_>> {
        self.attempt(&|seen| Self::with_writer(seen, holder))
            .is_ok()
            .then(|| WriteGuard { lock: self })
    }

    /// Who holds the lock at this moment.
    pub fn holders(&self) -> Holders {
        let word = self.word.load(Ordering::Acquire);
        if word & WRITER == 0 {
            return match word & READERS {
                0 => Holders::None,
                readers => Holders::Readers(readers),
            };
        }
        // A writer's word always names it; the fallback cannot be reached.
        Holder::from_word(word).map_or(Holders::None, Holders::Writer)
    }

    /// The writer that holds the lock, if one does.
    pub fn holder(&self) -> Option<Holder> {
        match self.holders() {
            Holders::Writer(holder) => Some(holder),
            _ => None,
        }
    }

    /// Frees the lock if the dead member `member` holds it for writing, and says whether it did.
    /// Readers are not named: a lock whose reader died is recovered with what it protects.
    pub fn release_dead(&self, member: u16) -> bool {
        match self.holder() {
            Some(holder) if holder.member == member => {
                // The word stays a writer's until it is freed here: the dead do nothing.
                self.word.swap(0, Ordering::AcqRel);
                primitive::wake_all(&self.word);
                true
            }
            _ => false,
        }
    }

    /// Ends a writing of which the guard was [kept](WriteGuard::keep).
    pub(crate) fn end_kept_write(&self) {
        self.release_write();
    }

    fn with_reader(seen: u32) -> Option<u32> {
        let blocked = seen & WRITER != 0 || (seen & CONTENDED != 0 && seen & READERS != 0);
        (!blocked && seen & READERS < READERS).then(|| seen + 1)
    }

    fn with_writer(seen: u32, holder: Holder) -> Option<u32> {
        (seen & !CONTENDED == 0).then(|| seen | WRITER | holder.word())
    }

    /// One try to move the word on by `change`. `Err` tells the word that
    /// stood in the way.
    fn attempt(&self, change: &impl Fn(u32) -> Option<u32>) -> Result<(), u32> {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let Some(new) = change(seen) else {
                return Err(seen);
            };
            match self
                .word
                .compare_exchange(seen, new, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    fn wait_until(&self, change: impl Fn(u32) -> Option<u32>) {
        for round in 0..=primitive::SPIN_LIMIT {
            if self.attempt(&change).is_ok() {
                return;
            }
            primitive::pause(round);
        }
        // Releasing wakes everybody and clears the bit, so no sleeper is left for us to announce:
        // whoever loses the race after a wake-up sets the bit again itself.
        while let Err(seen) = self.attempt(&change) {
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
            let writer = (seen & WRITER != 0).then(|| Holder::from_word(seen));
            if self.word.load(Ordering::Relaxed) == waited_for
                && departed::may_take_over(&self.word, writer.flatten())
                // As if it were free. Who has it, if it lives, has nothing to protect any more.
                && let Some(mine) = change(0)
                && self
                    .word
                    .compare_exchange(
                        waited_for,
                        mine | CONTENDED,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                return;
            }
        }
    }

    fn release_read(&self) {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let new = if seen & READERS == 1 {
                0
            } else {
                seen.wrapping_sub(1)
            };
            match self
                .word
                .compare_exchange(seen, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        if seen & READERS == 1 && seen & CONTENDED != 0 {
            primitive::wake_all(&self.word);
        }
    }

    fn release_write(&self) {
        if self.word.swap(0, Ordering::Release) & CONTENDED != 0 {
            primitive::wake_all(&self.word);
        }
    }
}

impl WriteGuard<'_> {
    /// Holds the lock on without a guard: who keeps it calls [`ReadWriteLock::end_kept_write`].
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.lock.release_read();
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.lock.release_write();
    }
}
