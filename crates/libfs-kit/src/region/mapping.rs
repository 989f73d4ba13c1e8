//! The memory behind a region: a shared mapping of the group's anonymous file, or memory that a
//! test provides.
//!
//! All raw memory access of the region is in this file. Invariants: `base..base + size` stays
//! mapped readable and writable as long as the [`Mapping`] lives; it is only ever touched by
//! atomic operations, because other threads and processes may write it at any moment.
//!
//! One exception, for ThreadSanitizer alone (`--cfg sanitize_thread`): what nobody can reach yet is
//! then written as plain memory ([`begin_word`], [`begin_byte`]). Two atomic accesses are never
//! reported; this way whoever reaches an object that was not published to it, or still looks at
//! one whose memory has been given away, is.

use super::offset::Shared;
use rustix::fd::AsFd;
use rustix::mm;
use std::alloc;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes in a page of the region.
pub(super) const PAGE_SIZE: u64 = 4096;

enum Backing {
    File,
    Memory(alloc::Layout),
}

pub(super) struct Mapping {
    base: NonNull<u8>,
    size: u64,
    backing: Backing,
}

// SAFETY: the mapping is memory that any thread may use; it is accessed by atomics alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `size` bytes of the file, shared, without reserving memory for them. The
    /// caller has checked that the file is that long.
    pub fn of_file(file: impl AsFd, size: u64) -> rustix::io::Result<Self> {
        let length = usize::try_from(size).map_err(|_| rustix::io::Errno::NOMEM)?;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            mm::mmap(
                ptr::null_mut(),
                length,
                mm::ProtFlags::READ | mm::ProtFlags::WRITE,
                mm::MapFlags::SHARED | mm::MapFlags::NORESERVE,
                file,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self {
            base,
            size,
            backing: Backing::File,
        })
    }

    /// Zeroed memory of this process alone.
    pub fn of_memory(size: u64) -> rustix::io::Result<Self> {
        let layout = usize::try_from(size)
            .ok()
            .and_then(|size| alloc::Layout::from_size_align(size, PAGE_SIZE as usize).ok())
            .filter(|layout| layout.size() != 0)
            .ok_or(rustix::io::Errno::NOMEM)?;
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self {
            base,
            size,
            backing: Backing::Memory(layout),
        })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn base_address(&self) -> usize {
        self.base.addr().get()
    }

    /// Whether a `T` lies at `offset`, aligned and whole.
    #[inline]
    pub fn holds<T>(&self, offset: u64) -> bool {
        let limit = self.size.saturating_sub(size_of::<T>() as u64);
        offset <= limit && offset & (align_of::<T>() as u64 - 1) == 0
    }

    /// The `T` at `offset`.
    #[inline]
    pub fn get<T: Shared>(&self, offset: u64) -> Option<&T> {
        if !self.holds::<T>(offset) {
            return None;
        }
        // SAFETY: inside the mapping and aligned (just checked; the base is page aligned), alive
        // as long as `self`, valid for any bit pattern and free of data races because `T: Shared`
        // consists of atomics and all access to the region is atomic.
        Some(unsafe { self.base.add(offset as usize).cast::<T>().as_ref() })
    }

    /// `count` consecutive `T` from `offset`.
    pub fn get_slice<T: Shared>(&self, offset: u64, count: usize) -> Option<&[T]> {
        let bytes = (count as u64).checked_mul(size_of::<T>() as u64)?;
        let end = offset.checked_add(bytes)?;
        if end > self.size || offset & (align_of::<T>() as u64 - 1) != 0 {
            return None;
        }
        // SAFETY: as in `get`, for the whole of the checked range.
        Some(unsafe {
            NonNull::slice_from_raw_parts(self.base.add(offset as usize).cast::<T>(), count)
                .as_ref()
        })
    }

    /// Stores the bytes of `value` at `offset`, where nobody can reach them yet. Returns false,
    /// having done nothing, if it does not fit there.
    pub fn write<T: Shared>(&self, offset: u64, mut value: T) -> bool {
        let source = NonNull::from(&mut value).cast::<u8>();
        let size = size_of::<T>();
        let Some(bytes) = self.get_slice::<AtomicU8>(offset, size) else {
            return false;
        };
        let mut done = 0;
        if let Some(words) = self.get_slice::<AtomicU64>(offset, size / 8) {
            for word in words {
                // SAFETY: `done + 8 <= size_of::<T>()`; `T: Shared` has no padding, so the bytes
                // are initialised; and the value is ours alone, so nobody writes it meanwhile.
                let value = unsafe { source.add(done).cast::<u64>().read_unaligned() };
                begin_word(word, value);
                done += 8;
            }
        }
        for (index, byte) in bytes.iter().enumerate().skip(done) {
            // SAFETY: `index < size_of::<T>()`; otherwise as above.
            begin_byte(byte, unsafe { source.add(index).read() });
        }
        true
    }

    /// Lets go of the file: zeroes of this process stand in its place. Where the kernel has no memory
    /// for another mapping the old one stays.
    pub fn replace_by_zeroes(&self) {
        if let Backing::File = self.backing {
            let flags = mm::MapFlags::PRIVATE | mm::MapFlags::NORESERVE | mm::MapFlags::FIXED;
            let protection = mm::ProtFlags::READ | mm::ProtFlags::WRITE;
            // SAFETY: replaces our own mapping, in one step, by one of the same length and rights: who
            // has references into it sees memory before and after.
            let _ = unsafe {
                let base = self.base.as_ptr().cast();
                mm::mmap_anonymous(base, self.size as usize, protection, flags)
            };
        }
    }

    /// Gives the memory of `length` bytes from `offset` back to the system; they read as zero
    /// afterwards. Both are multiples of the page size. Nobody may be using the range.
    pub fn discard(&self, offset: u64, length: u64) {
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            return;
        }
        match self.backing {
            Backing::File => {
                // SAFETY: inside our own shared mapping; the kernel frees the file's pages, which
                // to any reader looks like zeros having been stored.
                let result = unsafe {
                    mm::madvise(
                        self.base.add(offset as usize).as_ptr().cast(),
                        length as usize,
                        mm::Advice::LinuxRemove,
                    )
                };
                // A file system that cannot punch keeps the memory; nothing depends on it.
                let _ = result;
            }
            Backing::Memory(_) => {}
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.backing {
            Backing::File => {
                // SAFETY: our own mapping, and no reference outlives `self`.
                let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.size as usize) };
            }
            Backing::Memory(layout) => {
                // SAFETY: allocated with this layout in `of_memory`.
                unsafe { alloc::dealloc(self.base.as_ptr(), layout) };
            }
        }
    }
}

/// Stores a word that nobody can reach yet.
#[inline(always)]
pub(super) fn begin_word(word: &AtomicU64, value: u64) {
    #[cfg(not(sanitize_thread))]
    word.store(value, Ordering::Relaxed);
    // SAFETY: valid and aligned, being borrowed, and nobody else's yet: which is what the sanitizer
    // checks.
    #[cfg(sanitize_thread)]
    unsafe {
        word.as_ptr().write(value)
    };
}

/// Stores a byte that nobody can reach yet.
#[inline(always)]
fn begin_byte(byte: &AtomicU8, value: u8) {
    #[cfg(not(sanitize_thread))]
    byte.store(value, Ordering::Relaxed);
    // SAFETY: as in `begin_word`.
    #[cfg(sanitize_thread)]
    unsafe {
        byte.as_ptr().write(value)
    };
}
