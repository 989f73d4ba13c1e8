//! What a thread keeps at hand so that opening and closing files takes no lock: description slots that it
//! has freed.
//!
//! # Invariants
//! * A slot stands in one thread's spares, or in the session's own list, or is in use.
//! * A thread's spares are changed by that thread alone. They stand in the region by its slot there,
//!   so whoever claims the slot when the thread is gone, in whichever process, goes on with them;
//!   slots change hands with the ordering of their claim. They are atomics, each used relaxed.

use crate::state::AuxiliaryState;
use arck_libfs_kit::region::{Offset, Region, THREAD_SLOTS, ThreadSlot};
use arck_libfs_kit::region_shared;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

/// Description slots kept by a thread.
const KEPT: usize = 14;

region_shared! {
    /// Two cache lines of a thread: processors fetch them in pairs.
    pub struct ThreadSpares {
        count: AtomicU32,
        descriptions: [AtomicU32; KEPT],
        apart: [AtomicU32; 17],
    }
}

const _: () = assert!(size_of::<ThreadSpares>() == 128);

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
}
