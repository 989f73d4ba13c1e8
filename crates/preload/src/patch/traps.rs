//! How often sites trapped, and what the environment tells the next program of it.
//!
//! Invariant: whoever counts at the same time may count one too few, which costs a trap.

use super::places::{READ, State, state};
use crate::calls::numbers;
use crate::{raw, settings};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Traps of one site before it is rewritten.
pub const OFTEN: u64 = 4;
/// Sites that a program is told of, at most.
pub const TOLD_MAX: usize = 40;
/// Traps of a site from which on it is told of.
const MORE_THAN_ONCE: u64 = 2;
/// Bytes of the text that tells them: an offset and a call's number, in decimal, for each.
const TEXT_MAX: usize = TOLD_MAX * 14;
/// Traps by site: address in the upper 48 bits, then 12 bits of the call's number, and 4 of the count.
static TRAPS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
/// All traps of libc's sites, and of those elsewhere that would be rewritten.
pub static ALL: AtomicU64 = AtomicU64::new(0);
/// Where libc's text begins; 0 = nothing is rewritten.
static START: AtomicUsize = AtomicUsize::new(0);
const COUNT: u64 = 0xf;
const NUMBER_SHIFT: u32 = 4;
const ADDRESS_SHIFT: u32 = 16;
const _: () = assert!(OFTEN < COUNT && numbers::COUNT < 1 << (ADDRESS_SHIFT - NUMBER_SHIFT));

/// The place of a site in the table; `None` if there is none left near its home.
fn slot(number: usize, after: usize) -> Option<&'static AtomicU64> {
    let site = (after as u64) << ADDRESS_SHIFT | (number as u64) << NUMBER_SHIFT;
    let home = after.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    (home..home + 8)
        .map(|i| &TRAPS[i % TRAPS.len()])
        .find(|slot| {
            let seen = slot.load(Ordering::Relaxed);
            if seen == 0 {
                let (relaxed, taken) = (Ordering::Relaxed, site);
                return slot.compare_exchange(0, taken, relaxed, relaxed).is_ok();
            }
            seen & !COUNT == site
        })
}

/// Counts a trap of the `syscall` that ends at `after`: how often it had trapped before, at most
/// [`OFTEN`] times; `None` if nobody counts any more.
pub fn count(number: usize, after: usize) -> Option<u64> {
    if number >= numbers::COUNT {
        return None;
    }
    let slot = slot(number, after)?;
    let seen = slot.load(Ordering::Relaxed);
    let count = seen & COUNT;
    if count > OFTEN {
        return None;
    }
    slot.store(seen + 1, Ordering::Relaxed);
    Some(count)
}

/// What the environment tells the next program; nothing where no site is rewritten.
pub fn tell() -> raw::Text<TEXT_MAX> {
    let mut text = raw::Text::new();
    let start = START.load(Ordering::Relaxed);
    if start == 0 || state() != State::On {
        return text;
    }
    if READ.load(Ordering::Relaxed) != 0 {
        // What was told of has not been looked at.
        let told = settings::sites();
        if told.len() <= TEXT_MAX {
            text.push(told);
        }
        return text;
    }
    let sites = TRAPS.iter().map(|slot| slot.load(Ordering::Relaxed));
    let sites = sites.filter(|site| site & COUNT >= MORE_THAN_ONCE);
    for site in sites.take(TOLD_MAX) {
        let number = site >> NUMBER_SHIFT & ((1 << (ADDRESS_SHIFT - NUMBER_SHIFT)) - 1);
        let offset = ((site >> ADDRESS_SHIFT) as usize).wrapping_sub(start);
        text.number(offset as u64).push(b":").number(number);
        text.push(b",");
    }
    text
}

/// Where libc's text begins, in which sites are rewritten.
pub fn text_begins(start: usize) {
    START.store(start, Ordering::Relaxed);
}

/// A site is rewritten: it does not trap any more, and the next program is told of it, too.
pub fn is_rewritten(number: usize, after: usize) {
    if let Some(slot) = slot(number, after) {
        slot.fetch_or(OFTEN + 1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traps_are_counted_until_the_site_is_rewritten() {
        let counts: Vec<_> = (0..OFTEN + 3).map(|_| count(257, 0x7f12_3456)).collect();
        let mut expected: Vec<_> = (0..=OFTEN).map(Some).collect();
        expected.extend([None, None]);
        assert_eq!(counts, expected);
        assert_eq!(count(numbers::COUNT, 0x7f12_3456), None);
    }
}
