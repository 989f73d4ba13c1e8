//! Where libc's own code is.

use std::sync::atomic::{AtomicUsize, Ordering};

static START: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// At start-up: it is there.
pub fn is_libcs_text(start: usize, length: usize) {
    START.store(start, Ordering::Relaxed);
    LENGTH.store(length, Ordering::Relaxed);
}

/// Whether an address lies in libc's text, or just behind it.
pub fn is_libcs(address: usize) -> bool {
    address.wrapping_sub(START.load(Ordering::Relaxed)) <= LENGTH.load(Ordering::Relaxed)
}

/// libc's text: where it begins and ends.
pub fn libcs() -> (usize, usize) {
    let start = START.load(Ordering::Relaxed);
    (start, start + LENGTH.load(Ordering::Relaxed))
}
