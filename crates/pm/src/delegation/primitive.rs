//! The one seam for what delegation is made of: atomics, threads, sleep by the kernel's futex. Under `--cfg shuttle`: Shuttle's, and a futex
//! modelled with a condition variable, so that a schedule in which somebody is not woken shows as a deadlock.
//!
//! Invariant: who sleeps does so only while the word has the value that it has seen, and a wake that is issued after a change of the word
//! ends every sleep that was begun before.

#[cfg(shuttle)]
pub(super) use modelled::{
    copy, fence, give_way, now, spin_hint, wait, wait_for, wake, wake_all, wake_all_shared,
    wake_shared,
};
#[cfg(shuttle)]
pub(super) use shuttle::sync::Mutex;
#[cfg(shuttle)]
pub(super) use shuttle::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
#[cfg(shuttle)]
pub(super) use shuttle::thread;
#[cfg(not(shuttle))]
pub(super) use std::sync::Mutex;
#[cfg(not(shuttle))]
pub(super) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
#[cfg(not(shuttle))]
pub(super) use std::thread;
#[cfg(not(shuttle))]
pub(super) use system::{
    give_way, now, spin_hint, wait, wait_for, wake, wake_all, wake_all_shared, wake_shared,
};

/// How often a thread looks before it sleeps.
pub(super) const LOOKS: u32 = if cfg!(shuttle) { 1 } else { 200 };

#[cfg(not(shuttle))]
mod system {
    use crate::delegation::primitive::AtomicU32;
    use rustix::thread::futex;
    use rustix::time::{ClockId, clock_gettime};
    use std::time::Duration;

    pub fn spin_hint() {
        std::hint::spin_loop();
    }

    pub fn give_way() {
        std::thread::yield_now();
    }

    /// Sleeps while the word has this value. May end for nothing.
    pub fn wait(word: &AtomicU32, expected: u32) {
        // Woken, interrupted, or the word had changed already: the caller looks again.
        let _ = futex::wait(word, futex::Flags::PRIVATE, expected, None);
    }

    /// The same of a word that other processes have, too, and for so long at most.
    pub fn wait_for(word: &AtomicU32, expected: u32, most: Duration) {
        let most = futex::Timespec {
            tv_sec: most.as_secs().cast_signed(),
            tv_nsec: i64::from(most.subsec_nanos()),
        };
        let _ = futex::wait(word, futex::Flags::empty(), expected, Some(&most));
    }

    /// Wakes one who sleeps on such a word.
    pub fn wake_shared(word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }

    /// The same of all.
    pub fn wake_all_shared(word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX.unsigned_abs());
    }

    /// Time that has passed, to some milliseconds.
    pub fn now() -> Duration {
        let time = clock_gettime(ClockId::MonotonicCoarse);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    }

    /// Wakes one who sleeps on the word.
    pub fn wake(word: &AtomicU32) {
        // Fails only for a bad address, which a live reference is not.
        let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
    }

    /// The same of all.
    pub fn wake_all(word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX.unsigned_abs());
    }
}

#[cfg(shuttle)]
pub(super) mod modelled;
