//! Opening a pool's files, and telling what is wrong with them as files.
//!
//! Invariant: whatever is missing or too short reads as zeroes, and is a finding; only without a
//! superblock there is nothing to look at.

use super::lock::Lock;
use super::overlay::Overlay;
use super::segment::{Segment, segment_name};
use super::{JOURNAL_MAX, Pool};
use crate::finding::{Finding, Place, Rule};
use crate::journal::{self, Journal, Target};
use crate::memory::{self, Memory};
use crate::tables::{self, SEGMENT_ENTRY, SegmentEntry, SegmentKind};
use crate::{Error, Result, superblock};
use arck_core_state::{PAGE_SIZE, layout};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::OnceLock;

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
            over: Overlay::default(),
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
        let size = tables::SESSION_TABLE as u64;
        let least = tables::SESSION_TABLE_MIN as u64;
        let table = self.table_of(layout::SESSION_TABLE, (least, size), findings)?;
        if let Some((_, memory)) = table {
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
                let mut over = Overlay::default();
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
