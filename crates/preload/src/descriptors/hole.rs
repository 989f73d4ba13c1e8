//! From where on numbers may be free in the kernel.
//!
//! Invariant: [`HOLE`] is never above the lowest number that is free in the kernel (single-threaded
//! programs; in a race of threads it may be late, which no program can tell).

use crate::raw;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) static HOLE: AtomicUsize = AtomicUsize::new(0);

/// The program closed a number of the kernel's.
#[inline(always)]
pub fn kernel_closed(descriptor: usize) {
    if descriptor < HOLE.load(Ordering::Relaxed) {
        HOLE.store(descriptor, Ordering::Relaxed);
    }
}

/// Numbers may have been closed without [`kernel_closed`].
pub fn unknown() {
    HOLE.store(0, Ordering::Relaxed);
}

/// The largest number that the limit allows; what is above it, from before the limit was lowered,
/// counts as taken.
#[cold]
pub fn most_descriptors() -> usize {
    raw::limit(libc::RLIMIT_NOFILE).map_or(usize::MAX, |limit| limit.saturating_sub(1))
}
