//! Extended attributes: names in the namespace `user`, with values.
//!
//! # Invariant
//! What the kernel checks before it looks for the file (flags, the lengths of name and value) is
//! checked before the LibFS is asked, with the same error.

use super::attributes::means_descriptor;
use super::{HERE, on_descriptor, on_path, only};
use crate::backend::{Errno, Failure, FileSystem, Subject};
use crate::calls::numbers;
use crate::memory;
use crate::raw::{self, Arguments};

/// Longest name, in bytes (XATTR_NAME_MAX).
const NAME_MAX: usize = 255;
/// Longest value, and longest list of names, in bytes (XATTR_SIZE_MAX, XATTR_LIST_MAX).
const SIZE_MAX: usize = 65536;

/// How a call names the file: by its first argument, or, the newest ones, by three.
#[derive(Clone, Copy)]
enum By {
    Path(i32),
    Descriptor,
    At,
}

/// How a call of before Linux 6.13 names it.
fn older(number: usize) -> By {
    match number as i64 {
        libc::SYS_fsetxattr
        | libc::SYS_fgetxattr
        | libc::SYS_flistxattr
        | libc::SYS_fremovexattr => By::Descriptor,
        libc::SYS_lsetxattr
        | libc::SYS_lgetxattr
        | libc::SYS_llistxattr
        | libc::SYS_lremovexattr => By::Path(libc::AT_SYMLINK_NOFOLLOW),
        _ => By::Path(0),
    }
}

/// Serves a call, or passes it on.
///
/// # Safety
/// The arguments are the program's, as for the system call `number`.
unsafe fn on_subject(
    number: usize,
    a: &Arguments,
    by: By,
    mut pool: impl FnMut(&'static FileSystem, Subject<'_>) -> Result<isize, Failure>,
) -> isize {
    // SAFETY: the program's arguments, unchanged but for the path and where it starts.
    unsafe {
        match by {
            By::At if a[1] != 0 && !means_descriptor(a[0], a[1], a[2]) => on_path(
                number as i64,
                a[0],
                a[1],
                |fs, at, path| {
                    let flags = at_flags(a[2])?;
                    pool(fs, Subject::Path(at, path, flags))
                },
                |at, path| raw::call(number, &[at, path, a[2], a[3], a[4], a[5]]),
            ),
            By::Path(flags) => on_path(
                number as i64,
                HERE,
                a[0],
                |fs, at, path| pool(fs, Subject::Path(at, path, flags)),
                |_, path| raw::call(number, &[path, a[1], a[2], a[3], a[4], a[5]]),
            ),
            By::Descriptor | By::At => on_descriptor(
                number as i64,
                a[0],
                |fs, handle| {
                    if let By::At = by {
                        at_flags(a[2])?;
                    }
                    pool(fs, Subject::Handle(handle))
                },
                || raw::call(number, a),
            ),
        }
    }
}

fn at_flags(flags: usize) -> Result<i32, Failure> {
    only(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
    Ok(flags as i32)
}

/// The name of an attribute. EFAULT, ERANGE.
fn attribute<'a>(address: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: the program leaves it as it is during its call.
    let name = unsafe { memory::text(address) }.ok_or(Errno::FAULT)?.bytes;
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Failure::Errno(Errno::RANGE));
    }
    Ok(name)
}

fn set(
    fs: &FileSystem,
    subject: Subject<'_>,
    name: usize,
    [value, size, flags]: [usize; 3],
) -> Result<isize, Failure> {
    only(flags, libc::XATTR_CREATE | libc::XATTR_REPLACE)?;
    let name = attribute(name)?;
    if size > SIZE_MAX {
        return Err(Failure::Errno(Errno::TOOBIG));
    }
    let mut room = Vec::with_capacity(size);
    // SAFETY: any bytes are bytes.
    let value = unsafe { memory::copy_many_in(room.spare_capacity_mut(), value, size)? };
    fs.set_extended(subject, name, value, flags as i32)
        .map(|()| 0)
}

/// Puts what `tell` puts into a buffer into the program's; of no bytes, only the length is told.
fn give(
    address: usize,
    size: usize,
    tell: impl FnOnce(&mut [u8]) -> Result<usize, Failure>,
) -> Result<isize, Failure> {
    let mut room = vec![0; size.min(SIZE_MAX)];
    let length = tell(&mut room)?;
    memory::copy_slice_out(address, room.get(..length).unwrap_or_default())?;
    Ok(length as isize)
}

fn get(
    fs: &FileSystem,
    subject: Subject<'_>,
    name: usize,
    [value, size]: [usize; 2],
) -> Result<isize, Failure> {
    let name = attribute(name)?;
    give(value, size, |room| fs.get_extended(subject, name, room))
}

fn list(
    fs: &FileSystem,
    subject: Subject<'_>,
    [names, size]: [usize; 2],
) -> Result<isize, Failure> {
    give(names, size, |room| fs.list_extended(subject, room))
}

fn remove(fs: &FileSystem, subject: Subject<'_>, name: usize) -> Result<isize, Failure> {
    fs.remove_extended(subject, attribute(name)?).map(|()| 0)
}

/// `setxattr`, `lsetxattr`, `fsetxattr`.
///
/// # Safety
/// The system call's own.
pub unsafe fn setxattr<const NUMBER: usize>(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_subject(NUMBER, a, older(NUMBER), |fs, subject| {
            set(fs, subject, a[1], [a[2], a[3], a[4]])
        })
    }
}

/// `getxattr`, `lgetxattr`, `fgetxattr`.
///
/// # Safety
/// The system call's own.
pub unsafe fn getxattr<const NUMBER: usize>(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_subject(NUMBER, a, older(NUMBER), |fs, subject| {
            get(fs, subject, a[1], [a[2], a[3]])
        })
    }
}

/// `listxattr`, `llistxattr`, `flistxattr`.
///
/// # Safety
/// The system call's own.
pub unsafe fn listxattr<const NUMBER: usize>(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_subject(NUMBER, a, older(NUMBER), |fs, subject| {
            list(fs, subject, [a[1], a[2]])
        })
    }
}

/// `removexattr`, `lremovexattr`, `fremovexattr`.
///
/// # Safety
/// The system call's own.
pub unsafe fn removexattr<const NUMBER: usize>(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_subject(NUMBER, a, older(NUMBER), |fs, subject| {
            remove(fs, subject, a[1])
        })
    }
}

/// `struct xattr_args`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    address: u64,
    size: u32,
    flags: u32,
}

/// Reads `struct xattr_args`, of which a later Linux may have more fields: all of them 0. EINVAL,
/// E2BIG, EFAULT.
fn value_at(address: usize, size: usize) -> Result<Value, Failure> {
    const KNOWN: usize = size_of::<Value>();
    if size < KNOWN {
        return Err(Failure::Errno(Errno::INVAL));
    }
    if size > 4096 {
        return Err(Failure::Errno(Errno::TOOBIG));
    }
    let mut room = Box::<[u8]>::new_uninit_slice(4096);
    // SAFETY: any bytes are bytes.
    let rest = unsafe { memory::copy_many_in(&mut room, address, size)? };
    if rest.iter().skip(KNOWN).any(|&byte| byte != 0) {
        return Err(Failure::Errno(Errno::TOOBIG));
    }
    // SAFETY: any bytes make one.
    Ok(unsafe { memory::copy_in(address)? })
}

/// # Safety
/// The system call's own. The same holds for the three below.
pub unsafe fn setxattrat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_subject(
            numbers::SYS_setxattrat as usize,
            a,
            By::At,
            |fs, subject| {
                let value = value_at(a[4], a[5])?;
                let value = [
                    value.address as usize,
                    value.size as usize,
                    value.flags as usize,
                ];
                set(fs, subject, a[3], value)
            },
        )
    }
}

pub unsafe fn getxattrat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_subject(
            numbers::SYS_getxattrat as usize,
            a,
            By::At,
            |fs, subject| {
                let value = value_at(a[4], a[5])?;
                only(value.flags as usize, 0)?;
                get(
                    fs,
                    subject,
                    a[3],
                    [value.address as usize, value.size as usize],
                )
            },
        )
    }
}

pub unsafe fn listxattrat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_subject(
            numbers::SYS_listxattrat as usize,
            a,
            By::At,
            |fs, subject| list(fs, subject, [a[3], a[4]]),
        )
    }
}

pub unsafe fn removexattrat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_subject(
            numbers::SYS_removexattrat as usize,
            a,
            By::At,
            |fs, subject| remove(fs, subject, a[3]),
        )
    }
}
