//! `setrlimit` and `prlimit`: a limit of address space (`ulimit -v`) counts what is mapped, touched or not.
//! So before there is one the LibFS gives up what it has only reserved, of which there are tens of GiB. One
//! on the size of files is the LibFS's to keep on the pool, which looks at it when it is set.
//!
//! Invariant: the call itself is the kernel's, with the program's arguments.

use crate::raw::{self, Arguments};
use crate::{backend, memory, report, thread};

/// # Safety
/// As the system call's.
pub unsafe fn setrlimit(a: &Arguments) -> isize {
    prepare(libc::SYS_setrlimit, a[0], a[1]);
    // SAFETY: the program's arguments.
    let result = unsafe { raw::call(libc::SYS_setrlimit as usize, a) };
    look_again(result, a[0], a[1]);
    result
}

/// # Safety
/// As the system call's.
pub unsafe fn prlimit64(a: &Arguments) -> isize {
    let process = a[0] as i32;
    if process == 0 || process == rustix::process::getpid().as_raw_nonzero().get() {
        prepare(libc::SYS_prlimit64, a[1], a[2]);
    }
    // SAFETY: the program's arguments.
    let result = unsafe { raw::call(libc::SYS_prlimit64 as usize, a) };
    look_again(result, a[1], a[2]);
    result
}

/// After the limit at an address was set, or not.
fn look_again(result: isize, resource: usize, limit: usize) {
    if result == 0 && limit != 0 && resource as u32 == libc::RLIMIT_FSIZE {
        arckfs::size_limit::refresh();
    }
}

/// Before the limit at an address is set; 0: none is. What the kernel does not take is no harm.
fn prepare(number: libc::c_long, resource: usize, limit: usize) {
    if resource as u32 != libc::RLIMIT_AS || limit == 0 || thread::inside() {
        return;
    }
    // SAFETY: any bytes make a number.
    if unsafe { memory::copy_in::<u64>(limit) } == Ok(libc::RLIM64_INFINITY) {
        return;
    }
    report::served(number);
    let _inside = thread::enter();
    backend::give_up_reservations();
}
