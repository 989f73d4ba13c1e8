//! Memory that listings use again.

use std::sync::Mutex;

/// Memory of the last snapshot, for the next one: what is large comes from the kernel, page by
/// page, and would go back to it each time. Never waited for.
#[derive(Default)]
pub struct Scratch(Mutex<Vec<u8>>);

/// What is kept at most, in bytes.
const SCRATCH_MOST: usize = 4 << 20;

impl Scratch {
    /// Empty, with or without room.
    pub fn take(&self) -> Vec<u8> {
        let taken = self.0.try_lock().map(|mut kept| std::mem::take(&mut *kept));
        let mut bytes = taken.unwrap_or_default();
        bytes.clear();
        bytes
    }

    pub fn give_back(&self, bytes: Vec<u8>) {
        if bytes.capacity() <= SCRATCH_MOST
            && let Ok(mut kept) = self.0.try_lock()
        {
            *kept = bytes;
        }
    }
}
