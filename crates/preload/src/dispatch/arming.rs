//! Syscall User Dispatch, armed on a thread, and its signal handler, installed: at start-up, on each new thread,
//! and again in children, for which the kernel switches it off.

use super::kind::{self, Kind, kind};
use crate::raw::syscall;
use crate::signals::kernel::{self, KernelAction};
use crate::thread::{self, BLOCK};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The text whose system calls are the kernel's, or (inclusive) those that are not.
static START: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
/// The signal handler.
static HANDLER: AtomicUsize = AtomicUsize::new(0);

pub const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;

/// At start-up: tries one way, with a signal handler that is sound for every trap. False if the kernel
/// refuses it.
pub fn put_up(kind: Kind, (start, length): (usize, usize), handler: usize) -> bool {
    START.store(start, Ordering::Relaxed);
    LENGTH.store(length, Ordering::Relaxed);
    HANDLER.store(handler, Ordering::Relaxed);
    kind::is_up(kind);
    let up = install_handler() && arm();
    if !up {
        kind::is_up(Kind::None);
    }
    up
}

fn install_handler() -> bool {
    let action = KernelAction {
        handler: HANDLER.load(Ordering::Relaxed),
        flags: libc::SA_SIGINFO as u64
            | libc::SA_NODEFER as u64
            | ON_ALTERNATE_STACK.load(Ordering::Relaxed)
            | 0x0400_0000,
        restorer: kernel::restorer(),
        mask: 0,
    };
    // SAFETY: the handler is sound for every trap.
    unsafe {
        let mask = 1u64 << (libc::SIGSYS - 1);
        syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_UNBLOCK,
            &raw const mask,
            0,
            8
        );
        kernel::set_kernel_action(libc::SIGSYS, &action, std::ptr::null_mut()) == 0
    }
}

/// SA_ONSTACK, once somebody wants it.
static ON_ALTERNATE_STACK: AtomicU64 = AtomicU64::new(0);

/// Whose code gives its thread an alternate stack by its own instruction, past libc, is a runtime that has
/// other stacks of its own: Go's, whose goroutines have a few KiB each, which it moves. There is no room for
/// a handler on those, but it is made where that runtime's own handlers run.
pub fn use_alternate_stacks() {
    let flag = libc::SA_ONSTACK as u64;
    if ON_ALTERNATE_STACK.swap(flag, Ordering::Relaxed) != flag {
        install_handler();
    }
}

/// Arms the dispatch on this thread. False if the kernel refuses.
pub fn arm() -> bool {
    if kind() == Kind::None {
        return false;
    }
    let thread = thread::current();
    // SAFETY: the selector lives as long as the thread; the range is text.
    let result = unsafe {
        syscall!(
            libc::SYS_prctl,
            PR_SET_SYSCALL_USER_DISPATCH,
            kind() as u8,
            START.load(Ordering::Relaxed),
            LENGTH.load(Ordering::Relaxed),
            thread.selector.as_ptr()
        )
    };
    if result != 0 {
        return false;
    }
    thread.armed.store(BLOCK, Ordering::Relaxed);
    if thread.depth.load(Ordering::Relaxed) == 0 {
        thread.selector.store(BLOCK, Ordering::Relaxed);
    }
    true
}

/// In a forked child, whose dispatch the kernel has switched off. `cleared`: handlers too.
pub fn forked(cleared: bool) {
    if kind() != Kind::None {
        armed_again(cleared);
    }
}

/// In any child.
pub fn armed_again(cleared: bool) {
    if cleared {
        install_handler();
    }
    arm();
}
