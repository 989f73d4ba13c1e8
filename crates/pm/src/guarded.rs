//! Copies from and to mappings whose file somebody else may truncate: the
//! SIGBUS of a missing page becomes an error.
//!
//! How: all guarded accesses are made by a handful of assembly routines that
//! lie between two labels and keep the number of bytes left in `rax`. The
//! handler of SIGBUS looks whether the interrupted instruction lies between the
//! labels; if so it continues at a `ret`, and the caller finds bytes left.
//! There is no `setjmp`, no thread-local and no cost while nothing faults.
//!
//! Invariants:
//!
//! * Between the labels the routines never touch the stack, so a bare `ret`
//!   is right at every instruction.
//! * A SIGBUS that is not a fault of a guarded routine goes to the handler that
//!   was there before (or that [`set_next_action`] named), with the mask and the
//!   flags it asked for.
//! * Only raw system calls are made, never libc's `sigaction`: a preload library
//!   may interpose that one and call into here.
//!
//! Only SIGBUS is handled here. A preload library has handlers for both SIGBUS and SIGSEGV anyway
//! and calls [`recover`] from them ([`guarded_by_caller`]); then the routines may also be given
//! the program's own pointers, and one that leads nowhere is an error too.
//!
//! A thread that has SIGBUS blocked is killed by the kernel at a fault; the
//! kernel offers no way around that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A signal action as the kernel holds it (`struct kernel_sigaction`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelAction {
    /// SIG_DFL (0), SIG_IGN (1), or the address of the handler.
    pub handler: u64,
    /// SA_* flags.
    pub flags: u64,
    /// Return trampoline (with SA_RESTORER).
    pub restorer: u64,
    /// Signals blocked while the handler runs, bit n-1 for signal n.
    pub mask: u64,
}

#[cfg(not(miri))]
pub use live::{
    guarded_by_caller, guarded_copy, guarded_load_u64, guarded_zero, install_guard, recover,
    set_next_action,
};
#[cfg(not(miri))]
pub(crate) use live::{guarded_flush, guarded_stream_lines};
#[cfg(miri)]
pub use under_miri::{guarded_copy, guarded_load_u64, guarded_zero, install_guard};
#[cfg(miri)]
pub(crate) use under_miri::{guarded_flush, guarded_stream_lines};

/// What a SIGBUS outside the guarded routines is passed on to. Written under a
/// spin lock with all signals blocked, read by the handler as a sequence lock
/// (odd: being written), because a handler may not wait.
struct NextAction {
    locked: AtomicBool,
    sequence: AtomicU64,
    words: [AtomicU64; 4],
}

impl NextAction {
    const fn new() -> NextAction {
        NextAction {
            locked: AtomicBool::new(false),
            sequence: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; 4],
        }
    }

    fn read(&self) -> KernelAction {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let [handler, flags, restorer, mask] =
                [0, 1, 2, 3].map(|index: usize| self.words[index].load(Ordering::Acquire));
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return KernelAction {
                    handler,
                    flags,
                    restorer,
                    mask,
                };
            }
            std::hint::spin_loop();
        }
    }

    /// Stores a new action and returns the old one. The caller has all signals blocked.
    fn replace(&self, new: KernelAction) -> KernelAction {
        while self.locked.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let old = self.read();
        self.sequence.fetch_add(1, Ordering::AcqRel);
        let words = [new.handler, new.flags, new.restorer, new.mask];
        for (slot, word) in self.words.iter().zip(words) {
            slot.store(word, Ordering::Release);
        }
        self.sequence.fetch_add(1, Ordering::Release);
        self.locked.store(false, Ordering::Release);
        old
    }
}

#[cfg(not(miri))]
#[path = "guarded_live.rs"]
mod live;

#[cfg(miri)]
mod under_miri {
    use crate::error::Fault;

    pub fn install_guard() {}

    /// # Safety
    /// As the real one; under Miri nothing can fault.
    pub unsafe fn guarded_copy(
        destination: *mut u8,
        source: *const u8,
        len: usize,
    ) -> Result<(), Fault> {
        // SAFETY: the contract is the same.
        unsafe { std::ptr::copy_nonoverlapping(source, destination, len) };
        Ok(())
    }

    /// # Safety
    /// As the real one.
    pub unsafe fn guarded_zero(destination: *mut u8, len: usize) -> Result<(), Fault> {
        // SAFETY: the contract is the same.
        unsafe { destination.write_bytes(0, len) };
        Ok(())
    }

    /// # Safety
    /// As the real one.
    pub unsafe fn guarded_load_u64(source: *const u64) -> Result<u64, Fault> {
        // SAFETY: the contract is the same.
        Ok(
            unsafe { std::sync::atomic::AtomicU64::from_ptr(source.cast_mut()) }
                .load(std::sync::atomic::Ordering::Acquire),
        )
    }

    pub(crate) unsafe fn guarded_flush(_: *const u8, _: usize) -> Result<(), Fault> {
        Ok(())
    }

    pub(crate) unsafe fn guarded_stream_lines(
        destination: *mut u8,
        source: *const u8,
        len: usize,
    ) -> Result<(), Fault> {
        // SAFETY: the contract is the same.
        unsafe { guarded_copy(destination, source, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_action_is_read_whole() {
        let next = NextAction::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 1..2000u64 {
                    let old = next.replace(KernelAction {
                        handler: value,
                        flags: value,
                        restorer: value,
                        mask: value,
                    });
                    assert_eq!(old.handler, value - 1);
                }
                stop.store(true, Ordering::Relaxed);
            });
            while !stop.load(Ordering::Relaxed) {
                let seen = next.read();
                assert!(
                    seen.handler == seen.flags
                        && seen.flags == seen.restorer
                        && seen.restorer == seen.mask
                );
            }
        });
        assert_eq!(next.read().handler, 1999);
    }
}
