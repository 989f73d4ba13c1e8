//! Opening files of the pool under a number.
//!
//! Invariant: what is made or emptied must not be if there is no number for it, and no number is
//! told before a path that leads nowhere.

use super::stock::{allocate, expect_number, give_back};
use super::{pipes, put};
use crate::backend::{At, Errno, Failure, Handle, NamedPipe, Opening, inside};

/// Gives a number at or above `minimum` to a description. On error the caller still owns the
/// handle. Returns the number or minus the error number.
fn install(handle: Handle, minimum: usize, close_on_exec: bool) -> isize {
    match allocate(minimum) {
        Ok(descriptor) => {
            put(descriptor, handle.0.get(), u64::from(close_on_exec));
            descriptor as isize
        }
        Err(error) => error,
    }
}

/// `open` on the pool: the new descriptor, or the failure.
pub fn open(at: At, path: &[u8], flags: i32, mode: u32) -> Result<isize, Failure> {
    open_within(at, path, flags, mode, 0)
}

/// `openat2` on the pool.
pub fn open_within(
    at: At,
    path: &[u8],
    flags: i32,
    mode: u32,
    resolve: u64,
) -> Result<isize, Failure> {
    match open_once(at, path, flags, mode, resolve) {
        Err(Failure::Errno(Errno::STALE)) => open_again(at, path, flags, mode, resolve),
        other => other,
    }
}

/// What was removed, and made anew, while it was opened.
#[cold]
#[inline(never)]
fn open_again(at: At, path: &[u8], flags: i32, mode: u32, resolve: u64) -> Result<isize, Failure> {
    const ATTEMPTS: u32 = 7;
    for _ in 1..ATTEMPTS {
        match open_once(at, path, flags, mode, resolve) {
            Err(Failure::Errno(Errno::STALE)) => {}
            other => return other,
        }
    }
    open_once(at, path, flags, mode, resolve)
}

/// What a path was opened to.
enum Opened {
    /// A number, or minus an error number.
    Number(isize),
    /// What is to have the number that was found before.
    Handle(Handle),
    Pipe(NamedPipe),
}

#[inline(always)]
fn open_once(at: At, path: &[u8], flags: i32, mode: u32, resolve: u64) -> Result<isize, Failure> {
    // What is made or emptied must not be if there is no number for it.
    let number =
        match flags & (libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE & !libc::O_DIRECTORY) {
            0 => None,
            _ => match allocate(0) {
                Ok(number) => Some(number),
                Err(error) => return Ok(error),
            },
        };
    let close_on_exec = flags & libc::O_CLOEXEC != 0;
    let opened = inside(|fs| {
        let handle = match fs.open_any(at, path, flags, mode, resolve)? {
            Opening::File(handle) => handle,
            Opening::Pipe(pipe) => return Ok(Opened::Pipe(pipe)),
        };
        if number.is_some() {
            return Ok(Opened::Handle(handle));
        }
        let descriptor = install(handle, 0, close_on_exec);
        if descriptor < 0 {
            fs.close(handle);
        }
        Ok(Opened::Number(descriptor))
    });
    let opened = match opened {
        Ok(Opened::Pipe(pipe)) => return pipes::open(&pipe, number, close_on_exec),
        Ok(Opened::Number(descriptor)) => Ok(descriptor),
        Ok(Opened::Handle(handle)) => Ok(handle.0.get() as isize),
        Err(failure) => Err(failure),
    };
    let Some(number) = number else {
        // The kernel looks for a number before it looks at the path.
        return match opened {
            Err(Failure::Errno(errno)) if errno != Errno::INVAL && !path.is_empty() => {
                expect_number().map_or_else(Ok, |()| Err(Failure::Errno(errno)))
            }
            opened => opened,
        };
    };
    match opened {
        Ok(handle) => {
            put(number, handle as u64, u64::from(close_on_exec));
            Ok(number as isize)
        }
        Err(failure) => {
            give_back(number);
            Err(failure)
        }
    }
}
