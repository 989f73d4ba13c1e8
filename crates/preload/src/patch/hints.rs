//! Sites that trap: how often they did, and which of them did in the programs before this one.
//!
//! Programs that one another executes load their locales, read the same files and allocate memory by
//! the same places in libc. A trap takes microseconds, and each rewriting of a site changes the
//! protection of text twice. So a program is told by the environment (`ARCK_SITES`) which sites have
//! trapped more than once in the one that has executed it, and in those before, and rewrites them all
//! together when it starts.
//!
//! Invariant: what the environment says is a hint. A site is rewritten if it is what a site that has
//! trapped must be, in this process's libc: another libc has others, which trap.

use super::places::{Range, STUBS, STUBS_SIZE};
use super::site::{BETWEEN, OFTEN, find_move, is_simple, make_stub};
use super::text::{Jump, Jumps};
use crate::calls::numbers;
use crate::{raw, settings};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Sites that a program is told of, at most.
const TOLD_MAX: usize = 40;
/// Traps of a site from which on it is told of.
const MORE_THAN_ONCE: u64 = 2;
/// Bytes of the text that tells them: an offset and a call's number, in decimal, for each.
const TEXT_MAX: usize = TOLD_MAX * 14;

/// Traps by site: address in the upper 48 bits, then 12 bits of the call's number, and 4 of the count.
static TRAPS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
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

/// The sites in a text that [`tell`] has made: offset behind the `syscall` in libc's text, and number.
fn parse(text: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let number = |text: &[u8]| usize::try_from(settings::number(text)?).ok();
    text.split(|byte| *byte == b',')
        .filter_map(move |site| {
            let colon = site.iter().position(|byte| *byte == b':')?;
            Some((number(&site[..colon])?, number(&site[colon + 1..])?))
        })
        .take(TOLD_MAX)
}

/// Makes stubs for the sites that the environment tells of.
///
/// # Safety
/// `text` is libc's; no other thread runs.
pub unsafe fn rewrite(told: &[u8], text: Range, jumps: &mut Jumps) {
    START.store(text.start, Ordering::Relaxed);
    for (offset, number) in parse(told) {
        let Some(after) = text.start.checked_add(offset) else {
            continue;
        };
        if after > text.end || offset < BETWEEN + 8 || !is_simple(number) {
            continue;
        }
        // SAFETY: all that is looked at, and moved, lies in the text.
        unsafe {
            let Some(site) = find_move(number, after) else {
                continue;
            };
            let between = std::slice::from_raw_parts((site + 5) as *const u8, after - site - 7);
            let Some(stub) = make_stub(&STUBS, STUBS_SIZE, number, between, after) else {
                return;
            };
            jumps.push(Jump { site, stub });
        }
        // It does not trap any more, and the next program is told of it, too.
        if let Some(slot) = slot(number, after) {
            slot.fetch_or(OFTEN + 1, Ordering::Relaxed);
        }
    }
}

/// What the environment tells the next program; nothing where no site is rewritten.
pub fn tell() -> raw::Text<TEXT_MAX> {
    let mut text = raw::Text::new();
    let start = START.load(Ordering::Relaxed);
    if start == 0 || super::places::state() != super::places::State::On {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_again_and_nonsense_is_not() {
        let all = |text: &[u8]| parse(text).collect::<Vec<_>>();
        assert_eq!(all(b"123:4,50000:257,"), [(123, 4), (50_000, 257)]);
        for nonsense in [
            &b""[..],
            b",,,",
            b"12",
            b":",
            b"1:",
            b":1",
            b"-1:3",
            b"1:2:3",
            b"99999999999999999999:1",
            b"\xff:1",
        ] {
            assert_eq!(all(nonsense), [], "{nonsense:?}");
        }
    }

    #[test]
    fn traps_are_counted_until_the_site_is_rewritten() {
        let counts: Vec<_> = (0..OFTEN + 3).map(|_| count(257, 0x7f12_3456)).collect();
        let mut expected: Vec<_> = (0..=OFTEN).map(Some).collect();
        expected.extend([None, None]);
        assert_eq!(counts, expected);
        assert_eq!(count(numbers::COUNT, 0x7f12_3456), None);
    }

    #[test]
    fn only_what_a_site_must_be_is_rewritten() {
        let near = super::super::tests::area();
        // mov eax, 39; syscall; ret, at offset 64; and what looks like it, without the syscall, at 96.
        let site = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3];
        // SAFETY: code in fresh memory, called as what it is.
        unsafe {
            let text = libc::mmap(
                (near + 0x20_0000) as *mut _,
                4096,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(text, libc::MAP_FAILED);
            let start = text as usize;
            std::ptr::copy_nonoverlapping(site.as_ptr(), (start + 64) as *mut u8, site.len());
            std::ptr::copy_nonoverlapping(site.as_ptr(), (start + 96) as *mut u8, 5);
            let range = Range {
                start,
                end: start + 4096,
            };
            let mut jumps = Jumps::new();
            // Right; another number; no site; outside.
            let told = b"71:39,71:40,103:39,3:39,4097:39,18446744073709551615:39,71:15";
            rewrite(told, range, &mut jumps);
            let jumps = jumps.sorted();
            assert_eq!(jumps.len(), 1);
            assert_eq!(jumps[0].site, start + 64);
            super::super::text::place(jumps, true);
            assert_eq!(*((start + 64) as *const u8), 0xe9);
            let function: unsafe extern "C" fn() -> isize = std::mem::transmute(start + 64);
            assert_eq!(function(), raw::process_id() as isize);
        }
    }
}
