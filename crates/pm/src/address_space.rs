//! [`AddressSpace`]: a large reservation of addresses in which files are mapped
//! at fixed places, so that an offset turns into an address by one addition.
//!
//! Invariants: the reservation belongs to the value until it is dropped, so
//! MAP_FIXED can never hit anything else; a part that is not mapped is vacant and
//! kills whoever touches it (SIGSEGV), but nothing else can move in there. Views
//! stay valid over replacements in the sense that they see what is mapped
//! then; whoever replaces a part sees to it that nobody minds.
//!
//! Where the process's address space is limited (`ulimit -v`) a reservation would
//! count against the limit. There nothing is reserved: the addresses are ones that
//! nobody else uses, what is mapped is noted, and only that is ever replaced.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

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
    /// Where nothing is reserved: offset and length of what is mapped.
    mapped: Option<Mutex<Vec<(usize, usize)>>>,
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
        if is_limited() {
            let base = far::choose(len).map_err(Error::system("mmap"))?;
            return Ok(AddressSpace {
                base: NonNull::new(base).ok_or(no_memory)?,
                len,
                mapped: Some(Mutex::default()),
            });
        }
        let take = |len: usize| -> Result<*mut u8> {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: the kernel chooses a free range, so nothing is replaced.
            let start = unsafe { map_pages(None, len, ProtFlags::empty(), flags, None) }
                .map_err(Error::system("mmap"))?;
            // SAFETY: just mapped.
            unsafe { leave_out(start, len) };
            Ok(start)
        };
        // The kernel aligns what is so large by itself (since Linux 6.7); then nothing has to be cut off.
        let aligned = take(len)?;
        if let Some(base) = NonNull::new(aligned)
            && (aligned as usize).is_multiple_of(HUGE_PAGE)
        {
            let mapped = None;
            return Ok(AddressSpace { base, len, mapped });
        }
        // SAFETY: our own new reservation, used by nobody. Failure leaves address space unused.
        let _ = unsafe { munmap(aligned.cast(), len) };
        let start = take(total)?;
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
        Ok(AddressSpace {
            base: NonNull::new(base).ok_or(no_memory)?,
            len,
            mapped: None,
        })
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
        let Some(mapped) = &self.mapped else {
            return self.replace(offset, len, ProtFlags::empty());
        };
        let address = self.place(offset, len)?;
        record::unmapped(address, len);
        let mut mapped = mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = Vec::with_capacity(mapped.len() + 1);
        for &(from, length) in mapped.iter() {
            let (to, end) = (from + length, offset + len);
            let (start, stop) = (from.max(offset), to.min(end));
            if start >= stop {
                rest.push((from, length));
                continue;
            }
            // SAFETY: mapped by us, in our own range.
            unsafe { munmap(self.base().wrapping_add(start).cast(), stop - start) }
                .map_err(Error::system("munmap"))?;
            if from < start {
                rest.push((from, start - from));
            }
            if stop < to {
                rest.push((stop, to - stop));
            }
        }
        *mapped = rest;
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
        let done = match &self.mapped {
            None => map(flags | MapFlags::FIXED),
            Some(mapped) => {
                let mut mapped = mapped.lock().unwrap_or_else(PoisonError::into_inner);
                let overlaps = |&(from, length): &(usize, usize)| {
                    from < offset + len && offset < from + length
                };
                let covers = |&(from, length): &(usize, usize)| {
                    from <= offset && offset + len <= from + length
                };
                if mapped.iter().any(covers) {
                    map(flags | MapFlags::FIXED)
                } else if mapped.iter().any(overlaps) {
                    // Nobody does; what lies beside could be another's.
                    Err(Errno::EXIST)
                } else {
                    let done = map(flags | MapFlags::FIXED_NOREPLACE);
                    if done.is_ok() {
                        mapped.push((offset, len));
                    }
                    done
                }
            }
        };
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
        let all = vec![(0, self.len)];
        let mapped = match self.mapped.take() {
            None => all,
            Some(mapped) => mapped.into_inner().unwrap_or_else(PoisonError::into_inner),
        };
        for (from, length) in mapped {
            let address = self.base.as_ptr().wrapping_add(from);
            // SAFETY: our own reservation, or mapped by us, and no view outlives `self`.
            let _ = unsafe { munmap(address.cast(), length) };
        }
    }
}
