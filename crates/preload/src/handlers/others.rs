//! Calls that name a file and that the pool does not serve: refused as file systems without the
//! feature do, so that programs fall back, or passed to the kernel and counted, so that the
//! report tells.
//!
//! Invariant: what does not name the pool goes to the kernel unchanged.

use super::{HERE, on_descriptor, on_path};
use crate::path::{Place, Scratch, place};
use crate::raw::{self, Arguments, error};
use crate::{report, settings, thread};

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
