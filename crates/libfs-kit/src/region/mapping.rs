//! The memory behind a region: a shared mapping of the group's anonymous file, or memory that a
//! test provides. No forked child has it.
//!
//! Of the file only what is in use is reachable ([`arck_pm::LongFile`]): *windows*, each used from its
//! beginning on. Whoever follows an offset behind what this process can reach has the window grow, which
//! is rare; the first window, where nearly all is, is looked at before all others.
//!
//! Where address space is limited a window may not be able to grow. What is allocated is reachable before
//! it is taken, and an operation begins with all reachable that others have allocated
//! ([`Region::prepare`](super::Region::prepare)); so only what others take during an operation can be out
//! of reach. For that some addresses are held, and given up then. Where they do not do either, the
//! process is ended: it cannot go on in the middle of what others rely on, and they know what to do when
//! a member dies.
//!
//! All raw memory access of the region is in this file. Invariants: what is reachable of
//! `base..base + size` stays mapped readable and writable as long as the [`Mapping`] lives; it is only
//! ever touched by atomic operations, because other threads and processes may write it at any moment.
//!
//! One exception, for ThreadSanitizer alone (`--cfg sanitize_thread`): what nobody can reach yet is
//! then written as plain memory ([`begin_word`], [`begin_byte`]). Two atomic accesses are never
//! reported; this way whoever reaches an object that was not published to it, or still looks at
//! one whose memory has been given away, is.

use super::layout::{STRAY_LENGTH, WINDOWS};
use super::offset::Shared;
use super::sizes::PAGE_SIZE;
use arck_pm::long::{Part, is_limited};
use arck_pm::mapping::{self, HUGE_PAGE};
use arck_pm::placing;
use arck_pm::{Access, HugePages, LongFile, MapOptions, SharedBytes};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mm;
use std::alloc;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// A window grows by a multiple of so many bytes.
const STEP: u64 = 1 << 20;
/// One that is used so far grows by huge pages, where the kernel has them: a million names are found there, in
/// memory that is used for the first time, with a fault and an entry of the processor's tables for 2 MiB.
const LARGE: u64 = 8 << 20;
const HUGE: u64 = HUGE_PAGE as u64;
/// The longest object that is reached by its offset alone, and in the usual case by one comparison.
const OBJECT_MOST: u64 = STRAY_LENGTH;
/// Addresses held for what others begin to use during an operation, where addresses are limited.
const HELD: usize = 8 << 20;

enum Backing {
    File(LongFile),
    Memory(alloc::Layout),
}

/// A part of the region that is used from its beginning on.
struct Window {
    start: u64,
    /// Where the next begins.
    limit: u64,
    /// What this process can reach of it.
    end: AtomicU64,
}

pub(super) struct Mapping {
    base: NonNull<u8>,
    windows: [Window; WINDOWS],
    /// Of the first window, what lies [`OBJECT_MOST`] bytes before the end of what can be reached, which this follows:
    /// an object that begins no later can be touched.
    near: AtomicU64,
    size: u64,
    backing: Backing,
    is_limited: AtomicBool,
    huge_pages: HugePages,
    /// The addresses that are held; 0: none are.
    held: AtomicUsize,
}

// SAFETY: the mapping is memory that any thread may use; it is accessed by atomics alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `size` bytes of the file, shared, without reserving memory for them. The
    /// caller has checked that the file is that long. `windows` say where each begins; the first is
    /// reachable beyond `fixed`.
    pub fn of_file(
        file: impl AsFd,
        size: u64,
        windows: [u64; WINDOWS],
        fixed: u64,
    ) -> rustix::io::Result<Self> {
        let length = usize::try_from(size).map_err(|_| Errno::NOMEM)?;
        let windows = Window::all(windows, size, |index, start, limit| {
            let first = if index == 0 {
                fixed + STEP
            } else {
                start + PAGE_SIZE
            };
            first.min(limit)
        });
        let parts = windows.each_ref().map(|window| Part {
            start: window.start as usize,
            end: window.end.load(Ordering::Relaxed) as usize,
        });
        let file = LongFile::new(file, length, &parts, MapOptions::READ_WRITE)
            .map_err(|error| error.errno())?;
        Ok(Self {
            base: NonNull::new(file.as_ptr()).ok_or(Errno::NOMEM)?,
            near: AtomicU64::new(near(windows[0].end.load(Ordering::Relaxed))),
            windows,
            size,
            backing: Backing::File(file),
            is_limited: AtomicBool::new(is_limited()),
            huge_pages: HugePages::default(),
            held: AtomicUsize::new(0),
        })
    }

    /// For tests of members that are children of one another: all that this process can reach by now.
    #[cfg(test)]
    pub fn give_to_children(&self) {
        for window in &self.windows {
            let end = window.end.load(Ordering::Relaxed);
            // SAFETY: our own mapping; it changes nothing for this process.
            let given = unsafe {
                let first = self.base.as_ptr().add(window.start as usize);
                arck_pm::forks::give_to_children(first, (end - window.start) as usize)
            };
            assert_eq!(given, Ok(()));
        }
    }

    /// Zeroed memory of this process alone.
    pub fn of_memory(size: u64, windows: [u64; WINDOWS]) -> rustix::io::Result<Self> {
        let layout = usize::try_from(size)
            .ok()
            .and_then(|size| alloc::Layout::from_size_align(size, PAGE_SIZE as usize).ok())
            .filter(|layout| layout.size() != 0)
            .ok_or(Errno::NOMEM)?;
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(Errno::NOMEM)?;
        Ok(Self {
            base,
            near: AtomicU64::new(near(windows.get(1).copied().unwrap_or(size))),
            windows: Window::all(windows, size, |_, _, limit| limit),
            size,
            backing: Backing::Memory(layout),
            is_limited: AtomicBool::new(false),
            huge_pages: HugePages::default(),
            held: AtomicUsize::new(0),
        })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn base_address(&self) -> usize {
        self.base.addr().get()
    }

    #[inline]
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// This process's address space is about to be limited: reserves no more than can be reached.
    pub fn give_up_reservation(&self) {
        self.is_limited.store(true, Ordering::Relaxed);
        if let Backing::File(file) = &self.backing {
            file.give_up_reservation();
        }
    }

    /// Whether an object at `offset` can be touched, in the first window and not at its very end.
    #[inline(always)]
    fn is_near(&self, offset: u64) -> bool {
        offset <= self.near.load(Ordering::Acquire)
    }

    /// Whether it can, at an offset that is not 0: one comparison.
    #[inline(always)]
    fn is_near_and_not_null(&self, offset: u64) -> bool {
        // What is before 0 is beyond all.
        offset.wrapping_sub(1) < self.near.load(Ordering::Acquire)
    }

    /// The `T` at `offset`, if one lies there, aligned and whole.
    #[inline]
    pub fn get<T: Shared>(&self, offset: u64) -> Option<&T> {
        const { assert!(size_of::<T>() as u64 <= OBJECT_MOST) };
        let length = size_of::<T>() as u64;
        if offset & (align_of::<T>() as u64 - 1) != 0
            || !(self.is_near(offset) || self.can_be_followed(offset, length))
        {
            return None;
        }
        // SAFETY: reachable and aligned (just checked; the base is page aligned), alive
        // as long as `self`, valid for any bit pattern and free of data races because `T: Shared`
        // consists of atomics and all access to the region is atomic.
        Some(unsafe { self.base.add(offset as usize).cast::<T>().as_ref() })
    }

    /// As [`get`](Self::get), of an offset that is 0 where there is none.
    #[inline]
    pub fn get_unless_null<T: Shared>(&self, offset: u64) -> Option<&T> {
        const { assert!(size_of::<T>() as u64 <= OBJECT_MOST) };
        let length = size_of::<T>() as u64;
        if offset & (align_of::<T>() as u64 - 1) != 0
            || !(self.is_near_and_not_null(offset)
                || offset != 0 && self.can_be_followed(offset, length))
        {
            return None;
        }
        // SAFETY: as in `get`.
        Some(unsafe { self.base.add(offset as usize).cast::<T>().as_ref() })
    }

    /// `count` consecutive `T` from `offset`.
    #[inline]
    pub fn get_slice<T: Shared>(&self, offset: u64, count: usize) -> Option<&[T]> {
        self.get_slice_in(0, offset, count)
    }

    /// `length` bytes from `offset`: the words that they begin with, none if those would not be aligned, and the bytes
    /// behind.
    #[inline]
    pub fn get_words_and_rest(
        &self,
        offset: u64,
        length: usize,
    ) -> Option<(&[AtomicU64], &[AtomicU8])> {
        let bytes = self.get_slice::<AtomicU8>(offset, length)?;
        let count = match offset.is_multiple_of(align_of::<AtomicU64>() as u64) {
            true => length / size_of::<AtomicU64>(),
            false => 0,
        };
        let (words, rest) = bytes.split_at(count * size_of::<AtomicU64>());
        // SAFETY: as in `get`, for so many of the bytes just checked; aligned as the offset is, since the base is page
        // aligned.
        let words = unsafe {
            NonNull::slice_from_raw_parts(NonNull::from(words).cast::<AtomicU64>(), count).as_ref()
        };
        Some((words, rest))
    }

    /// As [`get_slice`](Self::get_slice), of what lies in this window most likely.
    #[inline]
    pub fn get_slice_in<T: Shared>(
        &self,
        window: usize,
        offset: u64,
        count: usize,
    ) -> Option<&[T]> {
        let bytes = (count as u64).checked_mul(size_of::<T>() as u64)?;
        let end = offset.checked_add(bytes)?;
        let window = &self.windows[window];
        let is_here = offset >= window.start && end <= window.end.load(Ordering::Acquire);
        if offset & (align_of::<T>() as u64 - 1) != 0
            || !(is_here || self.can_be_followed(offset, bytes))
        {
            return None;
        }
        // SAFETY: as in `get`, for the whole of the checked range.
        Some(unsafe {
            NonNull::slice_from_raw_parts(self.base.add(offset as usize).cast::<T>(), count)
                .as_ref()
        })
    }

    /// Whether a range lies in the region; it can be touched then. Where it cannot be made reachable
    /// although it is there, this does not return.
    #[cold]
    #[inline(never)]
    fn can_be_followed(&self, offset: u64, length: u64) -> bool {
        let Some(end) = offset.checked_add(length).filter(|&end| end <= self.size) else {
            return false;
        };
        if end <= self.windows[0].end.load(Ordering::Acquire) {
            return true;
        }
        if self.reach(offset, length).is_ok() {
            return true;
        }
        self.give_up_held();
        if self.reach(offset, length).is_err() {
            end_process();
        }
        true
    }

    /// Makes a range of the region reachable. ENOMEM.
    pub fn reach(&self, offset: u64, length: u64) -> Result<(), Errno> {
        let end = offset.checked_add(length).filter(|&end| end <= self.size);
        let end = end.ok_or(Errno::INVAL)?;
        for window in &self.windows {
            let needed = end.min(window.limit);
            if offset < window.limit && needed > window.start.max(offset) {
                self.grow(window, needed)?;
            }
        }
        Ok(())
    }

    fn grow(&self, window: &Window, needed: u64) -> Result<(), Errno> {
        let Backing::File(file) = &self.backing else {
            return Ok(());
        };
        if needed <= window.end.load(Ordering::Acquire) {
            return Ok(());
        }
        let is_large =
            needed - window.start > LARGE && !self.is_limited() && self.huge_pages.are_worth_it();
        let step = if is_large { HUGE } else { STEP };
        let ahead = needed.next_multiple_of(step).min(window.limit);
        let (start, before) = (window.start as usize, window.end.load(Ordering::Acquire));
        let reached = file
            .reach(start, ahead as usize)
            .or_else(|_| file.reach(start, needed as usize));
        let end = reached.map_err(|error| error.errno())?;
        if is_large {
            self.put_huge_pages(file, before, end as u64);
        }
        window.end.fetch_max(end as u64, Ordering::Release);
        if window.start == 0 {
            self.near.fetch_max(near(end as u64), Ordering::Release);
        }
        Ok(())
    }

    /// Has huge pages behind what has just become reachable; what another member stores there meanwhile stays.
    /// Without them it is as good, but slower.
    fn put_huge_pages(&self, file: &LongFile, from: u64, end: u64) {
        let mut at = from.next_multiple_of(HUGE);
        while at + HUGE <= end && self.huge_pages.are_worth_it() {
            let bytes = file.bytes();
            let put = |range: SharedBytes<'_>, first: SharedBytes<'_>| {
                // The kernel puts together what is there: one page at least.
                if mapping::populate(first, Access::ReadOnly).is_ok() {
                    self.huge_pages.gather(range);
                }
            };
            let range = bytes.slice(at as usize, HUGE as usize);
            let first = bytes.slice(at as usize, PAGE_SIZE as usize);
            if let Some((range, first)) = range.zip(first) {
                put(range, first);
            }
            at += HUGE;
        }
    }

    /// Makes sure that addresses are held for what others begin to use during an operation. ENOMEM.
    pub fn keep_room(&self) -> Result<(), Errno> {
        if !self.is_limited() || self.held.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        // SAFETY: where the kernel likes, so nothing is replaced.
        let held = unsafe { placing::reserve(0, HELD, 0)? };
        let first = self
            .held
            .compare_exchange(0, held, Ordering::AcqRel, Ordering::Acquire);
        if first.is_err() {
            // SAFETY: just reserved, and nobody's.
            let _ = unsafe { placing::vacate(held, HELD) };
        }
        Ok(())
    }

    fn give_up_held(&self) {
        let held = self.held.swap(0, Ordering::AcqRel);
        if held != 0 {
            // SAFETY: reserved by us; whoever takes it out of the word has it alone.
            let _ = unsafe { placing::vacate(held, HELD) };
        }
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
        if let Backing::File(file) = &self.backing {
            // Who has references into it sees memory before and after.
            let _ = file.replace_by_zeroes();
        }
    }

    /// Gives the memory of `length` bytes from `offset` back to the system; they read as zero
    /// afterwards. Both are multiples of the page size. Nobody may be using the range.
    pub fn discard(&self, offset: u64, length: u64) {
        // The kernel gives back what this process could write. Where that cannot be, and on a file system
        // that cannot punch, the memory is kept; nothing depends on it.
        if matches!(self.backing, Backing::Memory(_)) || self.reach(offset, length).is_err() {
            return;
        }
        for window in &self.windows {
            let (from, to) = (
                offset.max(window.start),
                (offset + length).min(window.limit),
            );
            if from >= to {
                continue;
            }
            // SAFETY: inside our own shared mapping, and reachable; the kernel frees the file's pages,
            // which to any reader looks like zeros having been stored.
            let _ = unsafe {
                mm::madvise(
                    self.base.add(from as usize).as_ptr().cast(),
                    (to - from) as usize,
                    mm::Advice::LinuxRemove,
                )
            };
        }
    }
}

/// See [`Mapping::near`], where so much can be reached. A first window has room for the region's header, so that what
/// there is no room for is far from 0.
fn near(end: u64) -> u64 {
    end.saturating_sub(OBJECT_MOST)
}

impl Window {
    /// Windows that begin at these places, each reachable as far as `end` says by its number, where it
    /// begins and where it ends.
    fn all(
        starts: [u64; WINDOWS],
        size: u64,
        end: impl Fn(usize, u64, u64) -> u64,
    ) -> [Window; WINDOWS] {
        std::array::from_fn(|index| {
            let start = starts[index];
            let limit = starts.get(index + 1).copied().unwrap_or(size);
            Window {
                start,
                limit,
                end: AtomicU64::new(end(index, start, limit)),
            }
        })
    }
}

/// Ends this process, which cannot follow what its group does: see the module's head.
#[cold]
fn end_process() -> ! {
    let line = b"arck: the address space that this process may use (`ulimit -v`) has no room for what its \
group has begun to use in the middle of a call: the process is ended; allow it more\n";
    crate::telling::tell(line);
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // The kernel lets nobody come so far.
    std::process::abort()
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.give_up_held();
        if let Backing::Memory(layout) = self.backing {
            // SAFETY: allocated with this layout in `of_memory`.
            unsafe { alloc::dealloc(self.base.as_ptr(), layout) };
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
