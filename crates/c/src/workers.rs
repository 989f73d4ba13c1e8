//! The threads that do requests, and the program's signals: none of its handlers runs in them.
//!
//! A handler may call Arck. In a thread that holds a lock of the queues it would wait for itself, so these threads block all
//! signals but those that tell of a fault. They inherit that from whoever submits while not all have started.
//!
//! # Invariants
//! * As long as not all threads of a set have been seen at work, whoever may start one has signals blocked meanwhile.
//! * The signals of the caller are afterwards as they were.

use crate::inside::{self, Inside};
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The threads of one set of queues.
pub struct Workers {
    unseen: AtomicUsize,
}

thread_local! {
    static IS_SEEN: Cell<bool> = const { Cell::new(false) };
}

impl Workers {
    pub fn new(workers: NonZeroUsize) -> Workers {
        Workers {
            unseen: AtomicUsize::new(workers.get()),
        }
    }

    /// Does what may start threads.
    pub fn start<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.unseen.load(Ordering::Acquire) == 0 {
            return work();
        }
        let _blocked = Blocked::all();
        work()
    }

    /// To be called where a request is done. A thread of these is inside meanwhile; one that waits, and does the request itself,
    /// is inside already.
    pub fn at_work(&self) -> Option<Inside> {
        let inside = inside::enter(inside::NOTHING).ok()?;
        if IS_SEEN.try_with(|seen| seen.replace(true)) == Ok(false) {
            self.unseen.fetch_sub(1, Ordering::AcqRel);
        }
        Some(inside)
    }
}

/// Those that tell of what the thread itself has just done: blocked, they end the process. The last is how `arck run` catches calls.
const OF_FAULTS: [libc::c_int; 6] = [
    libc::SIGBUS,
    libc::SIGSEGV,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// A thread's signals are blocked until this is dropped.
struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    fn all() -> Blocked {
        // SAFETY: a set of signals is integers, which zeroes are good for; libc fills it and looks at it, and its numbers are those
        // of signals.
        let before = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            for signal in OF_FAULTS {
                libc::sigdelset(&raw mut all, signal);
            }
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            before
        };
        Blocked { before }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: a set that libc has filled.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}
