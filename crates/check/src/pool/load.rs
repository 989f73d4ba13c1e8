//! Opening a pool's files, and telling what is wrong with them as files.
//!
//! Invariant: whatever is missing or too short reads as zeroes, and is a finding; only without a
//! superblock there is nothing to look at.

use super::Pool;
use super::lock::{Lock, refuse_others};
use super::replayed::Replayed;
use super::segment::{Segment, segment_name};
use crate::error::{Error, Result};
use crate::finding::{Finding, Place, Rule};
use crate::memory::{self, Memory};
use crate::superblock;
use arck_controller_state::journal::{self, ENTRY_HEADER_SIZE, EntryHeader, Target};
use arck_controller_state::segments::{self, SEGMENT_ENTRY_SIZE, SegmentEntry, SegmentKind};
use arck_controller_state::sessions::{self, SESSION_ENTRY_SIZE, SESSIONS_MAX, SessionEntry};
use arck_core_state::layout;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::OnceLock;
use zerocopy::FromBytes;

impl Pool {
    /// Opens a pool. What is wrong with its files and tables goes to `findings`.
    pub fn open(path: &Path, findings: &mut Vec<Finding>) -> Result<Pool> {
        let directory = open_directory(path)?;
        let (lock, served) = Lock::shared(path, &directory)?;
        let superblock = superblock::read(path, &directory)?;
        let geometry = superblock.geometry;
        let mut pool = Pool {
            path: path.into(),
            superblock,
            geometry,
            headers: Memory::Held(Vec::new()),
            headers_file: None,
            bitmap: Memory::Held(Vec::new()),
            segments: Vec::new(),
            live_segments: Memory::Held(Vec::new()),
            sessions: Vec::new(),
            next_session: 0,
            metadata: Vec::new(),
            over: Replayed::default(),
            served,
            directory,
            lock,
            table: Vec::new(),
            reads_all: false,
        };
        pool.load(findings)?;
        Ok(pool)
    }

    fn load(&mut self, findings: &mut Vec<Finding>) -> Result<()> {
        findings.extend(superblock::finding(&self.directory, &self.superblock));
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
        let sizes = (sessions::TABLE_MIN, sessions::TABLE_SIZE);
        let table = self.table_of(layout::SESSION_TABLE, sizes, findings)?;
        if let Some((_, memory)) = table {
            let bytes = copy(&memory);
            self.next_session = memory.word(0);
            self.sessions = entries(&bytes);
        }
        let size = segments::entry_offset(geometry.segment_count);
        let mut table = Vec::new();
        let whole = segments::table_size(geometry.segment_count);
        if let Some((_, memory)) = self.table(layout::SEGMENT_TABLE, whole, findings)? {
            table = copy(&memory);
            self.live_segments = memory;
        }
        table.resize(size as usize, 0);
        let journal = self.journal(findings)?;
        // Of one that is not sensible as a whole nothing is looked at.
        let records: std::result::Result<Vec<_>, usize> = journal::records(&journal).collect();
        let mut late = 0;
        if let Ok(records) = &records {
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
        let entries = table.chunks_exact(SEGMENT_ENTRY_SIZE);
        self.segments = entries
            .filter_map(|entry| SegmentEntry::read_from_bytes(entry).ok())
            .collect();
        self.table = table;
        self.map_segments(findings)?;
        match &records {
            Ok(records) => {
                let mut over = Replayed::default();
                for record in records.iter().filter(|r| r.target != Target::Segments) {
                    match over.lay(self, record) {
                        Some(words) => late += words,
                        None => findings.push(senseless(record.at)),
                    }
                }
                self.over = over;
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
            Err(at) => findings.push(senseless(*at)),
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
        self.table_of(name, (size, size), findings)
    }

    /// One that has so many bytes at least, and so many at most.
    fn table_of(
        &self,
        name: &'static str,
        (least, size): (u64, u64),
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
        if has < least {
            let detail = format!("has {has} bytes of {least}");
            findings.push(file_finding(name.into(), detail));
        }
        Ok(Some((file, memory)))
    }

    fn failed(&self, name: &str, operation: &'static str) -> impl FnOnce(Errno) -> Error + use<> {
        Error::system(&self.path.join(name), operation)
    }

    /// The records of the journal's entry, if one counts; they are in place already where the pool is served.
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
        let mut entry = memory::read(&file, ENTRY_HEADER_SIZE as u64).map_err(failed)?;
        if entry.len() < ENTRY_HEADER_SIZE {
            let detail = format!("has {} bytes", entry.len());
            findings.push(file_finding(layout::JOURNAL.into(), detail));
            return Ok(Vec::new());
        }
        let Some(header) = EntryHeader::decode(&entry).filter(|_| !self.served) else {
            return Ok(Vec::new());
        };
        let length = header.length.saturating_add(ENTRY_HEADER_SIZE as u64);
        entry = memory::read(&file, length).map_err(failed)?;
        let records = entry.split_off(ENTRY_HEADER_SIZE.min(entry.len()));
        let counts = header.is_of(&records);
        Ok(if counts { records } else { Vec::new() })
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
}

/// Opens a pool's directory.
pub(crate) fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
        if matches!(errno, Errno::NOENT | Errno::NOTDIR) {
            Error::Missing { path: path.into() }
        } else {
            Error::system(path, "open")(errno)
        }
    })
}

/// The same, to change something in it: root changes nothing in another user's, who could have him write where a link
/// leads; he becomes that user before.
pub(crate) fn open_to_change(path: &Path) -> Result<OwnedFd> {
    let directory = open_directory(path)?;
    refuse_others(path, &directory)?;
    Ok(directory)
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

/// The entries of the session table that count, and where each stands.
fn entries(table: &[u8]) -> Vec<(usize, SessionEntry)> {
    let entry = |index: usize| {
        let at = sessions::entry_offset(index);
        let bytes = table.get(at..at + SESSION_ENTRY_SIZE)?;
        let entry = SessionEntry::decode(bytes.try_into().ok()?)?;
        Some((at, entry))
    };
    (0..SESSIONS_MAX).filter_map(entry).collect()
}
