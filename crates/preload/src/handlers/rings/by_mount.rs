//! Entries that the kernel serves, on files of the pool: by the mount's descriptors of them.
//!
//! These are the ones that wait for something of the kernel's, or use what it keeps: those behind others in a chain, drained
//! ones, registered buffers, buffers that are chosen, splices, direct descriptors.
//!
//! # Invariants
//! * A placeholder never gets to the kernel where a file is read or written: what has no name, or cannot be opened anew, is an
//!   error. One that is registered (see `files`) is one to the kernel.
//! * The mount's descriptor has an offset of its own: what is to be at the current place, and move it, is refused.

use super::here;
use crate::backend::Handle;
use crate::descriptors::{self, Descriptor, is_pool, lookup, mounted};
use crate::raw::{self, error, pad, syscall};
use crate::rings::entry::{self, Entry};
use crate::rings::{self, Ring};
use crate::unreached;
use crate::{directory, memory};

/// The entry as the kernel gets it.
///
/// # Safety
/// The entry is the program's, with what it points to.
pub unsafe fn translate(entry: &Entry, ring: &Ring) -> Entry {
    // SAFETY: the caller's promise.
    let changed = match unsafe { translated(entry) } {
        Ok(changed) => changed,
        Err(error) => return entry.done(error),
    };
    let is_registered = entry.flags & entry::REGISTERED != 0;
    if is_registered && is_at_current_place(entry) && ring.file(entry.descriptor()).is_some() {
        return entry.done(error(libc::ESPIPE));
    }
    let (read, is_registered) = match entry.operation {
        entry::READ | entry::READV | entry::READ_FIXED | entry::READV_FIXED => {
            (changed.descriptor(), is_registered)
        }
        entry::SPLICE => (
            changed.other as usize,
            entry.how & entry::FROM_REGISTERED != 0,
        ),
        _ => return changed,
    };
    let mounted = match is_registered {
        true => ring.file(read).and_then(mounted::find),
        // What was not put there is not the mount's.
        false => Some(read).filter(|_| changed != *entry),
    };
    if let Some(mounted) = mounted {
        look_at_size(mounted);
    }
    changed
}

fn is_at_current_place(entry: &Entry) -> bool {
    entry.offset == u64::MAX && entry.is_transfer()
}

unsafe fn translated(entry: &Entry) -> Result<Entry, isize> {
    let mut changed = *entry;
    let is_registered = entry.flags & entry::REGISTERED != 0;
    match entry.operation {
        entry::SPLICE => {
            if entry.how & entry::FROM_REGISTERED == 0 {
                changed.other = file(entry.other, entry.address)? as u32;
            }
            if !is_registered {
                changed.descriptor = file(entry.descriptor as u32, entry.offset)? as i32;
            }
        }
        _ if is_registered => {}
        _ if entry.is_transfer() => {
            changed.descriptor = file(entry.descriptor as u32, entry.offset)? as i32;
        }
        entry::FSYNC if here::is_refused(entry) => {}
        entry::FSYNC => {
            let mounted = file(entry.descriptor as u32, 0)? as i32;
            if mounted != entry.descriptor {
                // SAFETY: a number.
                let synced = unsafe { here::sync(entry.descriptor(), entry.how) };
                if raw::failed(synced) {
                    return Err(synced);
                }
            }
            changed.descriptor = mounted;
        }
        entry::SYNC_FILE_RANGE
        | entry::FALLOCATE
        | entry::FADVISE
        | entry::FTRUNCATE
        | entry::FSETXATTR
        | entry::FGETXATTR => {
            changed.descriptor = file(entry.descriptor as u32, 0)? as i32;
        }
        entry::CLOSE if here::is_refused(entry) => {}
        entry::CLOSE if entry.other == 0 => return close(entry),
        entry::FILES_UPDATE if names_a_pool_file(entry) => return Err(error(libc::EINVAL)),
        entry::OPENAT
        | entry::OPENAT2
        | entry::STATX
        | entry::UNLINKAT
        | entry::MKDIRAT
        | entry::RENAMEAT
        | entry::LINKAT => {
            changed.descriptor = beginning(entry.directory(), entry.address)? as i32;
            if matches!(entry.operation, entry::RENAMEAT | entry::LINKAT) {
                let second = entry.length as i32 as isize as usize;
                changed.length = beginning(second, entry.offset)? as u32;
            }
        }
        entry::SYMLINKAT => {
            changed.descriptor = beginning(entry.directory(), entry.offset)? as i32;
        }
        _ => {}
    }
    Ok(changed)
}

/// The mount's descriptor in place of one of the pool's.
fn of(handle: Handle) -> Result<usize, isize> {
    let mounted = unreached::mounted::of(handle);
    match raw::failed(mounted) {
        // As of what has no name any more.
        true if mounted == error(libc::ENOENT) => Err(error(libc::EBADF)),
        true => Err(mounted),
        false => Ok(mounted as usize),
    }
}

/// The kernel asks the mount for the size of a file: what it reads later ends where it was told last that the file ends.
fn look_at_size(mounted: usize) {
    let mut told = [0u64; 32];
    let (empty, flags) = (
        c"".as_ptr(),
        libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC,
    );
    // SAFETY: a constant path, and as many bytes as the kernel's structure has, which it fills.
    unsafe {
        syscall!(
            libc::SYS_statx,
            mounted,
            empty,
            flags,
            libc::STATX_SIZE,
            told.as_mut_ptr()
        )
    };
}

fn file(descriptor: u32, position: u64) -> Result<usize, isize> {
    let descriptor = descriptor as usize;
    match lookup(descriptor) {
        Descriptor::Kernel => Ok(descriptor),
        // One that was put there before.
        Descriptor::Error(_) if mounted::is_one(descriptor) => Ok(descriptor),
        Descriptor::Error(error) => Err(error),
        Descriptor::Pool(handle) => {
            if position == u64::MAX {
                // What the kernel moves is not the program's offset: the next one would be at the same place.
                return Err(error(libc::ESPIPE));
            }
            of(handle)
        }
    }
}

/// Whether files that are to be registered are the pool's. What is done at once is done by the library (`files`).
fn names_a_pool_file(entry: &Entry) -> bool {
    // SAFETY: numbers.
    let number = |place: usize| unsafe {
        memory::copy_in::<i32>((entry.address as usize).wrapping_add(4 * place))
    };
    (0..entry.length as usize)
        .map_while(|place| number(place).ok())
        .any(|number| usize::try_from(number).is_ok_and(is_pool))
}

/// Where a path begins, as the kernel gets it.
fn beginning(directory: usize, path: u64) -> Result<usize, isize> {
    if memory::byte(path as usize) == Some(b'/') {
        return Ok(directory);
    }
    if directory as i32 != libc::AT_FDCWD {
        return Ok(file(directory as u32, 0)? as i32 as isize as usize);
    }
    match directory::current() {
        Some(handle) => of(handle?),
        None => Ok(directory),
    }
}

/// The library's side is closed at once, and the mount's descriptor, if there is one, by the kernel, after what was asked for
/// before.
fn close(entry: &Entry) -> Result<Entry, isize> {
    let Descriptor::Pool(handle) = lookup(entry.descriptor()) else {
        // Its number is free from then on.
        descriptors::kernel_closed(entry.descriptor());
        rings::closes(entry.descriptor());
        return Ok(*entry);
    };
    let (closed, last) = mounted::give(handle, || {
        // SAFETY: a number.
        unsafe { super::super::control::close(&pad([entry.descriptor()])) }
    });
    match last {
        Some(last) => Ok(Entry {
            descriptor: last as i32,
            ..*entry
        }),
        None => Err(closed),
    }
}
