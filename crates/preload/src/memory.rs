//! The program's own memory: paths, structures and vectors that a call points to.
//!
//! A pointer may lead nowhere, to a page that may not be written, or to a mapped file that was cut
//! off; the kernel answers EFAULT then. So nothing of the program's memory is read or written
//! here by plain loads and stores: everything goes through the guarded routines, whose
//! faults [`crate::signals`] recovers from. While nothing faults that costs a call, and for a
//! path one load for each page that it reaches into.
//!
//! Invariants:
//! * Pages that a path was found to reach into are taken to stay for as long as the call lasts.
//! * What is copied in is copied once, then looked at.
//!
//! A thread that has SIGSEGV blocked is still killed by the kernel at a fault.

use crate::settings::PATH_MAX;
use arckfs::Errno;
use arckfs::guarded;
use std::mem::MaybeUninit;

const PAGE: usize = 4096;

/// Whether an address lies where no program's memory can be: in the first page, which is never
/// mapped, or in the kernel's half.
#[inline(always)]
pub const fn is_nowhere(address: usize) -> bool {
    (address as isize) < PAGE as isize
}

/// Whether the page of an address can be read.
#[inline(always)]
pub fn is_readable(address: usize) -> bool {
    // SAFETY: guarded, aligned, and it stays in the page of the address.
    !is_nowhere(address)
        && unsafe { guarded::guarded_load_u64((address & !7) as *const u64) }.is_ok()
}

/// The byte at an address; `None` if it cannot be read.
#[inline(always)]
pub fn byte(address: usize) -> Option<u8> {
    // SAFETY: the page was found to be readable a moment ago.
    is_readable(address).then(|| unsafe { (address as *const u8).read_volatile() })
}

/// Copies bytes in.
///
/// # Safety
/// `room` is this library's own, writable for `length` bytes.
#[inline(always)]
unsafe fn copy_bytes_in(room: *mut u8, address: usize, length: usize) -> Result<(), Errno> {
    if is_nowhere(address) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the room as promised; the source is guarded.
    unsafe { guarded::guarded_copy(room, address as *const u8, length) }.map_err(|_| Errno::FAULT)
}

/// A value of the program's. EFAULT.
///
/// # Safety
/// Any bytes make a `T`.
#[inline(always)]
pub unsafe fn copy_in<T: Copy>(address: usize) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: room for a `T`, of which all bytes are there if the copy succeeds.
    unsafe {
        copy_bytes_in(value.as_mut_ptr().cast(), address, size_of::<T>())?;
        Ok(value.assume_init())
    }
}

/// Several values of the program's, into `room`. EFAULT.
///
/// # Safety
/// Any bytes make a `T`, and `room` has that many.
pub unsafe fn copy_many_in<T: Copy>(
    room: &mut [MaybeUninit<T>],
    address: usize,
    count: usize,
) -> Result<&[T], Errno> {
    let room = room.get_mut(..count).ok_or(Errno::INVAL)?;
    // SAFETY: room for all of them; they are there if the copy succeeds.
    unsafe {
        if count != 0 {
            copy_bytes_in(room.as_mut_ptr().cast(), address, size_of_val(room))?;
        }
        Ok(std::slice::from_raw_parts(room.as_ptr().cast(), count))
    }
}

/// Puts a value into the program's memory. EFAULT.
#[inline(always)]
pub fn copy_out<T: Copy>(address: usize, value: &T) -> Result<(), Errno> {
    // SAFETY: the bytes of a value; padding is copied by assembly, never looked at.
    unsafe { copy_bytes_out(address, (&raw const *value).cast(), size_of::<T>()) }
}

/// Puts bytes into the program's memory. EFAULT.
pub fn copy_slice_out(address: usize, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    // SAFETY: a slice's bytes.
    unsafe { copy_bytes_out(address, bytes.as_ptr(), bytes.len()) }
}

/// # Safety
/// `bytes` is readable for `length` bytes.
#[inline(always)]
unsafe fn copy_bytes_out(address: usize, bytes: *const u8, length: usize) -> Result<(), Errno> {
    if is_nowhere(address) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the bytes as promised; the destination is guarded.
    unsafe { guarded::guarded_copy(address as *mut u8, bytes, length) }.map_err(|_| Errno::FAULT)
}

/// A string of the program's, and whether it has `/..` in it.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    /// Without the NUL byte; all of `PATH_MAX` bytes if there is none before.
    pub bytes: &'a [u8],
    pub dots: bool,
}

/// A block of 16 bytes of a string: where it has NUL bytes, and where dots, a bit for each byte.
///
/// # Safety
/// `at` is aligned to 16 bytes, in a page that can be read.
#[inline(always)]
unsafe fn block(at: usize) -> (u64, u64) {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set1_epi8, _mm_setzero_si128,
    };
    let block: __m128i;
    // SAFETY: aligned, and the page can be read. By assembly, since to the language part of it is
    // outside the string. The rest are computations.
    unsafe {
        std::arch::asm!("movdqa {0}, [{1}]", out(xmm_reg) block, in(reg) at,
            options(pure, readonly, nostack, preserves_flags));
        let places = |what: __m128i| _mm_movemask_epi8(_mm_cmpeq_epi8(block, what)) as u64;
        (
            places(_mm_setzero_si128()),
            places(_mm_set1_epi8(b'.' as i8)),
        )
    }
}

/// Reads a string. `None` if it cannot be read up to its NUL byte, or as far as paths go.
///
/// # Safety
/// The string stays as it is for as long as the result is used.
#[inline(always)]
pub unsafe fn text<'a>(address: usize) -> Option<Text<'a>> {
    if !is_readable(address) {
        return None;
    }
    let skipped = address % 16;
    let mut at = address - skipped;
    // What is before the string does not count.
    // SAFETY: in the page that can be read.
    let (mut nul, mut dot) = unsafe { block(at) };
    nul &= 0xffff << skipped;
    dot &= 0xffff << skipped;
    // Whether two dots stood together. What is behind the string may count too: a pair only means
    // a second look.
    let mut pairs = dot & (dot << 1);
    while nul == 0 {
        let last = dot >> 15;
        at += 16;
        if at.is_multiple_of(PAGE) {
            // SAFETY: the caller's promise.
            return unsafe { text_of_pages(address) };
        }
        // SAFETY: in the same page.
        (nul, dot) = unsafe { block(at) };
        pairs |= dot & (dot << 1 | last);
    }
    let length = at + nul.trailing_zeros() as usize - address;
    // SAFETY: all of it was read just now, and stays by the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, length) };
    Some(Text {
        bytes,
        dots: pairs != 0 && has_dots(bytes),
    })
}

/// The same for a string that does not end in its first page, which can be read.
///
/// # Safety
/// As for [`text`].
#[cold]
#[inline(never)]
unsafe fn text_of_pages<'a>(address: usize) -> Option<Text<'a>> {
    let mut at = address;
    let end = address.saturating_add(PATH_MAX);
    // SAFETY: each page is looked at before its bytes are read.
    while at < end && unsafe { (at as *const u8).read_volatile() } != 0 {
        at += 1;
        if at.is_multiple_of(PAGE) && !is_readable(at) {
            return None;
        }
    }
    // SAFETY: all of it was read just now, and stays by the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, at - address) };
    Some(Text {
        bytes,
        dots: has_dots(bytes),
    })
}

#[cold]
fn has_dots(bytes: &[u8]) -> bool {
    bytes.windows(3).any(|three| three == b"/..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_found_wherever_they_are() {
        let has = |given: &[u8]| {
            // Every position in a block, with something that must not count before and behind.
            let mut answers = (0..40).map(|place| {
                let mut buffer = [b'/'; 160];
                buffer[place..place + given.len()].copy_from_slice(given);
                if place > 0 {
                    buffer[place - 1] = b'/';
                }
                buffer[place + given.len()] = 0;
                buffer[place + given.len() + 1..].fill(b'.');
                // SAFETY: NUL-terminated, and it stays.
                let read = unsafe { text(buffer[place..].as_ptr() as usize) }.unwrap();
                assert_eq!(read.bytes, given);
                read.dots
            });
            let first = answers.next().unwrap();
            assert!(answers.all(|answer| answer == first), "{given:?}");
            first
        };
        for length in 0..60 {
            let plain = vec![b'x'; length];
            assert!(!has(&plain));
            for found in [&b"/.."[..], b"/../", b"/..x", b"/a/.."] {
                assert!(has(&[&plain, found].concat()), "{length}");
                assert!(has(&[found, &plain].concat()), "{length}");
            }
            for not in [
                &b"../"[..],
                b"/.",
                b"/.x.",
                b"./.",
                b"/",
                b".",
                b"..",
                b"/a..",
            ] {
                assert!(!has(&[&plain, not].concat()), "{length}");
            }
        }
    }

    #[test]
    fn strings_without_end_are_cut() {
        let long = vec![b'x'; 3 * PATH_MAX];
        for start in 0..20 {
            // SAFETY: it is longer than what is read.
            let read = unsafe { text(long[start..].as_ptr() as usize) }.unwrap();
            assert_eq!(read.bytes.len(), PATH_MAX);
        }
    }

    #[test]
    fn nowhere_is_told() {
        for address in [0, 1, 4095, 1 << 63, usize::MAX] {
            assert!(is_nowhere(address));
            assert!(byte(address).is_none());
            // SAFETY: nothing is read.
            assert!(unsafe { text(address) }.is_none());
            // SAFETY: any bytes make a number.
            assert_eq!(unsafe { copy_in::<u64>(address) }, Err(Errno::FAULT));
            assert_eq!(copy_out(address, &7u64), Err(Errno::FAULT));
        }
        assert_eq!(byte(c"x".as_ptr() as usize), Some(b'x'));
    }

    #[test]
    fn values_are_copied() {
        let words = [1u64, 2, 3];
        let address = words.as_ptr() as usize;
        let mut room = [MaybeUninit::<u64>::uninit(); 3];
        // SAFETY: any bytes make a number.
        unsafe {
            assert_eq!(copy_in::<u64>(address + 8), Ok(2));
            assert_eq!(copy_many_in(&mut room, address, 3), Ok(&words[..]));
            assert_eq!(copy_many_in(&mut room, address, 4), Err(Errno::INVAL));
            assert_eq!(copy_many_in(&mut room, 0, 0), Ok(&[][..]));
        }
        let mut bytes = [0u8; 8];
        assert_eq!(copy_out(bytes.as_mut_ptr() as usize, &0x0102u16), Ok(()));
        assert_eq!(
            copy_slice_out(bytes.as_mut_ptr() as usize + 2, b"ab"),
            Ok(())
        );
        assert_eq!(bytes, [2, 1, b'a', b'b', 0, 0, 0, 0]);
    }
}
