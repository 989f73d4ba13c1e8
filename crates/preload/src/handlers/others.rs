//! Calls that name a file and that the pool does not serve: refused as file systems without the
//! feature do, so that programs fall back, or passed to the kernel and counted, so that the
//! report tells.
//!
//! Invariant: what does not name the pool goes to the kernel unchanged.

use super::{HERE, on_descriptor, on_path};
use crate::path::{Place, Scratch, place};
use crate::raw::{self, Arguments, error};
use crate::{memory, report, settings, thread};
use std::mem::MaybeUninit;

/// In place of the index of a directory descriptor: there is none, the path is relative to the
/// working directory.
pub const NO_DIRECTORY: usize = 6;

fn directory<const AT: usize>(a: &Arguments) -> usize {
    a.get(AT).copied().unwrap_or(HERE)
}

/// A refusal by the path in argument `PATH`, relative to the descriptor in argument `AT`.
///
/// # Safety
/// The system call's own.
pub unsafe fn refuse_name<
    const NUMBER: usize,
    const AT: usize,
    const PATH: usize,
    const ERRNO: i32,
>(
    a: &Arguments,
) -> isize {
    // SAFETY: the program's arguments, unchanged but for the path and its directory.
    unsafe {
        on_path(
            NUMBER as i64,
            directory::<AT>(a),
            a[PATH],
            |fs, at, path| {
                // What cannot be looked up is told before.
                let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
                fs.stat(at, path, flags).map(|_| error(ERRNO))
            },
            |at, path| {
                let mut changed = *a;
                if let Some(directory) = changed.get_mut(AT) {
                    *directory = at;
                }
                changed[PATH] = path;
                raw::call(NUMBER, &changed)
            },
        )
    }
}

/// A refusal by the descriptor in the first argument.
///
/// # Safety
/// The system call's own.
pub unsafe fn refuse_descriptor<const NUMBER: usize, const ERRNO: i32>(a: &Arguments) -> isize {
    on_descriptor(
        NUMBER as i64,
        a[0],
        |_, _| Ok(error(ERRNO)),
        // SAFETY: the program's arguments, unchanged.
        || unsafe { raw::call(NUMBER, a) },
    )
}

/// A call whose meaning on the pool this library does not know: passed to the kernel, counted if
/// the path in argument `PATH`, relative to the descriptor in argument `AT`, is the pool's.
///
/// # Safety
/// The system call's own.
pub unsafe fn past_name<const NUMBER: usize, const AT: usize, const PATH: usize>(
    a: &Arguments,
) -> isize {
    let mut scratch = Scratch::new();
    // SAFETY: the program's arguments, unchanged.
    unsafe {
        if let Place::Pool(..) = place(directory::<AT>(a), a[PATH], &mut scratch) {
            report::past(NUMBER as i64);
        }
        raw::call(NUMBER, a)
    }
}

/// A call that a kernel need not have, by which files are read and written past all libraries: told to
/// be missing, whatever it is for. A program that has it asks it for the pool's files, too, and most of those
/// that get an error only then do not look for another way.
///
/// # Safety
/// The system call's own.
pub unsafe fn missing<const NUMBER: usize>(a: &Arguments) -> isize {
    if thread::inside() || !settings::ready() {
        // SAFETY: the program's arguments, unchanged.
        return unsafe { raw::call(NUMBER, a) };
    }
    report::served(NUMBER as i64);
    error(libc::ENOSYS)
}

/// Longest path in a socket's address, in bytes.
const SOCKET_PATH: usize = 108;
/// Bytes of the address before the path.
const FAMILY: usize = 2;

/// `bind` and `connect` to a Unix socket by a path: the pool has no sockets. Binding is EPERM, as
/// on file systems that cannot make one; connecting to what is there is ECONNREFUSED.
///
/// # Safety
/// The system call's own.
pub unsafe fn socket_name<const NUMBER: usize>(a: &Arguments) -> isize {
    let kernel = |address: usize, length: usize| {
        // SAFETY: the program's arguments, or an address made of them.
        unsafe { raw::blocking_call(NUMBER, &[a[0], address, length, 0, 0, 0]) }
    };
    let length = a[2] as u32 as usize;
    // SAFETY: the program's address of that length, of which no more is read.
    unsafe {
        let mut room = [const { MaybeUninit::uninit() }; FAMILY + SOCKET_PATH];
        let Ok([first, second, name @ ..]) = memory::copy_many_in(&mut room, a[1], length) else {
            return kernel(a[1], a[2]);
        };
        let family = u16::from_ne_bytes([*first, *second]);
        if i32::from(family) != libc::AF_UNIX || matches!(name.first(), None | Some(0)) {
            return kernel(a[1], a[2]);
        }
        // The path may fill the address, without a NUL byte behind it.
        let mut path = [0u8; SOCKET_PATH + 1];
        path[..name.len()].copy_from_slice(name);
        let given = path.as_ptr() as usize;
        on_path(
            NUMBER as i64,
            HERE,
            given,
            |fs, at, path| {
                let there = fs.stat(at, path, 0);
                Ok(match (NUMBER as i64, there) {
                    (libc::SYS_bind, Ok(_)) => error(libc::EADDRINUSE),
                    (libc::SYS_bind, _) => error(libc::EPERM),
                    (_, Ok(_)) => error(libc::ECONNREFUSED),
                    (_, Err(failure)) => return Err(failure),
                })
            },
            |_, path| {
                if path == given {
                    return kernel(a[1], a[2]);
                }
                // A link led out of the pool.
                let name = std::ffi::CStr::from_ptr(path as *const _).to_bytes();
                if name.len() > SOCKET_PATH {
                    return error(libc::ENAMETOOLONG);
                }
                let mut address: libc::sockaddr_un = std::mem::zeroed();
                address.sun_family = libc::AF_UNIX as u16;
                let to = (&raw mut address.sun_path).cast::<u8>();
                std::ptr::copy_nonoverlapping(name.as_ptr(), to, name.len());
                kernel(&raw const address as usize, FAMILY + name.len())
            },
        )
    }
}
