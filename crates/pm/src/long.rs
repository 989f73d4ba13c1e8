//! [`LongFile`]: a mapped file of which only the parts in use can be reached.
//!
//! A file that many processes share may be far longer than what is in it. Mapped as a whole it would
//! count against a limit of address space, fill with memory where a debugger or a scanner reads its
//! holes, and be locked by `mlockall`. So each part of it (a range that begins at a fixed place and
//! grows upwards) is reachable as far as it is in use, and the owner of the mapping says how far.
//!
//! The file's bytes always lie at the base plus their offset, so nothing moves when a part grows, and no
//! descriptor is kept. Where the process's address space is not limited all of it is reserved by a
//! mapping without access, of which growth opens more. Where it is limited ([`is_limited`]), or comes to
//! be ([`LongFile::give_up_reservation`]), nothing is reserved: the parts are mappings of their own, far
//! from where the kernel and programs place any, and the kernel extends them in place.
//!
//! Invariants: what is reachable stays so until the value is dropped; parts grow under a lock; nothing of
//! another's is ever replaced, also where nothing is reserved.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, MremapFlags, ProtFlags, mprotect, mremap, munmap};
use rustix::process::{Resource, getrlimit};

use crate::error::{Error, Result};
use crate::far;
use crate::mapping::{MapOptions, PAGE, advise_no_recency, announce, leave_out, map_pages};
use crate::record;
use crate::shared::SharedBytes;

/// A part of the file: where it begins, and how far it is to be reached, both in bytes and multiples of
/// [`PAGE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The first byte; never changes.
    pub start: usize,
    /// Behind the last byte that can be reached.
    pub end: usize,
}

/// See the module's head.
#[derive(Debug)]
pub struct LongFile {
    base: NonNull<u8>,
    len: usize,
    protection: ProtFlags,
    /// Lies where nobody else maps anything.
    is_far: bool,
    /// Not reserved as a whole; changes under the lock of the parts.
    is_in_parts: AtomicBool,
    /// The parts as they are, held while one grows.
    parts: Mutex<Vec<Part>>,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is accessed through `SharedBytes`, or by
// atomics, only.
unsafe impl Send for LongFile {}
// SAFETY: as above.
unsafe impl Sync for LongFile {}

/// Whether this process's address space is limited (`ulimit -v`).
pub fn is_limited() -> bool {
    getrlimit(Resource::As).current.is_some()
}

impl LongFile {
    /// Maps `parts` of the first `len` bytes of `file`; they are not empty, in order, and do not overlap.
    ///
    /// # Errors
    /// As [`crate::Mapping::new`]; EINVAL for parts that are no such parts.
    pub fn new(
        file: impl AsFd,
        len: usize,
        parts: &[Part],
        options: MapOptions,
    ) -> Result<LongFile> {
        let file = file.as_fd();
        let mut from = 0;
        for part in parts {
            let is_whole = part.start.is_multiple_of(PAGE) && part.end.is_multiple_of(PAGE);
            if !is_whole || part.start < from || part.end <= part.start || part.end > len {
                return Err(invalid());
            }
            from = part.end;
        }
        let protection = options.protection();
        let flags = options.flags() | MapFlags::NORESERVE;
        let reserve = |at: Option<*mut u8>| {
            let place = at.map_or(MapFlags::empty(), |_| MapFlags::FIXED_NOREPLACE);
            // SAFETY: nothing is replaced.
            unsafe { map_pages(at, len, ProtFlags::empty(), flags | place, Some((file, 0))) }
        };
        let reserved = match is_limited() {
            true => Err(Errno::NOMEM),
            false => far::reserve(len, reserve),
        };
        let is_in_parts = reserved.is_err();
        let (base, is_far) = match reserved {
            Ok(reserved) => reserved,
            // The limit is on memory that is locked, or there is none: less may do.
            Err(_) => (far::choose(len).map_err(Error::system("mmap"))?, true),
        };
        let long = LongFile {
            base: NonNull::new(base).ok_or_else(invalid)?,
            len,
            protection,
            is_far,
            is_in_parts: AtomicBool::new(is_in_parts),
            parts: Mutex::new(Vec::with_capacity(parts.len())),
        };
        let advise = |address: *mut u8, length| {
            if options.memory {
                // SAFETY: mapped by us.
                unsafe { advise_no_recency(address, length) };
            }
            // SAFETY: mapped by us.
            unsafe { leave_out(address, length) };
        };
        if !is_in_parts {
            advise(base, len);
        }
        let mut reached = long.parts.lock().unwrap_or_else(PoisonError::into_inner);
        for part in parts {
            let (address, length) = (base.wrapping_add(part.start), part.end - part.start);
            let opened = match is_in_parts {
                // SAFETY: nothing is replaced.
                true => unsafe {
                    let flags = flags | MapFlags::FIXED_NOREPLACE;
                    let source = Some((file, part.start as u64));
                    map_pages(Some(address), length, protection, flags, source).map(drop)
                },
                // SAFETY: of our own new mapping.
                false => unsafe { protect(address, length, protection) },
            };
            // What is mapped by now goes when `long` is dropped.
            opened.map_err(Error::system("mmap"))?;
            reached.push(*part);
            if is_in_parts {
                advise(address, length);
            }
        }
        drop(reached);
        announce(base, len, file, 0);
        Ok(long)
    }

    /// Bytes from the base on, reachable or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// All of it; only what is reachable may be touched.
    #[inline(always)]
    pub fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: what is not mapped is not touched, as its users promise; what is, stays.
        unsafe { SharedBytes::from_raw(self.base, self.len) }
    }

    /// Makes the part that begins at `start` reachable up to `end`, if it is not. Gives how far it is.
    ///
    /// # Errors
    /// ENOMEM: a limit of address space forbids it, or somebody else has mapped something there.
    /// EINVAL: there is no such part, or the next begins before.
    pub fn reach(&self, start: usize, end: usize) -> Result<usize> {
        let end = end.checked_next_multiple_of(PAGE).ok_or_else(invalid)?;
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let index = parts
            .iter()
            .position(|part| part.start == start)
            .ok_or_else(invalid)?;
        let limit = parts.get(index + 1).map_or(self.len, |next| next.start);
        if end > limit {
            return Err(invalid());
        }
        let now = parts[index].end;
        if end <= now {
            return Ok(now);
        }
        let address = self.base.as_ptr().wrapping_add(start);
        if self.is_in_parts() {
            let last = address.wrapping_add(now - start - PAGE);
            // SAFETY: the last page of our own mapping, which stays where it is.
            unsafe { mremap(last.cast(), PAGE, end - now + PAGE, MremapFlags::empty()) }
                .map_err(Error::system("mremap"))?;
        } else {
            let new = self.base.as_ptr().wrapping_add(now);
            // SAFETY: inside our own mapping.
            unsafe { protect(new, end - now, self.protection) }
                .map_err(Error::system("mprotect"))?;
        }
        parts[index].end = end;
        Ok(end)
    }

    /// Whether nothing but the parts is mapped.
    pub fn is_in_parts(&self) -> bool {
        self.is_in_parts.load(Ordering::Acquire)
    }

    /// Reserves no more than can be reached, from now on: this process's address space is about to be
    /// limited. What lies where the kernel chose stays reserved.
    pub fn give_up_reservation(&self) {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_far || self.is_in_parts.swap(true, Ordering::AcqRel) {
            return;
        }
        let vacate = |from: usize, to: usize| {
            if from < to {
                let address = self.base.as_ptr().wrapping_add(from);
                // SAFETY: our own reservation, where nothing can be touched. Where the kernel has no memory
                // for splitting it, it stays.
                let _ = unsafe { munmap(address.cast(), to - from) };
            }
        };
        let mut at = 0;
        for part in parts.iter() {
            vacate(at, part.start);
            at = part.end;
        }
        vacate(at, self.len);
    }

    /// Lets go of the file: what could be reached is private zeroes from now on, the rest is vacant.
    ///
    /// # Errors
    /// ENOMEM; then some of it may be as before.
    pub fn replace_by_zeroes(&self) -> Result<()> {
        record::unmapped(self.base.as_ptr(), self.len);
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let replace = |from: usize, to: usize, protection| {
            let address = self.base.as_ptr().wrapping_add(from);
            if from == to {
                return Ok(());
            }
            // SAFETY: replaces our own mapping; views see memory that exists before and after.
            unsafe { map_pages(Some(address), to - from, protection, flags, None) }
                .map_err(Error::system("mmap"))
                .map(|address| {
                    // SAFETY: just mapped.
                    unsafe { leave_out(address, to - from) };
                })
        };
        let mut at = 0;
        for part in parts.iter() {
            if !self.is_in_parts() {
                replace(at, part.start, ProtFlags::empty())?;
            }
            replace(part.start, part.end, both)?;
            at = part.end;
        }
        match self.is_in_parts() {
            true => Ok(()),
            false => replace(at, self.len, ProtFlags::empty()),
        }
    }
}

impl Drop for LongFile {
    fn drop(&mut self) {
        record::unmapped(self.base.as_ptr(), self.len);
        let is_in_parts = self.is_in_parts();
        let parts = self.parts.get_mut();
        let parts = parts.unwrap_or_else(PoisonError::into_inner);
        let all = [Part {
            start: 0,
            end: self.len,
        }];
        let mapped = if is_in_parts { &parts[..] } else { &all[..] };
        for part in mapped {
            let address = self.base.as_ptr().wrapping_add(part.start);
            // SAFETY: our own mapping, and no view outlives `self`.
            let _ = unsafe { munmap(address.cast(), part.end - part.start) };
        }
    }
}

fn invalid() -> Error {
    Error::System {
        operation: "mmap",
        errno: Errno::INVAL,
    }
}

/// # Safety
/// The range is the caller's own mapping.
unsafe fn protect(address: *mut u8, len: usize, protection: ProtFlags) -> rustix::io::Result<()> {
    let flags = MprotectFlags::from_bits_retain(protection.bits());
    // SAFETY: the caller's promise.
    unsafe { mprotect(address.cast(), len, flags) }
}
