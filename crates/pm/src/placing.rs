//! Placing shared memory at addresses that a program chose: its own maps of files.
//!
//! A range is reserved first, then filled piece by piece, each piece in one step: by the same
//! pages as an existing shared mapping of ours (`mremap` of nothing, which needs no descriptor),
//! by zeroes that cannot be written, or by nothing at all (SIGBUS, as behind a file's end).
//!
//! Invariants: nothing here frees or changes memory outside the range that it is given; a range
//! that was reserved stays mapped, as something, until [`vacate`], so that no other mapping of
//! the process can move in between.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous,
    mprotect, mremap_fixed, munmap,
};

use crate::forks;
use crate::mapping::{PAGE, lock_pages, locking_to_come};
use crate::shared::SharedBytes;

/// Protection bits of pieces: `PROT_READ`, `PROT_WRITE`, `PROT_EXEC` as the kernel numbers them.
pub type Protection = u32;

/// Reserves `len` bytes (rounded up to pages) without access, where the kernel likes or, by
/// MAP_FIXED and MAP_FIXED_NOREPLACE in `flags`, at `address`. Gives the address.
///
/// # Errors
/// The kernel's: ENOMEM, EEXIST, EINVAL, EPERM.
///
/// # Safety
/// With MAP_FIXED, whatever is mapped there is the caller's to replace.
pub unsafe fn reserve(address: usize, len: usize, flags: u32) -> Result<usize, Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::from_bits_retain(flags);
    // SAFETY: the caller's promise.
    unsafe { mmap_anonymous(address as *mut c_void, len, ProtFlags::empty(), flags) }
        .map(|address| address as usize)
}

/// Gives a range back.
///
/// # Errors
/// ENOMEM (too many mappings), EINVAL.
///
/// # Safety
/// What is mapped there is the caller's, and nobody uses it any more.
pub unsafe fn vacate(address: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { munmap(address as *mut c_void, len) }
}

/// Changes the protection of a range.
///
/// # Errors
/// EACCES if what is mapped there does not allow it; ENOMEM.
///
/// # Safety
/// What is mapped there is the caller's.
pub unsafe fn protect(address: usize, len: usize, protection: Protection) -> Result<(), Errno> {
    let flags = MprotectFlags::from_bits_retain(protection);
    // SAFETY: the caller's promise.
    unsafe { mprotect(address as *mut c_void, len, flags) }
}

/// Maps the pages of `source`, which lies in one shared mapping of ours, at `address` too.
/// `given` is the protection that the source is mapped with, which need not be set again.
///
/// # Errors
/// EACCES if the source's file was not opened for what `protection` asks; ENOMEM (too many
/// mappings). The range is then still mapped, as something.
///
/// # Safety
/// `address` is the start of `source.len()` reserved bytes of the caller's; `source` is page
/// aligned.
pub unsafe fn duplicate(
    source: SharedBytes<'_>,
    given: Protection,
    address: usize,
    protection: Protection,
) -> Result<(), Errno> {
    let target = address as *mut c_void;
    let flags = MremapFlags::MAYMOVE;
    // SAFETY: of size 0, so that the source stays; the target is the caller's.
    unsafe { mremap_fixed(source.as_ptr().cast(), 0, source.len(), flags, target)? };
    // SAFETY: just mapped. The program's own maps are in its core dumps as it likes, which ours are not.
    // A mere wish.
    let _ = unsafe { madvise(target, source.len(), Advice::LinuxDoDump) };
    // Nor has any child what is ours; what is the program's it has.
    // SAFETY: just mapped.
    unsafe { forks::give_to_children(target.cast(), source.len())? };
    if protection != given {
        // SAFETY: just mapped.
        unsafe { protect(address, source.len(), protection)? };
    }
    if let Some(locking) = locking_to_come() {
        // What is duplicated is locked as its source is, which ours never are. There may be no more room
        // for what is locked: the map is there all the same, as after a fork.
        // SAFETY: just mapped.
        let _ = unsafe { lock_pages(address, source.len(), locking) };
    }
    Ok(())
}

/// Fills a range with private zeroes.
///
/// # Errors
/// ENOMEM.
///
/// # Safety
/// The range is reserved and the caller's.
pub unsafe fn zeroes(address: usize, len: usize, protection: Protection) -> Result<(), Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    let protection = ProtFlags::from_bits_retain(protection);
    // SAFETY: the caller's promise.
    unsafe { mmap_anonymous(address as *mut c_void, len, protection, flags) }.map(|_| ())
}

/// Replaces a range by a private copy of `source`, which may be what stands there, in one step.
///
/// # Errors
/// ENOMEM; EIO if the source's file has lost a page. The range is then as before.
///
/// # Safety
/// The range begins at `address`, is as long as `source`, page aligned, and the caller's.
pub unsafe fn copy_of(
    address: usize,
    source: SharedBytes<'_>,
    protection: Protection,
) -> Result<(), Errno> {
    let all = 0..source.len();
    // SAFETY: the caller's promise.
    unsafe { copy_of_parts(address, source, protection, std::iter::once(all)) }
}

/// The same for a source that is zero but for some parts, which alone are looked at.
///
/// # Errors
/// As for [`copy_of`].
///
/// # Safety
/// As for [`copy_of`]; the parts, in bytes, are inside the source.
pub unsafe fn copy_of_parts(
    address: usize,
    source: SharedBytes<'_>,
    protection: Protection,
    mut parts: impl Iterator<Item = Range<usize>>,
) -> Result<(), Errno> {
    let len = source.len();
    let both = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: where the kernel likes.
    let copy = unsafe { mmap_anonymous(std::ptr::null_mut(), len, both, flags)? };
    // SAFETY: a new mapping of this length, and the caller's promise.
    unsafe {
        let copied = parts.try_for_each(|part| {
            let to = copy.cast::<u8>().add(part.start);
            source.try_copy_to_ptr(part.start, to, part.len())
        });
        let placed = copied.map_err(|error| error.errno()).and_then(|()| {
            if protection != both.bits() {
                protect(copy as usize, len, protection)?;
            }
            let flags = MremapFlags::MAYMOVE;
            mremap_fixed(copy, len, len, flags, address as *mut c_void)
        });
        match placed {
            Ok(_) => Ok(()),
            Err(errno) => {
                let _ = munmap(copy, len);
                Err(errno)
            }
        }
    }
}

/// Fills a range with nothing: whoever touches it gets SIGBUS.
///
/// # Errors
/// ENOMEM, EMFILE.
///
/// # Safety
/// The range is reserved and the caller's.
pub unsafe fn nothing(address: usize, len: usize, protection: Protection) -> Result<(), Errno> {
    let target = address as *mut c_void;
    // SAFETY: of size 0, so that the source stays, which is our own for ever; the target is the
    // caller's.
    unsafe {
        mremap_fixed(
            empty_file()? as *mut c_void,
            0,
            len,
            MremapFlags::MAYMOVE,
            target,
        )?
    };
    let given = (ProtFlags::READ | ProtFlags::WRITE).bits();
    if protection != given {
        // SAFETY: just mapped.
        unsafe { protect(address, len, protection)? };
    }
    Ok(())
}

/// The address of a page of an empty memory file, mapped for ever.
fn empty_file() -> Result<usize, Errno> {
    // No lock, which a child could be forked with.
    static PLACE: AtomicUsize = AtomicUsize::new(0);
    let known = PLACE.load(Ordering::Relaxed);
    if known != 0 {
        return Ok(known);
    }
    let file = rustix::fs::memfd_create(c"arck-empty", rustix::fs::MemfdFlags::CLOEXEC)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: where the kernel likes.
    let place = unsafe {
        mmap(
            std::ptr::null_mut(),
            PAGE,
            protection,
            MapFlags::SHARED,
            &file,
            0,
        )?
    };
    let (new, old) = (Ordering::Relaxed, Ordering::Relaxed);
    Ok(match PLACE.compare_exchange(0, place as usize, new, old) {
        Ok(_) => place as usize,
        Err(first) => first,
    })
}

/// Faults the pages of a range in as far as that can be done; nothing depends on it.
///
/// # Safety
/// The range is mapped and the caller's.
pub unsafe fn populate(address: usize, len: usize, protection: Protection) {
    let advice = if protection & ProtFlags::WRITE.bits() != 0 {
        Advice::LinuxPopulateWrite
    } else {
        Advice::LinuxPopulateRead
    };
    // SAFETY: populating changes no contents.
    let _ = unsafe { madvise(address as *mut c_void, len, advice) };
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::{MapOptions, Mapping};

    const READ: Protection = ProtFlags::READ.bits();
    const BOTH: Protection = READ | ProtFlags::WRITE.bits();

    #[test]
    fn pieces_of_a_mapping_are_the_same_memory() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * PAGE as u64).unwrap();
        let ours = Mapping::new(&file, 0, 8 * PAGE, MapOptions::READ_WRITE).unwrap();
        let read_only = Mapping::new(
            std::fs::File::open(format!(
                "/proc/self/fd/{}",
                std::os::fd::AsRawFd::as_raw_fd(&file)
            ))
            .unwrap(),
            0,
            8 * PAGE,
            MapOptions::READ_ONLY,
        )
        .unwrap();
        // SAFETY: a new range, used by this test alone.
        unsafe {
            let at = reserve(0, 4 * PAGE, 0).unwrap();
            let source = ours.bytes().slice(2 * PAGE, 2 * PAGE).unwrap();
            duplicate(source, BOTH, at + PAGE, BOTH).unwrap();
            ours.bytes()
                .store_u64(3 * PAGE, 7, std::sync::atomic::Ordering::Relaxed);
            let there = (at + 2 * PAGE) as *mut u64;
            assert_eq!(there.read_volatile(), 7);
            there.write_volatile(8);
            let word = ours
                .bytes()
                .load_u64(3 * PAGE, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(word, Some(8));
            let source = read_only.bytes().slice(3 * PAGE, PAGE).unwrap();
            duplicate(source, READ, at, READ).unwrap();
            assert_eq!((at as *const u64).read_volatile(), 8);
            assert_eq!(protect(at, PAGE, BOTH), Err(Errno::ACCESS));
            zeroes(at, PAGE, READ).unwrap();
            assert_eq!((at as *const u64).read_volatile(), 0);
            nothing(at + 3 * PAGE, PAGE, READ).unwrap();
            // The kernel meets the missing page in our place.
            let (_reader, writer) = std::io::pipe().unwrap();
            let missing = std::slice::from_raw_parts((at + 3 * PAGE) as *const u8, 8);
            assert_eq!(rustix::io::write(&writer, missing), Err(Errno::FAULT));
            vacate(at, 4 * PAGE).unwrap();
        }
    }
}
