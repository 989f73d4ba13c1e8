//! Writing deltas: branches, directory records, index pages, in the order that makes them valid.
//!
//! # Invariants
//! * What commits an operation is one 8-byte store, or one record whose checksum makes it valid;
//!   what it refers to is durable before. The order is in the types: commit functions take
//!   [`Durable`] proofs of what they refer to, by their subjects ([`Ready`], [`Reached`], [`Entry`]), and give
//!   `Flushed<Commit>` for the caller's last fence, which [`confirm`](crate::changing::Changing::confirm) asks for.
//! * What refers to something is published in a [`BegunBranch`], whose beginning is durable; a [`Branch`] has
//!   fields alone that refer to nothing.
//! * Callers hold the locks that what they write needs (of a record: that of its tail, and to hang
//!   up the first page of a tail, one for all tails); nothing here locks.

mod beginning;
mod entries;
mod linked;
mod proofs;

pub use beginning::*;
pub use entries::*;
pub use linked::{append_linked, pages_for};
pub use proofs::*;

use crate::session::Session;
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::{BRANCH_SIZE, StoredBranch, offset};
use arck_core_state::record::{
    DeltaPageHeader, RECORD_UNIT, RecordRef, RecordRoom, Seed, UNITS_PER_PAGE,
};
use arck_core_state::{IndexRoot, InodeNumber, LiveHeader, PAGE_SIZE, PagePtr, extended};
use arck_pm::order;
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

    /// Byte offset of a field in the arena, for fold copies.
    pub(crate) fn offset_of(&self, field: u64) -> u64 {
        self.offset + field
    }

    /// All that it says, to be compared with a fold copy.
    pub(crate) fn content(&self) -> Result<[u8; BRANCH_SIZE], Errno> {
        let mut content = [0; BRANCH_SIZE];
        self.bytes.copy_to(0, &mut content).ok_or(OUTSIDE)?;
        Ok(content)
    }

    /// Where the arena has the size ([`BegunBranch::set_size`]).
    pub fn offset_of_size(&self) -> u64 {
        self.offset_of(offset::SIZE)
    }

    /// Where it has the word that names the page of extended attributes ([`BegunBranch::set_attributes`]).
    pub fn offset_of_attributes(&self) -> u64 {
        self.offset_of(offset::PARENT)
    }

    /// Begins a branch. It exists once this is durable, and changes what `content` says; the
    /// fold word, last of its cache line, makes it exist.
    pub fn begin(&self, content: &StoredBranch) -> Result<Flushed<Begun>, Errno> {
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
        self.flush()
    }

    /// Flushes all of it.
    #[track_caller]
    fn flush(&self) -> Result<Flushed<Begun>, Errno> {
        let bytes = self.bytes.dirty(0, size_of::<StoredBranch>());
        Ok(bytes.ok_or(OUTSIDE)?.describing().flush())
    }

    /// Ends a branch that an uncommitted inode had, durably: it does not exist any more.
    #[track_caller]
    pub fn end(&self) -> Result<(), Errno> {
        let line_1 = self.bytes.write_u64(offset::FOLD_OF_LINE_1 as usize, 0);
        let line_0 = self.bytes.write_u64(offset::FOLD as usize, 0);
        let ended = line_0.ok_or(OUTSIDE)?.flush();
        order::drain((ended, line_1.ok_or(OUTSIDE)?.flush()));
        Ok(())
    }

    /// The mode.
    #[track_caller]
    pub fn put_mode(&self, mode: u32) -> Result<Flushed<InBranch>, Errno> {
        Ok(self.put(offset::MODE, mode.into())?.describing().flush())
    }

    /// The time of the last access.
    #[track_caller]
    pub fn put_accessed(&self, time: i64) -> Result<Flushed<InBranch>, Errno> {
        Ok(self
            .put(offset::ACCESSED, time as u64)?
            .describing()
            .flush())
    }

    /// The first line, with the times, the size and its limit, to be flushed once.
    #[inline(always)]
    pub fn line_0(&self) -> Line0<'s> {
        Line0 { branch: *self }
    }

    /// One field that refers to nothing, not flushed yet.
    #[track_caller]
    fn put(&self, field: u64, value: u64) -> Result<Dirty<'s>, Errno> {
        self.bytes.write_u64(field as usize, value).ok_or(OUTSIDE)
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

    /// The directory in which an inode is created that had no name: in the line of the partners, of which one is
    /// named next, and flushed with it.
    pub fn put_parent(&self, parent: InodeNumber) -> Result<(), Errno> {
        self.store(offset::PARENT, parent.into())
    }

    /// One word of a line that is flushed later.
    #[inline(always)]
    #[track_caller]
    fn store(&self, field: u64, value: u64) -> Result<(), Errno> {
        let stored = self
            .bytes
            .store_u64(field as usize, value, Ordering::Release);
        stored.ok_or(OUTSIDE)
    }

    /// Names a partner. `Ok(None)`: no place is left, fold first. One thread at a time.
    pub fn add_partner(&self, partner: InodeNumber) -> Result<Option<Flushed<Partner>>, Errno> {
        let partners = self.partners();
        if partners.contains(&partner) {
            // Named already, and made durable when it was.
            return Ok(Some(
                self.bytes
                    .dirty(offset::PARTNERS as usize, 16)
                    .ok_or(OUTSIDE)?
                    .describing()
                    .flush(),
            ));
        }
        let Some(place) = partners.iter().position(|&p| p == 0) else {
            return Ok(None);
        };
        let field = offset::PARTNERS + (place as u64 / 2) * 8;
        let shift = 32 * (place % 2);
        let word = self.load(field) | u64::from(partner) << shift;
        Ok(Some(self.put(field, word)?.describing().flush()))
    }
}

/// See [`Branch::line_0`]. What is put there reaches the medium in this order, or a prefix of it.
#[must_use = "what is put there is not durable until it is flushed and fenced"]
pub struct Line0<'s> {
    branch: Branch<'s>,
}

impl Line0<'_> {
    #[inline(always)]
    pub fn put_modified(&self, time: i64) -> Result<(), Errno> {
        self.branch.store(offset::MODIFIED, time as u64)
    }

    #[inline(always)]
    pub fn put_changed(&self, time: i64) -> Result<(), Errno> {
        self.branch.store(offset::CHANGED, time as u64)
    }

    /// The first page of a file that has no index, whose size does not reach it yet.
    #[inline(always)]
    pub fn put_first_page(
        &self,
        page: PagePtr,
        _filled: &Durable<Contents>,
    ) -> Result<IndexRoot, Errno> {
        let root = IndexRoot::new(page.0, 0);
        self.branch.store(offset::ROOT, root.0)?;
        Ok(root)
    }

    /// The size of a file that becomes shorter, and then how much of what is verified counts from now on.
    pub fn cut(&self, size: u64, limit: u64) -> Result<(), Errno> {
        self.branch.store(offset::SIZE, size)?;
        self.branch.store(offset::LIMIT, limit)
    }

    /// The size of a file that becomes longer by a hole. `tail`: what lies behind the end in the page in which
    /// it ended is zeroed.
    pub fn lengthen(&self, size: u64, _tail: Reached) -> Result<(), Errno> {
        self.branch.store(offset::SIZE, size)
    }

    #[inline(always)]
    #[track_caller]
    pub fn flush(self) -> Result<Flushed<InBranch>, Errno> {
        let line = self.branch.bytes.dirty(0, 64).ok_or(OUTSIDE)?;
        Ok(line.describing().flush())
    }
}

/// A branch whose beginning is durable: what refers to something is published in it.
#[derive(Clone, Copy)]
pub struct BegunBranch<'s>(Branch<'s>);

impl<'s> std::ops::Deref for BegunBranch<'s> {
    type Target = Branch<'s>;
    #[inline(always)]
    fn deref(&self) -> &Branch<'s> {
        &self.0
    }
}

impl<'s> BegunBranch<'s> {
    /// One field that refers to what `proof` is about.
    #[inline(always)]
    #[track_caller]
    fn set<P: order::DurableSet>(
        &self,
        field: u64,
        value: u64,
        proof: P,
    ) -> Result<Flushed, Errno> {
        let published = self.bytes.publish(field as usize, value, proof);
        Ok(published.ok_or(OUTSIDE)?.flush())
    }

    /// The size, by which a file grows, to what is `reached` by it, in the line of its times. Gives the
    /// tokens of both.
    #[inline(always)]
    #[track_caller]
    pub fn set_size(
        &self,
        line: Line0<'_>,
        size: u64,
        reached: Reached,
    ) -> Result<(Flushed<Commit>, Flushed<InBranch>), Errno> {
        let field = offset::SIZE as usize;
        let published = match reached {
            Reached::Hole => self.bytes.write_u64(field, size),
            Reached::Contents(contents) => self
                .bytes
                .publish(field, size, contents)
                .map(order::Published::into_dirty),
            Reached::Entries(contents, entries) => self
                .bytes
                .publish(field, size, (contents, entries))
                .map(order::Published::into_dirty),
        };
        // One line, flushed behind the last store to it.
        debug_assert_eq!(line.branch.offset, self.offset, "of this branch");
        Ok(published.ok_or(OUTSIDE)?.flush().describing_both())
    }

    /// The word that names the page of extended attributes: `filled`, unless it names none. `stamped`: the
    /// time of the change is durable. Gives the word, too, and what it was.
    #[track_caller]
    pub fn set_attributes(
        &self,
        attributes: u32,
        stamped: &Durable<InBranch>,
        filled: Option<Durable<Contents>>,
    ) -> Result<(u64, u64, Flushed<Commit>), Errno> {
        let before = self.load(offset::PARENT);
        let word = before & u64::from(u32::MAX) | u64::from(attributes) << 32;
        let stored = match filled {
            Some(filled) => self.set(offset::PARENT, word, (stamped, filled))?,
            None if attributes == extended::NONE => self.set(offset::PARENT, word, stamped)?,
            None => return Err(OUTSIDE),
        };
        Ok((before, word, stored.describing()))
    }
}

/// Ends what was begun of an uncommitted inode, so that its number can be used for another. False if
/// that cannot be done.
pub(crate) fn end_branch(session: &Session, number: InodeNumber, header: &LiveHeader) -> bool {
    let slot = header.branch_slot();
    let Ok(branch) = Branch::at(session, slot) else {
        return true;
    };
    if branch.stored(number, header).is_none() {
        return true;
    }
    branch.end().is_ok()
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
/// must not stand there; the record then becomes valid by the link to it. The beginning of the branch is durable
/// first. Valid, and committed, once the token is fenced. What the record refers
/// to is durable: [`Ready`] says so.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
pub fn append_record(
    session: &Session,
    branch: &mut Beginning,
    place: usize,
    tail: &mut Tail,
    fresh: Option<u32>,
    directory: InodeNumber,
    fold: u64,
    record: &Ready<'_>,
) -> Result<(RecordRef, Flushed<Commit>), Errno> {
    let record = record.record();
    let units = record.units();
    let mut room = RecordRoom::new();
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
    let encoded = record.encode_in(seed, &mut room);
    let encoded = encoded.ok_or(Errno::NAMETOOLONG)?;
    let length = encoded.len();
    let bytes = page_bytes(session, page)?;
    let written = bytes
        .write(unit as usize * RECORD_UNIT, encoded)
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
        let (branch, durable) = branch.begun_with(written.join(header));
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
    } else if branch.is_durable() {
        written
    } else {
        // Only a fence orders lines among each other.
        branch.durable();
        let again = bytes.dirty(unit as usize * RECORD_UNIT, length);
        again.ok_or(OUTSIDE)?.flush().join(written)
    };
    *tail = Tail {
        page,
        unit: unit + units as u32,
    };
    let reference = RecordRef {
        unit: record_unit,
        sequence: record.sequence,
    };
    Ok((reference, token.describing()))
}

/// Takes effects of a record back: clears `bits` of its state by one store.
pub fn clear_effects(
    session: &Session,
    record: RecordRef,
    bits: u32,
) -> Result<Flushed<Commit>, Errno> {
    let place = record.unit as usize * RECORD_UNIT;
    let arena = session.arena_at(place);
    let word = arena.load_u64(place, Ordering::Acquire).ok_or(OUTSIDE)?;
    Ok(arena
        .write_u64(place, word & !(u64::from(bits) << 32))
        .ok_or(OUTSIDE)?
        .describing()
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
