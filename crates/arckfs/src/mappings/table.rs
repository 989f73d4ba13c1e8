//! The table of the process's live maps.
//!
//! # Invariants
//! * Maps stand in it by address and do not overlap; it is reached through [`Locked`] alone, of
//!   which there is one at a time.
//! * Its lock comes after an inode's.

use super::counts::MapCounts;
use super::map::{Listing, Map, PAGE, address_of};
use crate::interface::Errno;
use arck_libfs_kit::Session;
use arck_libfs_kit::format::InodeNumber;
use arck_libfs_kit::messages::{MAP_WRITABLE, map_entry};
use arck_libfs_kit::views::{CachedInode, flag};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// All live maps of the process, by address. A lock of its own kind, since it is held over a
/// fork and let go of on both sides.
struct Table {
    locked: AtomicBool,
    count: AtomicUsize,
    forked: AtomicBool,
    maps: UnsafeCell<Vec<Map>>,
    /// What the process has added to the counts of inodes: session, inode, with a writable map.
    counted: UnsafeCell<Vec<(usize, InodeNumber, bool)>>,
}

// SAFETY: `maps` is only reached through `Locked`, of which there is one at a time.
unsafe impl Sync for Table {}

static TABLE: Table = Table {
    locked: AtomicBool::new(false),
    count: AtomicUsize::new(0),
    forked: AtomicBool::new(false),
    maps: UnsafeCell::new(Vec::new()),
    counted: UnsafeCell::new(Vec::new()),
};

/// Whether there are live maps at all: whoever hands memory calls on asks this first.
#[inline(always)]
pub fn any() -> bool {
    TABLE.count.load(Ordering::Relaxed) != 0
}

/// Whether a range of addresses has live maps.
pub fn overlaps(address: usize, length: usize) -> bool {
    let length = length.checked_next_multiple_of(PAGE);
    let end = address.saturating_add(length.unwrap_or(usize::MAX));
    any()
        && lock()
            .iter()
            .any(|map| map.start < end && address < map.addresses().end)
}

/// Before a fork: holds the table still.
pub fn hold() {
    std::mem::forget(lock());
}

/// After a fork, in both processes. The child's maps belong to its parent's session until it has
/// one of its own.
pub fn let_go(is_child: bool) {
    if is_child && any() {
        TABLE.forked.store(true, Ordering::Relaxed);
    }
    TABLE.locked.store(false, Ordering::Release);
}

/// In a forked child, where nobody held the table over the fork: its parent's maps stay its parent's, and no session of
/// this process takes them for its own. Their memory stays, and shows what it shows.
pub fn leave() {
    // Another thread of the parent may have been inside: what it left is not looked at, and not freed.
    // SAFETY: the child has this thread alone, which has no reference into either.
    unsafe {
        TABLE.maps.get().write(Vec::new());
        TABLE.counted.get().write(Vec::new());
    }
    TABLE.count.store(0, Ordering::Relaxed);
    TABLE.forked.store(false, Ordering::Relaxed);
    TABLE.locked.store(false, Ordering::Release);
}

/// Once in a forked child with live maps.
pub fn take_forked() -> bool {
    TABLE.forked.swap(false, Ordering::Relaxed)
}

pub fn lock() -> Locked {
    while TABLE.locked.swap(true, Ordering::Acquire) {
        rustix::thread::sched_yield();
    }
    Locked(())
}

/// The table, held.
pub struct Locked(());

impl Deref for Locked {
    type Target = Vec<Map>;
    fn deref(&self) -> &Vec<Map> {
        // SAFETY: the lock is held.
        unsafe { &*TABLE.maps.get() }
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Vec<Map> {
        // SAFETY: the lock is held, and `self` is borrowed exclusively.
        unsafe { &mut *TABLE.maps.get() }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        TABLE.count.store(self.len(), Ordering::Relaxed);
        TABLE.locked.store(false, Ordering::Release);
    }
}

impl Locked {
    /// Cuts maps so that each lies inside `range` or outside; gives the places of those inside.
    pub fn cut(&mut self, range: &Range<usize>) -> Range<usize> {
        for edge in [range.start, range.end] {
            let inside = |map: &Map| map.start < edge && edge < map.addresses().end;
            if let Some(place) = self.iter().position(inside) {
                let rest = self[place].split_off(edge);
                self.insert(place + 1, rest);
            }
        }
        let first = self.partition_point(|map| map.start < range.start);
        let end = self.partition_point(|map| map.start < range.end);
        first..end.max(first)
    }

    /// Puts a map in its place, as one with its neighbours where it goes on from them.
    pub(super) fn add(&mut self, map: Map) -> Option<Arc<Listing>> {
        let place = self.partition_point(|other| other.start < map.start);
        debug_assert!(
            self.get(place)
                .is_none_or(|next| map.addresses().end <= next.start)
        );
        debug_assert!(place == 0 || self[place - 1].addresses().end <= map.start);
        if place > 0 && self[place - 1].joins(&map) {
            self[place - 1].placed.extend(map.placed);
            return Some(map.listing);
        }
        self.insert(place, map);
        None
    }

    /// Takes out what lies in `range`; gives the openings that ended by it. The memory is the
    /// caller's to unmap or replace.
    #[must_use = "the inodes are to be taken off the open table"]
    pub fn forget(&mut self, range: &Range<usize>) -> Vec<Listing> {
        let places = self.cut(range);
        debug_assert!(
            self[places.clone()]
                .iter()
                .all(|map| { range.start <= map.start && map.addresses().end <= range.end })
        );
        let gone: Vec<Map> = self.drain(places).collect();
        gone.into_iter()
            .filter_map(|map| Arc::into_inner(map.listing))
            .collect()
    }

    /// Whether the process has maps of an inode.
    pub(super) fn has_any_of(&self, session: &Session, inode: &CachedInode) -> bool {
        self.iter().any(|map| map.is_of(session, inode))
    }

    /// Counts the process's maps of an inode among those of the group. Under the inode's lock.
    fn count(&self, session: &'static Session, inode: &CachedInode, now: Option<bool>) {
        // SAFETY: the lock is held, and nobody else has a reference into it.
        let counted = unsafe { &mut *TABLE.counted.get() };
        let (of, number) = (address_of(session), inode.number());
        let place = counted.iter().position(|c| (c.0, c.1) == (of, number));
        let before = place.map(|place| counted.swap_remove(place).2);
        let counts = |maps: Option<bool>| (maps.is_some(), maps == Some(true));
        inode.count_maps(counts(before), counts(now));
        if let Some(is_writable) = now {
            counted.push((of, number, is_writable));
        }
        if let Ok(state) = crate::state::AuxiliaryState::find(session) {
            let has_maps = counted.iter().any(|c| c.0 == of);
            state.set_has_maps(session.member(), has_maps);
        }
    }

    /// Lists the maps of an inode for the controller to see, and `more`, which is to be made
    /// (writable or not), before the header is looked at. ENFILE.
    pub fn list(
        &self,
        session: &'static Session,
        inode: &CachedInode,
        more: Option<bool>,
    ) -> Result<(), Errno> {
        let control = session.control();
        let (number, generation) = (inode.number(), inode.generation());
        let mut is_writable = more;
        for map in self.iter().filter(|map| map.is_of(session, inode)) {
            // An inherited one is its parent's session's to answer for, where the pages are that session's.
            let counts = map.is_writable && (!map.is_inherited || inode.has(flag::TOGETHER));
            is_writable = Some(is_writable.unwrap_or(false) | counts);
        }
        let is_entry = |entry: &AtomicU64, wanted: u64| {
            entry.load(Ordering::Relaxed) & !MAP_WRITABLE == wanted
        };
        let used = control.maps();
        let listed = map_entry(number, generation, false);
        let place = used.iter().position(|entry| is_entry(entry, listed));
        self.count(session, inode, is_writable);
        // Of all processes of the group.
        let (maps, writable_maps) = inode.maps();
        let (is_mapped, is_writable) = (maps != 0, writable_maps != 0);
        let value = match is_mapped {
            true => map_entry(number, generation, is_writable),
            false => 0,
        };
        inode.set(flag::MAPPED, is_mapped);
        if value == 0 {
            inode.set(flag::STALE_MAPS, false);
        }
        let place = match place {
            None if value == 0 => return Ok(()),
            Some(place) => place,
            None => used
                .iter()
                .position(|entry| is_entry(entry, 0))
                .unwrap_or(used.len()),
        };
        let entry = control.maps.get(place).ok_or(Errno::NFILE)?;
        entry.store(value, Ordering::SeqCst);
        if place >= used.len() {
            let used = place as u32 + 1;
            control.header.maps.store(used, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        Ok(())
    }
}
