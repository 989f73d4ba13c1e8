//! Writing deltas: branches, directory records, index pages, in the order that makes them valid.
//!
//! # Invariants
//! * What commits an operation is one 8-byte store, or one record whose checksum makes it valid;
//!   what it refers to is durable before. The order is in the types: commit functions take
//!   [`Durable`] proofs and give [`Flushed`] tokens for the caller's last fence.
//! * Callers hold the locks that what they write needs (of a record: that of its tail, and to hang
//!   up the first page of a tail, one for all tails); nothing here locks.

mod entries;
mod linked;

pub use entries::*;
pub use linked::{append_linked, pages_for};

use crate::session::Session;
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::{BRANCH_SIZE, StoredBranch, offset};
use arck_core_state::record::{
    DeltaPageHeader, RECORD_UNIT, RECORD_UNITS_MAX, Record, RecordRef, Seed, UNITS_PER_PAGE,
};
use arck_core_state::{InodeNumber, LiveHeader, PAGE_SIZE};
use arck_pm::order::{self, DurableSet};
use arck_pm::{Dirty, Durable, Flushed, SharedBytes};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use zerocopy::{IntoBytes, transmute};

/// The arena was touched outside its span: a bug of the caller, not of the user.
const OUTSIDE: Errno = Errno::FAULT;

/// A branch slot in this session's arena.
#[derive(Clone, Copy)]
pub struct Branch<'s> {
    bytes: SharedBytes<'s>,
    /// Byte offset in the arena.
    offset: u64,
}

impl<'s> Branch<'s> {
    /// The slot, which must be allocated ([`crate::arena_pages::ArenaPages::expect_branch`]).
    #[inline]
    pub fn at(session: &'s Session, slot: u32) -> Result<Branch<'s>, Errno> {
        let offset = branch_offset(slot).ok_or(OUTSIDE)?;
        let bytes = session
            .arena_at(offset as usize)
            .slice(offset as usize, size_of::<StoredBranch>())
            .ok_or(OUTSIDE)?;
        Ok(Branch { bytes, offset })
    }

    /// Byte offset of a field in the arena, for receipts.
    pub fn offset_of(&self, field: u64) -> u64 {
        self.offset + field
    }

    /// Begins a branch. It exists once this is durable, and changes what `content` says; the
    /// fold word, last of its cache line, makes it exist.
    pub fn begin(&self, content: &StoredBranch) -> Result<Flushed, Errno> {
        let words: [u64; size_of::<StoredBranch>() / 8] = transmute!(*content);
        let fold = (offset::FOLD / 8) as usize;
        let fold_of_line_1 = (offset::FOLD_OF_LINE_1 / 8) as usize;
        // Each line is valid by its own fold word, which is the last to be stored in it: what
        // reaches the medium of a line is a prefix of its stores.
        for index in (8..words.len())
            .filter(|&index| index != fold_of_line_1)
            .chain([fold_of_line_1])
            .chain((0..8).filter(|&index| index != fold))
            .chain([fold])
        {
            self.bytes
                .store_u64(index * 8, words[index], Ordering::Release)
                .ok_or(OUTSIDE)?;
        }
        Ok(self
            .bytes
            .dirty(0, size_of::<StoredBranch>())
            .ok_or(OUTSIDE)?
            .flush())
    }

    /// Ends a branch that an unborn inode had: it does not exist any more once durable.
    pub fn end(&self) -> Result<Flushed, Errno> {
        let line_1 = self.bytes.write_u64(offset::FOLD_OF_LINE_1 as usize, 0);
        let line_0 = self.bytes.write_u64(offset::FOLD as usize, 0);
        let ended = line_0.ok_or(OUTSIDE)?.flush();
        Ok(ended.join(line_1.ok_or(OUTSIDE)?.flush()))
    }

    /// One field, whose store commits an operation by itself.
    #[track_caller]
    pub fn set<P: DurableSet>(&self, field: u64, value: u64, proof: P) -> Result<Flushed, Errno> {
        Ok(self
            .bytes
            .publish(field as usize, value, proof)
            .ok_or(OUTSIDE)?
            .flush())
    }

    /// One field that refers to nothing (a time, a mode), not flushed yet.
    #[track_caller]
    pub fn put(&self, field: u64, value: u64) -> Result<Dirty<'s>, Errno> {
        self.bytes.write_u64(field as usize, value).ok_or(OUTSIDE)
    }

    /// Flushes all of it, for one who cannot know whether its beginning is durable.
    #[track_caller]
    pub fn flush(&self) -> Result<Flushed, Errno> {
        let bytes = self.bytes.dirty(0, size_of::<StoredBranch>());
        Ok(bytes.ok_or(OUTSIDE)?.flush())
    }

    /// Flushes the first line after several [`Branch::put`]s.
    #[track_caller]
    pub fn flush_line_0(&self) -> Result<Flushed, Errno> {
        Ok(self.bytes.dirty(0, 64).ok_or(OUTSIDE)?.flush())
    }

    /// What the branch says, if it exists for the inode whose `header` that is.
    pub fn stored(&self, number: InodeNumber, header: &LiveHeader) -> Option<StoredBranch> {
        let mut bytes = [0; BRANCH_SIZE];
        self.bytes.copy_to(0, &mut bytes)?;
        let (generation, epoch) = (header.generation(), header.ownership().epoch());
        StoredBranch::decode(&bytes, number, generation, epoch, header.fold())
    }

    pub fn load(&self, field: u64) -> u64 {
        self.bytes
            .load_u64(field as usize, Ordering::Acquire)
            .unwrap_or(0)
    }

    /// The four 32-bit partners, as stored.
    pub fn partners(&self) -> [InodeNumber; 4] {
        let low = self.load(offset::PARTNERS);
        let high = self.load(offset::PARTNERS + 8);
        [
            low as u32,
            (low >> 32) as u32,
            high as u32,
            (high >> 32) as u32,
        ]
    }

    /// Names a partner. `Ok(None)`: no place is left, fold first. One thread at a time.
    pub fn add_partner(&self, partner: InodeNumber) -> Result<Option<Flushed>, Errno> {
        let partners = self.partners();
        if partners.contains(&partner) {
            // Named already, and made durable when it was.
            return Ok(Some(
                self.bytes
                    .dirty(offset::PARTNERS as usize, 16)
                    .ok_or(OUTSIDE)?
                    .flush(),
            ));
        }
        let Some(place) = partners.iter().position(|&p| p == 0) else {
            return Ok(None);
        };
        let field = offset::PARTNERS + (place as u64 / 2) * 8;
        let shift = 32 * (place % 2);
        let word = self.load(field) | u64::from(partner) << shift;
        Ok(Some(self.put(field, word)?.flush()))
    }
}

fn page_bytes(session: &Session, page: u32) -> Result<SharedBytes<'_>, Errno> {
    let place = page as usize * PAGE_SIZE as usize;
    session
        .arena_at(place)
        .slice(place, PAGE_SIZE as usize)
        .ok_or(OUTSIDE)
}

/// Where the next record of a tail goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Arena page; 0 = the tail has none yet.
    pub page: u32,
    /// Next free unit in it.
    pub unit: u32,
}

impl Tail {
    /// Whether a record of `units` fits without a new page.
    pub fn has_room(&self, units: usize) -> bool {
        self.page != 0 && self.unit as usize + units <= UNITS_PER_PAGE
    }
}

/// Appends a record behind `tail`, which is number `place` of the branch's. `fresh` is a page to go on with, for when it does not fit or
/// must not stand there; the record then becomes valid by the link to it. `before` is flushed already and must be durable
/// first (the beginning of the branch). Valid, and committed, once the token is fenced.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
pub fn append_record(
    session: &Session,
    branch: &Branch<'_>,
    place: usize,
    tail: &mut Tail,
    fresh: Option<u32>,
    directory: InodeNumber,
    fold: u64,
    record: &Record<'_>,
    before: Option<Flushed>,
) -> Result<(RecordRef, Flushed), Errno> {
    let units = record.units();
    let mut buffer = [0u8; RECORD_UNITS_MAX * RECORD_UNIT];
    let (page, unit, link) = match fresh {
        Some(fresh) => (fresh, 1, true),
        None if tail.has_room(units) => (tail.page, tail.unit, false),
        None => return Err(OUTSIDE),
    };
    let record_unit = page * UNITS_PER_PAGE as u32 + unit;
    let seed = Seed {
        directory,
        fold,
        unit: record_unit,
    };
    let length = record.encode(seed, &mut buffer).ok_or(Errno::NAMETOOLONG)?;
    let bytes = page_bytes(session, page)?;
    let written = bytes
        .write(unit as usize * RECORD_UNIT, &buffer[..length])
        .ok_or(OUTSIDE)?
        .flush();
    let token = if link {
        let header = DeltaPageHeader {
            directory,
            next: 0,
            fold,
            reserved: [0; 6],
        };
        let header = bytes.write(0, header.as_bytes()).ok_or(OUTSIDE)?.flush();
        // The unit behind the record must not look like a record of this same branch: its
        // checksum is seeded with fold number and place, so it cannot.
        let (durable, _before) = order::fence((written.join(header), before));
        if tail.page == 0 {
            // Two tails share a word; nobody else stores to either now.
            let field = offset::TAILS + place as u64 / 2 * 8;
            let word = branch.load(field) | u64::from(page) << (place % 2 * 32);
            branch.set(field, word, durable)?
        } else {
            let word = u64::from(directory) | u64::from(page) << 32;
            page_bytes(session, tail.page)?
                .publish(0, word, durable)
                .ok_or(OUTSIDE)?
                .flush()
        }
    } else {
        match before {
            // Only a fence orders lines among each other.
            Some(before) => {
                let _before = order::fence(before);
                bytes
                    .dirty(unit as usize * RECORD_UNIT, length)
                    .ok_or(OUTSIDE)?
                    .flush()
                    .join(written)
            }
            None => written,
        }
    };
    *tail = Tail {
        page,
        unit: unit + units as u32,
    };
    let reference = RecordRef {
        unit: record_unit,
        sequence: record.sequence,
    };
    Ok((reference, token))
}

/// Takes effects of a record back: clears `bits` of its state by one store.
pub fn clear_effects(session: &Session, record: RecordRef, bits: u32) -> Result<Flushed, Errno> {
    let place = record.unit as usize * RECORD_UNIT;
    let arena = session.arena_at(place);
    let word = arena.load_u64(place, Ordering::Acquire).ok_or(OUTSIDE)?;
    Ok(arena
        .write_u64(place, word & !(u64::from(bits) << 32))
        .ok_or(OUTSIDE)?
        .flush())
}

/// The effects of a record that are still alive.
pub fn effects(session: &Session, record: RecordRef) -> u32 {
    let place = record.unit as usize * RECORD_UNIT;
    session
        .arena_at(place)
        .load_u64(place, Ordering::Acquire)
        .map_or(0, |word| (word >> 32) as u32)
}
