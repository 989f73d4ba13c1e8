//! Addresses where nobody else maps anything, for who cannot reserve them, or may have to give up what is
//! reserved.
//!
//! The kernel places mappings downwards from the stack (or, with an unlimited stack, upwards from a
//! third of the address space) and programs at two thirds of it; what takes addresses of its own choice,
//! as JavaScript engines and sanitizers do, stays below 64 TiB. So between that and the program lie some
//! TiB that nobody uses. They are handed out one after the other, each time after a look at what the
//! process has mapped.
//!
//! Invariant: whoever maps there does so without replacing anything, so that a wrong guess is an error
//! and no harm.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::mapping::HUGE_PAGE;

const FIRST: usize = 0x4200_0000_0000;
const LAST: usize = 0x5400_0000_0000;
/// Between two of them, so that one that runs over its end meets nothing.
const GAP: usize = 1 << 30;

/// Where the next begins; 0 before the first.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// How often other addresses are tried.
const ATTEMPTS: usize = 64;

/// The beginning of `len` bytes where nothing is mapped, aligned to 2 MiB.
///
/// # Errors
/// ENOMEM: there are none.
pub(crate) fn choose(len: usize) -> Result<*mut u8, Errno> {
    let mapped = mapped();
    for _ in 0..ATTEMPTS {
        let (at, end) = next(len)?;
        let is_free = |&(from, to): &(usize, usize)| to <= at || from >= end;
        if mapped.iter().all(is_free) {
            return Ok(std::ptr::without_provenance_mut(at));
        }
    }
    Err(Errno::NOMEM)
}

/// Reserves `len` bytes by `map`, which replaces nothing at the address that it is given. Where there are
/// none: where the kernel likes, if it is given none; says whether that is so.
pub(crate) fn reserve(
    len: usize,
    map: impl Fn(Option<*mut u8>) -> Result<*mut u8, Errno>,
) -> Result<(*mut u8, bool), Errno> {
    // A sanitizer of threads has shadows for the kernel's choices alone.
    let attempts = if cfg!(sanitize_thread) { 0 } else { ATTEMPTS };
    for _ in 0..attempts {
        let Ok((at, _)) = next(len) else { break };
        match map(Some(std::ptr::without_provenance_mut(at))) {
            Err(Errno::EXIST) => {}
            mapped => return mapped.map(|base| (base, true)),
        }
    }
    map(None).map(|base| (base, false))
}

/// Where the next `len` bytes begin that nobody has been given, and end with what lies between.
fn next(len: usize) -> Result<(usize, usize), Errno> {
    let len = len
        .checked_next_multiple_of(GAP)
        .and_then(|len| len.checked_add(GAP))
        .filter(|&len| len <= LAST - FIRST)
        .ok_or(Errno::NOMEM)?;
    let next = match NEXT.load(Ordering::Relaxed) {
        0 => begin(),
        next => next,
    };
    // Two threads at once may be given the same: then one of them meets what the other has mapped.
    let at = if next + len > LAST { FIRST } else { next };
    NEXT.store(at + len, Ordering::Relaxed);
    Ok((at, at + len))
}

/// Somewhere in the first half, as the kernel's choice of addresses has it.
fn begin() -> usize {
    let here = 0u8;
    let chance = (&raw const here).addr() >> 12;
    FIRST + chance.wrapping_mul(HUGE_PAGE) % ((LAST - FIRST) / 2)
}

/// What this process has mapped between the limits; nothing where the kernel does not say.
fn mapped() -> Vec<(usize, usize)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut text = Vec::new();
    let Ok(file) = rustix::fs::open(c"/proc/self/maps", flags, Mode::empty()) else {
        return Vec::new();
    };
    let mut buffer = [0; 2048];
    while let Ok(count @ 1..) = rustix::io::read(&file, &mut buffer) {
        text.extend_from_slice(&buffer[..count]);
    }
    text.split(|&byte| byte == b'\n')
        .filter_map(range)
        .filter(|&(from, to)| from < LAST && to > FIRST)
        .collect()
}

/// The range that a line of `/proc/self/maps` begins with.
fn range(line: &[u8]) -> Option<(usize, usize)> {
    let range = line.split(|&byte| byte == b' ').next()?;
    let (from, to) = std::str::from_utf8(range).ok()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(from)?, number(to)?))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_understood() {
        let line = b"7f12a000-7f12b000 rw-s 00001000 00:01 12 /memfd:x (deleted)";
        assert_eq!(range(line), Some((0x7f12_a000, 0x7f12_b000)));
        assert_eq!(range(b""), None);
        assert!(mapped().is_empty() || mapped().iter().all(|(from, to)| from < to));
    }

    #[test]
    fn what_is_chosen_is_apart_and_aligned() {
        let first = choose(34 << 30).unwrap().addr();
        let second = choose(1).unwrap().addr();
        assert!(first.is_multiple_of(HUGE_PAGE) && second.is_multiple_of(HUGE_PAGE));
        assert!(second >= first + (34 << 30) || second < first);
        assert!((FIRST..LAST).contains(&first) && (FIRST..LAST).contains(&second));
        assert_eq!(choose(usize::MAX), Err(Errno::NOMEM));
        assert_eq!(choose(LAST), Err(Errno::NOMEM));
    }
}
