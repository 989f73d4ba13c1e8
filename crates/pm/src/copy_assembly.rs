//! The copy routines of [`crate::copy`], in assembly.
//!
//! Invariant: no block claims `nomem` or `pure`, so the compiler assumes that
//! each may read and write any memory that has escaped, and can neither reorder
//! nor repeat nor split the accesses.

use crate::lines::STRING_COPY_FROM;
use std::arch::asm;

/// # Safety
/// `source` is readable and `destination` writable for `len` bytes, and they do
/// not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_bytes(destination: *mut u8, source: *const u8, len: usize) {
    if len >= STRING_COPY_FROM {
        // SAFETY: the ranges are the caller's; the direction flag is clear by the ABI.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") source => _,
                inout("rdi") destination => _,
                options(nostack, preserves_flags),
            );
        }
    } else {
        // SAFETY: the ranges are the caller's; each step moves no more than is left.
        unsafe {
            asm!(
                "cmp {left}, 32",
                "jb 3f",
                "2:",
                "movups {x}, [{source}]",
                "movups {y}, [{source} + 16]",
                "movups [{destination}], {x}",
                "movups [{destination} + 16], {y}",
                "add {source}, 32",
                "add {destination}, 32",
                "sub {left}, 32",
                "cmp {left}, 32",
                "jae 2b",
                "3:",
                "cmp {left}, 8",
                "jb 5f",
                "4:",
                "mov {word}, [{source}]",
                "mov [{destination}], {word}",
                "add {source}, 8",
                "add {destination}, 8",
                "sub {left}, 8",
                "cmp {left}, 8",
                "jae 4b",
                "5:",
                "test {left}, {left}",
                "jz 7f",
                "6:",
                "mov {word:l}, [{source}]",
                "mov [{destination}], {word:l}",
                "inc {source}",
                "inc {destination}",
                "dec {left}",
                "jnz 6b",
                "7:",
                left = inout(reg) len => _,
                source = inout(reg) source => _,
                destination = inout(reg) destination => _,
                word = out(reg) _,
                x = out(xmm_reg) _,
                y = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
}

/// Fills with zero.
///
/// # Safety
/// `destination` is writable for `len` bytes.
#[inline]
pub(crate) unsafe fn fill_bytes(destination: *mut u8, len: usize) {
    // SAFETY: the range is the caller's; the direction flag is clear by the ABI.
    unsafe {
        asm!(
            "rep stosb",
            inout("rcx") len => _,
            inout("rdi") destination => _,
            in("al") 0u8,
            options(nostack, preserves_flags),
        );
    }
}

/// Streams whole lines.
///
/// # Safety
/// `len` is a positive multiple of 64, `destination` is aligned to 64 and
/// writable, `source` readable (at any alignment), and they do not overlap.
#[inline(always)]
pub(crate) unsafe fn stream_lines(destination: *mut u8, source: *const u8, len: usize) {
    debug_assert!(len > 0 && len.is_multiple_of(64) && (destination as usize).is_multiple_of(64));
    // SAFETY: the ranges and the alignment are the caller's promise.
    unsafe {
        asm!(
            "2:",
            "movups {a}, [{source}]",
            "movups {b}, [{source} + 16]",
            "movups {c}, [{source} + 32]",
            "movups {d}, [{source} + 48]",
            "movntps [{destination}], {a}",
            "movntps [{destination} + 16], {b}",
            "movntps [{destination} + 32], {c}",
            "movntps [{destination} + 48], {d}",
            "add {source}, 64",
            "add {destination}, 64",
            "sub {left}, 64",
            "jnz 2b",
            left = inout(reg) len => _,
            source = inout(reg) source => _,
            destination = inout(reg) destination => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// # Safety
/// `destination` is aligned to 8 and writable.
#[inline(always)]
pub(crate) unsafe fn stream_word(destination: *mut u64, value: u64) {
    // SAFETY: an aligned store of 8 bytes to the caller's memory.
    unsafe {
        asm!(
            "movnti [{}], {}",
            in(reg) destination,
            in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

/// Has a line fetched into the caches of this processor, and does not wait for it. Wherever it is: an address of
/// nothing does no harm.
#[inline(always)]
pub(crate) fn fetch_line(at: *const u8) {
    // SAFETY: the instruction changes nothing that a program could see, and faults never.
    unsafe {
        asm!("prefetcht0 [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
    }
}
