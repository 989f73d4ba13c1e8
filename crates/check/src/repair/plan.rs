//! What a repair is going to change, and doing it in one step.
//!
//! The changes are written as one entry of the pool's own redo journal, and then applied: a crash
//! before the entry is whole leaves the pool as it was, one after it is mended by whoever opens the
//! pool next, who applies the entry again. A copy beside would need as much space as the metadata
//! and a moment in which several files are exchanged at once, which no file system offers.
//!
//! # Invariants
//! * New pages lie where nothing refers to, in the pool as it is too, and are durable before the
//!   entry is.
//! * What the journal held before is in place, durably, before the entry is replaced.

use crate::error::{Error, Result};
use crate::memory;
use crate::pool::{Pool, segment_name};
use arck_controller_state::journal::{EntryHeader, JOURNAL_MIN, Redo, Target};
use arck_controller_state::segments::{self, SegmentEntry};
use arck_core_state::header::HEADER_SIZE;
use arck_core_state::superblock::Superblock;
use arck_core_state::{InodeNumber, PAGE_SIZE, PagePtr, PageWords, Pages, SegmentNumber, layout};
use arck_pm::record::{self, FileChange, file_id};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Plan {
    headers: BTreeMap<u64, u64>,
    bitmap: BTreeMap<u64, u64>,
    segments: BTreeMap<u64, u64>,
    pages: BTreeMap<u64, u64>,
    /// Pages that are new: metadata.
    fresh: BTreeMap<PagePtr, Box<PageWords>>,
    /// Data pages that are new, and what they are copies of.
    copies: Vec<(PagePtr, PagePtr)>,
}

impl Plan {
    pub fn set_header(&mut self, number: InodeNumber, offset: u64, word: u64) {
        let at = u64::from(number) * HEADER_SIZE as u64 + offset;
        self.headers.insert(at, word);
    }
    pub fn set_bits(&mut self, index: u64, word: u64) {
        self.bitmap.insert(index * 8, word);
    }
    pub fn set_segment(&mut self, segment: SegmentNumber, entry: SegmentEntry) {
        let words: [u64; 4] = zerocopy::transmute!(entry);
        for (word, offset) in words.into_iter().zip((0..).step_by(8)) {
            let at = segments::entry_offset(segment) + offset;
            self.segments.insert(at, word);
        }
    }
    /// A word of metadata, at a byte address of the pool.
    pub fn set_word(&mut self, address: u64, word: u64) {
        let page = PagePtr::of_address(address);
        match self.fresh.get(&page) {
            Some(fresh) => {
                fresh[(address % PAGE_SIZE / 8) as usize].store(word, Ordering::Relaxed);
            }
            None => {
                self.pages.insert(address, word);
            }
        }
    }
    /// A new page of metadata.
    pub fn add_page(&mut self, page: PagePtr, words: Box<PageWords>) {
        self.fresh.insert(page, words);
    }
    /// A new page of data with the contents of another.
    pub fn add_copy(&mut self, page: PagePtr, of: PagePtr) {
        self.copies.push((page, of));
    }

    /// What changes, by what it changes, in the order in which it is applied.
    fn words(&self) -> [(Target, &BTreeMap<u64, u64>); 4] {
        [
            (Target::Segments, &self.segments),
            (Target::Headers, &self.headers),
            (Target::Bitmap, &self.bitmap),
            (Target::Pages, &self.pages),
        ]
    }

    fn redo(&self) -> Redo {
        let mut redo = Redo::default();
        for (target, words) in self.words() {
            for (&at, word) in words {
                redo.put(target, at, &word.to_le_bytes());
            }
        }
        redo
    }

    /// Does it. Blocks until all is durable.
    pub fn commit(&self, pool: &Pool) -> Result<()> {
        let files = Files::of(pool);
        // What the journal held is in place before it goes.
        files.apply(&pool.late_words())?;
        for (page, words) in &self.fresh {
            let mut bytes = [0; PAGE_SIZE as usize];
            for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words.iter()) {
                *chunk = word.load(Ordering::Relaxed).to_le_bytes();
            }
            files.write_page(*page, &bytes)?;
        }
        for &(page, of) in &self.copies {
            let bytes = files.read_page(of);
            files.write_page(page, &bytes)?;
        }
        files.sync()?;
        let redo = self.redo();
        let sequence = pool.journal_sequence().unwrap_or(0).wrapping_add(1);
        let header = EntryHeader::new(sequence, redo.bytes());
        let entry = [header.as_bytes(), redo.bytes()].concat();
        // As long as the controller makes it at least.
        let length = (entry.len() as u64).next_power_of_two().max(JOURNAL_MIN);
        files.extend(layout::JOURNAL, length)?;
        files.write(layout::JOURNAL, 0, &entry)?;
        files.sync()?;
        let words = self.words().map(|(target, words)| {
            let words: Vec<(u64, u64)> = words.clone().into_iter().collect();
            (target, words)
        });
        files.apply(&words)?;
        files.sync()
    }
}

/// Words of one target, by byte offset.
pub(crate) type Words = (Target, Vec<(u64, u64)>);

/// The pool's files, to be written.
pub(crate) struct Files<'p> {
    pub path: &'p Path,
    pub directory: &'p OwnedFd,
    /// Bytes of a segment.
    pub segment_size: u64,
}

impl<'p> Files<'p> {
    pub fn of(pool: &'p Pool) -> Files<'p> {
        Files {
            path: &pool.path,
            directory: &pool.directory,
            segment_size: pool.geometry.segment_size,
        }
    }

    fn failed(&self, name: &str, operation: &'static str) -> impl FnOnce(Errno) -> Error + use<> {
        Error::system(&self.path.join(name), operation)
    }

    fn open(&self, name: &str) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(self.directory, name, flags, mode)
            .map_err(self.failed(name, "open"))?;
        record::file(|| FileChange::Named {
            file: file_id(&file),
            name: name.into(),
        });
        Ok(file)
    }

    /// Whether a file is missing, or shorter than that.
    pub fn is_short(&self, name: &str, length: u64) -> bool {
        let has = memory::open(self.directory, name).and_then(rustix::fs::fstat);
        has.map_or(true, |has| u64::try_from(has.st_size).unwrap_or(0) < length)
    }

    /// Makes a file, or makes it longer, with zeroes at the end; whether it had to.
    pub fn extend(&self, name: &str, length: u64) -> Result<bool> {
        let file = self.open(name)?;
        let has = rustix::fs::fstat(&file).map_err(self.failed(name, "fstat"))?;
        let is_short = u64::try_from(has.st_size).unwrap_or(0) < length;
        if is_short {
            rustix::fs::ftruncate(&file, length).map_err(self.failed(name, "extend"))?;
            record::file(|| FileChange::Length {
                file: file_id(&file),
                len: length,
            });
        }
        Ok(is_short)
    }

    fn write(&self, name: &str, mut offset: u64, mut bytes: &[u8]) -> Result<()> {
        let file = self.open(name)?;
        while !bytes.is_empty() {
            match rustix::io::pwrite(&file, bytes, offset) {
                Ok(0) => return Err(self.failed(name, "write")(Errno::NOSPC)),
                Ok(count) => {
                    record::file(|| FileChange::Written {
                        file: file_id(&file),
                        offset,
                        bytes: bytes[..count].to_vec(),
                    });
                    offset += count as u64;
                    bytes = &bytes[count..];
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed(name, "write")(errno)),
            }
        }
        Ok(())
    }

    fn place(&self, address: u64) -> (String, u64) {
        let size = self.segment_size;
        let segment = SegmentNumber::try_from(address / size).unwrap_or(SegmentNumber::MAX);
        (segment_name(segment), address % size)
    }

    fn write_page(&self, page: PagePtr, bytes: &[u8]) -> Result<()> {
        let (name, offset) = self.place(page.address());
        self.extend(&name, self.segment_size)?;
        self.write(&name, offset, bytes)
    }

    fn read_page(&self, page: PagePtr) -> [u8; PAGE_SIZE as usize] {
        let mut bytes = [0; PAGE_SIZE as usize];
        let (name, offset) = self.place(page.address());
        if let Ok(file) = memory::open(self.directory, &name) {
            // What is not there is zeroes.
            let _ = rustix::io::pread(&file, &mut bytes[..], offset);
        }
        bytes
    }

    /// Stores words where they belong.
    fn apply(&self, targets: &[Words]) -> Result<()> {
        for (target, words) in targets {
            let mut run: Vec<u8> = Vec::new();
            let mut start = 0;
            let put = |start: u64, run: &mut Vec<u8>| -> Result<()> {
                let bytes = std::mem::take(run);
                match target {
                    _ if bytes.is_empty() => Ok(()),
                    Target::Headers => self.write(layout::HEADERS, start, &bytes),
                    Target::Bitmap => self.write(layout::PAGE_BITMAP, start, &bytes),
                    Target::Segments => self.write(layout::SEGMENT_TABLE, start, &bytes),
                    Target::Sessions => self.write(layout::SESSION_TABLE, start, &bytes),
                    // Neither is stored as it is.
                    Target::Sequences | Target::HeaderRuns => Ok(()),
                    Target::Pages => {
                        let (name, offset) = self.place(start);
                        self.write(&name, offset, &bytes)
                    }
                }
            };
            for &(at, word) in words {
                if at != start + run.len() as u64 || at % PAGE_SIZE == 0 {
                    put(start, &mut run)?;
                    start = at;
                }
                run.extend_from_slice(&word.to_le_bytes());
            }
            put(start, &mut run)?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let synced = rustix::fs::syncfs(self.directory);
        // All files: as one, the folder.
        record::file(|| FileChange::Synced {
            file: file_id(self.directory),
        });
        synced.map_err(self.failed("", "sync"))
    }

    /// Replaces a superblock, or its copy, in one step. Durable.
    pub fn replace_superblock(&self, name: &str, superblock: &Superblock) -> Result<()> {
        self.replace("superblock.new", name, &superblock.encode())
    }

    /// Replaces a file in one step, by way of another one. Durable.
    pub fn replace(&self, unfinished: &str, name: &str, bytes: &[u8]) -> Result<()> {
        // Of whoever was interrupted here.
        let file = self.open(unfinished)?;
        rustix::fs::ftruncate(&file, 0).map_err(self.failed(unfinished, "truncate"))?;
        record::file(|| FileChange::Length {
            file: file_id(&file),
            len: 0,
        });
        self.write(unfinished, 0, bytes)?;
        self.sync()?;
        rustix::fs::renameat(self.directory, unfinished, self.directory, name)
            .map_err(self.failed(name, "rename"))?;
        record::file(|| FileChange::Named {
            file: file_id(&file),
            name: name.into(),
        });
        self.sync()
    }

    /// Clears the session table's entry at this byte.
    pub fn clear_session(&self, at: usize) -> Result<()> {
        self.write(layout::SESSION_TABLE, at as u64, &[0; 4])
    }

    /// The next session's number.
    pub fn set_next_session(&self, number: u64) -> Result<()> {
        self.write(layout::SESSION_TABLE, 0, &number.to_le_bytes())
    }
}

/// A page of metadata as it is.
pub(crate) fn copy_page(pool: &Pool, page: PagePtr) -> Option<Box<PageWords>> {
    let words = pool.page(page)?;
    let copy = arck_core_state::zeroed_page();
    for (to, from) in copy.iter().zip(words) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    Some(copy)
}
