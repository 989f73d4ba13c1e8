//! Signal functions of libc, in libc's layouts.

use super::{fail, finish};
use crate::raw;
use crate::signals;
use crate::signals::kernel::KernelAction;

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigaction(
    signal: i32,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> isize {
    // 32 and 33 are libc's own.
    if matches!(signal, 32 | 33) {
        return fail(libc::EINVAL);
    }
    // SAFETY: the program's pointers are null or valid; only the first 8 bytes of a signal set
    // mean anything.
    unsafe {
        let mut kernel = KernelAction::default();
        let mut before = KernelAction::default();
        if !action.is_null() {
            kernel.handler = (*action).sa_sigaction;
            // As libc does; it is told when the program asks back.
            kernel.flags = (*action).sa_flags as u32 as u64 | 0x0400_0000;
            kernel.restorer = signals::kernel::restorer();
            kernel.mask = (&raw const (*action).sa_mask)
                .cast::<u64>()
                .read_unaligned();
        }
        let new = if action.is_null() {
            0
        } else {
            &raw const kernel as usize
        };
        let result =
            signals::rt_sigaction(&[signal as usize, new, &raw mut before as usize, 8, 0, 0]);
        if result == 0 && !old.is_null() {
            (*old).sa_sigaction = before.handler;
            (*old).sa_flags = before.flags as i32;
            (&raw mut (*old).sa_mask).write_bytes(0, 1);
            (&raw mut (*old).sa_mask)
                .cast::<u64>()
                .write_unaligned(before.mask);
            (*old).sa_restorer = None;
        }
        finish(result)
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __sigaction(
    signal: i32,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> isize {
    // SAFETY: the same function.
    unsafe { sigaction(signal, action, old) }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn signal(signal: i32, handler: usize) -> usize {
    // SAFETY: structures on the stack.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        if handler == libc::SIG_ERR {
            fail(libc::EINVAL);
            return libc::SIG_ERR;
        }
        if sigaction(signal, &action, &mut old) != 0 {
            return libc::SIG_ERR;
        }
        old.sa_sigaction
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn bsd_signal(number: i32, handler: usize) -> usize {
    // SAFETY: the same function.
    unsafe { signal(number, handler) }
}

unsafe fn change_mask(how: usize, set: usize, old: usize) -> isize {
    // SAFETY: the program's pointers. The kernel writes 8 bytes of the old set.
    unsafe {
        let mask;
        let mut new = set;
        if set >= 4096 {
            // libc never lets a program block its own two signals.
            mask = (set as *const u64).read_unaligned() & !(0b11 << 31);
            new = &raw const mask as usize;
        }
        signals::rt_sigprocmask(&[how, new, old, 8, 0, 0])
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigprocmask(how: usize, set: usize, old: usize) -> isize {
    // SAFETY: the program's pointers.
    unsafe { finish(change_mask(how, set, old)) }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_sigmask(how: usize, set: usize, old: usize) -> i32 {
    // SAFETY: the program's pointers.
    -unsafe { change_mask(how, set, old) } as i32
}

const _: () = assert!(raw::error(libc::EINVAL) == -22);

written_out! {
    sigaction => SYS_rt_sigaction;
    __sigaction => SYS_rt_sigaction;
    signal => SYS_rt_sigaction;
    bsd_signal => SYS_rt_sigaction;
    sigprocmask => SYS_rt_sigprocmask;
    pthread_sigmask => SYS_rt_sigprocmask;
}
