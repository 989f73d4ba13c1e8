//! Thread slots, and freeing memory only after nobody can be looking at it any more.
//!
//! A reader pins the global epoch by writing it into its slot and looks at shared structures
//! without locks. Memory unlinked from a structure is *retired*: put into a bag that is stamped
//! with the global epoch when it is full. The epoch advances only when every pinned slot has seen
//! the current one, so once it is two above a bag's stamp, every reader that could have found what
//! is in the bag has let go of it.
//!
//! Why two: a reader pinned at `r` found an object before it was unlinked, so the stamp, read
//! later, is at least `r`; while that reader is pinned the epoch is at most `r + 1`. The full
//! barriers in [`ThreadSlot::pin`], [`Guard::retire`] and `try_advance` order the reader's pinning
//! before its reads, and the unlinking before the stamp.
//!
//! What protects what: a slot's line and cache are written by the thread that claimed it, and
//! after its member's death by whoever won the change of `owner` to `CLEARING`. Bags of slots
//! that are gone lie in the orphan list, under its lock.

use super::holder::Holder;
use super::layout::THREAD_SLOTS;
use super::lock::Lock;
use super::sizes::SizeClass;
use super::structures::{BAG_ENTRIES, Bag};
use super::{Offset, Region, Shared};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering, fence};

/// Owner word of a slot whose member died and that is being cleared.
const CLEARING: u32 = u32::MAX;
/// Unpinnings between two attempts to free something.
const COLLECT_EVERY: u32 = 64;
/// In a bag's entry: class above, offset below. Regions are far below 2^48 bytes.
const CLASS_SHIFT: u32 = 48;
const PAGES_CLASS: u64 = 0xff;

impl Bag {
    /// Empty.
    pub fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
    }
}

/// All thread slots of the region are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all {THREAD_SLOTS} thread slots of the region are in use")]
pub struct NoThreadSlot;

/// What [`Region::clear_member`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClearedMember {
    /// Thread slots that the member had.
    pub slots: usize,
    /// The member died while it held a lock of the allocator; see [`Region::is_damaged`].
    pub auxiliary_damaged: bool,
}

/// One thread's identity in a region, from [`Region::claim_thread_slot`] until it is dropped.
///
/// It is not for two threads at a time: debug builds stop where one is used that somebody has given away. After
/// `fork` the slots belong to the parent: the child must [`forget`](std::mem::forget) those it finds in its
/// memory and claim its own.
pub struct ThreadSlot<'r> {
    region: &'r Region,
    holder: Holder,
    pins: Cell<u32>,
    unpinned: Cell<u32>,
}

/// Keeps the epoch pinned: what was reachable when it was made stays allocated until it is
/// dropped. Hold it for one operation, not longer; it keeps all retired memory of the group alive.
#[must_use = "the epoch is unpinned when the guard is dropped"]
pub struct Guard<'s> {
    slot: &'s ThreadSlot<'s>,
}

impl Region {
    /// Claims a slot for the calling thread of the process that has the member slot `member`
    /// (below 65535).
    pub fn claim_thread_slot(&self, member: u16) -> Result<ThreadSlot<'_>, NoThreadSlot> {
        let owner = u32::from(member) + 1;
        for index in 0..THREAD_SLOTS as u16 {
            let line = self.slot_line(index);
            if line.owner.load(Ordering::Relaxed) == 0
                && line
                    .owner
                    .compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                // Before the first pin, so that whoever advances the epoch looks at this slot.
                self.header()
                    .slots_used
                    .fetch_max(u64::from(index) + 1, Ordering::SeqCst);
                line.thread.store(thread_id(), Ordering::Relaxed);
                return Ok(ThreadSlot {
                    region: self,
                    holder: Holder {
                        member,
                        thread: index,
                    },
                    pins: Cell::new(0),
                    unpinned: Cell::new(0),
                });
            }
        }
        Err(NoThreadSlot)
    }

    /// Pins the epoch for the thread of `slot`; the same as [`ThreadSlot::pin`].
    #[inline]
    pub fn pin<'s>(&self, slot: &'s ThreadSlot<'_>) -> Guard<'s> {
        debug_assert!(std::ptr::eq(self, slot.region), "a slot of another region");
        slot.pin()
    }

    /// The global epoch, for diagnosis: it stands still while some thread stays pinned.
    pub fn epoch(&self) -> u64 {
        self.header().epoch.load(Ordering::Acquire)
    }

    /// Frees the thread slots of the member `member`, which is dead, so that its pinned epochs hold
    /// up nobody and what its threads had retired or cached serves the others. Locks of the LibFS
    /// that its threads held are the caller's to find (see [`Lock::release_dead`]).
    pub fn clear_member(&self, slot: &ThreadSlot<'_>, member: u16) -> ClearedMember {
        let auxiliary = self.auxiliary();
        let died_with = |lock: &Lock| lock.holder().is_some_and(|dead| dead.member == member);
        let locks = || {
            let classes = auxiliary.classes.iter().map(|class| &class.lock);
            classes.chain([&auxiliary.pool.lock, &auxiliary.orphans_lock])
        };
        let mut cleared = ClearedMember {
            slots: 0,
            auxiliary_damaged: locks().any(died_with),
        };
        if cleared.auxiliary_damaged {
            // First the mark: whoever gets a lock that is freed here must see it.
            auxiliary.damaged.store(1, Ordering::Release);
            locks().for_each(|lock| _ = lock.release_dead(member));
        }
        for index in 0..self.slots_used() {
            let line = self.slot_line(index);
            if line
                .owner
                .compare_exchange(
                    u32::from(member) + 1,
                    CLEARING,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_err()
            {
                continue;
            }
            cleared.slots += 1;
            line.epoch.store(0, Ordering::Release);
            if !cleared.auxiliary_damaged {
                self.orphan_bags(slot, index);
                self.empty_cache(slot, index);
            }
            line.owner.store(0, Ordering::Release);
        }
        cleared
    }

    /// Whether a member died while it may have been changing something. From then on allocations
    /// fail with [`OutOfMemory`](super::OutOfMemory) and freed memory is lost, but nobody waits for
    /// the dead; what was allocated stays readable until the LibFS builds a new region from the
    /// core state.
    pub fn is_damaged(&self) -> bool {
        self.auxiliary().damaged.load(Ordering::Acquire) != 0
    }

    /// Advances the epoch if every pinned thread has seen the current one.
    /// Whether whoever was pinned in this epoch has left since: what was unreachable then is seen by nobody.
    pub fn is_over(&self, epoch: u64) -> bool {
        epoch + 2 <= self.epoch()
    }

    pub(crate) fn try_advance(&self) -> u64 {
        let global = &self.header().epoch;
        // Who advanced it had seen the ends of all earlier pins.
        let epoch = global.load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        for index in 0..self.slots_used() {
            let pinned = self.slot_line(index).epoch.load(Ordering::Acquire);
            if pinned != 0 && pinned != pinned_at(epoch) {
                return epoch;
            }
        }
        match global.compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => epoch + 1,
            Err(now) => now,
        }
    }

    pub(super) fn slots_used(&self) -> u16 {
        let used = self.header().slots_used.load(Ordering::SeqCst);
        used.min(THREAD_SLOTS as u64) as u16
    }

    /// Moves all bags of slot `index`, whose thread is the caller or dead, to the orphan list.
    fn orphan_bags(&self, slot: &ThreadSlot<'_>, index: u16) {
        let cache = self.slot_cache(index);
        self.seal_bag(index);
        let oldest = cache.oldest.load(Ordering::Relaxed);
        if oldest == 0 {
            return;
        }
        let auxiliary = self.auxiliary();
        let Some(_locked) = self.enter(&auxiliary.orphans_lock, slot.holder()) else {
            return;
        };
        let newest = cache.newest.load(Ordering::Relaxed);
        if let Some(newest) = self.try_get(Offset::<Bag>::from_raw(newest)) {
            let orphans = auxiliary.orphans.load(Ordering::Relaxed);
            newest.next.store(orphans, Ordering::Relaxed);
        }
        auxiliary.orphans.store(oldest, Ordering::Relaxed);
        cache.oldest.store(0, Ordering::Relaxed);
        cache.newest.store(0, Ordering::Relaxed);
    }

    /// Stamps the bag that slot `index` is filling and appends it to the slot's sealed bags.
    fn seal_bag(&self, index: u16) {
        let cache = self.slot_cache(index);
        let offset = cache.bag.load(Ordering::Relaxed);
        let Some(bag) = self.try_get(Offset::<Bag>::from_raw(offset)) else {
            return;
        };
        // Everything in the bag was unlinked before its stamp is read.
        fence(Ordering::SeqCst);
        let epoch = self.header().epoch.load(Ordering::Relaxed);
        bag.epoch.store(epoch, Ordering::Relaxed);
        bag.next.store(0, Ordering::Relaxed);
        // First away from here, then there: a death in between loses a bag, and frees none twice.
        cache.bag.store(0, Ordering::Release);
        let newest = Offset::<Bag>::from_raw(cache.newest.load(Ordering::Relaxed));
        match self.try_get(newest) {
            Some(newest) => newest.next.store(offset, Ordering::Release),
            None => cache.oldest.store(offset, Ordering::Release),
        }
        cache.newest.store(offset, Ordering::Release);
    }

    /// Frees what the slot's sealed bags and the orphan list hold and nobody can see any more.
    fn collect(&self, slot: &ThreadSlot<'_>) {
        let epoch = self.try_advance();
        let cache = self.slot_cache(slot.index());
        for _ in 0..8 {
            let oldest = cache.oldest.load(Ordering::Relaxed);
            let Some(bag) = self.try_get(Offset::<Bag>::from_raw(oldest)) else {
                break;
            };
            if bag.epoch.load(Ordering::Relaxed) + 2 > epoch {
                break;
            }
            let next = bag.next.load(Ordering::Relaxed);
            if next == 0 {
                cache.newest.store(0, Ordering::Release);
            }
            cache.oldest.store(next, Ordering::Release);
            self.free_bag(slot, oldest, bag);
        }
        if self.auxiliary().orphans.load(Ordering::Relaxed) != 0 {
            self.collect_orphans(slot, epoch);
        }
    }

    #[cold]
    fn collect_orphans(&self, slot: &ThreadSlot<'_>, epoch: u64) {
        let auxiliary = self.auxiliary();
        let mut ripe = 0;
        {
            let Some(_locked) = auxiliary.orphans_lock.try_lock(slot.holder()) else {
                return;
            };
            if self.is_damaged() {
                return;
            }
            let mut link = &auxiliary.orphans;
            loop {
                let offset = link.load(Ordering::Relaxed);
                let Some(bag) = self.try_get(Offset::<Bag>::from_raw(offset)) else {
                    break;
                };
                if bag.epoch.load(Ordering::Relaxed) + 2 <= epoch {
                    link.store(bag.next.load(Ordering::Relaxed), Ordering::Relaxed);
                    bag.next.store(ripe, Ordering::Relaxed);
                    ripe = offset;
                } else {
                    link = &bag.next;
                }
            }
        }
        while let Some(bag) = self.try_get(Offset::<Bag>::from_raw(ripe)) {
            let next = bag.next.load(Ordering::Relaxed);
            self.free_bag(slot, ripe, bag);
            ripe = next;
        }
    }

    fn free_bag(&self, slot: &ThreadSlot<'_>, offset: u64, bag: &Bag) {
        let count = bag.count.load(Ordering::Relaxed).min(BAG_ENTRIES as u64);
        for entry in &bag.entries[..count as usize] {
            let entry = entry.load(Ordering::Relaxed);
            let class = match entry >> CLASS_SHIFT {
                PAGES_CLASS => SizeClass::Pages(0),
                class => SizeClass::Class(class as u8),
            };
            self.free_class(slot, entry & ((1 << CLASS_SHIFT) - 1), class);
        }
        if offset < self.layout.heap {
            // A slot's emergency bag: from now on it can be used again.
            bag.count.store(0, Ordering::Release);
        } else {
            self.free(slot, Offset::<Bag>::from_raw(offset));
        }
    }
}

impl<'r> ThreadSlot<'r> {
    /// The region that this is a slot of.
    pub fn region(&self) -> &'r Region {
        self.region
    }

    /// Whether nobody has given it away. Where this process has let go of the region, nothing tells.
    fn is_own(&self) -> bool {
        let owner = &self.region.slot_line(self.index()).owner;
        owner.load(Ordering::Relaxed) == u32::from(self.holder.member) + 1
            || self.region.header().magic.load(Ordering::Relaxed) == 0
    }

    /// Whether the thread has pinned the epoch, and so is inside the LibFS.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.pins.get() != 0
    }

    /// The name under which this thread holds locks.
    #[inline]
    pub fn holder(&self) -> Holder {
        self.holder
    }

    #[inline]
    pub(super) fn index(&self) -> u16 {
        self.holder.thread
    }

    /// Pins the epoch. May be nested; the outermost guard counts.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        let pins = self.pins.get();
        // As in [`super::is_nonsense`].
        debug_assert!(
            pins != 0 || self.is_own() || std::thread::panicking(),
            "{:?} is another's",
            self.holder
        );
        self.pins.set(pins + 1);
        if pins == 0 {
            let mine = &self.region.slot_line(self.index()).epoch;
            let epoch = self.region.header().epoch.load(Ordering::Relaxed);
            // The pin must be visible before anything is read under it. On x86 a swap is a full
            // barrier and cheaper than a fence (Miri checks the portable way).
            if cfg!(all(target_arch = "x86_64", not(miri))) {
                mine.swap(pinned_at(epoch), Ordering::SeqCst);
                std::sync::atomic::compiler_fence(Ordering::SeqCst);
            } else {
                mine.store(pinned_at(epoch), Ordering::Release);
                fence(Ordering::SeqCst);
            }
        }
        Guard { slot: self }
    }

    /// Does what changes the auxiliary state, with the epoch pinned. `None`: it was not done, since
    /// that is damaged, and may be built anew at this moment.
    pub fn inside<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let is_within = self.is_pinned();
        let _inside = self.pin();
        (is_within || !self.region.is_damaged()).then(work)
    }

    /// Frees what can be freed of the memory that this thread, and threads that are gone, have
    /// retired. It happens by itself now and then; call it after retiring a lot. Does not block;
    /// after three calls without any thread pinned, nothing is left.
    pub fn collect(&self) {
        self.inside_quietly(|| {
            self.region.seal_bag(self.index());
            self.region.collect(self);
        });
    }

    /// As [`ThreadSlot::inside`], where leaving must not lead to collecting: it is what collects.
    fn inside_quietly(&self, work: impl FnOnce()) {
        let is_within = self.is_pinned();
        let inside = std::mem::ManuallyDrop::new(self.pin());
        if is_within || !self.region.is_damaged() {
            work();
        }
        inside.slot.leave();
    }

    /// One pin less; whether it was the outermost.
    #[inline]
    fn leave(&self) -> bool {
        let pins = self.pins.get() - 1;
        self.pins.set(pins);
        if pins == 0 {
            let line = self.region.slot_line(self.index());
            line.epoch.store(0, Ordering::Release);
        }
        pins == 0
    }

    #[inline]
    fn unpin(&self) {
        if !self.leave() {
            return;
        }
        let unpinned = self.unpinned.get() + 1;
        self.unpinned.set(unpinned % COLLECT_EVERY);
        if unpinned == COLLECT_EVERY {
            self.collect_something();
        }
    }

    #[cold]
    fn collect_something(&self) {
        let region = self.region;
        let cache = region.slot_cache(self.index());
        let (bag, oldest) = (&cache.bag, &cache.oldest);
        if bag.load(Ordering::Relaxed) != 0 || oldest.load(Ordering::Relaxed) != 0 {
            self.collect();
        } else if region.auxiliary().orphans.load(Ordering::Relaxed) != 0 {
            self.inside_quietly(|| region.collect(self));
        }
    }

    fn retire(&self, offset: u64, length: usize) {
        let region = self.region;
        let class = match SizeClass::of(length) {
            Some(SizeClass::Class(class)) => u64::from(class),
            Some(SizeClass::Pages(_)) => PAGES_CLASS,
            None => return,
        };
        if offset == 0 {
            return;
        }
        let cache = region.slot_cache(self.index());
        let mut bag = Offset::<Bag>::from_raw(cache.bag.load(Ordering::Relaxed));
        if bag.is_null() {
            bag = self.new_bag();
            cache.bag.store(bag.raw(), Ordering::Release);
        }
        let Some(bag) = region.try_get(bag) else {
            let leaked = &region.header().leaked;
            leaked.fetch_add(length as u64, Ordering::Relaxed);
            return;
        };
        let count = bag.count.load(Ordering::Relaxed);
        if let Some(entry) = bag.entries.get(count as usize) {
            entry.store(class << CLASS_SHIFT | offset, Ordering::Relaxed);
            bag.count.store(count + 1, Ordering::Release);
        }
        if count + 1 >= BAG_ENTRIES as u64 {
            region.seal_bag(self.index());
            region.collect(self);
        }
    }

    /// Null if there is no memory even after freeing what can be freed.
    fn new_bag(&self) -> Offset<Bag> {
        let region = self.region;
        if let Ok(bag) = region.allocate_zeroed::<Bag>(self, 1) {
            return bag;
        }
        region.collect(self);
        region.allocate_zeroed(self, 1).unwrap_or_else(|_| {
            let emergency = region.emergency_bag(self.index());
            let free = region.get(emergency).count.load(Ordering::Acquire) == 0;
            if free { emergency } else { Offset::NULL }
        })
    }
}

impl ThreadSlot<'_> {
    /// Gives the slot back, with everything that it has cached; it is not to be used any more.
    pub(crate) fn give_back(&self) {
        let region = self.region;
        let line = region.slot_line(self.index());
        // A guard that was leaked ends here.
        line.epoch.store(0, Ordering::Release);
        self.pins.set(0);
        // What is built anew has nothing of what this thread had.
        self.inside_quietly(|| {
            region.collect(self);
            region.orphan_bags(self, self.index());
            region.empty_cache(self, self.index());
        });
        line.owner.store(0, Ordering::Release);
    }
}

impl Drop for ThreadSlot<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl<'s> Guard<'s> {
    /// The region whose epoch is pinned.
    #[inline]
    pub fn region(&self) -> &'s Region {
        self.slot.region
    }

    /// The slot that has the epoch pinned.
    #[inline]
    pub fn slot(&self) -> &'s ThreadSlot<'s> {
        self.slot
    }

    /// Frees an object once nobody can be looking at it any more. It must be unlinked from every
    /// structure already, and be retired once. Null is ignored.
    pub fn retire<T: Shared>(&self, offset: Offset<T>) {
        self.slot.retire(offset.raw(), size_of::<T>());
    }

    /// As [`retire`](Self::retire), for `length` bytes.
    pub fn retire_bytes(&self, offset: Offset<AtomicU8>, length: usize) {
        self.slot.retire(offset.raw(), length);
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.unpin();
    }
}

fn pinned_at(epoch: u64) -> u64 {
    epoch << 1 | 1
}

fn thread_id() -> u32 {
    if cfg!(miri) {
        return 0;
    }
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}
