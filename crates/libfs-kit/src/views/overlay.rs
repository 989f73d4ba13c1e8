//! The overlay: names by which this session's deltas differ from the verified directories.
//!
//! # Invariants
//! * One table for all directories, found by hash of directory and name; every entry is also in
//!   the list of a shard ([`locks`](super::locks)). Entries change under their stripe's lock, lists
//!   under their shard's; look-ups
//!   take no lock and are validated by ownership, fold number and sequence afterwards.
//! * A name that is replaced is found all the time; one that is renamed is found at the one place
//!   or the other: who does not find it waits for the rename ([`Stripe::moves`]).
//! * The memory of an entry is taken before the operation commits that needs it
//!   ([`Viewing::prepare_overlay`]): what has committed is in the overlay.
//! * An entry says what the name leads to (or that the verified name is hidden), and by which
//!   record, so that a later operation can take that record's effect back.
//! * What an entry of a [sealed](super::sealed) delta says is as good as verified: it is never changed, and its record
//!   never told. A change makes an entry of the active delta, which takes its place in the table; in the list of
//!   the sealed delta it stays, for the links that it counts.

use crate::need::Attempt;
use crate::region::{AtomicOffset, HashLink, HashTable, Offset, ThreadSlot};
pub use crate::state::overlay::OverlayEntry;
use crate::views::{Directory, Shard, Stripe, Viewing};
use arck_core_state::directory::{self, Dentry};
use arck_core_state::geometry::NAME_MAX;
use arck_core_state::record::RecordRef;
use arck_core_state::{FileKind, InodeNumber};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// How a name stands in a directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Of the name.
    pub hash: u64,
    /// What it leads to; `None` = no such name.
    pub dentry: Option<Dentry>,
    /// The overlay entry, if there is one.
    pub entry: Offset<OverlayEntry>,
    /// The record whose ADD makes it visible, if it is visible through the overlay.
    pub record: RecordRef,
    /// What the verified directory says of the name, hidden or not.
    pub verified: Option<Dentry>,
}

fn table_hash(directory: InodeNumber, hash: u64) -> u64 {
    hash ^ u64::from(directory).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Memory for the entry that a change of the overlay needs, if it needs one; given back unless
/// [`Viewing::set_overlay`] has used it.
pub struct Prepared {
    slot: &'static ThreadSlot<'static>,
    bytes: Offset<AtomicU8>,
    length: usize,
}

impl Prepared {
    /// The memory, to be used.
    fn take(mut self) -> Offset<OverlayEntry> {
        std::mem::replace(&mut self.bytes, Offset::NULL).cast()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if !self.bytes.is_null() {
            let region = self.slot.region();
            region.free_bytes(self.slot, self.bytes, self.length);
        }
    }
}

impl Viewing<'_> {
    #[inline]
    pub fn hash(&self, name: &[u8]) -> u64 {
        directory::hash_name(self.session.welcome().hash_seed, name)
    }

    fn table(&self) -> &'static HashTable<OverlayEntry> {
        self.session
            .region()
            .get(self.views.overlay.load(Ordering::Acquire))
    }

    #[inline]
    fn matches(
        &self,
        entry: &OverlayEntry,
        offset: Offset<OverlayEntry>,
        directory: InodeNumber,
        name: &[u8],
    ) -> bool {
        entry.directory.load(Ordering::Relaxed) == directory
            && entry.name_length.load(Ordering::Relaxed) as usize == name.len()
            && self
                .session
                .region()
                .padded_equal(OverlayEntry::name_offset(offset), name)
    }

    #[inline]
    pub(crate) fn find_entry(
        &self,
        directory: InodeNumber,
        hash: u64,
        name: &[u8],
    ) -> Option<(Offset<OverlayEntry>, &OverlayEntry)> {
        let region = self.session.region();
        self.table()
            .lookup(&self.guard, table_hash(directory, hash), |entry| {
                let offset = Offset::from_raw(
                    (std::ptr::from_ref(entry) as usize - region.base_address()) as u64,
                );
                self.matches(entry, offset, directory, name)
            })
    }

    /// Takes the memory that [`Viewing::set_overlay`] will need for a name that leads to something
    /// then (`adds`), or to nothing. Under the lock under which the change is made. ENOMEM.
    #[inline]
    pub fn prepare_overlay(
        &self,
        directory: Directory,
        name: &[u8],
        found: &Found,
        adds: bool,
    ) -> Attempt<Prepared> {
        let seals = directory.part().seals();
        let region = self.session.region();
        let needs_entry = match region.try_get(found.entry) {
            // As if the name were verified, or had been.
            Some(entry) if !entry.is_active(seals) => true,
            // A visible name changes what it leads to: by a new entry.
            Some(entry) => adds && entry.inode.load(Ordering::Relaxed) != 0,
            None => adds || found.verified.is_some(),
        };
        let mut prepared = Prepared {
            slot: self.slot(),
            bytes: Offset::NULL,
            length: size_of::<OverlayEntry>() + name.len(),
        };
        if needs_entry {
            let bytes = region.allocate_bytes(self.slot(), prepared.length);
            prepared.bytes = bytes.map_err(|_| self.no_memory())?;
        }
        Ok(prepared)
    }

    /// Puts a name into the overlay, or changes its entry: what it leads to now (`None` = it is
    /// hidden), and by which record. Under the lock of the name's stripe, under which it was
    /// `found` and `prepared`.
    pub fn set_overlay(
        &self,
        directory: Directory,
        name: &[u8],
        found: &Found,
        now: Option<(Dentry, RecordRef)>,
        prepared: Prepared,
    ) {
        let (hash, verified) = (found.hash, found.verified);
        let fill = |entry: &OverlayEntry| {
            if let Some((dentry, record)) = now {
                entry.generation.store(dentry.generation, Ordering::Relaxed);
                entry.set_kind(dentry.kind);
                entry.record_unit.store(record.unit, Ordering::Relaxed);
                entry
                    .record_sequence
                    .store(record.sequence, Ordering::Relaxed);
            }
            entry
                .inode
                .store(now.map_or(0, |(dentry, _)| dentry.inode), Ordering::Release);
        };
        let offset = found.entry;
        let seals = directory.part().seals();
        if let Some(entry) = self.session.region().try_get(offset) {
            if !entry.is_active(seals) {
                // Found until the new one is, behind it.
                self.add_entry(directory, hash, name, now, verified, prepared.take());
                self.take_from_table(directory, entry, hash);
                entry.supersede();
            } else if now.is_none() && verified.is_none() {
                self.remove_entry(directory, offset, hash);
            } else if let Some((dentry, record)) = now
                && entry.inode.load(Ordering::Relaxed) != 0
            {
                // A visible name changes what it leads to: by a new entry, so that a look-up
                // never sees half of it. The table puts the new one behind the old, which is
                // found until it is gone: at no time is there neither.
                let new = prepared.take();
                self.add_entry(directory, hash, name, Some((dentry, record)), verified, new);
                self.remove_entry(directory, offset, hash);
            } else {
                fill(entry);
            }
            self.stripe(directory, hash).changed();
        } else if now.is_some() || verified.is_some() {
            self.add_entry(directory, hash, name, now, verified, prepared.take());
        }
    }

    fn add_entry(
        &self,
        directory: Directory,
        hash: u64,
        name: &[u8],
        now: Option<(Dentry, RecordRef)>,
        verified: Option<Dentry>,
        offset: Offset<OverlayEntry>,
    ) {
        let region = self.session.region();
        let number = directory.number();
        let entry = region.get(offset);
        let (dentry, record) = now.map_or((None, RecordRef::default()), |(d, r)| (Some(d), r));
        let relaxed = Ordering::Relaxed;
        let set = |field: &AtomicU32, value: u32| field.store(value, relaxed);
        set(&entry.directory, number);
        set(&entry.inode, dentry.map_or(0, |d| d.inode));
        set(&entry.generation, dentry.map_or(0, |d| d.generation));
        let own = self.own_shard(directory);
        let seals = directory.part().seals();
        let kind = OverlayEntry::kind_word(dentry.map(|d| d.kind), own.place, seals);
        set(&entry.kind, kind);
        set(&entry.record_unit, record.unit);
        set(&entry.record_sequence, record.sequence);
        set(&entry.verified, u32::from(verified.is_some()));
        set(&entry.verified_inode, verified.map_or(0, |d| d.inode));
        set(
            &entry.verified_generation,
            verified.map_or(0, |d| d.generation),
        );
        set(&entry.name_length, name.len() as u32);
        region.write_padded(OverlayEntry::name_offset(offset), name);
        self.list(own.shard, offset, entry);
        drop(own);
        directory.part().is_overlaid_now();
        // Nobody else inserts this name: its stripe's lock is held.
        let _ = self
            .table()
            .insert(&self.guard, table_hash(number, hash), offset, |other| {
                std::ptr::eq(other, entry)
            });
        self.stripe(directory, hash).changed();
    }

    /// Puts an entry into the list of a shard, which the thread has locked.
    fn list(&self, shard: &Shard, offset: Offset<OverlayEntry>, entry: &OverlayEntry) {
        let first = shard.overlay_first.load(Ordering::Relaxed);
        entry.next.store(first, Ordering::Relaxed);
        entry.previous.store(Offset::NULL, Ordering::Relaxed);
        if let Some(first) = self.session.region().try_get(first) {
            first.previous.store(offset, Ordering::Relaxed);
        }
        shard.overlay_first.store(offset, Ordering::Release);
    }

    /// The hash of an entry's name.
    fn hash_of_entry(&self, offset: Offset<OverlayEntry>, entry: &OverlayEntry) -> u64 {
        let mut name = [0u8; NAME_MAX];
        let length = (entry.name_length.load(Ordering::Relaxed) as usize).min(NAME_MAX);
        let region = self.session.region();
        region.read_bytes(OverlayEntry::name_offset(offset), &mut name[..length]);
        self.hash(&name[..length])
    }

    fn remove_entry(&self, directory: Directory, offset: Offset<OverlayEntry>, hash: u64) {
        let region = self.session.region();
        let entry = region.get(offset);
        self.take_from_table(directory, entry, hash);
        self.unlist(directory, entry);
        self.guard
            .retire_bytes(offset.cast::<AtomicU8>(), entry.length());
    }

    fn take_from_table(&self, directory: Directory, entry: &OverlayEntry, hash: u64) {
        self.table()
            .remove(&self.guard, table_hash(directory.number(), hash), |other| {
                std::ptr::eq(other, entry)
            });
    }

    fn unlist(&self, directory: Directory, entry: &OverlayEntry) {
        let region = self.session.region();
        let held = self.shard(directory, entry.shard());
        let next = entry.next.load(Ordering::Relaxed);
        let previous = entry.previous.load(Ordering::Relaxed);
        match region.try_get(previous) {
            Some(before) => before.next.store(next, Ordering::Relaxed),
            None => held.shard.overlay_first.store(next, Ordering::Release),
        }
        if let Some(after) = region.try_get(next) {
            after.previous.store(previous, Ordering::Relaxed);
        }
    }

    /// Drops the overlay of the active delta of a directory, which was folded (or refused), and takes
    /// its part out of the link counts of the inodes it names. Under the whole inode's lock.
    pub fn discard_overlay(&self, directory: Directory) {
        if directory.part().is_overlaid() {
            self.begin_cut();
        }
        for shard in self.shards(directory.inode()) {
            self.discard_shard(directory, shard);
        }
        self.stripes(directory.inode()).for_each(Stripe::changed);
        directory.part().nothing_overlaid();
        directory.forget_links();
    }

    fn discard_shard(&self, directory: Directory, shard: &Shard) {
        let region = self.session.region();
        loop {
            let offset: Offset<OverlayEntry> = shard.overlay_first.load(Ordering::Acquire);
            let Some(entry) = region.try_get(offset) else {
                break;
            };
            self.uncount(entry);
            let hash = self.hash_of_entry(offset, entry);
            self.remove_entry(directory, offset, hash);
        }
    }

    /// The same for a list of the sealed delta, which begins there and is in no shard any more.
    pub(super) fn discard_sealed_entries(&self, directory: Directory, first: Offset<OverlayEntry>) {
        let region = self.session.region();
        let mut offset = first;
        while let Some(entry) = region.try_get(offset) {
            let next = entry.next.load(Ordering::Relaxed);
            self.uncount(entry);
            if !entry.is_superseded() {
                let hash = self.hash_of_entry(offset, entry);
                self.take_from_table(directory, entry, hash);
            }
            self.guard
                .retire_bytes(offset.cast::<AtomicU8>(), entry.length());
            offset = next;
        }
    }

    /// Takes an entry's part out of the counts of links.
    fn uncount(&self, entry: &OverlayEntry) {
        let adds = entry.inode.load(Ordering::Relaxed);
        if adds != 0 {
            self.change_links(adds, entry.generation.load(Ordering::Relaxed), -1);
        }
        let hides = entry.verified_inode.load(Ordering::Relaxed);
        if entry.verified.load(Ordering::Relaxed) != 0 && hides != 0 {
            self.change_links(hides, entry.verified_generation.load(Ordering::Relaxed), 1);
            self.forget_if_gone(hides);
        }
    }

    /// Takes back what the delta of an inode used that a fold has ended.
    fn forget_if_gone(&self, number: InodeNumber) {
        let (Ok(inode), Ok(header)) = (self.cached(number), self.header(number)) else {
            return;
        };
        if header.generation() != inode.generation()
            && let Some(_locked) = self.try_lock_whole(inode)
            && header.generation() != inode.generation()
        {
            self.discard_delta(inode);
            self.show_nobody(inode);
        }
    }

    /// Changes the part of a link count that this session's deltas make, unless the number has
    /// become another inode's since.
    fn change_links(&self, number: InodeNumber, generation: u32, by: i32) {
        if let Ok(inode) = self.cached(number)
            && inode.generation() == generation
            && !inode.is_directory()
        {
            inode.add_links(by);
        }
    }

    /// Calls `each` for the overlay entries of a directory, with what they lead to (`None` =
    /// the verified name is hidden) and whether the verified directory has the name; under the
    /// whole inode's lock.
    pub fn for_each_overlay(
        &self,
        directory: Directory,
        mut each: impl FnMut(&[u8], Option<(InodeNumber, FileKind)>, bool),
    ) {
        for shard in self.shards(directory.inode()) {
            self.for_each_listed(shard.overlay_first.load(Ordering::Acquire), &mut each);
        }
        for first in self.sealed_overlays(directory) {
            self.for_each_listed(first, &mut each);
        }
    }

    fn for_each_listed(
        &self,
        first: Offset<OverlayEntry>,
        each: &mut impl FnMut(&[u8], Option<(InodeNumber, FileKind)>, bool),
    ) {
        let region = self.session.region();
        let mut at = first;
        let mut bytes = [0u8; 256];
        while let Some(entry) = region.try_get(at) {
            let length = (entry.name_length.load(Ordering::Relaxed) as usize).min(255);
            region.read_bytes(OverlayEntry::name_offset(at), &mut bytes[..length]);
            let inode = entry.inode.load(Ordering::Acquire);
            // What has taken its place tells what there is now; what is verified may say either.
            let is_superseded = entry.is_superseded();
            let visible = entry
                .kind()
                .filter(|_| inode != 0 && !is_superseded)
                .map(|kind| (inode, kind));
            let verified = is_superseded || entry.verified.load(Ordering::Relaxed) != 0;
            each(&bytes[..length], visible, verified);
            at = entry.next.load(Ordering::Acquire);
        }
    }
}

const _: () = assert!(size_of::<HashLink>() == 16);
const _: () = assert!(size_of::<AtomicOffset<OverlayEntry>>() == 8);
