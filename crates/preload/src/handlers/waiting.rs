//! `poll`, `select` and their kin: the kernel's, which asks descriptors of the pool as regular files, always ready.
//! But a number that the program has closed may still stand for something in the kernel, for the next one that is opened.
//!
//! Invariant: a closed number is told as closed: POLLNVAL, EBADF.

use crate::descriptors::is_reserved;
use crate::raw::{self, Arguments, error};
use crate::{memory, report, signals, thread};
use std::mem::MaybeUninit;

/// More descriptors than that in one call are looked at no more: no program that closes some of them asks for so many.
const LOOKED_AT: usize = 1024;

fn is_closed(entry: &libc::pollfd) -> bool {
    entry.fd >= 0 && is_reserved(entry.fd as usize)
}

fn entry(entries: usize, index: usize) -> Option<libc::pollfd> {
    let address = entries.checked_add(index * size_of::<libc::pollfd>())?;
    // SAFETY: integers.
    unsafe { memory::copy_in(address) }.ok()
}

/// Whether a closed number is among the program's entries.
fn has_closed_entry(entries: usize, count: usize) -> bool {
    !thread::inside()
        && (0..(count as u32 as usize).min(LOOKED_AT))
            .map_while(|index| entry(entries, index))
            .any(|entry| is_closed(&entry))
}

/// Asks the kernel at once, and tells what is closed.
///
/// # Safety
/// The program's entries.
#[cold]
unsafe fn poll_now(number: i64, a: &Arguments) -> isize {
    report::served(number);
    let count = a[1];
    // SAFETY: the program's entries; nothing is waited for, since what is closed is ready.
    let mut ready = unsafe { raw::syscall!(libc::SYS_poll, a[0], count, 0) };
    if raw::failed(ready) {
        return ready;
    }
    for index in 0..(count as u32 as usize).min(LOOKED_AT) {
        let Some(mut entry) = entry(a[0], index) else {
            return error(libc::EFAULT);
        };
        if is_closed(&entry) {
            ready += isize::from(entry.revents == 0);
            entry.revents = libc::POLLNVAL;
            if memory::copy_out(a[0] + index * size_of_val(&entry), &entry).is_err() {
                return error(libc::EFAULT);
            }
        }
    }
    ready
}

/// `poll`.
///
/// # Safety
/// As the system call's. The same holds for every handler below.
pub unsafe fn poll(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        if has_closed_entry(a[0], a[1]) {
            return poll_now(libc::SYS_poll, a);
        }
        raw::blocking_call(libc::SYS_poll as usize, a)
    }
}

/// `ppoll`; where something is closed no signal is waited for.
pub unsafe fn ppoll(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        if has_closed_entry(a[0], a[1]) {
            return poll_now(libc::SYS_ppoll, a);
        }
        signals::with_mask::<{ libc::SYS_ppoll as usize }, 3>(a)
    }
}

/// Whether a set of `select` has a closed number in it.
fn has_closed(set: usize, end: usize) -> bool {
    const BITS: usize = u64::BITS as usize;
    let mut words = [const { MaybeUninit::<u64>::uninit() }; LOOKED_AT / BITS];
    let count = end.min(LOOKED_AT).div_ceil(BITS);
    if set == 0 {
        return false;
    }
    // SAFETY: integers.
    let Ok(words) = (unsafe { memory::copy_many_in(&mut words, set, count) }) else {
        return false;
    };
    let is_in = |number: usize| {
        let word = words.get(number / BITS).copied().unwrap_or(0);
        word >> (number % BITS) & 1 != 0
    };
    (0..end.min(LOOKED_AT)).any(|number| is_in(number) && is_reserved(number))
}

fn any_closed(a: &Arguments) -> bool {
    let end = (a[0] as i32).max(0) as usize;
    !thread::inside() && [a[1], a[2], a[3]].iter().any(|set| has_closed(*set, end))
}

/// `select`.
pub unsafe fn select(a: &Arguments) -> isize {
    if any_closed(a) {
        report::served(libc::SYS_select);
        return error(libc::EBADF);
    }
    // SAFETY: the program's arguments.
    unsafe { raw::blocking_call(libc::SYS_select as usize, a) }
}

/// `pselect6`.
pub unsafe fn pselect6(a: &Arguments) -> isize {
    if any_closed(a) {
        report::served(libc::SYS_pselect6);
        return error(libc::EBADF);
    }
    // SAFETY: the program's arguments.
    unsafe { signals::with_pair::<{ libc::SYS_pselect6 as usize }>(a) }
}
