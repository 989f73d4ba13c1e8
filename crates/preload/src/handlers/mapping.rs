//! Maps of pool files: `mmap`, and the calls that change or give up memory, since that may be
//! a map of a pool file.
//!
//! Invariant: while the LibFS knows no live map, which one load tells, calls that name no pool
//! descriptor go to the kernel unchanged; afterwards those do that touch no live map.

use super::{on_descriptor, rings};
use crate::backend::{Failure, FileSystem, MapRequest, MoveRequest, any_maps, has_maps, inside};
use crate::raw::{self, Arguments, error};
use crate::{report, thread};

/// # Safety
/// As the system call's.
#[inline(always)]
pub unsafe fn mmap(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        if a[3] as i32 & libc::MAP_ANONYMOUS != 0 {
            return kernel_mmap(a);
        }
        on_descriptor(
            libc::SYS_mmap,
            a[4],
            |fs, handle| {
                let request = MapRequest {
                    address: a[0],
                    length: a[1],
                    protection: a[2] as i32,
                    flags: a[3] as i32,
                    offset: a[5] as u64,
                };
                Ok(fs.map(handle, &request)? as isize)
            },
            || rings::mapped(a, kernel_mmap(a)),
        )
    }
}

/// The kernel's, which may replace maps of ours.
unsafe fn kernel_mmap(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        if any_maps() && a[3] as i32 & libc::MAP_FIXED != 0 && is_ours(a[0], a[1]) {
            let _ = inside(|fs| {
                fs.forget_maps(a[0], a[1]);
                Ok(())
            });
        }
        raw::call(libc::SYS_mmap as usize, a)
    }
}

/// Whether a range has live maps, and the program, not the LibFS, is asking.
fn is_ours(address: usize, length: usize) -> bool {
    !thread::inside() && {
        // The table's lock is held for this: no signal handler may come in between.
        let _inside = thread::enter();
        has_maps(address, length)
    }
}

/// A memory call on a range: the LibFS's if it has live maps.
unsafe fn on_memory<const NUMBER: usize>(
    a: &Arguments,
    pool: impl FnOnce(&'static FileSystem) -> Result<isize, Failure>,
    kernel: impl FnOnce() -> isize,
) -> isize {
    if !any_maps() || !is_ours(a[0], a[1].max(1)) {
        return kernel();
    }
    report::served(NUMBER as i64);
    match inside(pool) {
        Ok(result) => result,
        Err(Failure::Errno(errno)) => crate::backend::minus(errno),
        Err(Failure::Outside(_)) => error(libc::EINVAL),
    }
}

/// # Safety
/// As the system call's.
#[inline(always)]
pub unsafe fn munmap(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_memory::<{ libc::SYS_munmap as usize }>(
            a,
            |fs| Ok(fs.unmap(a[0], a[1]).map(|()| 0)?),
            || raw::call(libc::SYS_munmap as usize, a),
        )
    }
}

/// # Safety
/// As the system call's.
#[inline(always)]
pub unsafe fn mprotect(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_memory::<{ libc::SYS_mprotect as usize }>(
            a,
            |fs| Ok(fs.protect(a[0], a[1], a[2] as i32).map(|()| 0)?),
            || raw::call(libc::SYS_mprotect as usize, a),
        )
    }
}

/// # Safety
/// As the system call's.
#[inline(always)]
pub unsafe fn msync(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_memory::<{ libc::SYS_msync as usize }>(
            a,
            |fs| Ok(fs.sync_maps(a[0], a[1], a[2] as i32).map(|()| 0)?),
            || raw::blocking_call(libc::SYS_msync as usize, a),
        )
    }
}

/// # Safety
/// As the system call's.
#[inline(always)]
pub unsafe fn mremap(a: &Arguments) -> isize {
    let fixed = a[3] as i32 & libc::MREMAP_FIXED != 0;
    // SAFETY: the program's arguments.
    unsafe {
        // What is moved may be ours, or the place it goes to.
        if !any_maps() || !(is_ours(a[0], a[1].max(1)) || (fixed && is_ours(a[4], a[2]))) {
            return raw::call(libc::SYS_mremap as usize, a);
        }
        report::served(libc::SYS_mremap);
        let request = MoveRequest {
            address: a[0],
            length: a[1],
            new_length: a[2],
            flags: a[3] as i32,
            new_address: a[4],
        };
        match inside(|fs| Ok(fs.move_map(&request)?)) {
            Ok(address) => address as isize,
            Err(Failure::Errno(errno)) => crate::backend::minus(errno),
            Err(Failure::Outside(_)) => error(libc::EINVAL),
        }
    }
}

/// Advice goes to the kernel; but a hole in a file is not its to make.
///
/// # Safety
/// As the system call's.
#[inline(always)]
pub unsafe fn madvise(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        let kernel = || raw::call(libc::SYS_madvise as usize, a);
        if a[2] as i32 != libc::MADV_REMOVE {
            return kernel();
        }
        on_memory::<{ libc::SYS_madvise as usize }>(
            a,
            |fs| Ok(fs.remove_mapped(a[0], a[1]).map(|()| 0)?),
            kernel,
        )
    }
}
