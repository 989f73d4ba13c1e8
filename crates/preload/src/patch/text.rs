//! Writing to libc's text: the jumps to stubs.
//!
//! Invariant: text is writable only while jumps are written to it, and its pages stay shared with
//! other programs but for those that hold one.

use super::places::{REFUSED, Range, SITES, distance};
use crate::raw::syscall;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
/// Bytes of a jump.
const LENGTH: usize = 5;
/// Jumps that are so many bytes apart, or less, are written while all that is between them is
/// writable: two changes of protection take longer than a page does.
const NEAR: usize = 64 * PAGE;
/// Jumps at start-up, at most.
const JUMPS_MAX: usize = 64;

/// A site and where it is to jump to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    pub site: usize,
    pub stub: usize,
}

/// Jumps that are to be placed together.
pub struct Jumps {
    list: [Jump; JUMPS_MAX],
    length: usize,
}

impl Jumps {
    pub fn new() -> Jumps {
        Jumps {
            list: [Jump::default(); JUMPS_MAX],
            length: 0,
        }
    }

    /// In its place among the others. One too many is left out: its site goes on trapping.
    pub fn push(&mut self, jump: Jump) {
        if self.length == JUMPS_MAX {
            return;
        }
        let mut at = self.length;
        while at > 0 && self.list[at - 1] > jump {
            self.list[at] = self.list[at - 1];
            at -= 1;
        }
        self.list[at] = jump;
        self.length += 1;
    }

    /// Whether one is to be placed there.
    pub fn has(&self, site: usize) -> bool {
        self.list[..self.length]
            .binary_search_by_key(&site, |jump| jump.site)
            .is_ok()
    }

    pub fn is_full(&self) -> bool {
        self.length == JUMPS_MAX
    }

    /// By their places.
    pub fn sorted(&self) -> &[Jump] {
        &self.list[..self.length]
    }
}

/// The `syscall` instructions of a text, or what looks like one: where they end.
pub struct Calls {
    text: Range,
    /// All before was looked at, but for what is left of it.
    looked_at: usize,
    left: u32,
}

/// Bytes that are looked at together. libc's text is more than a million bytes.
const TOGETHER: usize = 16;

impl Calls {
    /// # Safety
    /// The text can be read.
    pub unsafe fn new(text: Range) -> Calls {
        let (looked_at, left) = (text.start, 0);
        Calls {
            text,
            looked_at,
            left,
        }
    }

    /// The next one that ends at this address or behind it.
    pub fn next_from(&mut self, from: usize) -> Option<usize> {
        loop {
            while self.left == 0 {
                self.left = self.look()?;
            }
            let after = self.looked_at - TOGETHER + self.left.trailing_zeros() as usize + 2;
            self.left &= self.left - 1;
            if after >= from {
                return Some(after);
            }
        }
    }

    /// Which of the next bytes are the first of such an instruction. `None` at the end: the last few are not
    /// looked at.
    fn look(&mut self) -> Option<u32> {
        use std::arch::x86_64::{
            _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
        };
        let start = self.looked_at;
        if self.text.end - start <= TOGETHER {
            return None;
        }
        self.looked_at = start + TOGETHER;
        // SAFETY: two times sixteen bytes, of seventeen that are in the text. All processors of this kind have
        // the instructions.
        unsafe {
            let first = _mm_loadu_si128(start as *const _);
            let second = _mm_loadu_si128((start + 1) as *const _);
            let first = _mm_cmpeq_epi8(first, _mm_set1_epi8(0x0f));
            let second = _mm_cmpeq_epi8(second, _mm_set1_epi8(0x05));
            Some(_mm_movemask_epi8(_mm_and_si128(first, second)) as u32)
        }
    }
}

/// How many of these sorted jumps, which are at least one, are near each other.
fn near(jumps: &[Jump]) -> usize {
    let pairs = jumps.windows(2);
    1 + pairs
        .take_while(|pair| pair[1].site - pair[0].site <= NEAR)
        .count()
}

/// Replaces five bytes of text by a jump, at each of these places, which are sorted. Where the system
/// refuses, nothing more is rewritten.
///
/// # Safety
/// The five bytes are instructions for which the jump to the stub may stand; `alone`, that is, no
/// other thread runs, or the five lie in one aligned word.
pub unsafe fn place(mut jumps: &[Jump], alone: bool) {
    while !jumps.is_empty() {
        let (these, rest) = jumps.split_at(near(jumps));
        jumps = rest;
        let start = these[0].site & !(PAGE - 1);
        let end = (these[these.len() - 1].site + LENGTH).next_multiple_of(PAGE);
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: the pages of text that hold the sites, and the caller's promise.
        unsafe {
            if syscall!(libc::SYS_mprotect, start, end - start, all) != 0 {
                REFUSED.store(true, Ordering::Relaxed);
                return;
            }
            these.iter().for_each(|jump| write(jump, alone));
            let executable = libc::PROT_READ | libc::PROT_EXEC;
            syscall!(libc::SYS_mprotect, start, end - start, executable);
        }
        SITES.fetch_add(these.len(), Ordering::Relaxed);
    }
}

/// The operand of a jump.
pub fn distance_of(site: usize, stub: usize) -> [u8; 4] {
    distance(site + LENGTH, stub)
}

/// # Safety
/// As for [`place`]; the text can be written.
unsafe fn write(Jump { site, stub }: &Jump, alone: bool) {
    let mut jump = [0xe9, 0, 0, 0, 0];
    jump[1..].copy_from_slice(&distance_of(*site, *stub));
    // SAFETY: the caller's promise.
    unsafe {
        if alone {
            std::ptr::copy_nonoverlapping(jump.as_ptr(), *site as *mut u8, LENGTH);
        } else {
            let word = (site & !7) as *const AtomicU64;
            let mut bytes = (*word).load(Ordering::Relaxed).to_le_bytes();
            bytes[site % 8..site % 8 + LENGTH].copy_from_slice(&jump);
            (*word).store(u64::from_le_bytes(bytes), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_are_written_together_where_they_are_near() {
        let mut jumps = Jumps::new();
        for site in [0x90_0000, 0x10_0000, 0x10_4000, 0x12_0000, 0x90_0010] {
            jumps.push(Jump { site, stub: 1 });
        }
        let sorted = jumps.sorted();
        assert!(sorted.is_sorted(), "{sorted:x?}");
        assert_eq!(near(sorted), 3);
        assert_eq!(near(&sorted[3..]), 2);
    }

    #[test]
    fn calls_are_found_wherever_they_are() {
        let mut code = [0x90u8; 100];
        for at in [0, 15, 40, 42, 79, 94] {
            code[at..at + 2].copy_from_slice(&[0x0f, 0x05]);
        }
        let start = code.as_ptr() as usize;
        let end = start + code.len();
        // SAFETY: bytes that can be read.
        let mut calls = unsafe { Calls::new(Range { start, end }) };
        let next = || Some(calls.next_from(start + 3)? - start);
        assert_eq!(
            std::iter::from_fn(next).collect::<Vec<_>>(),
            [17, 42, 44, 81, 96]
        );
    }

    #[test]
    fn one_too_many_is_left_out() {
        let mut jumps = Jumps::new();
        for site in 0..JUMPS_MAX + 3 {
            jumps.push(Jump { site, stub: 0 });
        }
        assert_eq!(jumps.sorted().len(), JUMPS_MAX);
    }
}
