//! The descriptors that the LibFS keeps of what was handed on and is in use here, one for each description; and those that
//! are just being sent.
//!
//! Invariant: who takes one out closes it, and nobody else does.

use crate::descriptors::table::TABLE_SIZE;
use crate::{raw, reserved};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The LibFS's own descriptors of what was handed on, a bit each.
static HELD: [AtomicU64; TABLE_SIZE / 64] = [const { AtomicU64::new(0) }; TABLE_SIZE / 64];

/// None is in this word, or behind it.
static HELD_END: AtomicUsize = AtomicUsize::new(0);

/// Notes one.
pub fn hold(descriptor: i32) {
    let number = descriptor as usize;
    if number < TABLE_SIZE {
        reserved::mark(number);
        HELD[number / 64].fetch_or(1 << (number % 64), Ordering::AcqRel);
        HELD_END.fetch_max(number / 64 + 1, Ordering::AcqRel);
    }
}

/// Closes one that the LibFS has given up.
pub fn let_go(descriptor: OwnedFd) {
    let number = descriptor.into_raw_fd() as usize;
    if number < TABLE_SIZE {
        HELD[number / 64].fetch_and(!(1 << (number % 64)), Ordering::AcqRel);
        reserved::let_go(number);
    } else {
        raw::close(number as isize);
    }
}

/// Closes one that was noted, unless somebody has taken it out.
pub fn close(number: usize) {
    match HELD.get(number / 64) {
        Some(word) => {
            let bit = 1 << (number % 64);
            if word.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
                reserved::let_go(number);
            }
        }
        None => raw::close(number as isize),
    }
}

/// Takes all out, of a session that is another process's or is about to be left.
pub fn take_all() -> impl Iterator<Item = usize> {
    let end = HELD_END.swap(0, Ordering::AcqRel);
    HELD[..end].iter().enumerate().flat_map(|(index, word)| {
        let bits = word.swap(0, Ordering::AcqRel);
        let is_in = move |bit: &usize| bits >> bit & 1 != 0;
        (0..64).filter(is_in).map(move |bit| index * 64 + bit)
    })
}
