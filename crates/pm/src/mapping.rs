//! Mapped files.
//!
//! Invariant: a [`Mapping`] owns its pages of address space until it is dropped;
//! views borrow it, so none outlives it. What the file holds, and whether it
//! still has those pages, is up to everybody who has it open.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MlockFlags, MprotectFlags, MremapFlags, MsyncFlags, ProtFlags, madvise,
    mlock, mlock_with, mmap, mmap_anonymous, mprotect, mremap_fixed, msync, munlock, munmap,
};

use crate::error::{Error, Result};
use crate::forks;
use crate::record::{self, FileId};
use crate::shared::SharedBytes;

/// Size of a small page in bytes; offsets in files are multiples of it.
pub const PAGE: usize = 4096;

/// Size of a huge page in bytes.
pub const HUGE_PAGE: usize = 2 << 20;

/// What a mapping allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Loads only.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// How to map.
#[derive(Debug, Clone, Copy)]
pub struct MapOptions {
    /// What the mapping allows.
    pub access: Access,
    /// Map with MAP_SYNC, so that flushes alone make stores durable; fails with
    /// EOPNOTSUPP on files that are not direct-access. Needed in the `dax` mode.
    pub synchronous: bool,
    /// Fault every page in before returning.
    pub populate: bool,
    /// The pages are memory: they are never evicted, and nothing is read ahead. Then the kernel need not
    /// note how recently each was touched; else, when the mapping goes, it moves each touched page in its
    /// lists, under a lock of the whole machine: half of what the end of a process costs that has touched
    /// some thousand pages.
    pub memory: bool,
}

impl MapOptions {
    /// Loads only, not populated.
    pub const READ_ONLY: MapOptions = MapOptions {
        access: Access::ReadOnly,
        synchronous: false,
        populate: false,
        memory: false,
    };
    /// Loads and stores, not populated.
    pub const READ_WRITE: MapOptions = MapOptions {
        access: Access::ReadWrite,
        synchronous: false,
        populate: false,
        memory: false,
    };

    /// With MAP_SYNC or without.
    pub const fn synchronous(self, synchronous: bool) -> MapOptions {
        MapOptions {
            synchronous,
            ..self
        }
    }

    /// Of memory or not.
    pub const fn memory(self, memory: bool) -> MapOptions {
        MapOptions { memory, ..self }
    }

    /// Populated at once or not.
    pub const fn populate(self, populate: bool) -> MapOptions {
        MapOptions { populate, ..self }
    }

    pub(crate) fn protection(&self) -> ProtFlags {
        match self.access {
            Access::ReadOnly => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }

    pub(crate) fn flags(&self) -> MapFlags {
        let mut flags = if self.synchronous {
            MapFlags::SHARED_VALIDATE | MapFlags::SYNC
        } else {
            MapFlags::SHARED
        };
        if self.populate {
            flags |= MapFlags::POPULATE;
        }
        flags
    }
}

/// A shared mapping of part of a file or memfd; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    access: Access,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is accessed
// through `SharedBytes` only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from byte `offset` (a multiple of the file
    /// system's page size) on.
    ///
    /// # Errors
    /// The kernel's: EACCES if the descriptor does not allow the access, EINVAL
    /// for a zero length or misaligned offset, EOPNOTSUPP (see [`MapOptions`]),
    /// ENOMEM, ENODEV.
    pub fn new(file: impl AsFd, offset: u64, len: usize, options: MapOptions) -> Result<Mapping> {
        let file = file.as_fd();
        let source = Some((file, offset));
        // SAFETY: the kernel chooses a free range, so nothing is replaced.
        let base = unsafe { map_pages(None, len, options.protection(), options.flags(), source) }
            .map_err(Error::system("mmap"))?;
        // SAFETY: just mapped.
        unsafe { leave_out(base, len) };
        let base = NonNull::new(base).ok_or(Error::System {
            operation: "mmap",
            errno: Errno::NOMEM,
        })?;
        if options.memory {
            // SAFETY: just mapped, so nobody else's.
            unsafe { advise_no_recency(base.as_ptr(), len) };
        }
        announce(base.as_ptr(), len, file, offset);
        Ok(Mapping {
            base,
            len,
            access: options.access,
        })
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: the kernel refuses empty mappings.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What it allows.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// All of it.
    #[inline(always)]
    pub fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: mapped as long as `self` lives.
        unsafe { SharedBytes::from_raw(self.base, self.len) }
    }

    /// Faults the pages of a range in ([`populate`]).
    ///
    /// # Errors
    /// As [`populate`]; EFAULT for a range outside.
    pub fn populate(&self, offset: usize, len: usize) -> Result<()> {
        populate(self.part(offset, len)?, self.access)
    }

    /// Asks for huge pages; a mere wish, refused where the kernel has none.
    ///
    /// # Errors
    /// EINVAL if the kernel or file system has none.
    pub fn advise_huge_pages(&self) -> Result<()> {
        // SAFETY: advice about our own mapping; it changes no contents.
        unsafe { madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxHugepage) }
            .map_err(Error::system("madvise(MADV_HUGEPAGE)"))
    }

    /// Lets go of the file: what is mapped is private zeroes from now on, so that late readers
    /// see zeroes and late stores go nowhere, and nothing of the file is held any more.
    ///
    /// # Errors
    /// ENOMEM; then everything is as before.
    pub fn replace_by_zeroes(&self) -> Result<()> {
        record::unmapped(self.base.as_ptr(), self.len);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let length = self.len.next_multiple_of(PAGE);
        // SAFETY: replaces our own mapping, in one step, by one of the same length and rights;
        // views see memory that exists before and after.
        unsafe {
            let base = map_pages(Some(self.base.as_ptr()), length, both, flags, None)
                .map_err(Error::system("mmap"))?;
            leave_out(base, length);
        }
        Ok(())
    }

    /// Writes the pages of a range back to the file and waits
    /// ([`crate::durability::write_back`]).
    ///
    /// # Errors
    /// EIO if the device failed; EFAULT for a range outside.
    pub fn write_back(&self, offset: usize, len: usize) -> Result<()> {
        write_back(self.part(offset, len)?)
    }

    fn part(&self, offset: usize, len: usize) -> Result<SharedBytes<'_>> {
        self.bytes().slice(offset, len).ok_or(Error::OutOfBounds {
            offset,
            len,
            size: self.len,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        record::unmapped(self.base.as_ptr(), self.len);
        // SAFETY: our own mapping, and no view outlives `self`. It can only fail
        // for arguments that are wrong.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// How pages are locked into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locking {
    /// All of them are faulted in.
    Whole,
    /// Each when it is touched first (MCL_ONFAULT).
    OnFault,
}

/// How the kernel locks what this process maps: see [`note_locking_to_come`].
static TO_COME: AtomicU8 = AtomicU8::new(NOT_LOCKED);
const NOT_LOCKED: u8 = 0;
const WHOLE: u8 = 1;
const ON_FAULT: u8 = 2;

/// Says how the kernel locks whatever this process maps from now on (`mlockall` with MCL_FUTURE): then
/// this crate's mappings are made in a way that they are not, since a program means its own memory.
pub fn note_locking_to_come(locking: Option<Locking>) {
    let word = match locking {
        None => NOT_LOCKED,
        Some(Locking::Whole) => WHOLE,
        Some(Locking::OnFault) => ON_FAULT,
    };
    TO_COME.store(word, Ordering::SeqCst);
}

/// What was said last.
pub fn locking_to_come() -> Option<Locking> {
    match TO_COME.load(Ordering::Relaxed) {
        WHOLE => Some(Locking::Whole),
        ON_FAULT => Some(Locking::OnFault),
        _ => None,
    }
}

/// Locks a range of the program's into memory; pages that cannot be faulted in (nothing is behind them, or
/// they allow no access) are locked when they can.
///
/// # Errors
/// The kernel's: ENOMEM if the limit of locked memory forbids it, EPERM, EAGAIN.
///
/// # Safety
/// The range is mapped.
pub unsafe fn lock_pages(address: usize, len: usize, locking: Locking) -> rustix::io::Result<()> {
    let start = address as *mut std::ffi::c_void;
    // SAFETY: locking changes no contents; the range is the caller's to vouch for.
    unsafe {
        // That they may be is told apart from what cannot be faulted in, which is the same error.
        mlock_with(start, len, MlockFlags::ONFAULT)?;
        if locking == Locking::Whole {
            let _ = mlock(start, len);
        }
    }
    Ok(())
}

/// Maps pages of a file, or zeroes, at an address if one is given (as `flags` say), else where the kernel
/// likes. They are not locked, nor faulted in for that, whatever the program has asked for; and no forked
/// child has them ([`forks`]).
///
/// # Errors
/// The kernel's; EAGAIN where what is locked is limited and has no room for the pages, though they are
/// locked for no longer than this takes.
///
/// # Safety
/// With MAP_FIXED, whatever is mapped there is the caller's to replace.
pub(crate) unsafe fn map_pages(
    address: Option<*mut u8>,
    len: usize,
    protection: ProtFlags,
    flags: MapFlags,
    source: Option<(BorrowedFd<'_>, u64)>,
) -> rustix::io::Result<*mut u8> {
    // SAFETY: the caller's promise; and what has been mapped is ours.
    forks::mapping(|| unsafe {
        let placed = map_unlocked(address, len, protection, flags, source)?;
        forks::keep_from_children(placed, len).inspect_err(|_| {
            // Nothing then, but what is reserved stays so.
            let vacant = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
            match flags.contains(MapFlags::FIXED) {
                true => drop(mmap_anonymous(
                    placed.cast(),
                    len,
                    ProtFlags::empty(),
                    vacant,
                )),
                false => drop(munmap(placed.cast(), len)),
            }
        })?;
        Ok(placed)
    })
}

/// As [`map_pages`], but for children.
///
/// # Safety
/// As there.
unsafe fn map_unlocked(
    address: Option<*mut u8>,
    len: usize,
    protection: ProtFlags,
    flags: MapFlags,
    source: Option<(BorrowedFd<'_>, u64)>,
) -> rustix::io::Result<*mut u8> {
    let map_at = |address: Option<*mut u8>, protection, flags| {
        let address = address.unwrap_or(std::ptr::null_mut()).cast();
        // SAFETY: the caller's promise.
        unsafe {
            match source {
                Some((file, offset)) => mmap(address, len, protection, flags, file, offset),
                None => mmap_anonymous(address, len, protection, flags),
            }
        }
        .map(<*mut _>::cast::<u8>)
    };
    let map = |address: Option<*mut u8>, protection, flags: MapFlags| {
        // The kernel refuses MAP_FIXED_NOREPLACE where flags are validated, as MAP_SYNC has them: the place
        // is taken first, and then replaced.
        let is_refused = MapFlags::SHARED_VALIDATE | MapFlags::FIXED_NOREPLACE;
        let Some(place) = address.filter(|_| flags.contains(is_refused)) else {
            return map_at(address, protection, flags);
        };
        let vacant = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: nothing is replaced.
        unsafe { mmap_anonymous(place.cast(), len, ProtFlags::empty(), vacant) }?;
        let flags = flags.difference(MapFlags::FIXED_NOREPLACE) | MapFlags::FIXED;
        map_at(address, protection, flags).inspect_err(|_| {
            // SAFETY: mapped just now, by us.
            let _ = unsafe { munmap(place.cast(), len) };
        })
    };
    if locking_to_come().is_none() {
        return map(address, protection, flags);
    }
    // Locked without access nothing is faulted in. What is to be replaced is replaced in one step, by what
    // is ready.
    let is_replaced = flags.contains(MapFlags::FIXED);
    let at_first = if is_replaced { None } else { address };
    let quiet = flags.difference(MapFlags::FIXED | MapFlags::POPULATE);
    let made = map(at_first, ProtFlags::empty(), quiet)?;
    let ready = || {
        let allowed = MprotectFlags::from_bits_retain(protection.bits());
        // SAFETY: just mapped, by us, and nobody else's.
        unsafe {
            munlock(made.cast(), len)?;
            mprotect(made.cast(), len, allowed)?;
            match address {
                Some(address) if is_replaced => {
                    let flags = MremapFlags::MAYMOVE;
                    mremap_fixed(made.cast(), len, len, flags, address.cast()).map(|_| address)
                }
                _ => Ok(made),
            }
        }
    };
    let placed = ready().inspect_err(|_| {
        // SAFETY: as above.
        let _ = unsafe { munmap(made.cast(), len) };
    })?;
    if flags.contains(MapFlags::POPULATE) {
        // SAFETY: populating changes no contents. A mere wish, as it is of `mmap`.
        let _ = unsafe { madvise(placed.cast(), len, Advice::LinuxPopulateRead) };
    }
    Ok(placed)
}

/// Leaves a range out of core dumps: what is in it is in the pool, or means nothing without the process.
/// A mere wish: failure is no matter.
///
/// # Safety
/// The range is mapped, and stays so meanwhile.
pub(crate) unsafe fn leave_out(base: *mut u8, len: usize) {
    // SAFETY: advice changes no contents; the range is the caller's to vouch for.
    let _ = unsafe { madvise(base.cast(), len, Advice::LinuxDontDump) };
}

/// Tells a trace, if one is recorded, what was mapped.
pub(crate) fn announce(base: *const u8, len: usize, file: BorrowedFd<'_>, offset: u64) {
    if record::is_recording()
        && let Ok(status) = rustix::fs::fstat(file)
    {
        record::mapped(
            base,
            len,
            FileId {
                device: status.st_dev,
                inode: status.st_ino,
            },
            offset,
        );
    }
}

/// Tells the kernel that how recently a page was touched through this mapping says nothing: see
/// [`MapOptions::memory`]. A mere wish: failure is no matter.
///
/// # Safety
/// The range is mapped, and stays so meanwhile.
pub(crate) unsafe fn advise_no_recency(base: *mut u8, len: usize) {
    // SAFETY: advice changes no contents; the range is the caller's to vouch for.
    let _ = unsafe { madvise(base.cast(), len, Advice::Random) };
}

/// The pages that a range touches: address of the first, bytes in all.
fn pages_of(range: SharedBytes<'_>) -> (*mut u8, usize) {
    let skew = range.as_ptr() as usize % PAGE;
    (
        range.as_ptr().wrapping_sub(skew),
        (range.len() + skew).next_multiple_of(PAGE),
    )
}

/// Faults the pages of a mapped range in, for writing where it allows stores, so
/// that no later access faults. Takes 0.25 to 1 µs a small page; pages that the
/// file does not have yet are allocated.
///
/// On tmpfs, what is populated for loads in a mapping that allows stores can be stored to without a
/// fault, and pages that hold something are mapped by sixteen at a time ("fault-around"), where for
/// stores each is a fault of its own: so [`Access::ReadOnly`] does there, and takes half as long.
///
/// # Errors
/// EFAULT if the file has no page there, EINVAL if the mapping forbids the access,
/// ENOMEM if nothing is mapped, EHWPOISON. A kernel without
/// MADV_POPULATE (before 5.14) is helped by touching every page.
pub fn populate(range: SharedBytes<'_>, access: Access) -> Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let (first, len) = pages_of(range);
    let advice = match access {
        Access::ReadOnly => Advice::LinuxPopulateRead,
        Access::ReadWrite => Advice::LinuxPopulateWrite,
    };
    // SAFETY: populating changes no contents.
    match unsafe { madvise(first.cast(), len, advice) } {
        Ok(()) => Ok(()),
        // EINVAL also stands for a mapping that forbids the access; of no bytes at
        // all it means that the kernel does not know the advice.
        // SAFETY: as above.
        Err(Errno::INVAL) if unsafe { madvise(first.cast(), 0, advice) }.is_err() => {
            touch(range, access)
        }
        Err(errno) => Err(Error::System {
            operation: "madvise(MADV_POPULATE)",
            errno,
        }),
    }
}

/// Has the kernel put the pages of a range together into huge ones, which it does now, by copying.
/// Of a file in memory (tmpfs) whoever maps it from then on has them, without
/// asking, and whatever tmpfs was mounted with: where addresses allow it a fault maps 2 MiB, and the end
/// of the mapping takes no time for each small page.
///
/// # Errors
/// EINVAL if the kernel cannot (before 6.1), or the file is of another kind; ENOMEM, EAGAIN if there is no
/// huge page to be had. Then some pages may be huge, and what they hold is the same in any case.
pub(crate) fn collapse(range: SharedBytes<'_>) -> Result<()> {
    /// Not in the libraries yet; the same number wherever Linux has it.
    const MADV_COLLAPSE: libc::c_int = 25;
    if range.is_empty() {
        return Ok(());
    }
    let (first, len) = pages_of(range);
    // SAFETY: what the pages hold stays; the range is mapped while the view lives.
    match unsafe { libc::madvise(first.cast(), len, MADV_COLLAPSE) } {
        0 => Ok(()),
        _ => Err(Error::System {
            operation: "madvise(MADV_COLLAPSE)",
            errno: Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL),
        }),
    }
}

/// Touches one byte of each page; a store of nothing new, by adding zero.
fn touch(range: SharedBytes<'_>, access: Access) -> Result<()> {
    let (first, len) = pages_of(range);
    for page in (0..len).step_by(PAGE) {
        let word: *mut u64 = first.wrapping_add(page).cast();
        // SAFETY: page-aligned, in a mapped page; guarded against missing ones.
        unsafe { crate::guarded::guarded_load_u64(word) }?;
        if access == Access::ReadWrite {
            // SAFETY: as above, mapped writable, and accessed atomically.
            unsafe { std::sync::atomic::AtomicU64::from_ptr(word) }
                .fetch_add(0, std::sync::atomic::Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Writes the pages of a mapped range back to its file and waits until the device
/// has them (msync with MS_SYNC); what `fsync` needs in the `paged` mode. Blocks.
///
/// # Errors
/// EIO if the device failed, ENOMEM if part of the range is not mapped.
pub fn write_back(range: SharedBytes<'_>) -> Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let (first, len) = pages_of(range);
    // SAFETY: msync changes no memory.
    unsafe { msync(first.cast(), len, MsyncFlags::SYNC) }.map_err(Error::system("msync"))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    /// # Regression
    /// On persistent memory, where mappings ask for MAP_SYNC and so have their flags validated, no session
    /// could be opened (EOPNOTSUPP): the kernel takes no MAP_FIXED_NOREPLACE then.
    #[test]
    fn validated_flags_and_a_place_that_must_be_vacant_go_together() {
        const LEN: usize = 16 << 12;
        let file = memfd_create("mapping", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, LEN as u64).unwrap();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED_VALIDATE | MapFlags::NORESERVE;
        let source = Some((file.as_fd(), 0));
        // Neither the kernel's choice nor `far`'s, which other tests' threads have at any time.
        let place = std::ptr::with_exposed_provenance_mut::<u8>(0x4100_0000_0000);
        // SAFETY: at a place where nobody maps anything; nothing is replaced.
        unsafe {
            let flags = flags | MapFlags::FIXED_NOREPLACE;
            assert_eq!(map_pages(Some(place), LEN, both, flags, source), Ok(place));
            place.write(7);
            let again = map_pages(Some(place), LEN, both, flags, source);
            assert_eq!((again, place.read()), (Err(Errno::EXIST), 7));
            // What could not be mapped leaves its place vacant.
            munmap(place.cast(), LEN).unwrap();
            let beyond = Some((file.as_fd(), 1));
            assert_eq!(
                map_pages(Some(place), LEN, both, flags, beyond),
                Err(Errno::INVAL)
            );
            assert_eq!(map_pages(Some(place), LEN, both, flags, source), Ok(place));
            munmap(place.cast(), LEN).unwrap();
        }
    }
}
