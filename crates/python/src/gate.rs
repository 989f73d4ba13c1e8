//! Who is inside a session, so that whoever closes it can wait until they have left.
//!
//! In a forked child nobody is inside: the threads that were are its parent's. Python tells of forks
//! ([`in_child`]); each gate notices at its next use.
//!
//! # Invariants
//! * After [`Gate::close`] has returned nobody is inside, and nobody comes in any more.
//! * Nobody forks while inside: who forks has Python's lock, which is let go of before a gate is entered
//!   and taken again after it has been left.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How many forks this process and those that it comes from have made, each as the child.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in each forked child, before its own code runs.
#[pyo3::pyfunction]
pub fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    arckfs::leave_maps();
}

/// See the module's head. The upper half of the word is the number of forks that it is of, then come the mark that
/// it is closed, and how many are inside.
pub struct Gate(AtomicU64);

const CLOSED: u64 = 1 << 31;
const INSIDE: u64 = CLOSED - 1;
/// Who is inside stays for microseconds, or until a controller has answered.
const PAUSE: Duration = Duration::from_micros(50);

/// Inside until dropped.
pub struct Entered<'g>(&'g Gate);

impl Gate {
    pub fn new() -> Gate {
        Gate(AtomicU64::new(
            u64::from(FORKS.load(Ordering::Relaxed)) << 32,
        ))
    }

    /// The word, as this process is to read it.
    fn own(word: u64) -> u64 {
        let forks = u64::from(FORKS.load(Ordering::Relaxed));
        match word >> 32 == forks {
            true => word,
            false => forks << 32 | word & CLOSED,
        }
    }

    /// `None` once it is closed.
    pub fn enter(&self) -> Option<Entered<'_>> {
        let entering = |word| {
            let own = Gate::own(word);
            (own & CLOSED == 0).then_some(own + 1)
        };
        let (new, old) = (Ordering::Acquire, Ordering::Relaxed);
        self.0.fetch_update(new, old, entering).ok()?;
        Some(Entered(self))
    }

    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Closes it, and waits for those who are inside; whether it was open.
    pub fn close(&self) -> bool {
        let closing = |word| Some(Gate::own(word) | CLOSED);
        let (new, old) = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.0.fetch_update(new, old, closing);
        let was_open = before.is_ok_and(|word| word & CLOSED == 0);
        while self.0.load(Ordering::Acquire) & INSIDE != 0 {
            std::thread::sleep(PAUSE);
        }
        was_open
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}
