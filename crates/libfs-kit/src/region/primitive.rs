//! The one place that decides what the locks of the region are made of.
//!
//! Normally: standard atomics, and a futex *without* the private flag, so that processes which map
//! the word at different addresses meet on it. Under `--cfg shuttle`: Shuttle's atomics and a
//! futex modelled with a Shuttle condition variable, so that a schedule in which a wake-up is lost
//! shows as a deadlock. Under Miri, which runs no system call of ours: waiting is yielding.
//!
//! Invariant kept for the locks: [`wait`] never sleeps if the word no longer holds the expected
//! value, and a wake issued after a change of the word ends every sleep begun before it.

#[cfg(shuttle)]
pub(super) use shuttle::sync::atomic::AtomicU32;
#[cfg(not(shuttle))]
pub(super) use std::sync::atomic::AtomicU32;

#[cfg(shuttle)]
pub(super) use modelled::{wait, wake_all, wake_one};
#[cfg(not(shuttle))]
pub(super) use system::{wait, wake_all, wake_one};

/// How often a lock looks again before it sleeps.
pub(super) const SPIN_LIMIT: u32 = if cfg!(any(shuttle, miri)) { 1 } else { 40 };
/// Pauses between two looks at most.
const PAUSES_MOST: u32 = 64;

/// Between a lock's look number `round` (from 0) and the next, longer and longer: whoever holds
/// the lock gets several things done while all that they need is in its processor's cache, rather
/// than everything moving to and fro with each of them.
pub(super) fn pause(round: u32) {
    for _ in 0..(1 << round.min(16)).min(PAUSES_MOST) {
        spin();
    }
}

/// Tells the processor (or the model) that this thread spins.
fn spin() {
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(shuttle))]
    std::hint::spin_loop();
}

#[cfg(not(shuttle))]
mod system {
    use crate::region::primitive::AtomicU32;
    #[cfg(not(miri))]
    use rustix::thread::futex;

    /// After so many nanoseconds a sleeper looks whether whom it waits for is still there.
    #[cfg(not(miri))]
    const LOOK: i64 = 50_000_000;

    /// Sleeps until woken, if `word` still holds `expected`; may return early for no reason.
    #[cfg(not(miri))]
    pub fn wait(word: &AtomicU32, expected: u32) {
        let time = futex::Timespec {
            tv_sec: 0,
            tv_nsec: LOOK,
        };
        // Every outcome (woken, value changed, interrupted) means the same to the caller: look again.
        let _ = futex::wait(word, futex::Flags::empty(), expected, Some(&time));
    }

    #[cfg(miri)]
    pub fn wait(_word: &AtomicU32, _expected: u32) {
        std::thread::yield_now();
    }

    #[cfg(not(miri))]
    fn wake(word: &AtomicU32, count: u32) {
        // Waking fails only for an address that is no futex; ours is mapped memory.
        let _ = futex::wake(word, futex::Flags::empty(), count);
    }

    #[cfg(miri)]
    fn wake(_word: &AtomicU32, _count: u32) {}

    pub fn wake_one(word: &AtomicU32) {
        wake(word, 1);
    }

    pub fn wake_all(word: &AtomicU32) {
        wake(word, i32::MAX as u32);
    }
}

#[cfg(shuttle)]
mod modelled {
    use crate::region::primitive::AtomicU32;
    use shuttle::sync::{Condvar, Mutex};
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    // The kernel's table of sleepers: one condition variable per futex address.
    shuttle::lazy_static! {
        static ref SLEEPERS: Mutex<HashMap<usize, Arc<Condvar>>> = Mutex::new(HashMap::new());
    }

    fn key(word: &AtomicU32) -> usize {
        std::ptr::from_ref(word).addr()
    }

    pub fn wait(word: &AtomicU32, expected: u32) {
        let mut table = SLEEPERS.lock().unwrap();
        // As in the kernel, the comparison and falling asleep are one step against wakers.
        if word.load(Ordering::SeqCst) != expected {
            return;
        }
        let sleepers = table.entry(key(word)).or_default().clone();
        drop(sleepers.wait(table).unwrap());
    }

    pub fn wake_one(word: &AtomicU32) {
        let table = SLEEPERS.lock().unwrap();
        if let Some(sleepers) = table.get(&key(word)) {
            sleepers.notify_one();
        }
    }

    pub fn wake_all(word: &AtomicU32) {
        let table = SLEEPERS.lock().unwrap();
        if let Some(sleepers) = table.get(&key(word)) {
            sleepers.notify_all();
        }
    }
}
