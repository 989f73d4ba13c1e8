//! One handler per system call, serving both layers: the symbols that programs call and the dispatch
//! under libc. A handler takes the raw registers and returns what the kernel would: a value, or
//! minus the error number.
//!
//! Invariant: a handler that finds neither a pool path nor a pool descriptor passes its
//! arguments to the kernel unchanged (legacy forms through their `*at` equivalents). What another
//! thread replaces meanwhile is not a handler's matter: see `descriptors::replacements`, for which
//! a handler fails with EBADF where it meets a handle that is closed.

pub mod asynchronous;
pub mod attributes;
pub mod control;
pub mod data;
pub mod extended;
pub mod limits;
pub mod locking;
pub mod locks;
pub mod mapping;
pub mod mount_point;
pub mod names;
pub mod others;
pub mod passing;
pub mod pipes;
pub mod rings;
pub mod root;
pub mod sockets;
pub mod transfer;
pub mod waiting;
pub mod watching;

use crate::backend::{At, Errno, Failure, FileSystem, Handle, inside, minus};
use crate::descriptors::{Descriptor, lookup};
use crate::path::{Place, Scratch, place};
use crate::{raw, report};
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
    let mut scratch = Scratch::new();
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
#[inline(always)]
pub fn is_empty(path: usize) -> bool {
    path == 0 || crate::memory::byte(path) == Some(0)
}

/// Whether a range may be the program's memory at all, as the kernel asks before anything else.
#[inline(always)]
fn is_possible(address: usize, length: usize) -> bool {
    // Where addresses of 47 bits end for the kernel.
    const USUAL_END: usize = (1 << 47) - 4096;
    match address.checked_add(length) {
        Some(end) => end <= USUAL_END || (end as isize >= 0 && has_large_addresses(end)),
        None => false,
    }
}

/// Whether programs can have memory up to here, above where it usually ends: with page tables of
/// five levels, and asked for by address.
#[cold]
fn has_large_addresses(end: usize) -> bool {
    const HINT: usize = 1 << 48;
    if end > (1 << 56) - 4096 {
        return false;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping without access, taken away again.
    unsafe {
        let got = raw::syscall!(
            libc::SYS_mmap,
            HINT,
            4096,
            libc::PROT_NONE,
            flags,
            -1isize,
            0
        );
        if raw::failed(got) {
            return false;
        }
        raw::syscall!(libc::SYS_munmap, got, 4096);
        got as usize >= HINT
    }
}

/// As [`memory_mut`], where nothing is asked before something is written.
///
/// # Safety
/// As for [`memory`].
pub unsafe fn memory_later<'a>(address: usize, length: usize) -> &'a mut [u8] {
    // SAFETY: the caller's promise; the first page is nobody's.
    unsafe {
        match memory_mut(address, length) {
            Ok(memory) => memory,
            Err(_) => {
                let nowhere = std::ptr::dangling_mut::<u8>();
                std::slice::from_raw_parts_mut(nowhere, length.min(4000))
            }
        }
    }
}

/// The program's memory as a slice to read from; EFAULT where no program has any.
///
/// # Safety
/// Whether the bytes can be read is not known, so the slice is only given to guarded copies, as
/// the LibFS's reads and writes of data are: nothing is accessed through it by the language.
#[inline(always)]
pub unsafe fn memory<'a>(address: usize, length: usize) -> Result<&'a [u8], Failure> {
    if !is_possible(address, length) {
        return Err(Failure::Errno(Errno::FAULT));
    }
    // SAFETY: the caller's promise; null would be no slice, and its page is nobody's either way.
    Ok(unsafe { std::slice::from_raw_parts(address.max(1) as *const u8, length) })
}

/// The same, to write to.
///
/// # Safety
/// As for [`memory`].
#[inline(always)]
pub unsafe fn memory_mut<'a>(address: usize, length: usize) -> Result<&'a mut [u8], Failure> {
    if !is_possible(address, length) {
        return Err(Failure::Errno(Errno::FAULT));
    }
    // SAFETY: as for `memory`.
    Ok(unsafe { std::slice::from_raw_parts_mut(address.max(1) as *mut u8, length) })
}

/// The `O_*` flags of a description, or minus an error number.
pub fn flags_of(handle: Handle) -> Result<i32, isize> {
    inside(|fs| Ok(fs.flags(handle)?)).map_err(|failure| match failure {
        Failure::Errno(errno) => minus(errno),
        Failure::Outside(_) => raw::error(libc::EIO),
    })
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
