//! Sites that many calls share. From glibc 2.41 on all cancellation points end in two `syscall`
//! instructions, whose number is an argument: one for programs with one thread, and one where
//! libc knows by the address that a thread waits and can be cancelled.
//!
//! They are found from libc's `read` by following calls, and rewritten at start-up, while there is
//! one thread: the five bytes before the `syscall` are one instruction (a load of the number, or
//! the last of the stores before it), which moves into the stub.
//!
//! Invariant: a thread that waits in a call made at the second site can be cancelled there, as
//! libc has it, whether the site is rewritten or traps; see [`is_cancellation_point`].

use super::places::{Range, STUBS, STUBS_SIZE};
use super::stub::{CANCELLATION_POINT, write_stub};
use super::text::{Jump, Jumps};
use std::sync::atomic::{AtomicUsize, Ordering};

/// `mov rax, [rsp + 16]; syscall`, less the constant.
const LOAD: [u8; 4] = [0x48, 0x8b, 0x44, 0x24];
/// `mov [rsp + 8], r11; syscall; ret`, behind the moves that set up a call with six arguments.
const STORE: [u8; 5] = [0x4c, 0x89, 0x5c, 0x24, 0x08];
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Bytes of a function that are looked at, and how deep calls are followed: `read`, what sets
/// `errno`, what looks for other threads, the call itself.
const LOOKED_AT: usize = 160;
const DEPTH: usize = 4;

/// Behind the `syscall` of the cancellation point; 0 = none found.
static POINT: AtomicUsize = AtomicUsize::new(0);

/// Whether a `syscall` that ends at this address is libc's common cancellation point.
pub fn is_cancellation_point(after: usize) -> bool {
    after == POINT.load(Ordering::Relaxed)
}

/// The sites, as addresses of the instruction before `syscall`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sites {
    pub single: Option<usize>,
    pub cancellable: Option<usize>,
}

/// Looks for the sites from the code at `function` on, within `text`.
///
/// # Safety
/// `text` can be read.
pub unsafe fn find(function: usize, text: Range, depth: usize, sites: &mut Sites) {
    if function < text.start || function + LOOKED_AT > text.end {
        return;
    }
    let mut code = [0u8; LOOKED_AT];
    // SAFETY: within the text.
    unsafe { std::ptr::copy_nonoverlapping(function as *const u8, code.as_mut_ptr(), LOOKED_AT) };
    for (at, bytes) in code.windows(8).enumerate() {
        if bytes[5..7] == SYSCALL {
            if bytes[..5] == STORE && bytes[7] == 0xc3 {
                sites.cancellable.get_or_insert(function + at);
            } else if bytes[..4] == LOAD {
                sites.single.get_or_insert(function + at);
            }
        }
    }
    if depth == 0 {
        return;
    }
    for (at, bytes) in code.windows(5).enumerate() {
        if bytes[0] == 0xe8 {
            let to = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
            // What looks like a call and is none leads nowhere, or nowhere that matters.
            let called = (function + at + 5).wrapping_add_signed(to as isize);
            // SAFETY: as for this function.
            unsafe { find(called, text, depth - 1, sites) };
        }
    }
}

/// At start-up: finds the sites.
///
/// # Safety
/// `text` is libc's, `read` its function.
pub unsafe fn start(read: usize, text: Range) -> Sites {
    let mut sites = Sites::default();
    // SAFETY: the caller's promise.
    unsafe { find(read, text, DEPTH, &mut sites) };
    if let Some(site) = sites.cancellable {
        POINT.store(site + 7, Ordering::Relaxed);
    }
    sites
}

/// Makes their stubs.
///
/// # Safety
/// The sites are what [`start`] found; no other thread runs.
pub unsafe fn rewrite(sites: &Sites, jumps: &mut Jumps) {
    for (site, flag) in [
        (sites.single, 0),
        (sites.cancellable, CANCELLATION_POINT as u32),
    ] {
        let Some(site) = site else { continue };
        // SAFETY: the caller's promise.
        let stub = unsafe {
            let mut moved = [0; 5];
            std::ptr::copy_nonoverlapping(site as *const u8, moved.as_mut_ptr(), moved.len());
            write_stub(&STUBS, STUBS_SIZE, |code| {
                code.push(&moved);
                code.push_entry(site + 7, |code| {
                    // mov ecx, eax; or ecx, flag
                    code.push(&[0x89, 0xc1, 0x81, 0xc9]);
                    code.push(&flag.to_le_bytes());
                });
                code.push_jump(site + 7);
            })
        };
        if let Some(stub) = stub {
            jumps.push(Jump { site, stub });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw;

    /// As in Debian's glibc 2.41: a function that calls, through another, one that makes calls
    /// while there is one thread, and otherwise through the cancellation point.
    const CODE: [(usize, &[u8]); 4] = [
        // read: sub rsp, 16; ...; call 0x100
        (
            0,
            &[0x48, 0x83, 0xec, 0x10, 0x31, 0xc9, 0xe8, 0xf5, 0, 0, 0],
        ),
        // push [rsp + 24]; call 0x200; pop rdx; ret
        (
            0x100,
            &[0xff, 0x74, 0x24, 0x18, 0xe8, 0xf7, 0, 0, 0, 0x5a, 0xc3],
        ),
        // push rbx; jmp over a call of 0x300; mov rax, [rsp + 16]; syscall; pop rbx; ret
        (
            0x200,
            &[
                0x53, 0xeb, 0x05, 0xe8, 0xf8, 0, 0, 0, 0x48, 0x8b, 0x44, 0x24, 0x10, 0x0f, 0x05,
                0x5b, 0xc3,
            ],
        ),
        // The common cancellation point; the jump to the cancellation leads back to 0x300.
        (
            0x300,
            &[
                0x8b, 0x07, 0xf6, 0x07, 0x08, 0x0f, 0x85, 0xf5, 0xff, 0xff, 0xff, 0x49, 0x89, 0xfb,
                0x48, 0x89, 0xf0, 0x48, 0x89, 0xd7, 0x48, 0x89, 0xce, 0x4c, 0x89, 0xc2, 0x4d, 0x89,
                0xca, 0x4c, 0x8b, 0x44, 0x24, 0x08, 0x4c, 0x8b, 0x4c, 0x24, 0x10, 0x4c, 0x89, 0x5c,
                0x24, 0x08, 0x0f, 0x05, 0xc3,
            ],
        ),
    ];

    #[test]
    fn the_shared_sites_are_found_rewritten_and_work() {
        let near = super::super::tests::area();
        // SAFETY: code in fresh memory, called as what it is.
        unsafe {
            let text = libc::mmap(
                (near + 0x10_0000) as *mut _,
                4096,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(text, libc::MAP_FAILED);
            let base = text as usize;
            for (at, bytes) in CODE {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), (base + at) as *mut u8, bytes.len());
            }
            let range = Range {
                start: base,
                end: base + 4096,
            };
            let mut sites = Sites::default();
            find(base, range, DEPTH, &mut sites);
            assert_eq!(sites.single, Some(base + 0x208));
            assert_eq!(sites.cancellable, Some(base + 0x300 + 39));
            let sites = start(base, range);
            let mut jumps = Jumps::new();
            rewrite(&sites, &mut jumps);
            super::super::text::place(jumps.sorted(), true);
            assert!(is_cancellation_point(base + 0x300 + 46));
            for site in [0x208, 0x300 + 39] {
                assert_eq!(*((base + site) as *const u8), 0xe9);
            }
            type Eight = unsafe extern "C" fn(
                usize,
                usize,
                usize,
                usize,
                usize,
                usize,
                usize,
                usize,
            ) -> isize;
            // The number is the seventh argument, that is, the first on the stack; the eighth is
            // not looked at.
            let single: Eight = std::mem::transmute(base + 0x200);
            let point: Eight = std::mem::transmute(base + 0x300);
            let state = 0u32;
            let state = &raw const state as usize;
            let number = libc::SYS_getpid as usize;
            let id = raw::process_id() as isize;
            assert_eq!(single(1, 2, 3, 4, 5, 6, number, 0), id);
            assert_eq!(point(state, number, 1, 2, 3, 4, 5, 6), id);
            // All six arguments arrive, and an error comes back as the kernel gives it.
            let map = |length| {
                point(
                    state,
                    libc::SYS_mmap as usize,
                    0,
                    length,
                    libc::PROT_READ as usize,
                    (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize,
                    usize::MAX,
                    0,
                )
            };
            assert_eq!(map(0), raw::error(libc::EINVAL));
            let mapped = map(4096);
            assert!(!raw::failed(mapped));
            assert_eq!(*(mapped as *const u8), 0);
            raw::unmap(mapped as *mut u8, 4096);
        }
    }

    #[test]
    fn what_is_not_in_the_text_is_not_looked_at() {
        let text = Range {
            start: 0x1000,
            end: 0x2000,
        };
        let mut sites = Sites::default();
        // SAFETY: nothing is read: the addresses are outside, or reach beyond the end.
        unsafe {
            find(0x800, text, DEPTH, &mut sites);
            find(0x1fff, text, DEPTH, &mut sites);
        }
        assert_eq!(sites, Sites::default());
    }
}
