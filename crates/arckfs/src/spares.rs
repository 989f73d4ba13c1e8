//! What a thread keeps at hand so that opening, closing, making and removing files takes no lock:
//! unborn inode numbers, those of inodes that have died unborn, description slots that it has
//! freed, and the place in the open table that it used last.
//!
//! # Invariants
//! * A number, slot or place stands in one thread's spares, or in the session's own lists, or is in use.
//! * A thread's spares are changed by that thread alone. They stand in the region by its slot there,
//!   so whoever claims the slot when the thread is gone, in whichever process, goes on with them;
//!   slots change hands with the ordering of their claim. They are atomics, each used relaxed.

use crate::state::{AuxiliaryState, CachedInode};
use arck_core_state::InodeNumber;
use arck_libfs_kit::region::{AtomicOffset, Offset, Region, THREAD_SLOTS, ThreadSlot};
use arck_libfs_kit::region_shared;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

/// Description slots kept by a thread.
const KEPT: usize = 14;
/// Inode numbers kept by a thread.
const NUMBERS: usize = 31;

region_shared! {
    /// Inodes that died unborn, oldest first, linked by `reuse_next`, not yet handed on to the
    /// session's queue. Changed by its thread alone.
    pub struct Dead {
        pub first: AtomicOffset<CachedInode>,
        pub last: AtomicOffset<CachedInode>,
        pub count: AtomicU32,
        pub reserved: AtomicU32,
    }

    /// Four cache lines of a thread. (Processors fetch lines in pairs.)
    pub struct ThreadSpares {
        count: AtomicU32,
        /// Place in the open table plus one; 0 = none known.
        place: AtomicU32,
        descriptions: [AtomicU32; KEPT],
        numbers_count: AtomicU32,
        numbers: [AtomicU32; NUMBERS],
        dead: Dead,
        apart: [AtomicU32; 10],
    }
}

const _: () = assert!(size_of::<ThreadSpares>() == 256);

/// The spares of all threads.
pub struct Spares {
    region: &'static Region,
    state: &'static AuxiliaryState,
}

impl Spares {
    /// Room for all threads' in a new region. ENOMEM.
    pub fn create(region: &Region, slot: &ThreadSlot<'_>) -> Result<Offset<ThreadSpares>, Errno> {
        // More than a page, and so at the beginning of one.
        region
            .allocate_zeroed::<ThreadSpares>(slot, THREAD_SLOTS)
            .map_err(|_| Errno::NOMEM)
    }

    /// Those that [`Spares::create`] has made room for.
    pub fn of_state(region: &'static Region, state: &'static AuxiliaryState) -> Spares {
        Spares { region, state }
    }

    #[inline]
    fn of(&self, slot: &ThreadSlot<'_>) -> Option<&'static ThreadSpares> {
        let place = u64::from(slot.holder().thread) * size_of::<ThreadSpares>() as u64;
        let first = self.state.spares.load(Ordering::Acquire);
        self.region.try_get(Offset::from_raw(first.raw() + place))
    }

    /// The thread's dead inodes.
    #[inline]
    pub fn dead(&self, slot: &ThreadSlot<'_>) -> Option<&Dead> {
        self.of(slot).map(|spares| &spares.dead)
    }

    /// A free description slot, by its number from 1.
    #[inline]
    pub fn take_description(&self, slot: &ThreadSlot<'_>) -> Option<u32> {
        let spares = self.of(slot)?;
        let count = spares.count.load(Ordering::Relaxed).checked_sub(1)?;
        let description = spares.descriptions.get(count as usize)?;
        spares.count.store(count, Ordering::Relaxed);
        Some(description.load(Ordering::Relaxed))
    }

    /// Whether there is one to take.
    pub fn has_description(&self, slot: &ThreadSlot<'_>) -> bool {
        self.of(slot)
            .is_some_and(|spares| spares.count.load(Ordering::Relaxed) != 0)
    }

    /// Keeps a free slot; false if there is no room.
    #[inline]
    pub fn keep_description(&self, slot: &ThreadSlot<'_>, number: u32) -> bool {
        let Some(spares) = self.of(slot) else {
            return false;
        };
        let count = spares.count.load(Ordering::Relaxed);
        let Some(place) = spares.descriptions.get(count as usize) else {
            return false;
        };
        place.store(number, Ordering::Relaxed);
        spares.count.store(count + 1, Ordering::Relaxed);
        true
    }

    /// An unborn number; `refill` gives more, until there is none or no room.
    #[inline]
    pub fn take_number(
        &self,
        slot: &ThreadSlot<'_>,
        refill: impl FnMut() -> Option<InodeNumber>,
    ) -> Option<InodeNumber> {
        let spares = self.of(slot)?;
        let count = match spares.numbers_count.load(Ordering::Relaxed) {
            0 => Self::refill(spares, refill),
            count => count,
        };
        let last = count.checked_sub(1)?;
        let number = spares.numbers.get(last as usize)?.load(Ordering::Relaxed);
        spares.numbers_count.store(last, Ordering::Relaxed);
        Some(number)
    }

    #[cold]
    fn refill(spares: &ThreadSpares, mut refill: impl FnMut() -> Option<InodeNumber>) -> u32 {
        // Handed out from the end: the first ones given are to be the first ones used.
        let mut given = [0; NUMBERS / 2];
        let mut count = 0;
        while count < given.len()
            && let Some(number) = refill()
        {
            given[count] = number;
            count += 1;
        }
        for (place, number) in spares.numbers.iter().zip(given[..count].iter().rev()) {
            place.store(*number, Ordering::Relaxed);
        }
        spares.numbers_count.store(count as u32, Ordering::Relaxed);
        count as u32
    }

    /// Keeps a number whose birth did not happen; false if there is no room.
    pub fn keep_number(&self, slot: &ThreadSlot<'_>, number: InodeNumber) -> bool {
        let Some(spares) = self.of(slot) else {
            return false;
        };
        let count = spares.numbers_count.load(Ordering::Relaxed);
        let Some(place) = spares.numbers.get(count as usize) else {
            return false;
        };
        place.store(number, Ordering::Relaxed);
        spares.numbers_count.store(count + 1, Ordering::Relaxed);
        true
    }

    /// The place in the open table that this thread cleared last; it may be in use again.
    #[inline]
    pub fn take_place(&self, slot: &ThreadSlot<'_>) -> Option<usize> {
        let spares = self.of(slot)?;
        let place = spares.place.load(Ordering::Relaxed).checked_sub(1)?;
        spares.place.store(0, Ordering::Relaxed);
        Some(place as usize)
    }

    /// Remembers a place just cleared; false if another one is remembered already.
    #[inline]
    pub fn keep_place(&self, slot: &ThreadSlot<'_>, place: usize) -> bool {
        let Some(spares) = self.of(slot) else {
            return false;
        };
        if spares.place.load(Ordering::Relaxed) != 0 {
            return false;
        }
        spares.place.store(place as u32 + 1, Ordering::Relaxed);
        true
    }
}
