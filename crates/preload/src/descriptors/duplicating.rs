//! Duplicates: `dup`, `dup2`, `dup3`, `F_DUPFD`.
//!
//! Invariant: to other threads a number that is replaced is all the time what it was or what it
//! becomes.

use super::closing::release;
use super::replacements;
use super::stock::{TEMPLATE, allocate, give_back, template};
use super::table::{EXTERNAL, FILE, notes_of};
use super::*;

/// Duplicates a pool descriptor to the lowest number at or above `minimum`.
pub fn duplicate(descriptor: usize, minimum: usize, close_on_exec: bool) -> isize {
    let handle = match lookup(descriptor) {
        Descriptor::Pool(handle) => handle,
        Descriptor::Kernel => return raw::error(libc::EBADF),
        Descriptor::Error(error) => return error,
    };
    let target = match allocate(minimum) {
        Ok(number) => number,
        Err(error) => return error,
    };
    if let Err(error) = retain(handle) {
        give_back(target);
        return error;
    }
    let (source, flags, notes) = placeholder_of(descriptor, close_on_exec);
    if notes & EXTERNAL != 0 {
        // SAFETY: duplicates a placeholder over one that is ours.
        let result = unsafe { raw::syscall!(libc::SYS_dup3, source, target, flags) };
        if raw::failed(result) {
            give_back(target);
            let_go(handle);
            return result;
        }
    }
    put(target, handle.0.get(), notes);
    target as isize
}

/// For a duplicate of a pool descriptor: the descriptor of the kernel to duplicate, with which
/// flags, and the notes. (Plain ones are all the same.)
fn placeholder_of(descriptor: usize, close_on_exec: bool) -> (isize, i32, u64) {
    let from = notes(descriptor);
    let notes = u64::from(close_on_exec);
    if from & EXTERNAL != 0 {
        let flags = kernel_flags(close_on_exec);
        (descriptor as isize, flags, notes | from & (FILE | EXTERNAL))
    } else {
        (template(), libc::O_CLOEXEC, notes)
    }
}

/// `dup3`; `source != target`. EBUSY if the target is a number that the LibFS needs.
pub fn duplicate_onto(source: usize, target: usize, close_on_exec: bool) -> isize {
    loop {
        let before = replacements::count();
        let result = match lookup(source) {
            Descriptor::Error(error) => return error,
            Descriptor::Pool(handle) => match retain(handle) {
                Ok(()) => return put_onto(source, handle, target, close_on_exec),
                Err(_) if before.has_moved() => continue,
                Err(error) => return error,
            },
            Descriptor::Kernel => kernels_onto(source, target, close_on_exec),
        };
        // What was duplicated may be the placeholder of something that has just been put there.
        if raw::failed(result) || !before.has_moved_over_kernels() {
            return result;
        }
    }
}

fn kernel_flags(close_on_exec: bool) -> i32 {
    if close_on_exec { libc::O_CLOEXEC } else { 0 }
}

/// Puts a handle, of which a reference is handed over, onto the target.
fn put_onto(source: usize, handle: Handle, target: usize, close_on_exec: bool) -> isize {
    let ready = match target {
        TABLE_SIZE.. => Err(raw::error(libc::EBADF)),
        _ if is_reserved(target) => vacate(target),
        _ => Ok(()),
    };
    if let Err(error) = ready {
        let_go(handle);
        return error;
    }
    let (source, flags, notes) = placeholder_of(source, close_on_exec);
    let was_kernels = is_free(target);
    if was_kernels {
        // The entry first: a placeholder without one is of no use to another thread.
        put(target, handle.0.get(), notes | EXTERNAL);
        replacements::replaced_over_kernels();
    }
    // SAFETY: the program asked for the target to be replaced.
    let result = unsafe { raw::syscall!(libc::SYS_dup3, source, target, flags) };
    if raw::failed(result) {
        if was_kernels {
            entry(target).store(0, Ordering::Release);
        }
        let_go(handle);
        return result;
    }
    let notes_before = notes_of(target).swap(notes, Ordering::AcqRel);
    let before = entry(target).swap(handle.0.get(), Ordering::AcqRel);
    if !was_kernels {
        replacements::replaced();
        release(before, notes_before);
    }
    target as isize
}

/// The same with a file of the kernel's.
fn kernels_onto(source: usize, target: usize, close_on_exec: bool) -> isize {
    // SAFETY: probing and duplicating the program's own descriptor.
    unsafe {
        // The target is only given up if the call will succeed.
        let valid = raw::syscall!(libc::SYS_fcntl, source, libc::F_GETFD);
        if raw::failed(valid) {
            return valid;
        }
        let flags = kernel_flags(close_on_exec);
        if !is_pool(target) {
            return match vacate(target) {
                Ok(()) => raw::syscall!(libc::SYS_dup3, source, target, flags),
                Err(error) => error,
            };
        }
        let result = raw::syscall!(libc::SYS_dup3, source, target, flags);
        if !raw::failed(result) {
            let before = entry(target).swap(0, Ordering::AcqRel);
            replacements::replaced();
            release(before, notes(target));
        }
        result
    }
}

/// Takes a number that is not open to the program out of this library's hands before the kernel
/// puts something else there with `dup2`; the placeholder stays open until then. Error if the
/// number is one the LibFS needs.
fn vacate(target: usize) -> Result<(), isize> {
    if target >= TABLE_SIZE {
        return Ok(());
    }
    let value = entry(target).load(Ordering::Acquire);
    match value {
        0 => {}
        RESERVED if unstock(target) => entry(target).store(0, Ordering::Release),
        RESERVED if TEMPLATE.load(Ordering::Acquire) == target as i32 => {
            TEMPLATE.store(-1, Ordering::Release);
            entry(target).store(0, Ordering::Release);
        }
        RESERVED => return Err(raw::error(libc::EBUSY)),
        // Not for them: see `put_onto` and `kernels_onto`.
        _ => {}
    }
    Ok(())
}
