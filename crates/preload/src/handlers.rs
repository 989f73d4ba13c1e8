//! One handler per system call, serving both layers: the symbols that programs call and the net
//! under libc. A handler takes the raw registers and returns what the kernel would: a value, or
//! minus the error number.
//!
//! Invariant: a handler that finds neither a pool path nor a pool descriptor passes its
//! arguments to the kernel unchanged (legacy forms through their `*at` equivalents).

pub mod attributes;
pub mod control;
pub mod data;
pub mod extended;
pub mod locks;
pub mod mapping;
pub mod names;
pub mod others;
pub mod transfer;

use crate::backend::{At, Errno, Failure, FileSystem, Handle, inside, minus};
use crate::descriptors::{Descriptor, lookup};
use crate::path::{Place, Scratch, place};
use crate::{raw, report};
pub use attributes::store;
use std::ffi::CString;

/// AT_FDCWD as it arrives in a register.
pub const HERE: usize = libc::AT_FDCWD as isize as usize;

/// A call that names a file by (directory descriptor, path). `pool` serves it, `kernel` passes
/// it on, with the descriptor and path to use.
///
/// # Safety
/// `path` is null or a NUL-terminated string.
#[inline(always)]
pub unsafe fn on_path(
    number: i64,
    directory: usize,
    path: usize,
    pool: impl FnOnce(&'static FileSystem, At, &[u8]) -> Result<isize, Failure>,
    kernel: impl FnOnce(usize, usize) -> isize,
) -> isize {
    let mut scratch = Scratch::uninit();
    // SAFETY: the caller's promise.
    match unsafe { place(directory, path, &mut scratch) } {
        Place::Kernel => kernel(directory, path),
        Place::Error(error) => error,
        Place::Pool(at, path) => {
            report::served(number);
            match inside(|fs| pool(fs, at, path)) {
                Ok(result) => result,
                Err(failure) => outside(failure, |host| kernel(HERE, host)),
            }
        }
    }
}

/// The error of a failure, or the call redone with the host path that it names.
#[cold]
pub fn outside(failure: Failure, kernel: impl FnOnce(usize) -> isize) -> isize {
    match failure {
        Failure::Errno(errno) => minus(errno),
        Failure::Outside(path) => match CString::new(path) {
            Ok(path) => kernel(path.as_ptr() as usize),
            Err(_) => raw::error(libc::ENOENT),
        },
    }
}

/// A call that names a file by its descriptor.
#[inline(always)]
pub fn on_descriptor(
    number: i64,
    descriptor: usize,
    pool: impl FnOnce(&'static FileSystem, Handle) -> Result<isize, Failure>,
    kernel: impl FnOnce() -> isize,
) -> isize {
    match lookup(descriptor) {
        Descriptor::Kernel => kernel(),
        Descriptor::Error(error) => error,
        Descriptor::Pool(handle) => {
            report::served(number);
            match inside(|fs| pool(fs, handle)) {
                Ok(result) => result,
                Err(failure) => outside(failure, |_| raw::error(libc::EIO)),
            }
        }
    }
}

/// Whether a path is given and empty (for AT_EMPTY_PATH).
///
/// # Safety
/// `path` is null or a NUL-terminated string.
#[inline(always)]
pub unsafe fn is_empty(path: usize) -> bool {
    // SAFETY: a string has at least its NUL byte.
    path == 0 || (path >= 4096 && unsafe { *(path as *const u8) } == 0)
}

/// The program's memory as a slice to read from; EFAULT for null.
///
/// # Safety
/// `address` points to `length` readable bytes that stay valid for the call (the program's
/// promise to the kernel), or `length` is 0.
#[inline(always)]
pub unsafe fn memory<'a>(address: usize, length: usize) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if address < 4096 || length > isize::MAX as usize {
        return Err(Failure::Errno(crate::backend::Errno::FAULT));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(address as *const u8, length) })
}

/// The same, to write to.
///
/// # Safety
/// As for [`memory`], and writable.
#[inline(always)]
pub unsafe fn memory_mut<'a>(address: usize, length: usize) -> Result<&'a mut [u8], Failure> {
    if length == 0 {
        return Ok(&mut []);
    }
    if address < 4096 || length > isize::MAX as usize {
        return Err(Failure::Errno(crate::backend::Errno::FAULT));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(address as *mut u8, length) })
}

/// A value of the program's memory, where a null pointer has been looked at already.
///
/// # Safety
/// `address` points to a `T` (the program's promise to the kernel); any bytes make a `T`.
pub unsafe fn copy_in<T>(value: &mut T, address: usize) -> Result<(), Errno> {
    if address < 4096 {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's promise.
    *value = unsafe { (address as *const T).read_unaligned() };
    Ok(())
}

/// EINVAL if there are flags beside the known ones.
#[inline(always)]
pub fn only(flags: usize, known: i32) -> Result<(), Failure> {
    if flags as i32 & !known != 0 {
        return Err(Failure::Errno(Errno::INVAL));
    }
    Ok(())
}

/// Permission bits without those of the umask.
#[inline(always)]
pub fn masked(mode: usize) -> u32 {
    mode as u32 & !crate::settings::UMASK.load(std::sync::atomic::Ordering::Relaxed)
}
