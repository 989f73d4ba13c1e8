//! A hash table in the region: readers take no lock and write nothing, writers take none either,
//! and it grows while everybody goes on.
//!
//! It is a *split-ordered list* (Shalev and Shavit): one linked list of all nodes, sorted by the
//! bit-reversed hash, and an array of entry points into it. Doubling the number of buckets moves
//! no node; the new buckets' entry points are put into the list when first needed. Entry points
//! live in segments, each as large as all before it, which never move.
//!
//! Invariants:
//! * The list is sorted by [`order`]; entry points have even orders, nodes odd ones, so that the
//!   nodes of a bucket follow its entry point.
//! * A node is in the table while it is linked and the low bit of its `next` is clear. That bit is
//!   set once, after which `next` never changes: a node is unlinked only from a predecessor that
//!   is still in the table.
//! * A node that was unlinked stays as it is until it is freed, two epochs after [`Guard::retire`];
//!   a reader standing on it finds its way back into the list.
//! * A new node goes behind all nodes of the same order, by one compare-exchange of the last one's
//!   `next`, so that two equal nodes cannot both be inserted.
//!
//! A member that dies in here leaves the table usable.

use super::epoch::Guard;
use super::lock::Lock;
use super::{AtomicOffset, Offset, OutOfMemory, Region, Shared, ThreadSlot};
use crate::region_shared;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Buckets in the first segment, and its logarithm.
const FIRST_LOG: u32 = 4;
const SEGMENTS: usize = 28;
/// So many buckets there can be.
const MOST_LOG: u32 = FIRST_LOG + SEGMENTS as u32 - 1;
/// Nodes per bucket at which the table grows.
const LOAD: u64 = 1;
/// The node count is kept from one hash in this many; see [`sampled`].
const SAMPLE: u64 = 16;

/// In `next`: the node is removed.
const REMOVED: u64 = 1;
/// In `key`, of entry points: being put into the list; is in the list.
const LINKING: u64 = 1 << 1;
const READY: u64 = 1 << 2;
const STATES: u64 = LINKING | READY;
/// In `key`: this is a node and no entry point.
const NODE: u64 = 1;

region_shared! {
    /// What a node of a [`HashTable`] begins with. Only the table touches it.
    #[derive(Default)]
    pub struct HashLink {
        next: AtomicU64,
        key: AtomicU64,
    }
}

/// Structs that can be nodes of a [`HashTable`]. Use [`hash_node!`](crate::region_hash_node).
///
/// # Safety
///
/// The struct is `repr(C)` and begins with a [`HashLink`].
pub unsafe trait HashNode: Shared {}

/// Defines a struct that can be a node of a [`HashTable`](crate::region::HashTable): as
/// [`region_shared!`](crate::region_shared), with a first field `link: HashLink` added.
#[macro_export]
macro_rules! region_hash_node {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($fields:tt)* }) => {
        $crate::region_shared! {
            $(#[$meta])*
            $vis struct $name {
                /// The table's own.
                pub link: $crate::region::HashLink,
                $($fields)*
            }
        }
        // SAFETY: the macro above makes it `repr(C)`, and the link is its first field.
        unsafe impl $crate::region::HashNode for $name {}
    };
}

/// A table of nodes `T`, found by a 64-bit hash and a comparison of the caller's.
///
/// Hashes must be well mixed in all their bits. Growth never fails: without memory for more
/// buckets, chains get longer. It does not shrink.
#[repr(C)]
pub struct HashTable<T> {
    segments: [AtomicOffset<HashLink>; SEGMENTS],
    /// Nodes whose hash is in the sample.
    count: AtomicU64,
    /// Logarithm of the number of buckets in use; their segments are published before.
    log: AtomicU32,
    /// Held by the one that makes a new segment; never waited for.
    growing: Lock,
    nodes: PhantomData<fn() -> T>,
}

// SAFETY: only atomics and a lock, no padding (240 bytes, asserted below), no pointer.
unsafe impl<T: HashNode> Shared for HashTable<T> {}

const _: () = assert!(cfg!(shuttle) || size_of::<HashTable<HashLink>>() == SEGMENTS * 8 + 16);

/// A place in the list: `current` follows `previous`.
struct Place<'g> {
    previous: &'g HashLink,
    current: Offset<HashLink>,
    found: bool,
}

/// The position of a hash in the list. Three bits are given up for the states in `key`.
fn order(hash: u64) -> u64 {
    hash.reverse_bits() & !(NODE | STATES) | NODE
}

fn entry_order(bucket: u32) -> u64 {
    u64::from(bucket).reverse_bits()
}

/// Whether the node counts for the number of nodes. Deciding by the hash keeps most insertions
/// off the shared counter, and insertion and removal of a node always agree.
fn sampled(hash: u64) -> bool {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 == 0
}

impl<T: HashNode> HashTable<T> {
    /// Makes an empty table of 512 bytes.
    pub fn create(region: &Region, slot: &ThreadSlot<'_>) -> Result<Offset<Self>, OutOfMemory> {
        let first = region.allocate_zeroed::<HashLink>(slot, 1 << FIRST_LOG)?;
        // Bucket 0 is the list's head; its order is 0.
        region.get(first).key.store(READY, Ordering::Relaxed);
        let table = Self {
            segments: [const { AtomicOffset::new(Offset::NULL) }; SEGMENTS],
            count: AtomicU64::new(0),
            log: AtomicU32::new(FIRST_LOG),
            growing: Lock::new(),
            nodes: PhantomData,
        };
        table.segments[0].store(first, Ordering::Relaxed);
        region.allocate(slot, table).inspect_err(|_| {
            region.free_bytes(slot, first.cast(), size_of::<HashLink>() << FIRST_LOG);
        })
    }

    /// Frees a table that nobody can reach any more, once nobody looks at it. Its nodes are the
    /// caller's.
    pub fn destroy(guard: &Guard<'_>, table: Offset<Self>) {
        for (index, segment) in guard.region().get(table).segments.iter().enumerate() {
            let length = size_of::<HashLink>() << segment_log(index);
            guard.retire_bytes(segment.load(Ordering::Acquire).cast(), length);
        }
        guard.retire(table);
    }

    /// Finds the node with this hash for which `equal` holds. It stays allocated while `guard`
    /// lives, though others may remove it meanwhile.
    pub fn lookup<'g>(
        &self,
        guard: &'g Guard<'_>,
        hash: u64,
        mut equal: impl FnMut(&T) -> bool,
    ) -> Option<(Offset<T>, &'g T)> {
        let region = guard.region();
        let wanted = order(hash);
        let mut link = region.get(self.entry_before(region, hash));
        loop {
            let offset = Offset::<T>::from_raw(link.next.load(Ordering::Acquire) & !REMOVED);
            link = region.try_get(offset.cast::<HashLink>())?;
            let found = link.key.load(Ordering::Relaxed) & !STATES;
            if found > wanted {
                return None;
            }
            if found == wanted && link.next.load(Ordering::Relaxed) & REMOVED == 0 {
                let node = region.get(offset);
                if equal(node) {
                    return Some((offset, node));
                }
            }
        }
    }

    /// Inserts `node`, which nobody else can see yet, unless there is one with the same hash for
    /// which `equal` holds; then `Err` tells which.
    pub fn insert(
        &self,
        guard: &Guard<'_>,
        hash: u64,
        node: Offset<T>,
        mut equal: impl FnMut(&T) -> bool,
    ) -> Result<(), Offset<T>> {
        let region = guard.region();
        let entry = self.entry(guard, hash);
        let link = region.get(node.cast::<HashLink>());
        link.key.store(order(hash), Ordering::Relaxed);
        // Counted before anybody can remove it, so that the count is never below zero.
        let count = if sampled(hash) {
            self.count.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            0
        };
        loop {
            let place = self.find(region, entry, order(hash), &mut equal);
            if place.found {
                if sampled(hash) {
                    self.count.fetch_sub(1, Ordering::Relaxed);
                }
                return Err(place.current.cast());
            }
            link.next.store(place.current.raw(), Ordering::Relaxed);
            // Release: whoever finds the node finds its contents.
            if place.replace_next(node.raw()) {
                break;
            }
        }
        if count * SAMPLE > LOAD << self.log() {
            self.grow(guard);
        }
        Ok(())
    }

    /// Removes the node with this hash for which `equal` holds. When this returns, the node is
    /// unlinked, and the caller, alone in having been given it, retires it by [`Guard::retire`].
    /// It must not be inserted again before that.
    pub fn remove(
        &self,
        guard: &Guard<'_>,
        hash: u64,
        mut equal: impl FnMut(&T) -> bool,
    ) -> Option<Offset<T>> {
        let region = guard.region();
        let entry = self.entry(guard, hash);
        loop {
            let place = self.find(region, entry, order(hash), &mut equal);
            if !place.found {
                return None;
            }
            let link = region.get(place.current);
            let next = link.next.load(Ordering::Acquire);
            if next & REMOVED != 0
                || link
                    .next
                    .compare_exchange(next, next | REMOVED, Ordering::AcqRel, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            if !place.replace_next(next) {
                // Somebody changed the predecessor. A search that passes this place unlinks all
                // removed nodes on its way, this one too.
                self.find(region, entry, order(hash), &mut |_| false);
            }
            if sampled(hash) {
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
            return Some(place.current.cast());
        }
    }

    /// Calls `visit` for every node that is in the table during the whole call, and possibly for
    /// some that come or go meanwhile; stops when it returns false.
    pub fn for_each<'g>(
        &self,
        guard: &'g Guard<'_>,
        mut visit: impl FnMut(Offset<T>, &'g T) -> bool,
    ) {
        let region = guard.region();
        let mut link = region.get(self.segments[0].load(Ordering::Acquire));
        loop {
            let offset = Offset::<T>::from_raw(link.next.load(Ordering::Acquire) & !REMOVED);
            let Some(next) = region.try_get(offset.cast::<HashLink>()) else {
                return;
            };
            link = next;
            let is_node = link.key.load(Ordering::Relaxed) & NODE != 0;
            if is_node
                && link.next.load(Ordering::Relaxed) & REMOVED == 0
                && !visit(offset, region.get(offset))
            {
                return;
            }
        }
    }

    /// About how many nodes there are: right to a few percent for thousands, rough below a hundred.
    pub fn estimated_length(&self) -> u64 {
        self.count.load(Ordering::Relaxed) * SAMPLE
    }

    /// Of how many buckets are in use; no more than there can be, whatever another member has written there.
    fn log(&self) -> u32 {
        self.log.load(Ordering::Acquire).min(MOST_LOG)
    }

    /// How many buckets are in use.
    pub fn buckets(&self) -> u64 {
        1 << self.log()
    }

    fn entry_offset(&self, region: &Region, bucket: u32) -> Offset<HashLink> {
        let (segment, index) = match (bucket >> FIRST_LOG).checked_ilog2() {
            None => (0, bucket),
            Some(log) => (log as usize + 1, bucket - (1 << (log + FIRST_LOG))),
        };
        let start = self.segments[segment].load(Ordering::Acquire);
        if region.try_get(start).is_none() {
            super::is_nonsense(start);
        }
        let within = u64::from(index) * size_of::<HashLink>() as u64;
        Offset::from_raw(start.raw().wrapping_add(within))
    }

    fn bucket_of(&self, hash: u64) -> u32 {
        // The cast keeps the low 32 bits, which are all that buckets are told apart by.
        hash as u32 & ((1u64 << self.log()) - 1) as u32
    }

    /// For readers: the nearest entry point that is in the list at or before the hash's bucket.
    fn entry_before(&self, region: &Region, hash: u64) -> Offset<HashLink> {
        let mut bucket = self.bucket_of(hash);
        loop {
            let entry = self.entry_offset(region, bucket);
            if bucket == 0 || region.get(entry).key.load(Ordering::Acquire) & READY != 0 {
                return entry;
            }
            bucket = parent(bucket);
        }
    }

    /// For writers: the same, but puts the bucket's own entry point into the list first.
    #[inline(always)]
    fn entry(&self, guard: &Guard<'_>, hash: u64) -> Offset<HashLink> {
        let region = guard.region();
        let bucket = self.bucket_of(hash);
        let offset = self.entry_offset(region, bucket);
        match region.get(offset).key.load(Ordering::Acquire) & READY {
            0 => self.link_entry(region, bucket, offset),
            _ => offset,
        }
    }

    #[cold]
    fn link_entry(
        &self,
        region: &Region,
        bucket: u32,
        offset: Offset<HashLink>,
    ) -> Offset<HashLink> {
        let entry = region.get(offset);
        let before = self.entry_before(region, u64::from(parent(bucket)));
        let key = entry_order(bucket);
        if entry
            .key
            .compare_exchange(0, key | LINKING, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            // Somebody else is at it, or died at it: a longer way does as well.
            return before;
        }
        loop {
            let place = self.find(region, before, key, &mut |_| false);
            entry.next.store(place.current.raw(), Ordering::Relaxed);
            if place.replace_next(offset.raw()) {
                break;
            }
        }
        entry.key.store(key | READY, Ordering::Release);
        offset
    }

    /// Finds the first node at or after `entry` with the order `wanted` for which `equal` holds, or
    /// else the place behind all nodes of that order. Unlinks the removed nodes that it passes.
    fn find<'g>(
        &self,
        region: &'g Region,
        entry: Offset<HashLink>,
        wanted: u64,
        equal: &mut impl FnMut(&T) -> bool,
    ) -> Place<'g> {
        'again: loop {
            let mut place = Place {
                previous: region.get(entry),
                current: Offset::NULL,
                found: false,
            };
            let next = place.previous.next.load(Ordering::Acquire);
            place.current = Offset::from_raw(next & !REMOVED);
            while let Some(link) = region.try_get(place.current) {
                let next = link.next.load(Ordering::Acquire);
                if next & REMOVED != 0 {
                    if !place.replace_next(next & !REMOVED) {
                        continue 'again;
                    }
                    place.current = Offset::from_raw(next & !REMOVED);
                    continue;
                }
                let key = link.key.load(Ordering::Relaxed) & !STATES;
                if key > wanted {
                    break;
                }
                if key == wanted && equal(region.get(place.current.cast())) {
                    place.found = true;
                    break;
                }
                place.previous = link;
                place.current = Offset::from_raw(next);
            }
            return place;
        }
    }

    #[cold]
    fn grow(&self, guard: &Guard<'_>) {
        let (region, slot) = (guard.region(), guard.slot());
        let Some(_growing) = self.growing.try_lock(slot.holder()) else {
            return;
        };
        let log = self.log().max(FIRST_LOG);
        let index = (log - FIRST_LOG) as usize + 1;
        let count = self.count.load(Ordering::Relaxed);
        if count * SAMPLE <= LOAD << log || index >= SEGMENTS {
            return;
        }
        let Ok(segment) = region.allocate_zeroed::<HashLink>(slot, 1 << segment_log(index)) else {
            return;
        };
        self.segments[index].store(segment, Ordering::Release);
        self.log.store(log + 1, Ordering::Release);
    }
}

impl Place<'_> {
    /// Makes `previous` point to `next` instead of `current`; false if it is removed or points
    /// elsewhere by now.
    fn replace_next(&self, next: u64) -> bool {
        self.previous
            .next
            .compare_exchange(
                self.current.raw(),
                next,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }
}

/// The logarithm of a segment's length.
fn segment_log(index: usize) -> u32 {
    FIRST_LOG + (index as u32).saturating_sub(1)
}

/// The bucket that was split into this one: without the highest bit.
fn parent(bucket: u32) -> u32 {
    match bucket.checked_ilog2() {
        None => 0,
        Some(log) => bucket & !(1 << log),
    }
}
