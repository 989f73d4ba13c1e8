//! Ending the threads of a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells other threads to end when it is dropped, also where this one panics.
#[must_use = "they are told when it is dropped"]
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
