//! Waiting for the other side: the kernel's futex in a build, a model of it under the checker.
//!
//! # Invariant
//! * A waiter sleeps only if the word still has the expected value, and whoever changes the
//!   word wakes it afterwards. The model never times out, so a wake-up that is lost shows as a
//!   deadlock.

use arck_core_state::primitive::AtomicU32;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Sleeps while the word has the value `expected`, at most `timeout`. May wake for nothing.
#[cfg(not(shuttle))]
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Duration) {
    use rustix::thread::futex;
    let timeout = futex::Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    // Woken, timed out, interrupted, or the word had changed already: the caller looks again.
    let _ = futex::wait(word, futex::Flags::empty(), expected, Some(&timeout));
}

/// Wakes one who sleeps on the word.
#[cfg(not(shuttle))]
pub fn futex_wake(word: &AtomicU32) {
    // Fails only for a bad address, which a live reference is not.
    let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), 1);
}

/// Sleeps for so long; a signal's handler may run meanwhile.
///
/// By the system call itself: libc's functions that sleep are cancellation points. A thread of a program
/// that is cancelled while it waits inside a LibFS must not unwind from there, and where its signals are
/// held back libc would wait for ever for the one that cancels it.
pub fn sleep(time: Duration) {
    use rustix::thread::{NanosleepRelativeResult, clock_nanosleep_relative};
    let mut left = rustix::time::Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    while let NanosleepRelativeResult::Interrupted(rest) =
        clock_nanosleep_relative(ClockId::Monotonic, &left)
    {
        left = rest;
    }
}

/// Lets other threads run, for want of something to wait on.
pub fn give_way() {
    #[cfg(not(shuttle))]
    std::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
}

/// Gives way to whoever is waited for, who may be waiting for this very processor; but not where
/// programs that have nothing to do with it would run for as long as the kernel lets them.
pub struct Courtesy {
    /// Until when others go first no more: nanoseconds of CLOCK_MONOTONIC.
    crowded: AtomicU64,
}

/// Whoever runs so long, in nanoseconds, has nothing to do with it, or much to do.
const OTHERS_RUN: u64 = 400_000;
/// For so long after that, in nanoseconds, nobody is let go first: what is lost so is a small part.
const CROWDED: u64 = 20_000_000;

impl Courtesy {
    pub const fn new() -> Courtesy {
        Courtesy {
            crowded: AtomicU64::new(0),
        }
    }

    /// May be called by many threads: it is a hint.
    pub fn give_way(&self) {
        let before = now();
        if before < self.crowded.load(Ordering::Relaxed) {
            return;
        }
        give_way();
        let after = now();
        if after - before > OTHERS_RUN {
            self.crowded.store(after + CROWDED, Ordering::Relaxed);
        }
    }
}

impl Default for Courtesy {
    fn default() -> Self {
        Courtesy::new()
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(shuttle)]
mod model {
    use shuttle::sync::{Condvar, Mutex};

    shuttle::lazy_static! {
        /// The kernel's queue of sleepers; one for all words, so that some wake for nothing.
        pub static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }
}

/// As in a build, without a timeout.
#[cfg(shuttle)]
pub fn futex_wait(word: &AtomicU32, expected: u32, _: Duration) {
    let (lock, sleepers) = &*model::SLEEPERS;
    let guard = lock.lock().unwrap_or_else(|e| e.into_inner());
    if word.load(arck_core_state::primitive::Ordering::SeqCst) == expected {
        drop(sleepers.wait(guard));
    }
}

/// As in a build.
#[cfg(shuttle)]
pub fn futex_wake(_: &AtomicU32) {
    let (lock, sleepers) = &*model::SLEEPERS;
    let _guard = lock.lock();
    sleepers.notify_all();
}
