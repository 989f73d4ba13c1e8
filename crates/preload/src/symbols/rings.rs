//! What sets up io_uring and the kernel's asynchronous I/O, by the names of liburing and libaio. These
//! libraries make system calls by their own instructions, which not every dispatch sees.
//!
//! Invariant: without a pool the libraries' own functions run. With one each says what it says on a kernel
//! without the call (see [`missing`](crate::handlers::others::missing)): minus the error number, as is
//! these libraries' way, or no memory for what would be returned.

use crate::raw::{Arguments, error, pad};
use crate::settings;
use std::ffi::CStr;

/// The function of that name in the library itself.
type Real = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> isize;

/// # Safety
/// As the function of that name.
#[cold]
unsafe fn real(name: &CStr, a: &Arguments) -> isize {
    // SAFETY: a constant name; the function takes no more arguments than these, all in registers, or on
    // the stack none that this leaves out.
    unsafe {
        let address = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        let function: Option<Real> = std::mem::transmute(address);
        match function {
            Some(function) => function(a[0], a[1], a[2], a[3], a[4], a[5]),
            None => error(libc::ENOSYS),
        }
    }
}

/// A row: the name, its arguments, the system call that it makes, and what it returns.
macro_rules! missing {
    ($($name:ident ($($argument:ident),*) => $call:ident, $result:expr;)*) => {
        $(
            /// # Safety
            /// As the function of this name in its library.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($argument: usize),*) -> isize {
                if settings::ready() {
                    crate::report::served(libc::$call);
                    return $result;
                }
                const NAME: &CStr = match CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => panic!("no NUL byte is in a name"),
                };
                // SAFETY: the program's arguments.
                unsafe { real(NAME, &pad([$($argument),*])) }
            }
        )*
        #[cfg(test)]
        pub const WRITTEN_OUT: &[(&str, i64)] = &[$((stringify!($name), libc::$call),)*];
    };
}

const MISSING: isize = error(libc::ENOSYS);

missing! {
    // liburing's.
    io_uring_queue_init(entries, ring, flags) => SYS_io_uring_setup, MISSING;
    io_uring_queue_init_params(entries, ring, parameters) => SYS_io_uring_setup, MISSING;
    io_uring_queue_init_mem(entries, ring, parameters, memory, size) => SYS_io_uring_setup, MISSING;
    io_uring_get_probe() => SYS_io_uring_setup, 0;
    io_uring_setup(entries, parameters) => SYS_io_uring_setup, MISSING;
    io_uring_enter(fd, submit, complete, flags, mask) => SYS_io_uring_enter, MISSING;
    io_uring_enter2(fd, submit, complete, flags, argument, size) => SYS_io_uring_enter, MISSING;
    io_uring_register(fd, operation, argument, count) => SYS_io_uring_register, MISSING;
    // libaio's. Its other functions want what these make.
    io_setup(events, context) => SYS_io_setup, MISSING;
    io_queue_init(events, context) => SYS_io_setup, MISSING;
}
