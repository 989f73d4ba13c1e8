//! [`AddressSpace`]: a large reservation of addresses in which files are mapped
//! at fixed places, so that an offset turns into an address by one addition.
//!
//! Invariants: the reservation belongs to the value until it is dropped, so
//! MAP_FIXED can never hit anything else; a part that is not mapped is vacant and
//! kills whoever touches it (SIGSEGV), but nothing else can move in there. Views
//! stay valid over replacements in the sense that they see what is mapped
//! then; whoever replaces a part sees to it that nobody minds.
//!
//! Where the process's address space is limited (`ulimit -v`), or comes to be
//! ([`AddressSpace::give_up_reservation`]), a reservation would count against the
//! limit. There nothing is reserved: the addresses are ones that nobody else uses,
//! what is mapped is noted, and only that is ever replaced.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, munmap};

use crate::error::{Error, Result};
use crate::far;
use crate::long::is_limited;
use crate::mapping::{
    Access, HUGE_PAGE, MapOptions, PAGE, advise_no_recency, announce, leave_out, map_pages,
    populate,
};
use crate::record;
use crate::shared::SharedBytes;

/// A reservation aligned to 2 MiB. Shared between threads freely: the kernel
/// orders changes of the map.
#[derive(Debug)]
pub struct AddressSpace {
    base: NonNull<u8>,
    len: usize,
    /// Lies where nobody else maps anything.
    is_far: bool,
    mapped: Mutex<Mapped>,
}

/// What of a reservation is mapped.
#[derive(Debug, Default)]
struct Mapped {
    /// Where what is mapped begins and ends; ranges may touch, and do not overlap.
    ranges: BTreeMap<usize, usize>,
    /// Nothing else is reserved.
    is_all: bool,
}

impl Mapped {
    /// Ranges that have something in common with this one.
    fn overlapping(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let before = self.ranges.range(..from).next_back();
        let within = self.ranges.range(from..to);
        let ranges = before.into_iter().chain(within);
        let ranges = ranges.map(|(&from, &to)| (from, to));
        ranges.filter(|&(_, end)| end > from).collect()
    }

    /// Notes that a range is not mapped any more.
    fn take_out(&mut self, from: usize, to: usize) {
        for (start, end) in self.overlapping(from, to) {
            self.ranges.remove(&start);
            if start < from {
                self.ranges.insert(start, from);
            }
            if to < end {
                self.ranges.insert(to, end);
            }
        }
    }
}

// SAFETY: a reservation belongs to the process, not to a thread, and is accessed
// through `SharedBytes` only.
unsafe impl Send for AddressSpace {}
// SAFETY: as above.
unsafe impl Sync for AddressSpace {}

impl AddressSpace {
    /// Reserves `len` bytes (rounded up to 2 MiB) without access. Costs neither
    /// memory nor swap, nor anything of a limit of address space.
    ///
    /// # Errors
    /// ENOMEM if the process has no such range left.
    pub fn reserve(len: usize) -> Result<AddressSpace> {
        let no_memory = Error::System {
            operation: "mmap",
            errno: Errno::NOMEM,
        };
        let len = len
            .max(1)
            .checked_next_multiple_of(HUGE_PAGE)
            .ok_or_else(|| no_memory.clone())?;
        let total = len
            .checked_add(HUGE_PAGE)
            .ok_or_else(|| no_memory.clone())?;
        let new = |base: *mut u8, is_far, is_all| {
            let mapped = Mapped {
                is_all,
                ..Mapped::default()
            };
            Ok(AddressSpace {
                base: NonNull::new(base).ok_or(no_memory)?,
                len,
                is_far,
                mapped: Mutex::new(mapped),
            })
        };
        if is_limited() {
            return new(far::choose(len).map_err(Error::system("mmap"))?, true, true);
        }
        let take = |at: Option<*mut u8>, len: usize| {
            let place = at.map_or(MapFlags::empty(), |_| MapFlags::FIXED_NOREPLACE);
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | place;
            // SAFETY: nothing is replaced.
            let start = unsafe { map_pages(at, len, ProtFlags::empty(), flags, None) }?;
            // SAFETY: just mapped.
            unsafe { leave_out(start, len) };
            Ok(start)
        };
        // What is far is aligned; so is, from Linux 6.7 on, what the kernel places that is so large.
        let (aligned, is_far) =
            far::reserve(len, |at| take(at, len)).map_err(Error::system("mmap"))?;
        if (aligned as usize).is_multiple_of(HUGE_PAGE) {
            return new(aligned, is_far, false);
        }
        // SAFETY: our own new reservation, used by nobody. Failure leaves address space unused.
        let _ = unsafe { munmap(aligned.cast(), len) };
        let start = take(None, total).map_err(Error::system("mmap"))?;
        let skip = (start as usize).next_multiple_of(HUGE_PAGE) - start as usize;
        let base = start.wrapping_add(skip);
        // SAFETY: gives back the ends of our own new reservation, used by nobody.
        // Failure leaves a little address space unused.
        unsafe {
            if skip != 0 {
                let _ = munmap(start.cast(), skip);
            }
            if total - len - skip != 0 {
                let _ = munmap(base.wrapping_add(len).cast(), total - len - skip);
            }
        }
        new(base, false, false)
    }

    /// Reserves no more than what is mapped, from now on: this process's address
    /// space is about to be limited. What lies where the kernel chose stays reserved.
    pub fn give_up_reservation(&self) {
        let mut mapped = self.mapped();
        if !self.is_far || mapped.is_all {
            return;
        }
        mapped.is_all = true;
        let mut at = 0;
        let end = (self.len, self.len);
        for (from, to) in mapped
            .ranges
            .iter()
            .map(|(&from, &to)| (from, to))
            .chain([end])
        {
            if at < from {
                // SAFETY: our own reservation, where nothing can be touched. Where the
                // kernel has no memory for splitting it, it stays.
                let _ = unsafe { munmap(self.base().wrapping_add(at).cast(), from - at) };
            }
            at = to;
        }
    }

    fn mapped(&self) -> MutexGuard<'_, Mapped> {
        // Nothing panics with it, and every state of it is a good one.
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes reserved.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte, aligned to 2 MiB.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// All of it, vacant parts included.
    #[inline(always)]
    pub fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: reserved as long as `self` lives.
        unsafe { SharedBytes::from_raw(self.base, self.len) }
    }

    /// Byte `offset` of the reservation for an address in it.
    #[inline(always)]
    pub fn offset_of(&self, address: *const u8) -> Option<usize> {
        let offset = (address as usize).wrapping_sub(self.base.as_ptr() as usize);
        (offset < self.len).then_some(offset)
    }

    /// Maps `len` bytes of `file`, from byte `file_offset` on, at byte `offset`,
    /// in place of whatever is there, in one step. `offset` and `len` are
    /// multiples of 4096, and of 2 MiB for huge pages.
    ///
    /// # Errors
    /// As [`crate::Mapping::new`], and EFAULT for a range outside or
    /// misaligned. The range is then as before, or vacant if the kernel failed
    /// half-way.
    pub fn map(
        &self,
        offset: usize,
        len: usize,
        file: impl AsFd,
        file_offset: u64,
        options: MapOptions,
    ) -> Result<()> {
        let file = file.as_fd();
        let address = self.place(offset, len)?;
        let source = Some((file, file_offset));
        // SAFETY: the range lies in our own reservation.
        unsafe {
            self.place_pages(offset, len, options.protection(), options.flags(), source)?;
        }
        if options.memory {
            // SAFETY: just mapped, in our own reservation.
            unsafe { advise_no_recency(address, len) };
        }
        announce(address, len, file, file_offset);
        Ok(())
    }

    /// Makes a range vacant: whoever touches it dies.
    ///
    /// # Errors
    /// EFAULT for a range outside or misaligned; ENOMEM.
    pub fn unmap(&self, offset: usize, len: usize) -> Result<()> {
        let address = self.place(offset, len)?;
        let mut mapped = self.mapped();
        if !mapped.is_all {
            mapped.take_out(offset, offset + len);
            drop(mapped);
            record::unmapped(address, len);
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
            // SAFETY: the range lies in our own reservation.
            unsafe {
                map_pages(Some(address), len, ProtFlags::empty(), flags, None)
                    .map_err(Error::system("mmap"))?;
                leave_out(address, len);
            }
            return Ok(());
        }
        record::unmapped(address, len);
        for (from, to) in mapped.overlapping(offset, offset + len) {
            let (from, to) = (from.max(offset), to.min(offset + len));
            // SAFETY: mapped by us, in our own range.
            unsafe { munmap(self.base().wrapping_add(from).cast(), to - from) }
                .map_err(Error::system("munmap"))?;
            mapped.take_out(from, to);
        }
        Ok(())
    }

    /// Replaces a range by private zeroes of this process: late readers see
    /// zeroes and late stores go nowhere, instead of killing the process.
    ///
    /// # Errors
    /// As [`unmap`](Self::unmap).
    pub fn replace_by_zeroes(&self, offset: usize, len: usize) -> Result<()> {
        self.replace(offset, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn replace(&self, offset: usize, len: usize, protection: ProtFlags) -> Result<()> {
        let address = self.place(offset, len)?;
        record::unmapped(address, len);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the range lies in our own reservation.
        unsafe { self.place_pages(offset, len, protection, flags, None) }
    }

    /// Replaces all that is mapped by private zeroes of this process.
    ///
    /// # Errors
    /// ENOMEM; then some of it may be as before.
    pub fn replace_all_by_zeroes(&self) -> Result<()> {
        let ranges = self.mapped().overlapping(0, self.len);
        let mut ranges = ranges.into_iter();
        ranges.try_for_each(|(from, to)| self.replace_by_zeroes(from, to - from))
    }

    /// Maps pages in a range, in place of what is there, and leaves them out of core dumps.
    ///
    /// # Safety
    /// The range was found to lie in the reservation.
    unsafe fn place_pages(
        &self,
        offset: usize,
        len: usize,
        protection: ProtFlags,
        flags: MapFlags,
        source: Option<(std::os::fd::BorrowedFd<'_>, u64)>,
    ) -> Result<()> {
        let address = self.base().wrapping_add(offset);
        // SAFETY: replaces nothing but what lies in the reservation, or was mapped by us.
        let map = |flags| unsafe { map_pages(Some(address), len, protection, flags, source) };
        let end = offset + len;
        let mut mapped = self.mapped();
        let overlapping = mapped.overlapping(offset, end);
        let covered: usize = overlapping
            .iter()
            .map(|&(from, to)| to.min(end) - from.max(offset))
            .sum();
        let place = match (mapped.is_all, covered) {
            (true, 0) => MapFlags::FIXED_NOREPLACE,
            // Nobody does; what lies beside could be another's.
            (true, covered) if covered < len => return Err(Error::system("mmap")(Errno::EXIST)),
            _ => MapFlags::FIXED,
        };
        let done = map(flags | place);
        if done.is_ok() {
            mapped.take_out(offset, end);
            mapped.ranges.insert(offset, end);
        }
        drop(mapped);
        done.map_err(Error::system("mmap"))?;
        // SAFETY: just mapped.
        unsafe { leave_out(address, len) };
        Ok(())
    }

    /// Faults the pages of a mapped range in ([`crate::mapping::populate`]).
    ///
    /// # Errors
    /// As [`crate::mapping::populate`]; EFAULT for a range outside; EINVAL for
    /// a vacant one.
    pub fn populate(&self, offset: usize, len: usize, access: Access) -> Result<()> {
        let range = self
            .bytes()
            .slice(offset, len)
            .ok_or(self.outside(offset, len))?;
        populate(range, access)
    }

    /// Asks for huge pages in a mapped range; a mere wish.
    ///
    /// # Errors
    /// EINVAL if the kernel or file system has none; EFAULT for a range outside.
    pub fn advise_huge_pages(&self, offset: usize, len: usize) -> Result<()> {
        let address = self.place(offset, len)?;
        // SAFETY: advice about our own range; it changes no contents.
        unsafe { madvise(address.cast(), len, Advice::LinuxHugepage) }
            .map_err(Error::system("madvise(MADV_HUGEPAGE)"))
    }

    fn place(&self, offset: usize, len: usize) -> Result<*mut u8> {
        if !offset.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) || len == 0 {
            return Err(self.outside(offset, len));
        }
        self.bytes()
            .address_of(offset, len)
            .ok_or(self.outside(offset, len))
    }

    fn outside(&self, offset: usize, len: usize) -> Error {
        Error::OutOfBounds {
            offset,
            len,
            size: self.len,
        }
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        record::unmapped(self.base.as_ptr(), self.len);
        let mapped = self
            .mapped
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let mapped = match mapped.is_all {
            false => vec![(0, self.len)],
            true => mapped.overlapping(0, self.len),
        };
        for (from, to) in mapped {
            let address = self.base.as_ptr().wrapping_add(from);
            // SAFETY: our own reservation, or mapped by us, and no view outlives `self`.
            let _ = unsafe { munmap(address.cast(), to - from) };
        }
    }
}
