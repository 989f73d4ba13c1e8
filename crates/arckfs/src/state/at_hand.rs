//! What a thread keeps at hand so that opening and closing files takes no lock: description slots that it
//! has freed.
//!
//! # Invariants
//! * A slot stands in one thread's those at hand, or in the session's own list, or is in use.
//! * A thread's those at hand are changed by that thread alone. They stand in the region by its slot there,
//!   so whoever claims the slot when the thread is gone, in whichever process, goes on with them;
//!   slots change hands with the ordering of their claim. They are atomics, each used relaxed.

use crate::state::{AuxiliaryState, ThreadAtHand};
use arck_libfs_kit::region::{Offset, Region, ThreadSlot};
use std::sync::atomic::Ordering;

/// The those at hand of all threads.
pub struct AtHand {
    region: &'static Region,
    state: &'static AuxiliaryState,
}

impl AtHand {
    /// Those that [`ThreadAtHand::create`] has made room for.
    pub fn of_state(region: &'static Region, state: &'static AuxiliaryState) -> AtHand {
        AtHand { region, state }
    }

    #[inline]
    fn of(&self, slot: &ThreadSlot<'_>) -> Option<&'static ThreadAtHand> {
        let place = u64::from(slot.holder().thread) * size_of::<ThreadAtHand>() as u64;
        let first = self.state.at_hand.load(Ordering::Acquire);
        self.region.try_get(Offset::from_raw(first.raw() + place))
    }

    /// A free description slot, by its number from 1.
    #[inline]
    pub fn take_description(&self, slot: &ThreadSlot<'_>) -> Option<u32> {
        let at_hand = self.of(slot)?;
        let count = at_hand.count.load(Ordering::Relaxed).checked_sub(1)?;
        let description = at_hand.descriptions.get(count as usize)?;
        at_hand.count.store(count, Ordering::Relaxed);
        Some(description.load(Ordering::Relaxed))
    }

    /// Whether there is one to take.
    pub fn has_description(&self, slot: &ThreadSlot<'_>) -> bool {
        self.of(slot)
            .is_some_and(|at_hand| at_hand.count.load(Ordering::Relaxed) != 0)
    }

    /// Keeps a free slot; false if there is no room.
    #[inline]
    pub fn keep_description(&self, slot: &ThreadSlot<'_>, number: u32) -> bool {
        let Some(at_hand) = self.of(slot) else {
            return false;
        };
        let count = at_hand.count.load(Ordering::Relaxed);
        let Some(place) = at_hand.descriptions.get(count as usize) else {
            return false;
        };
        place.store(number, Ordering::Relaxed);
        at_hand.count.store(count + 1, Ordering::Relaxed);
        true
    }
}
