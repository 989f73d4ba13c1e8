//! Building the auxiliary state anew, after a member died inside it.
//!
//! A new build begins beside the old one: whoever still has a reference into that sees what was,
//! and disturbs nobody. Its memory comes back when the one after the next is built
//! ([`allocator`](super::allocator)).
//!
//! # Invariants
//! * One thread builds at a time, under [`Region::rebuilding`], while the region is marked damaged
//!   and no other thread is inside ([`Region::is_left_by_all_but`]).
//! * What was allocated before [`Region::begin_build`] is never given back to the allocator
//!   after it.

use super::lock::Lock;
use super::structures::{BUILDING, CentralList, DAMAGED};
use super::{Region, ThreadSlot};
use std::sync::atomic::Ordering;

impl Region {
    /// To be held by who builds the auxiliary state anew.
    pub fn rebuilding(&self) -> &Lock {
        &self.header().rebuilding
    }

    /// Whether a thread of a member is inside, or was when it died.
    pub fn has_inside(&self, member: u16) -> bool {
        (0..self.slots_used())
            .map(|index| self.slot_line(index))
            .any(|line| {
                line.owner.load(Ordering::Acquire) == u32::from(member) + 1
                    && line.epoch.load(Ordering::SeqCst) != 0
            })
    }

    /// What a member was changing when it died is half changed.
    pub fn begin_damage(&self) {
        self.auxiliary().damaged.store(DAMAGED, Ordering::SeqCst);
    }

    /// Whether no thread but this one is inside the LibFS.
    pub fn is_left_by_all_but(&self, slot: &ThreadSlot<'_>) -> bool {
        let others = (0..self.slots_used()).filter(|&index| index != slot.index());
        others
            .map(|index| self.slot_line(index))
            .all(|line| line.epoch.load(Ordering::SeqCst) == 0)
    }

    /// Threads, as the kernel numbers them, that keep `slot`'s from building: those that are inside, and
    /// whoever is building.
    pub fn keepers<'r>(&'r self, slot: &ThreadSlot<'_>) -> impl Iterator<Item = u32> + use<'r> {
        let own = slot.index();
        let builder = self.rebuilding().holder().map(|holder| holder.thread);
        (0..self.slots_used())
            .filter(move |&index| index != own)
            .map(|index| (index, self.slot_line(index)))
            .filter(move |(index, line)| {
                Some(*index) == builder || line.epoch.load(Ordering::SeqCst) != 0
            })
            .map(|(_, line)| line.thread.load(Ordering::Relaxed))
    }

    /// Forgets all that was allocated. The roots stay, and what they lead to is the LibFS's to begin
    /// again where it is.
    pub fn begin_build(&self) {
        let auxiliary = self.auxiliary();
        auxiliary.orphans_lock.reset();
        auxiliary.orphans.store(0, Ordering::Relaxed);
        auxiliary.classes.iter().for_each(CentralList::reset);
        self.reset_pages();
        for index in 0..self.slots_used() {
            self.slot_cache(index).reset();
        }
        auxiliary.build.fetch_add(1, Ordering::SeqCst);
        auxiliary.damaged.store(BUILDING, Ordering::SeqCst);
    }

    /// The auxiliary state is whole again.
    pub fn end_damage(&self) {
        self.give_back_builds();
        self.auxiliary().damaged.store(0, Ordering::SeqCst);
    }
}
