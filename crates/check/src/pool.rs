//! The files of a pool, open for reading, as the controller would find them.
//!
//! | module | idea |
//! | --- | --- |
//! | `load` | opening them |
//! | `lock` | who looks, and who serves |
//! | `segment` | the file of a segment |
//! | `replayed` | what the journal changes |
//!
//! # Invariants
//! * Nothing of a pool is ever written here.
//! * While nobody serves the pool it is locked (shared, so that several may look), and nobody can
//!   begin to.
//! * What the journal holds and the files do not yet lies over them: what is read is the pool as
//!   the next controller begins with it. Over a pool that is served lies nothing; what is read of
//!   it is as it is at that moment.

mod load;
mod lock;
mod replayed;
mod segment;

pub(crate) use load::{open_directory, open_to_change};
pub(crate) use lock::Lock;
pub(crate) use segment::segment_name;

use crate::error::Result;
use crate::memory::{self, Memory};
use arck_controller_state::journal::Target;
use arck_controller_state::segments::{self, SEGMENT_ENTRY_SIZE, SegmentEntry, SegmentKind};
use arck_controller_state::sessions::SessionEntry;
use arck_core_state::arena::BRANCH_SLOTS;
use arck_core_state::header::{HEADER_SIZE, HeaderKind};
use arck_core_state::superblock::Superblock;
use arck_core_state::{
    FileKind, Geometry, InodeNumber, Ownership, PAGE_SIZE, PagePtr, PageWords, Pages,
    SegmentNumber, layout,
};
use replayed::{Beneath, Replayed, Words};
use rustix::fd::OwnedFd;
use segment::Segment;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::OnceLock;

/// See the module's head.
pub(crate) struct Pool {
    pub path: PathBuf,
    pub directory: OwnedFd,
    pub superblock: Superblock,
    pub geometry: Geometry,
    headers: Memory,
    headers_file: Option<OwnedFd>,
    bitmap: Memory,
    segments: Vec<SegmentEntry>,
    /// As it is now, of a pool that is served.
    live_segments: Memory,
    /// Those that count, and the byte offset of each in the table.
    pub sessions: Vec<(usize, SessionEntry)>,
    pub next_session: u64,
    /// Mapped when they are first looked at.
    metadata: Vec<OnceLock<Option<Segment>>>,
    /// What the journal changes.
    over: Replayed,
    /// The segment table as the journal leaves it.
    pub table: Vec<u8>,
    /// Segments of all kinds can be looked into: their kinds are not believed.
    pub reads_all: bool,
    /// Somebody serves it.
    pub served: bool,
    /// Held while nobody does.
    lock: Option<Lock>,
}

/// The words of a header, each loaded once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub sequence: u64,
    pub inode: u64,
    pub fold: u64,
    pub ownership: Ownership,
    pub identity: u64,
    pub state: u64,
    pub sealed: u64,
}

impl Header {
    pub fn generation(&self) -> u32 {
        self.identity as u32
    }
    pub fn branch_slot(&self) -> u32 {
        (self.identity >> 32) as u32
    }
    pub fn kind(&self) -> u8 {
        self.state as u8
    }
    pub fn file_kind(&self) -> u8 {
        (self.state >> 8) as u8
    }
    pub fn sealed_slot(&self) -> u32 {
        (self.state >> 32) as u32
    }
    /// Bits of the state word that mean nothing.
    pub fn state_reserved(&self) -> u64 {
        self.state & 0xffff_0000
    }
    /// Whether it can have a sealed delta as it says: a living directory of a session's, whose active delta is another,
    /// and came later.
    pub fn may_be_sealed(&self) -> bool {
        self.kind() == HeaderKind::Alive as u8
            && self.file_kind() == FileKind::Directory as u8
            && self.ownership.session() != 0
            && self.sealed < self.fold
            && self.sealed_slot() != self.branch_slot()
            && self.sealed_slot() < BRANCH_SLOTS
    }
}

impl Beneath for Pool {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn header_word(&self, at: u64) -> u64 {
        self.headers.word(at)
    }

    fn bitmap_word(&self, at: u64) -> u64 {
        self.bitmap.word(at)
    }

    fn page_beneath(&self, pointer: PagePtr) -> Option<&PageWords> {
        if !self.geometry.contains(pointer) {
            return None;
        }
        let segment = self.geometry.segment_of(pointer);
        let memory = self.segment(segment)?;
        let in_segment = pointer.0 - self.geometry.first_page(segment).0;
        let offset = usize::try_from(in_segment * PAGE_SIZE).ok()?;
        memory.bytes().atomic_words(offset)
    }
}

impl Pages for Pool {
    fn page(&self, pointer: PagePtr) -> Option<&PageWords> {
        match self.over.page(pointer) {
            Some(page) => Some(page),
            None => self.page_beneath(pointer),
        }
    }
}

impl Pool {
    fn segment(&self, segment: SegmentNumber) -> Option<&Memory> {
        let place = self.metadata.get(segment as usize)?;
        if let Some(mapped) = place.get() {
            return mapped.as_ref().map(|mapped| &mapped.memory);
        }
        let is_metadata = self.segment_kind(segment) == SegmentKind::Metadata;
        if !is_metadata && !self.reads_all {
            // It may become one.
            return None;
        }
        if !is_metadata {
            let hold = || Segment::hold(&self.directory, segment, self.geometry.segment_size).ok();
            return place.get_or_init(hold).as_ref().map(|held| &held.memory);
        }
        let map = || Segment::map(&self.directory, segment, self.geometry.segment_size).ok();
        place.get_or_init(map).as_ref().map(|mapped| &mapped.memory)
    }

    /// Whether every segment that was mapped is still the file of that name: an empty one may get
    /// a new file while the pool is served.
    pub fn is_mapped_as_it_is(&self) -> bool {
        (0..).zip(&self.metadata).all(|(segment, place)| {
            let Some(Some(mapped)) = place.get() else {
                return true;
            };
            mapped.is_as_named(&self.directory, segment)
        })
    }

    /// Counts the entries of the journal: it moves with every change of the verified state.
    pub fn journal_sequence(&self) -> Option<u64> {
        let file = memory::open(&self.directory, layout::JOURNAL).ok()?;
        let bytes = memory::read(&file, 16).ok()?;
        Some(u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?))
    }

    /// A header; all zeroes beyond the table.
    pub fn header(&self, number: InodeNumber) -> Header {
        let at = u64::from(number) * HEADER_SIZE as u64;
        let word = |offset: u64| {
            let over = self.over.header_word(at + offset);
            over.unwrap_or_else(|| self.headers.word(at + offset))
        };
        Header {
            sequence: word(0),
            inode: word(8),
            fold: word(16),
            ownership: Ownership(word(24)),
            identity: word(32),
            state: word(40),
            sealed: word(56),
        }
    }

    /// The bits of the pages from 64 × `index` on.
    pub fn bits(&self, index: u64) -> u64 {
        let over = self.over.bitmap_word(index * 8);
        over.unwrap_or_else(|| self.bitmap.word(index * 8))
    }

    /// An entry of the segment table: as it is now, or as the journal leaves it.
    pub fn segment_entry(&self, segment: SegmentNumber) -> SegmentEntry {
        if !self.served {
            let entry = self.segments.get(segment as usize);
            return entry.copied().unwrap_or_default();
        }
        let mut bytes = [0; SEGMENT_ENTRY_SIZE];
        for (chunk, offset) in bytes
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip((0..).step_by(8))
        {
            let at = segments::entry_offset(segment) + offset;
            *chunk = self.live_segments.word(at).to_le_bytes();
        }
        zerocopy::transmute!(bytes)
    }

    pub fn segment_kind(&self, segment: SegmentNumber) -> SegmentKind {
        self.segment_entry(segment).kind()
    }

    /// Kind of the segment of a page that the pool contains.
    pub fn kind_of(&self, page: PagePtr) -> SegmentKind {
        self.segment_kind(self.geometry.segment_of(page))
    }

    /// Numbers of headers that were ever written; the others are free.
    pub fn numbers(&self) -> Vec<Range<InodeNumber>> {
        let each = HEADER_SIZE as u64;
        let most = self.geometry.inode_count;
        let number = |at: u64| InodeNumber::try_from(at).unwrap_or(most).min(most);
        let mut numbers = self.over.numbers.clone();
        if let Some(file) = &self.headers_file {
            let parts = memory::parts(file, self.geometry.header_table_size()).into_iter();
            numbers
                .extend(parts.map(|p| number(p.start / each).max(1)..number(p.end.div_ceil(each))));
        }
        numbers.retain(|range| !range.is_empty());
        joined(numbers)
    }

    /// What the journal holds and is not in place.
    pub fn late_words(&self) -> Vec<(Target, Words)> {
        let table = self.table.as_chunks::<8>().0.iter();
        let segments = (0..)
            .step_by(8)
            .zip(table.map(|word| u64::from_le_bytes(*word)))
            .collect();
        let mut all = vec![(Target::Segments, segments)];
        all.extend(self.over.words());
        all
    }

    /// Keeps others from looking too, for whoever changes something. False: somebody does.
    pub fn lock_alone(&mut self) -> Result<bool> {
        lock::refuse_others(&self.path, &self.directory)?;
        let lock = match self.lock.take() {
            Some(lock) => lock,
            None => Lock::made(&self.path, &self.directory)?,
        };
        self.lock.insert(lock).take_alone(&self.path)
    }

    /// Whether nobody has the pool's lock any more who serves it.
    pub fn is_left(&self) -> bool {
        Lock::is_left(&self.directory)
    }
}

/// Ranges in order, those that meet as one.
fn joined(mut ranges: Vec<Range<InodeNumber>>) -> Vec<Range<InodeNumber>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<InodeNumber>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}
