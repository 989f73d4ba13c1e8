//! Where things are in a region.
//!
//! ```text
//! page 0      header: magic, version, sizes, roots, global epoch   ┐
//! page 1, 2   stray pages, where invalid references lead           │ session state:
//! page 3..    thread slots, one cache line each                    ┘ never discarded
//! ...         auxiliary header: build, central free lists     ┐
//! ...         one allocation cache per thread slot                 │ auxiliary state:
//! ...         heap, in two halves                                  │ can be rebuilt
//! ...         page descriptors, those of each half together        ┘
//! ...         area for the LibFS's own fixed slots                 - session state
//! ```
//!
//! What grows with use (either half of the heap, its descriptors, the area) is a *window* of its own: used
//! from its beginning on, and reachable no further than a process has needed it
//! ([`mapping`](super::mapping)). What is followed all the time, the fixed part and the first half, is one
//! window, so that one comparison tells whether an offset can be followed.
//!
//! Invariant: everything here is computed from the region's size alone, so that all members agree;
//! the header's fingerprint changes with any change of these structures.

use super::lock::Lock;
use super::sizes::{CLASSES, PAGE_SIZE};
use super::structures::{CentralList, PageDescriptor, PagePool, SlotCache};
use crate::region_shared;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The largest size of a region in bytes: 8 TiB.
pub(super) const MAXIMUM_SIZE: u64 = 8 << 40;
/// How many threads of all members together can use a region at one time.
pub const THREAD_SLOTS: usize = 1024;
/// How many roots each part has for a LibFS to find its structures by.
pub const ROOTS: usize = 32;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"ArckRgn\0");
pub(super) const VERSION: u32 = 3;

region_shared! {
    /// What is at the beginning of a region.
    pub(super) struct Header {
        /// Written last when a region is made.
        pub magic: AtomicU64,
        pub version: AtomicU32,
        pub fingerprint: AtomicU32,
        /// Bytes in the region.
        pub size: AtomicU64,
        /// Invalid references that were followed; they led to the stray page.
        pub stray: AtomicU64,
        /// Bytes retired but leaked because nothing could be allocated to remember them.
        pub leaked: AtomicU64,
        /// Not 0 once the LibFS has made its own part: the fingerprint of that, in the low half.
        pub ready: AtomicU64,
        /// Held by who builds the auxiliary state anew.
        pub rebuilding: Lock,
        pub reserved0: AtomicU32,
        pub reserved: [AtomicU64; 1],
        /// The global epoch of reclamation, on a line of its own.
        pub epoch: AtomicU64,
        pub epoch_line: [AtomicU64; 7],
        /// One above the highest thread slot ever claimed.
        pub slots_used: AtomicU64,
        pub slots_line: [AtomicU64; 7],
        pub session_roots: [AtomicU64; ROOTS],
    }

    /// A thread's place in the region: session state, one cache line.
    pub(super) struct SlotLine {
        /// 0: free; member + 1: in use; see the constants of the epoch module.
        pub owner: AtomicU32,
        /// The kernel's thread id, for diagnosis.
        pub thread: AtomicU32,
        /// 0 while not pinned, else twice the epoch pinned, plus one.
        pub epoch: AtomicU64,
        pub line: [AtomicU64; 6],
    }

    /// What is at the beginning of the auxiliary part.
    pub(super) struct AuxiliaryHeader {
        pub build: AtomicU64,
        pub roots: [AtomicU64; ROOTS],
        pub orphans_lock: Lock,
        /// Not 0: a member died holding a lock of this part; it must be rebuilt.
        pub damaged: AtomicU32,
        /// Bags of retired memory whose thread is gone.
        pub orphans: AtomicU64,
        pub pool: PagePool,
        pub classes: [CentralList; CLASSES],
    }

}

/// What a [`Header`] begins with, as it is read from the file by whoever does not know yet what is to be
/// mapped.
#[derive(FromBytes, IntoBytes)]
#[repr(C)]
pub(super) struct Beginning {
    pub magic: u64,
    pub version: u32,
    pub fingerprint: u32,
    pub size: u64,
}

impl Beginning {
    /// Of a file that is long enough. The magic was written last, so what is read with it is whole.
    pub fn of_file(file: impl AsFd) -> Result<Beginning, Errno> {
        let mut beginning = Beginning::new_zeroed();
        let bytes = beginning.as_mut_bytes();
        match rustix::io::pread(file, bytes, 0)? == size_of::<Beginning>() {
            true => Ok(beginning),
            false => Err(Errno::IO),
        }
    }
}

const _: () = {
    assert!(offset_of!(Beginning, magic) == offset_of!(Header, magic));
    assert!(offset_of!(Beginning, version) == offset_of!(Header, version));
    assert!(offset_of!(Beginning, fingerprint) == offset_of!(Header, fingerprint));
    assert!(offset_of!(Beginning, size) == offset_of!(Header, size));
};

/// Offsets of the parts, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub slots: u64,
    pub session_area: u64,
    pub session_area_length: u64,
    pub auxiliary: u64,
    pub caches: u64,
    pub heap: u64,
    pub heap_pages: u32,
    pub descriptors: u64,
    /// The first page of the heap's second half.
    pub middle: u32,
}

/// How many windows there are: see [`Layout::windows`].
pub(super) const WINDOWS: usize = 5;
/// Which of them is the area of fixed slots.
pub(super) const AREA: usize = 4;

pub(super) const STRAY: u64 = PAGE_SIZE;
/// Bytes of the stray pages: no type in the region is larger.
pub(super) const STRAY_LENGTH: u64 = 10 * PAGE_SIZE;
const SLOTS: u64 = STRAY + STRAY_LENGTH;

fn pages_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_SIZE)
}

impl Layout {
    /// `None` if the size is too small for a heap of a few pages, not a multiple of the page
    /// size, or above 8 TiB.
    pub fn of(size: u64) -> Option<Self> {
        if !size.is_multiple_of(PAGE_SIZE) || size > MAXIMUM_SIZE {
            return None;
        }
        let auxiliary = SLOTS + pages_up((size_of::<SlotLine>() * THREAD_SLOTS) as u64);
        let caches = auxiliary + pages_up(size_of::<AuxiliaryHeader>() as u64);
        let heap = caches + pages_up((size_of::<SlotCache>() * THREAD_SLOTS) as u64);
        let session_area_length = pages_up(size / 16).clamp(16 * PAGE_SIZE, 64 << 20);
        let session_area = size.checked_sub(session_area_length)?;
        let rest = session_area.checked_sub(heap)?;
        let per_page = PAGE_SIZE + size_of::<PageDescriptor>() as u64;
        // One page less than fits, for rounding up the table of descriptors.
        let heap_pages = (rest / per_page)
            .checked_sub(1)
            .filter(|&pages| pages >= 64)?;
        Some(Self {
            slots: SLOTS,
            session_area,
            session_area_length,
            auxiliary,
            caches,
            heap,
            heap_pages: u32::try_from(heap_pages).ok()?,
            descriptors: heap + heap_pages * PAGE_SIZE,
            middle: u32::try_from(heap_pages / 2).ok()?,
        })
    }

    /// Where each window begins: the fixed part with the heap's first half; the second half; the
    /// descriptors of the first; those of the second, from the page on in which they begin; the area of
    /// fixed slots. The next begins where one ends at the latest.
    pub fn windows(&self) -> [u64; WINDOWS] {
        let of_second = u64::from(self.middle) * size_of::<PageDescriptor>() as u64;
        [
            0,
            self.heap + u64::from(self.middle) * PAGE_SIZE,
            self.descriptors,
            (self.descriptors + of_second) / PAGE_SIZE * PAGE_SIZE,
            self.session_area,
        ]
    }

    /// A number that differs, most likely, between builds whose structures differ.
    pub fn fingerprint() -> u32 {
        [
            size_of::<Header>(),
            size_of::<SlotLine>(),
            size_of::<AuxiliaryHeader>(),
            size_of::<SlotCache>(),
            size_of::<PageDescriptor>(),
            THREAD_SLOTS,
            CLASSES,
        ]
        .iter()
        .fold(0x811c_9dc5, |hash: u32, &size| {
            (hash ^ size as u32).wrapping_mul(0x0100_0193)
        })
    }
}

const _: () = {
    assert!(cfg!(shuttle) || size_of::<Header>() <= PAGE_SIZE as usize);
    assert!(size_of::<SlotLine>() == 64);
};
