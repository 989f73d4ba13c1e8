//! The files of a pool, open for reading, as the controller would find them.
//!
//! # Invariants
//! * Nothing of a pool is ever written here.
//! * While nobody serves the pool it is locked (shared, so that several may look), and nobody can
//!   begin to.
//! * What the journal holds and the files do not yet lies over them: what is read is the pool as
//!   the next controller begins with it. Over a pool that is served lies nothing; what is read of
//!   it is as it is at that moment.

use crate::finding::{Finding, Place, Rule};
use crate::journal::{self, Journal, Target};
use crate::memory::{self, Memory};
use crate::tables::{self, SEGMENT_ENTRY, SegmentEntry, SegmentKind, SessionEntry};
use crate::{Error, Result};
use arck_core_state::header::{HEADER_SIZE, OWNERSHIP_OFFSET};
use arck_core_state::superblock::{SUPERBLOCK_SIZE, Superblock, SuperblockError};
use arck_core_state::{
    Geometry, InodeNumber, Ownership, PAGE_SIZE, PagePtr, PageWords, Pages, SegmentNumber, layout,
};
use foldhash::HashMap;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest journal, bytes.
const JOURNAL_MAX: u64 = 1 << 30;

/// See the module's head.
pub(crate) struct Pool {
    pub path: PathBuf,
    pub directory: OwnedFd,
    pub superblock: Superblock,
    pub geometry: Geometry,
    headers: Memory,
    headers_file: Option<OwnedFd>,
    /// Numbers of headers that the journal changes.
    over_numbers: Vec<Range<InodeNumber>>,
    bitmap: Memory,
    segments: Vec<SegmentEntry>,
    /// As it is now, of a pool that is served.
    live_segments: Memory,
    pub sessions: Vec<SessionEntry>,
    pub next_session: u64,
    /// Mapped when they are first looked at.
    metadata: Vec<OnceLock<Option<Segment>>>,
    /// Words of tables, by byte offset, and pages, as the journal's entry leaves them.
    over_headers: HashMap<u64, u64>,
    over_bitmap: HashMap<u64, u64>,
    over_pages: HashMap<u64, Box<PageWords>>,
    over_sessions: Vec<(u64, u64)>,
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
}

impl Pages for Pool {
    fn page(&self, pointer: PagePtr) -> Option<&PageWords> {
        if !self.over_pages.is_empty()
            && let Some(page) = self.over_pages.get(&pointer.0)
        {
            return Some(page);
        }
        self.page_beneath(pointer)
    }
}

/// The pool's lock, held until it is dropped.
struct Lock(OwnedFd);

impl Drop for Lock {
    /// Closing would do, but for a moment a child that was just forked has the file open too.
    fn drop(&mut self) {
        // Fails only for a descriptor that is none.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Pool {
    /// Opens a pool. What is wrong with its files and tables goes to `findings`.
    pub fn open(path: &Path, findings: &mut Vec<Finding>) -> Result<Pool> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
            if matches!(errno, Errno::NOENT | Errno::NOTDIR) {
                Error::Missing { path: path.into() }
            } else {
                Error::system(path, "open")(errno)
            }
        })?;
        let (lock, served) = lock(path, &directory)?;
        let superblock = read_superblock(path, &directory)?;
        let geometry = superblock.geometry;
        let mut pool = Pool {
            path: path.into(),
            superblock,
            geometry,
            headers: Memory::Held(Vec::new()),
            headers_file: None,
            over_numbers: Vec::new(),
            bitmap: Memory::Held(Vec::new()),
            segments: Vec::new(),
            live_segments: Memory::Held(Vec::new()),
            sessions: Vec::new(),
            next_session: 0,
            metadata: Vec::new(),
            over_headers: HashMap::default(),
            over_bitmap: HashMap::default(),
            over_pages: HashMap::default(),
            over_sessions: Vec::new(),
            served,
            directory,
            lock: lock.map(Lock),
            table: Vec::new(),
            reads_all: false,
        };
        pool.load(findings)?;
        Ok(pool)
    }

    fn load(&mut self, findings: &mut Vec<Finding>) -> Result<()> {
        let geometry = self.geometry;
        let size = geometry.header_table_size();
        if let Some((file, memory)) = self.table(layout::HEADERS, size, findings)? {
            self.headers_file = Some(file);
            self.headers = memory;
        }
        let size = geometry.page_bitmap_size();
        if let Some((_, memory)) = self.table(layout::PAGE_BITMAP, size, findings)? {
            self.bitmap = memory;
        }
        let size = tables::SESSION_TABLE as u64;
        if let Some((_, memory)) = self.table(layout::SESSION_TABLE, size, findings)? {
            let bytes = copy(&memory);
            self.next_session = memory.word(0);
            self.sessions = tables::sessions(&bytes);
        }
        let size = u64::from(geometry.segment_count) * SEGMENT_ENTRY as u64;
        let mut table = Vec::new();
        let whole = size.next_multiple_of(PAGE_SIZE);
        if let Some((_, memory)) = self.table(layout::SEGMENT_TABLE, whole, findings)? {
            table = copy(&memory);
            self.live_segments = memory;
        }
        table.resize(size as usize, 0);
        let journal = self.journal(findings)?;
        let entry = if self.served {
            Journal::Empty
        } else {
            journal::decode(&journal)
        };
        let mut late = 0;
        if let Journal::Entry(records) = &entry {
            for record in records.iter().filter(|r| r.target == Target::Segments) {
                let from = usize::try_from(record.offset).unwrap_or(usize::MAX);
                let place = from
                    .checked_add(record.bytes.len())
                    .and_then(|to| table.get_mut(from..to));
                match place {
                    Some(place) => {
                        late += u64::from(place != record.bytes);
                        place.copy_from_slice(record.bytes);
                    }
                    None => findings.push(senseless(record.at)),
                }
            }
        }
        let entries = table.chunks_exact(SEGMENT_ENTRY);
        self.segments = entries.map(SegmentEntry::decode).collect();
        self.table = table;
        self.map_segments(findings)?;
        match &entry {
            Journal::Entry(records) => {
                for record in records.iter().filter(|r| r.target != Target::Segments) {
                    match self.lay_over(record) {
                        Some(words) => late += words,
                        None => findings.push(senseless(record.at)),
                    }
                }
                if late > 0 && self.superblock.clean {
                    findings.push(Finding {
                        rule: Rule::Journal,
                        inode: None,
                        path: None,
                        place: Place::File(layout::JOURNAL, 0),
                        detail: format!(
                            "the pool was closed, and {late} words of the last entry are not in place"
                        ),
                    });
                }
            }
            Journal::Senseless(at) => findings.push(senseless(*at)),
            Journal::Empty => {}
        }
        Ok(())
    }

    /// Opens a table of the pool; `None` if it is missing, which is a finding.
    fn table(
        &self,
        name: &'static str,
        size: u64,
        findings: &mut Vec<Finding>,
    ) -> Result<Option<(OwnedFd, Memory)>> {
        let file = match memory::open(&self.directory, name) {
            Ok(file) => file,
            Err(Errno::NOENT) => {
                findings.push(file_finding(name.into(), "is missing".into()));
                return Ok(None);
            }
            Err(errno) => return Err(self.failed(name, "open")(errno)),
        };
        let (memory, has) = Memory::of(&file, size).map_err(self.failed(name, "map"))?;
        if has < size {
            let detail = format!("has {has} bytes of {size}");
            findings.push(file_finding(name.into(), detail));
        }
        Ok(Some((file, memory)))
    }

    fn failed(&self, name: &str, operation: &'static str) -> impl FnOnce(Errno) -> Error + use<> {
        Error::system(&self.path.join(name), operation)
    }

    /// The journal's entry as bytes; empty if there is none.
    fn journal(&self, findings: &mut Vec<Finding>) -> Result<Vec<u8>> {
        let failed = |errno| self.failed(layout::JOURNAL, "read")(errno);
        let file = match memory::open(&self.directory, layout::JOURNAL) {
            Ok(file) => file,
            Err(Errno::NOENT) => {
                findings.push(file_finding(layout::JOURNAL.into(), "is missing".into()));
                return Ok(Vec::new());
            }
            Err(errno) => return Err(failed(errno)),
        };
        let head = memory::read(&file, journal::ENTRY_HEADER as u64).map_err(failed)?;
        if head.len() < journal::ENTRY_HEADER {
            let detail = format!("has {} bytes", head.len());
            findings.push(file_finding(layout::JOURNAL.into(), detail));
            return Ok(Vec::new());
        }
        match journal::length(&head) {
            Some(length) if length <= JOURNAL_MAX => {
                memory::read(&file, length + journal::ENTRY_HEADER as u64).map_err(failed)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Maps the metadata segments of a pool that nobody serves.
    fn map_segments(&mut self, findings: &mut Vec<Finding>) -> Result<()> {
        self.metadata = (0..self.geometry.segment_count)
            .map(|_| OnceLock::new())
            .collect();
        if self.served {
            return Ok(());
        }
        let size = self.geometry.segment_size;
        for segment in 0..self.geometry.segment_count {
            if self.segment_kind(segment) != SegmentKind::Metadata {
                continue;
            }
            let name = segment_name(segment);
            let mapped = match Segment::map(&self.directory, segment, size) {
                Ok(mapped) => {
                    let has = mapped.length;
                    if has < size {
                        findings.push(file_finding(name, format!("has {has} bytes of {size}")));
                    }
                    Some(mapped)
                }
                Err(Errno::NOENT) => {
                    findings.push(file_finding(name, "is missing".into()));
                    None
                }
                Err(errno) => return Err(self.failed(&name, "map")(errno)),
            };
            if let Some(place) = self.metadata.get(segment as usize) {
                // Nobody else has it yet.
                let _ = place.set(mapped);
            }
        }
        Ok(())
    }

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
            let name = segment_name(segment);
            let status = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
            status.is_ok_and(|status| (status.st_dev, status.st_ino) == mapped.identity)
        })
    }

    /// Counts the entries of the journal: it moves with every change of the verified state.
    pub fn journal_sequence(&self) -> Option<u64> {
        let file = memory::open(&self.directory, layout::JOURNAL).ok()?;
        let bytes = memory::read(&file, 16).ok()?;
        Some(u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?))
    }

    /// Lays a record over what is in place; gives the number of words that differ. `None`: it
    /// addresses what is not there.
    fn lay_over(&mut self, record: &journal::Record<'_>) -> Option<u64> {
        let (words, rest) = record.bytes.as_chunks::<8>();
        if !rest.is_empty() || !record.offset.is_multiple_of(8) {
            return None;
        }
        let mut late = 0;
        for (index, &word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(word);
            let at = record.offset.checked_add(index as u64 * 8)?;
            match record.target {
                Target::Headers => {
                    (at < self.geometry.header_table_size()).then_some(())?;
                    let old = self.headers.word(at);
                    // The last bits of an ownership change without the journal.
                    let is_owner = at % HEADER_SIZE as u64 == OWNERSHIP_OFFSET;
                    if old != word && !(is_owner && Ownership(old).bare() == Ownership(word).bare())
                    {
                        self.over_headers.insert(at, word);
                        let number = InodeNumber::try_from(at / HEADER_SIZE as u64).ok()?;
                        self.over_numbers.push(number..number + 1);
                        late += 1;
                    }
                }
                Target::Bitmap => {
                    (at < self.geometry.page_bitmap_size()).then_some(())?;
                    if self.bitmap.word(at) != word {
                        self.over_bitmap.insert(at, word);
                        late += 1;
                    }
                }
                Target::Segments => {}
                // Says nothing of what is stored: which requests were done.
                Target::Sessions => {
                    (at < crate::tables::SESSION_TABLE as u64).then_some(())?;
                    self.over_sessions.push((at, word));
                }
                Target::Sequences => {
                    (word < u64::from(self.geometry.inode_count)).then_some(())?;
                }
                Target::Pages => {
                    let page = PagePtr::of_address(at);
                    let slot = (at % PAGE_SIZE / 8) as usize;
                    let beneath = self.page_beneath(page)?;
                    if beneath[slot].load(Ordering::Relaxed) == word {
                        continue;
                    }
                    late += 1;
                    let copy = || {
                        Box::new(std::array::from_fn(|i| {
                            AtomicU64::new(beneath[i].load(Ordering::Relaxed))
                        }))
                    };
                    let over = match self.over_pages.get(&page.0) {
                        Some(over) => over,
                        None => {
                            let copied: Box<PageWords> = copy();
                            self.over_pages.entry(page.0).or_insert(copied)
                        }
                    };
                    over[slot].store(word, Ordering::Relaxed);
                }
            }
        }
        Some(late)
    }

    /// A page of a metadata segment, without what the journal holds.
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

    /// A header; all zeroes beyond the table.
    pub fn header(&self, number: InodeNumber) -> Header {
        let at = u64::from(number) * HEADER_SIZE as u64;
        let word = |offset: u64| {
            if !self.over_headers.is_empty()
                && let Some(&over) = self.over_headers.get(&(at + offset))
            {
                return over;
            }
            self.headers.word(at + offset)
        };
        Header {
            sequence: word(0),
            inode: word(8),
            fold: word(16),
            ownership: Ownership(word(24)),
            identity: word(32),
            state: word(40),
        }
    }

    /// The bits of the pages from 64 × `index` on.
    pub fn bits(&self, index: u64) -> u64 {
        if !self.over_bitmap.is_empty()
            && let Some(&over) = self.over_bitmap.get(&(index * 8))
        {
            return over;
        }
        self.bitmap.word(index * 8)
    }

    /// An entry of the segment table: as it is now, or as the journal leaves it.
    pub fn segment_entry(&self, segment: SegmentNumber) -> SegmentEntry {
        if !self.served {
            let entry = self.segments.get(segment as usize);
            return entry.copied().unwrap_or_default();
        }
        let mut bytes = [0; SEGMENT_ENTRY];
        for (chunk, offset) in bytes
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip((0..).step_by(8))
        {
            let at = u64::from(segment) * SEGMENT_ENTRY as u64 + offset;
            *chunk = self.live_segments.word(at).to_le_bytes();
        }
        SegmentEntry::decode(&bytes)
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
        let mut numbers = self.over_numbers.clone();
        if let Some(file) = &self.headers_file {
            let parts = memory::parts(file, self.geometry.header_table_size()).into_iter();
            numbers
                .extend(parts.map(|p| number(p.start / each).max(1)..number(p.end.div_ceil(each))));
        }
        numbers.retain(|range| !range.is_empty());
        joined(numbers)
    }

    /// What the journal holds and is not in place.
    pub fn late_words(&self) -> Vec<(Target, Vec<(u64, u64)>)> {
        let sorted = |words: &HashMap<u64, u64>| {
            let mut words: Vec<_> = words.iter().map(|(&at, &word)| (at, word)).collect();
            words.sort_unstable();
            words
        };
        let mut pages = Vec::new();
        for (&page, words) in &self.over_pages {
            let first = PagePtr(page).address();
            pages.extend(
                (first..)
                    .step_by(8)
                    .zip(words.iter().map(|word| word.load(Ordering::Relaxed))),
            );
        }
        pages.sort_unstable();
        let table = self.table.as_chunks::<8>().0.iter();
        let segments = (0..)
            .step_by(8)
            .zip(table.map(|word| u64::from_le_bytes(*word)))
            .collect();
        vec![
            (Target::Segments, segments),
            (Target::Headers, sorted(&self.over_headers)),
            (Target::Bitmap, sorted(&self.over_bitmap)),
            (Target::Pages, pages),
            (Target::Sessions, self.over_sessions.clone()),
        ]
    }

    /// Keeps others from looking too. False: somebody does.
    pub fn lock_alone(&mut self) -> Result<bool> {
        let failed = |operation| Error::system(&self.path.join(layout::LOCK), operation);
        if self.lock.is_none() {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let mode = Mode::RUSR | Mode::WUSR;
            let opened = rustix::fs::openat(&self.directory, layout::LOCK, flags, mode);
            self.lock = Some(Lock(opened.map_err(failed("open"))?));
        }
        let Some(lock) = &self.lock else {
            return Ok(false);
        };
        match rustix::fs::flock(&lock.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(failed("flock")(errno)),
        }
    }

    /// Whether nobody has the pool's lock any more who serves it.
    pub fn is_left(&self) -> bool {
        let flags = FlockOperation::NonBlockingLockShared;
        memory::open(&self.directory, layout::LOCK)
            .is_ok_and(|file| rustix::fs::flock(&file, flags).is_ok())
    }
}

/// A metadata segment's file, mapped.
struct Segment {
    memory: Memory,
    /// Device and inode of the file.
    identity: (u64, u64),
    /// Bytes of the file.
    length: u64,
}

impl Segment {
    fn map(
        directory: &OwnedFd,
        segment: SegmentNumber,
        size: u64,
    ) -> std::result::Result<Segment, Errno> {
        let file = memory::open(directory, &segment_name(segment))?;
        let status = rustix::fs::fstat(&file)?;
        let (memory, length) = Memory::of(&file, size)?;
        Ok(Segment {
            memory,
            identity: (status.st_dev, status.st_ino),
            length,
        })
    }
}

impl Segment {
    /// A copy: who had the segment may still cut it off.
    fn hold(
        directory: &OwnedFd,
        segment: SegmentNumber,
        size: u64,
    ) -> std::result::Result<Segment, Errno> {
        let file = memory::open(directory, &segment_name(segment))?;
        let status = rustix::fs::fstat(&file)?;
        let memory = Memory::held(&file, size)?;
        Ok(Segment {
            memory,
            identity: (status.st_dev, status.st_ino),
            length: u64::try_from(status.st_size).unwrap_or(0),
        })
    }
}

/// The file of a segment.
pub(crate) fn segment_name(segment: SegmentNumber) -> String {
    format!("{}/{segment:08x}", layout::SEGMENTS)
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

fn copy(memory: &Memory) -> Vec<u8> {
    let view = memory.bytes();
    let mut bytes = vec![0; view.len()];
    // All of it is there.
    let _ = view.copy_to(0, &mut bytes);
    bytes
}

fn file_finding(name: String, detail: String) -> Finding {
    Finding {
        rule: Rule::Files,
        inode: None,
        path: None,
        place: Place::Whole(name),
        detail,
    }
}

fn senseless(at: usize) -> Finding {
    Finding {
        rule: Rule::Journal,
        inode: None,
        path: None,
        place: Place::File(layout::JOURNAL, at as u64),
        detail: "the entry's checksum holds, and it addresses what is not there".into(),
    }
}

fn read_superblock(path: &Path, directory: &OwnedFd) -> Result<Superblock> {
    let file = memory::open(directory, layout::SUPERBLOCK).map_err(|errno| match errno {
        Errno::NOENT => Error::Missing { path: path.into() },
        errno => Error::system(&path.join(layout::SUPERBLOCK), "open")(errno),
    })?;
    let bytes = memory::read(&file, SUPERBLOCK_SIZE as u64)
        .map_err(Error::system(&path.join(layout::SUPERBLOCK), "read"))?;
    let refused = |reason: SuperblockError| Error::Superblock {
        path: path.into(),
        reason,
    };
    Superblock::decode(&bytes).map_err(refused)
}

/// Takes the pool's lock together with others who look; whether somebody serves it.
fn lock(path: &Path, directory: &OwnedFd) -> Result<(Option<OwnedFd>, bool)> {
    let failed = |operation| Error::system(&path.join(layout::LOCK), operation);
    let file = match memory::open(directory, layout::LOCK) {
        Ok(file) => file,
        // Nobody ever served it.
        Err(Errno::NOENT) => return Ok((None, false)),
        Err(errno) => return Err(failed("open")(errno)),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok((Some(file), false)),
        Err(Errno::WOULDBLOCK) => Ok((None, true)),
        Err(errno) => Err(failed("flock")(errno)),
    }
}
