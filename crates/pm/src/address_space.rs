//! [`AddressSpace`]: a large reservation of addresses in which files are mapped
//! at fixed places, so that an offset turns into an address by one addition.
//!
//! Invariants: the reservation belongs to the value until it is dropped, so
//! MAP_FIXED can never hit anything else; a part that is not mapped is vacant and
//! kills whoever touches it (SIGSEGV), but nothing else can move in there. Views
//! stay valid over replacements in the sense that they see what is mapped
//! then; whoever replaces a part sees to it that nobody minds.

use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::error::{Error, Result};
use crate::mapping::{Access, HUGE_PAGE, MapOptions, PAGE, advise_no_recency, announce, populate};
use crate::record;
use crate::shared::SharedBytes;

/// A reservation aligned to 2 MiB. Shared between threads freely: the kernel
/// orders changes of the map.
#[derive(Debug)]
pub struct AddressSpace {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a reservation belongs to the process, not to a thread, and is accessed
// through `SharedBytes` only.
unsafe impl Send for AddressSpace {}
// SAFETY: as above.
unsafe impl Sync for AddressSpace {}

impl AddressSpace {
    /// Reserves `len` bytes (rounded up to 2 MiB) without access. Costs neither
    /// memory nor swap.
    ///
    /// # Errors
    /// ENOMEM if the process has no such range left (or RLIMIT_AS forbids it).
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
        let take = |len: usize| {
            // SAFETY: the kernel chooses a free range, so nothing is replaced.
            let start = unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    len,
                    ProtFlags::empty(),
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )
            };
            start
                .map_err(Error::system("mmap"))
                .map(|start| start.cast::<u8>())
        };
        // The kernel aligns what is so large by itself (since Linux 6.7); then nothing has to be cut off.
        let aligned = take(len)?;
        if let Some(base) = NonNull::new(aligned)
            && (aligned as usize).is_multiple_of(HUGE_PAGE)
        {
            return Ok(AddressSpace { base, len });
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
        let flags = options.flags() | MapFlags::FIXED;
        // SAFETY: the range lies in our own reservation.
        unsafe {
            mmap(
                address.cast(),
                len,
                options.protection(),
                flags,
                file,
                file_offset,
            )
        }
        .map_err(Error::system("mmap"))?;
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
        self.replace(offset, len, ProtFlags::empty())
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
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range lies in our own reservation.
        unsafe { mmap_anonymous(address.cast(), len, protection, flags) }
            .map_err(Error::system("mmap"))?;
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
        // SAFETY: our own reservation, and no view outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
