//! Closing: `close` and `close_range`.
//!
//! Invariant: whoever takes an entry out of the table drops the reference that it held, once.

use super::hole::kernel_closed;
use super::references::let_go;
use super::stock::{TEMPLATE, close_for_good, stock};
use super::table::{
    EXTERNAL, HIGH_WATER, INHERITED, RESERVED, TABLE_SIZE, entry, file_in, file_of, is_free,
    is_pool, notes, pool_descriptors, set_close_on_exec,
};
use crate::backend::Handle;
use crate::reserved;
use crate::{lock_files, raw};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

/// Drops the reference that a table entry held, which is not there any more; with its notes.
pub(super) fn release(value: u64, notes: u64) {
    match NonZeroU64::new(value) {
        Some(value) if value.get() < RESERVED => let_go(Handle(value)),
        Some(value) if value.get() == INHERITED => {
            let file = file_in(notes);
            let is_last = !pool_descriptors().any(|other| file_of(other) == file);
            lock_files::closed_inherited(file, is_last);
        }
        _ => {}
    }
}

/// `close` of a number that [`lookup`](super::lookup) found to be ours, or not.
#[inline(always)]
pub fn close(descriptor: usize) -> Option<isize> {
    if descriptor >= TABLE_SIZE {
        return None;
    }
    match entry(descriptor).load(Ordering::Acquire) {
        0 => None,
        _ => Some(close_ours(descriptor)),
    }
}

#[inline(never)]
fn close_ours(descriptor: usize) -> isize {
    let value = entry(descriptor).load(Ordering::Acquire);
    if value == RESERVED {
        return raw::error(libc::EBADF);
    }
    let notes = notes(descriptor);
    // While RESERVED nobody but us can take the number.
    if entry(descriptor)
        .compare_exchange(value, RESERVED, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return raw::error(libc::EBADF);
    }
    release(value, notes);
    if notes & EXTERNAL != 0 || !stock(descriptor) {
        close_for_good(descriptor);
    }
    0
}

/// `close_range`: closes what is the program's in the range, kernel's and pool's, and leaves the
/// rest alone.
pub fn close_range(first: usize, last: usize, flags: usize) -> isize {
    let high = HIGH_WATER
        .load(Ordering::Acquire)
        .max(TEMPLATE.load(Ordering::Acquire).max(0) as usize + 1);
    let set_flag = flags & libc::CLOSE_RANGE_CLOEXEC as usize != 0;
    let mut from = first;
    let high = high.max(reserved::floor() + 128).min(TABLE_SIZE);
    for descriptor in first..high.min(last.saturating_add(1)) {
        if is_free(descriptor) {
            continue;
        }
        if descriptor > from {
            let result = kernel_close_range(from, descriptor - 1, flags);
            if result < 0 {
                return result;
            }
        }
        from = descriptor + 1;
        if is_pool(descriptor) {
            if set_flag {
                set_close_on_exec(descriptor, true);
            } else {
                close_ours(descriptor);
            }
        }
    }
    if from <= last {
        kernel_close_range(from, last, flags)
    } else {
        0
    }
}

fn kernel_close_range(first: usize, last: usize, flags: usize) -> isize {
    if flags & libc::CLOSE_RANGE_CLOEXEC as usize == 0 {
        kernel_closed(first);
    }
    // SAFETY: the program asked for these numbers to be closed; none is ours.
    unsafe { raw::syscall!(libc::SYS_close_range, first, last, flags) }
}
