//! Using a lock file for one call; see [`slots`](super::slots).
//!
//! Invariant: who is counted in is counted out, once.

use super::slots::{NONE, Slot, found_last};
use super::table;
use crate::backend::Handle;
use std::sync::atomic::Ordering;

/// A description's lock file, for one call. Must be [ended](Use::end).
pub struct Use {
    slot: &'static Slot,
    /// Nobody else counts meanwhile.
    is_alone: bool,
}

impl Use {
    /// The lock file of a description that was found lately. `is_alone`: see above.
    #[inline(always)]
    pub fn found(handle: Handle, is_alone: bool) -> Option<Use> {
        Use::of(found_last(handle)?, handle, is_alone)
    }

    /// `None` if it is not that description's.
    #[inline(always)]
    pub fn of(slot: &'static Slot, handle: Handle, is_alone: bool) -> Option<Use> {
        if is_alone {
            let users = slot.users.load(Ordering::Relaxed);
            slot.users.store(users + 1, Ordering::Relaxed);
        } else {
            slot.users.fetch_add(1, Ordering::SeqCst);
        }
        let file = Use { slot, is_alone };
        if slot.handle.load(Ordering::SeqCst) == handle.0.get() {
            return Some(file);
        }
        file.end();
        None
    }

    #[inline(always)]
    pub fn descriptor(&self) -> usize {
        self.slot.descriptor.load(Ordering::Relaxed)
    }

    /// Notes that the description may be locked by it.
    #[inline(always)]
    pub fn note_kind(&self, kind: u8) {
        if self.slot.kinds.load(Ordering::Relaxed) & kind != kind {
            self.slot.kinds.fetch_or(kind, Ordering::Relaxed);
        }
    }

    /// Whether it is known that the process may hold locks of the inode.
    #[inline(always)]
    pub fn locks_process(&self) -> bool {
        self.slot.locks_process.load(Ordering::SeqCst)
    }

    pub fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// After the call: whether its description was closed meanwhile.
    #[inline(always)]
    pub fn end(self) -> bool {
        let users = &self.slot.users;
        let before = if self.is_alone {
            let before = users.load(Ordering::Relaxed);
            users.store(before.wrapping_sub(1), Ordering::Relaxed);
            before
        } else {
            users.fetch_sub(1, Ordering::SeqCst)
        };
        let is_closed = self.slot.handle.load(Ordering::SeqCst) == NONE;
        if before == 0 || is_closed {
            ended(self.slot, before, is_closed);
        }
        is_closed
    }
}

#[cold]
fn ended(slot: &'static Slot, before: u32, is_closed: bool) {
    if before == 0 {
        // It was begun in the parent of a process that has forked in a handler of a signal.
        slot.users.store(0, Ordering::Relaxed);
    }
    if is_closed && before <= 1 {
        table::close_unused();
    }
}
