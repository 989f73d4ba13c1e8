//! How threads end early. libc's functions do it; before them the unwinder is loaded, which the
//! thread's frames in this library need: see [`unwinder`].

use crate::unwinder;
use std::ffi::CStr;

/// The functions of this module, which make no system call of their own.
#[cfg(test)]
pub const NAMES: &[&str] = &["pthread_cancel", "pthread_exit", "thrd_exit"];

/// libc's function of this name.
fn real(name: &CStr) -> usize {
    // SAFETY: a constant name.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    if address == 0 {
        std::process::abort();
    }
    address
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pthread_cancel(thread: libc::pthread_t) -> i32 {
    unwinder::load();
    // SAFETY: the address of a function of this type, and its argument.
    unsafe {
        let cancel: unsafe extern "C-unwind" fn(libc::pthread_t) -> i32 =
            std::mem::transmute(real(c"pthread_cancel"));
        cancel(thread)
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pthread_exit(value: *mut libc::c_void) -> ! {
    unwinder::load();
    // SAFETY: the address of a function of this type, and its argument.
    unsafe {
        let exit: unsafe extern "C-unwind" fn(*mut libc::c_void) -> ! =
            std::mem::transmute(real(c"pthread_exit"));
        exit(value)
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn thrd_exit(result: i32) -> ! {
    unwinder::load();
    // SAFETY: the address of a function of this type, and its argument.
    unsafe {
        let exit: unsafe extern "C-unwind" fn(i32) -> ! = std::mem::transmute(real(c"thrd_exit"));
        exit(result)
    }
}
