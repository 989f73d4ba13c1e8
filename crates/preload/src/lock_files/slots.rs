//! How the lock file of a description is found and used without the table's lock: a lock is one system call,
//! and finding where must cost little beside it.
//!
//! A lock file has a *slot* for as long as it is open. Who uses it is counted there, and looks then whether
//! it is the description's still; who closes it takes that away, and looks then whether anybody uses it.
//! So one of the two sees the other.
//!
//! Invariants:
//! * Slots are never freed: whoever has found one may count himself in at any time, also by mistake. One
//!   that is free, or of nobody's description, has no handle.
//! * A process that has no other thread, and is where no handler of a signal comes between, counts without a
//!   locked instruction, which costs a tenth of a lock.
//! * Handles, and whether the process may hold locks, are changed by who holds the table's lock.

use crate::backend::Handle;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// A handle that is none: the lock file is about to be closed, or is not used by a description.
pub(super) const NONE: u64 = 0;
/// The description is open, but not in this session.
const ELSEWHERE: u64 = u64::MAX;

/// The description has had a lock of its own kind (`flock`, OFD) by it.
pub const FLOCK: u8 = 1;
pub const OFD: u8 = 2;

#[derive(Default)]
#[repr(align(64))]
pub struct Slot {
    pub(super) handle: AtomicU64,
    pub(super) descriptor: AtomicUsize,
    /// Threads that are in a call on it.
    pub(super) users: AtomicU32,
    /// Its inode is among those of which the process may hold locks.
    pub(super) locks_process: AtomicBool,
    /// [`FLOCK`], [`OFD`].
    pub(super) kinds: AtomicU8,
}

impl Slot {
    /// A new one. It stays for ever.
    pub fn make() -> &'static Slot {
        Box::leak(Box::default())
    }

    /// It is a lock file's from now on, which no description uses.
    pub fn begin(&self, descriptor: usize) {
        self.descriptor.store(descriptor, Ordering::Relaxed);
        self.locks_process.store(false, Ordering::Relaxed);
        self.kinds.store(0, Ordering::Relaxed);
        self.handle.store(ELSEWHERE, Ordering::SeqCst);
    }

    /// A description uses it.
    pub fn attach(&'static self, handle: Handle, locks_process: bool) {
        self.locks_process.store(locks_process, Ordering::Relaxed);
        self.handle.store(handle.0.get(), Ordering::SeqCst);
        remember(self, handle);
    }

    /// No description of this session uses it, though it is not closed.
    pub fn detach(&self) {
        self.handle.store(ELSEWHERE, Ordering::SeqCst);
    }

    /// Nobody is to use it any more. Whether somebody does.
    pub fn end(&self) -> bool {
        self.handle.store(NONE, Ordering::SeqCst);
        self.is_used()
    }

    pub fn handle(&self) -> u64 {
        self.handle.load(Ordering::SeqCst)
    }

    pub fn is_used(&self) -> bool {
        self.users.load(Ordering::SeqCst) != 0
    }

    /// In a forked child, which has no other threads.
    pub fn forked(&self) {
        self.users.store(0, Ordering::Relaxed);
    }

    pub fn kinds(&self) -> u8 {
        self.kinds.load(Ordering::Relaxed)
    }

    /// The description is unlocked.
    pub fn forget_kinds(&self) {
        self.kinds.store(0, Ordering::Relaxed);
    }

    pub fn set_locks_process(&self, yes: bool) {
        self.locks_process.store(yes, Ordering::SeqCst);
    }
}

/// Where slots were found last, by handle: two that meet here are found in the table by turns.
static RECENT: [AtomicPtr<Slot>; 1 << RECENT_BITS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; 1 << RECENT_BITS];
const RECENT_BITS: u32 = 6;

#[inline(always)]
fn recent(handle: Handle) -> &'static AtomicPtr<Slot> {
    // Neighbours are apart, and so are generations.
    let mixed = handle.0.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &RECENT[(mixed >> (u64::BITS - RECENT_BITS)) as usize]
}

#[inline(always)]
pub(super) fn found_last(handle: Handle) -> Option<&'static Slot> {
    // SAFETY: null, or a slot, which is never freed.
    unsafe { recent(handle).load(Ordering::Acquire).as_ref() }
}

pub fn remember(slot: &'static Slot, handle: Handle) {
    let pointer = std::ptr::from_ref(slot).cast_mut();
    recent(handle).store(pointer, Ordering::Release);
}

/// Whether a description has a lock file, as far as that is quickly told.
#[inline(always)]
pub fn is_known(handle: Handle) -> bool {
    found_last(handle).is_some_and(|slot| slot.handle.load(Ordering::Relaxed) == handle.0.get())
}
