//! What sets up io_uring, by the names of liburing, and libaio's functions. These
//! libraries make system calls by their own instructions, which not every dispatch sees.
//!
//! Invariant: without a pool the libraries' own functions run, and liburing's where their calls are served (see
//! [`rings`](crate::handlers::rings)). Elsewhere on a pool these say what they say on a kernel
//! without the call (see [`missing`](crate::handlers::others::missing)), and libaio's are the handlers of their calls. Either
//! gives minus the error number, as is these libraries' way, or no memory for what would be returned.

use crate::calls::numbers;
use crate::handlers::rings::are_served;
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
                if settings::ready() && !are_served() {
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
}

/// A row: libaio's function and its arguments, the system call that it is, and that one's arguments.
macro_rules! served {
    ($($name:ident ($($argument:ident),*) => $call:ident($($given:expr),*);)*) => {
        $(
            /// # Safety
            /// As the function of this name in its library.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name($($argument: usize),*) -> isize {
                const HANDLER: crate::calls::Handler = crate::calls::handler(numbers::$call);
                const NAME: &CStr = match CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => panic!("no NUL byte is in a name"),
                };
                // SAFETY: the program's arguments.
                unsafe {
                    match settings::ready() {
                        true => HANDLER(&pad([$($given),*])),
                        false => real(NAME, &pad([$($argument),*])),
                    }
                }
            }
        )*
        /// libaio's functions, and the calls that they are answered as.
        #[cfg(test)]
        pub const SERVED: &[(&str, i64)] =
            &[$((stringify!($name), numbers::$call),)* ("io_queue_init", libc::SYS_io_setup)];
    };
}

served! {
    io_setup(events, context) => SYS_io_setup(events, context);
    io_destroy(context) => SYS_io_destroy(context);
    io_submit(context, count, requests) => SYS_io_submit(context, count, requests);
    io_cancel(context, request, event) => SYS_io_cancel(context, request, event);
    io_getevents(context, least, count, events, timeout) =>
        SYS_io_getevents(context, least, count, events, timeout);
    io_pgetevents(context, least, count, events, timeout, mask) =>
        SYS_io_pgetevents(context, least, count, events, timeout, [mask, SIGNALS].as_ptr() as usize);
    io_queue_release(context) => SYS_io_destroy(context);
    io_queue_wait(context, timeout) => SYS_io_getevents(context, 0, 0, 0, timeout);
}

/// Bytes of a set of signals, as the kernel has it.
const SIGNALS: usize = 8;

/// libaio's: for at least one request.
///
/// # Safety
/// As the function of this name in its library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn io_queue_init(events: usize, context: usize) -> isize {
    if !settings::ready() {
        // SAFETY: the program's arguments.
        return unsafe { real(c"io_queue_init", &pad([events, context])) };
    }
    match events as i32 {
        1.. => match crate::memory::copy_out(context, &0usize) {
            // SAFETY: the program's arguments.
            Ok(()) => unsafe { io_setup(events, context) },
            Err(_) => error(libc::EFAULT),
        },
        _ => error(libc::EINVAL),
    }
}
