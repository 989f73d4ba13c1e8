//! Sites that trapped in the programs before this one ([`traps`]).
//!
//! Programs that one another executes load their locales, read the same files and allocate memory by
//! the same places in libc. A trap takes microseconds, and each rewriting of a site changes the
//! protection of text twice. So a program is told by the environment (`ARCK_SITES`) which sites have
//! trapped more than once in the one that has executed it, and in those before, and rewrites them all
//! together (see [`super`]).
//!
//! Invariant: what the environment says is a hint. A site is rewritten if it is what a site that has
//! trapped must be, in this process's libc: another libc has others, which trap.

use super::places::{Range, STUBS, STUBS_SIZE};
use super::site::{BETWEEN, find_before, is_simple, make_jump};
use super::text::Jumps;
use super::traps::{self, TOLD_MAX};
use crate::settings;

/// The sites in a text that [`traps::tell`] has made: offset behind the `syscall` in libc's text, and number.
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
    for (offset, number) in parse(told) {
        let Some(after) = text.start.checked_add(offset) else {
            continue;
        };
        if after > text.end || offset < BETWEEN + 8 || !is_simple(number) {
            continue;
        }
        // SAFETY: all that is looked at, and moved, lies in the text.
        unsafe {
            let Some(before) = find_before(after, Some(number)) else {
                continue;
            };
            let Some(jump) = make_jump(&STUBS, STUBS_SIZE, before, after) else {
                return;
            };
            jumps.push(jump);
        }
        traps::is_rewritten(number, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw;

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
