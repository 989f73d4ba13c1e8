//! Numbers for what is opened on the pool, and the stock of placeholders.
//!
//! Closed plain placeholders stay open in the kernel, in stock, so that the next `open` makes no
//! system call. Numbers 0 to 2 are never kept in stock. When the stock is full, the lowest numbers
//! stay, as they are what the next opens are given.
//!
//! Invariant: a bit is set in the stock only while `entry(fd)` is RESERVED and the placeholder is plain.

use super::hole::{HOLE, kernel_closed, most_descriptors};
use super::placeholders;
use super::table::{RESERVED, TABLE_SIZE, entry, is_free, raise_high_water};
use crate::{lock_files, raw, reserved};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Stock: numbers below `STOCK_END`, one bit each; few words, so that counting them costs less
/// than keeping a count.
static STOCK: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
const STOCK_END: usize = 256;
const STOCK_MAX: u32 = 64;
pub(super) static TEMPLATE: AtomicI32 = AtomicI32::new(-1);

/// The template that plain placeholders duplicate; made at the first need. Negative: an error.
pub(super) fn template() -> isize {
    let template = TEMPLATE.load(Ordering::Acquire);
    if template >= 0 {
        return template as isize;
    }
    let mut fresh = placeholders::make();
    if !raw::failed(fresh) {
        fresh = reserved::keep(fresh);
    }
    if raw::failed(fresh) {
        return fresh;
    }
    match TEMPLATE.compare_exchange(template, fresh as i32, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(other) => {
            entry(fresh as usize).store(0, Ordering::Release);
            raw::close(fresh);
            other as isize
        }
    }
}

fn take_from_stock(limit: usize) -> Option<usize> {
    for (index, word) in STOCK.iter().enumerate() {
        loop {
            let bits = word.load(Ordering::Acquire);
            if bits == 0 {
                break;
            }
            let bit = bits & bits.wrapping_neg();
            let descriptor = index * 64 + bit.trailing_zeros() as usize;
            if descriptor > limit {
                return None;
            }
            if word.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
                return Some(descriptor);
            }
        }
    }
    None
}

pub(super) fn stock_count() -> u32 {
    STOCK
        .iter()
        .map(|word| word.load(Ordering::Relaxed).count_ones())
        .sum()
}

/// Keeps an open plain placeholder for later. False if there is no room, not even instead of a
/// higher one.
pub(super) fn stock(descriptor: usize) -> bool {
    if !(3..STOCK_END).contains(&descriptor)
        || stock_count() >= STOCK_MAX && !give_up_above(descriptor)
    {
        return false;
    }
    raise_high_water(descriptor);
    entry(descriptor).store(RESERVED, Ordering::Release);
    STOCK[descriptor / 64].fetch_or(1 << (descriptor % 64), Ordering::AcqRel);
    true
}

/// Closes the highest number in stock if it is above this one.
#[cold]
fn give_up_above(descriptor: usize) -> bool {
    let highest = STOCK.iter().enumerate().rev().find_map(|(index, word)| {
        let bits = word.load(Ordering::Relaxed);
        (bits != 0).then(|| index * 64 + bits.ilog2() as usize)
    });
    match highest {
        Some(highest) if highest > descriptor && unstock(highest) => {
            close_for_good(highest);
            true
        }
        _ => false,
    }
}

/// Closes a plain placeholder that is in nobody's hands.
pub(super) fn close_for_good(number: usize) {
    entry(number).store(0, Ordering::Release);
    kernel_closed(number);
    raw::close(number as isize);
}

/// Removes a number from the stock; its placeholder stays open. False if it was not in stock.
pub fn unstock(descriptor: usize) -> bool {
    let bit = 1 << (descriptor % 64);
    descriptor < STOCK_END && STOCK[descriptor / 64].fetch_and(!bit, Ordering::AcqRel) & bit != 0
}

/// Before the kernel chooses a number for the program: what is in stock must not be in the way
/// of a lower number than the kernel would find. At most the lowest of the stock is given up.
#[inline(always)]
pub fn before_kernel_opens() {
    if STOCK.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
        give_way();
    }
}

#[cold]
fn give_way() {
    if let Some(lowest) = lowest_from(0) {
        let hole = lowest_free(HOLE.load(Ordering::Relaxed), lowest);
        HOLE.store(hole, Ordering::Relaxed);
        // With a hole below the stock's lowest, the kernel takes that one.
        if hole == lowest && unstock(lowest) {
            close_for_good(lowest);
        }
    }
}

/// The same before it chooses a number at or above `minimum`.
pub fn before_kernel_opens_from(minimum: usize) {
    match minimum {
        0 => before_kernel_opens(),
        _ => {
            if let Some(lowest) = lowest_from(minimum)
                && lowest_free(minimum, lowest) == lowest
                && unstock(lowest)
            {
                close_for_good(lowest);
            }
        }
    }
}

/// The lowest number in stock at or above `minimum`.
fn lowest_from(minimum: usize) -> Option<usize> {
    STOCK.iter().enumerate().find_map(|(index, word)| {
        let below = minimum.saturating_sub(index * 64);
        let bits = match below {
            0..64 => word.load(Ordering::Relaxed) & u64::MAX << below,
            _ => 0,
        };
        (bits != 0).then(|| index * 64 + bits.trailing_zeros() as usize)
    })
}

/// The first number from `first` on that nobody has, not even the kernel; `end` if there is none
/// before.
fn lowest_free(first: usize, end: usize) -> usize {
    (first..end)
        .find(|&number| {
            // SAFETY: a question about a number.
            let flags = || unsafe { raw::syscall!(libc::SYS_fcntl, number, libc::F_GETFD) };
            is_free(number) && raw::failed(flags())
        })
        .unwrap_or(end)
}

/// The same before it chooses two: the two lowest of the stock are given up.
pub fn before_kernel_opens_two() {
    for _ in 0..2 {
        if let Some(lowest) = lowest_from(0)
            && unstock(lowest)
        {
            close_for_good(lowest);
        }
    }
}

/// The kernel gave the program this number, so all below are taken.
#[inline(always)]
pub fn kernel_opened(descriptor: isize) -> isize {
    if descriptor < 0 {
        return descriptor;
    }
    let number = descriptor as usize;
    if number >= HOLE.load(Ordering::Relaxed) {
        HOLE.store(number + 1, Ordering::Relaxed);
    }
    lock_files::number_given(number);
    if number < TABLE_SIZE && !is_free(number) && !crate::thread::inside() {
        // The LibFS closed one of its own.
        entry(number).store(0, Ordering::Release);
    }
    descriptor
}

/// The lowest number that is free as the program sees it, with a plain placeholder in it and no
/// entry yet (RESERVED or 0). Error: minus the error number.
pub(super) fn allocate(minimum: usize) -> Result<usize, isize> {
    if minimum == 0
        && let Some(descriptor) = take_from_stock(HOLE.load(Ordering::Relaxed))
    {
        return Ok(descriptor);
    }
    let template = template();
    if raw::failed(template) {
        return Err(template);
    }
    // SAFETY: duplicates our template.
    let fresh = unsafe { raw::syscall!(libc::SYS_fcntl, template, libc::F_DUPFD_CLOEXEC, minimum) };
    if raw::failed(fresh) {
        // The limit is reached in the kernel, but the stock counts as free.
        return match take_from_stock(most_descriptors()) {
            Some(descriptor) if descriptor >= minimum => Ok(descriptor),
            Some(descriptor) => {
                stock(descriptor);
                Err(fresh)
            }
            None => Err(fresh),
        };
    }
    let fresh = fresh as usize;
    if fresh >= TABLE_SIZE {
        raw::close(fresh as isize);
        return Err(raw::error(libc::EMFILE));
    }
    if minimum > 0 {
        // What is in stock at or above the minimum counts as free, so the lowest of both.
        for lower in minimum..fresh.min(STOCK_END) {
            if unstock(lower) {
                if !stock(fresh) {
                    raw::close(fresh as isize);
                }
                return Ok(lower);
            }
        }
        return Ok(fresh);
    }
    if let Some(lower) = take_from_stock(fresh) {
        if stock_count() >= 4 || !stock(fresh) {
            raw::close(fresh as isize);
            HOLE.store(fresh, Ordering::Relaxed);
        } else {
            HOLE.store(fresh + 1, Ordering::Relaxed);
        }
        return Ok(lower);
    }
    HOLE.store(fresh + 1, Ordering::Relaxed);
    lock_files::number_given(fresh);
    Ok(fresh)
}

/// That there is a number for an open; minus the error number if there is none.
#[cold]
pub(super) fn expect_number() -> Result<(), isize> {
    give_back(allocate(0)?);
    Ok(())
}

/// Gives back a number with a plain placeholder that [`allocate`] gave.
pub(super) fn give_back(number: usize) {
    if !stock(number) {
        close_for_good(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Closed in any order, the lowest numbers stay: the next opens need them.
    #[test]
    fn the_lowest_numbers_stay_in_stock() {
        for turn in [|_: &mut Vec<usize>| {}, |n: &mut Vec<usize>| n.reverse()] {
            let mut numbers: Vec<usize> = (0..STOCK_MAX as usize + 40)
                .map(|_| allocate(0).unwrap())
                .collect();
            numbers.sort_unstable();
            let lowest = numbers[..STOCK_MAX as usize].to_vec();
            turn(&mut numbers);
            for number in numbers {
                give_back(number);
            }
            for number in lowest {
                assert!(unstock(number), "{number}");
                close_for_good(number);
            }
        }
    }
}
