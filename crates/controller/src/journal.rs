//! The redo journal: one file, one entry at a time.
//!
//! An entry says, physically, which bytes go where. It is written whole, made durable, and then
//! applied in place; a valid entry found at the start is applied again, which changes nothing if
//! it had been applied. Redo of plain bytes is a choice: letting the copied delta itself be the
//! entry would need no second writing of what changed, but then replaying would have to run the
//! whole of verification and application again, in exactly the state it ran in before. New
//! pages, to which nothing refers yet, are written in place beforehand and never copied here, so
//! what an entry holds is small: pointers, headers, changed words.
//!
//! # Invariants
//! * What an entry addresses is in use once the entry is applied, or belongs to a table: so
//!   applying the last entry again, whatever free space has been used for since, harms nobody.
//! * An entry is valid if its checksum holds; the next one is written only after all of the
//!   last has been applied durably: by the first fence of the change that it belongs to.

use crate::error::{Error, Result};
use crate::pool::{Pool, allocate};
use arck_core_state::header::{FOLD_OFFSET, HEADER_SIZE, OWNERSHIP_OFFSET};
use arck_core_state::superblock::Durability;
use arck_core_state::{InodeNumber, layout};
use arck_pm::record::stored;
use arck_pm::{MapOptions, Mapping, SharedBytes};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::atomic::{Ordering, fence};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// "ARCKREDO".
const MAGIC: u64 = u64::from_le_bytes(*b"ARCKREDO");
/// Largest journal, bytes: an entry that needs more is refused (ENOSPC).
const JOURNAL_MAX: u64 = 1 << 30;

/// What a record changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Target {
    Headers = 0,
    Bitmap = 1,
    Segments = 2,
    /// Bytes of the pool's address space, in metadata segments.
    Pages = 3,
    Sessions = 4,
    /// Nothing is stored: the bytes are the numbers (u64) of the inodes that readers must see
    /// change in one step.
    Sequences = 5,
}

impl Target {
    fn from_u32(value: u32) -> Option<Target> {
        match value {
            0 => Some(Target::Headers),
            1 => Some(Target::Bitmap),
            2 => Some(Target::Segments),
            3 => Some(Target::Pages),
            4 => Some(Target::Sessions),
            5 => Some(Target::Sequences),
            _ => None,
        }
    }

    /// The memory that the target names.
    pub fn memory(self, pool: &Pool) -> SharedBytes<'_> {
        match self {
            Target::Headers | Target::Sequences => pool.headers(),
            Target::Sessions => pool.session_table(),
            Target::Bitmap => pool.bitmap(),
            Target::Segments => pool.segment_table(),
            Target::Pages => pool.space(),
        }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct EntryHeader {
    magic: u64,
    /// Counts entries.
    sequence: u64,
    /// Bytes of the records behind the header.
    length: u64,
    /// CRC32C of sequence, length and records.
    checksum: u32,
    reserved0: u32,
    reserved: [u64; 4],
}
const ENTRY_HEADER: usize = 64;
const _: () = assert!(size_of::<EntryHeader>() == ENTRY_HEADER);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RecordHeader {
    target: u32,
    /// Bytes that follow, padded to 8.
    length: u32,
    offset: u64,
}
const RECORD_HEADER: usize = 16;

/// The records of an entry being put together.
#[derive(Clone, Debug, Default)]
pub struct Redo {
    bytes: Vec<u8>,
    /// Where the last record stands, and what it covers, to be continued by its neighbour.
    last: Option<(Target, u64, usize)>,
}

impl Redo {
    /// Adds "these bytes go there"; joins what directly continues the record before it.
    pub fn put(&mut self, target: Target, offset: u64, bytes: &[u8]) {
        let joins = self.last.filter(|&(last, end, at)| {
            // Only whole words can be continued without a gap of padding.
            last == target && end == offset && self.bytes.len() > at && offset.is_multiple_of(8)
        });
        if let Some((_, end, at)) = joins {
            let length = self.bytes.len() - at - RECORD_HEADER + bytes.len();
            let field = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
            self.bytes[at + 4..at + 8].copy_from_slice(&field);
            self.last = Some((target, end + bytes.len() as u64, at));
        } else {
            let at = self.bytes.len();
            let header = RecordHeader {
                target: target as u32,
                length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                offset,
            };
            self.bytes.extend_from_slice(header.as_bytes());
            self.last = Some((target, offset + bytes.len() as u64, at));
        }
        self.bytes.extend_from_slice(bytes);
        let padding = self.bytes.len().next_multiple_of(8) - self.bytes.len();
        if padding != 0 {
            self.bytes.extend_from_slice(&[0; 8][..padding]);
            self.last = None;
        }
    }

    /// Bytes that the entry takes, header included.
    pub fn size(&self) -> u64 {
        (ENTRY_HEADER + self.bytes.len()) as u64
    }

    /// The records of what is stored, in order.
    pub fn records(&self) -> impl Iterator<Item = (Target, u64, &[u8])> {
        records(&self.bytes).filter(|(target, ..)| *target != Target::Sequences)
    }

    /// The inodes that readers must see change in one step.
    pub fn sequenced(&self) -> Vec<InodeNumber> {
        let listed = records(&self.bytes).filter(|(target, ..)| *target == Target::Sequences);
        let numbers = listed.flat_map(|(_, _, bytes)| bytes.as_chunks::<8>().0);
        numbers
            .filter_map(|bytes| InodeNumber::try_from(u64::from_le_bytes(*bytes)).ok())
            .collect()
    }

    /// Stores what the records say, in the order that operations and readers rely on: sequence
    /// words become odd, everything but fold numbers and owners is stored, sequence words become
    /// even, then each header's fold number and after it its owner. What is out of range, which is
    /// in no valid entry, is left out. Flushes nothing.
    pub fn store(&self, pool: &Pool, half: impl FnOnce()) {
        let numbers = self.sequenced();
        let headers = || numbers.iter().filter_map(|&number| pool.header(number));
        for header in headers() {
            // Odd already only if a controller died here.
            let sequence = header.sequence.load(Ordering::Relaxed);
            header.sequence.store(sequence | 1, Ordering::Relaxed);
            stored(&header.sequence);
        }
        fence(Ordering::SeqCst);
        let store = |last: bool| {
            for (target, offset, bytes) in self.records() {
                let memory = target.memory(pool);
                // Only whole aligned words are ever put.
                for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                    let at = offset + index as u64 * 8;
                    let is_last = target == Target::Headers
                        && matches!(at % HEADER_SIZE as u64, FOLD_OFFSET | OWNERSHIP_OFFSET);
                    if is_last == last {
                        let word = u64::from_le_bytes(*word);
                        let stored = memory.store_u64(at as usize, word, Ordering::Release);
                        debug_assert!(stored.is_some());
                    }
                }
            }
        };
        store(false);
        half();
        fence(Ordering::SeqCst);
        for header in headers() {
            let sequence = header.sequence.load(Ordering::Relaxed);
            header.sequence.store(sequence + 1, Ordering::Release);
            stored(&header.sequence);
        }
        // In ascending order: of each header the fold number, then the ownership.
        store(true);
    }
}

fn records(bytes: &[u8]) -> impl Iterator<Item = (Target, u64, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (header, behind) = RecordHeader::read_from_prefix(rest).ok()?;
        let length = header.length as usize;
        let data = behind.get(..length)?;
        rest = behind.get(length.next_multiple_of(8)..)?;
        Some((Target::from_u32(header.target)?, header.offset, data))
    })
}

/// The open journal.
pub struct Journal {
    file: OwnedFd,
    mapping: Mapping,
    sequence: u64,
    synchronous: bool,
    /// Bytes of entries since [`Journal::take_bytes`].
    bytes: u64,
}

impl Journal {
    /// Opens and maps it.
    pub fn open(pool: &Pool) -> Result<Journal> {
        let path = pool.path().join(layout::JOURNAL);
        let file = pool
            .open_file(layout::JOURNAL, OFlags::RDWR)
            .map_err(|errno| match errno {
                Errno::NOENT => Error::Truncated {
                    path: pool.path().into(),
                    file: layout::JOURNAL.into(),
                },
                errno => Error::system(&path, "open")(errno),
            })?;
        let status = rustix::fs::fstat(&file).map_err(Error::system(&path, "fstat"))?;
        let length = usize::try_from(status.st_size).unwrap_or(0);
        if length < ENTRY_HEADER {
            return Err(Error::Truncated {
                path: pool.path().into(),
                file: layout::JOURNAL.into(),
            });
        }
        let synchronous = pool.durability() == Durability::Dax;
        let mapping = Mapping::new(
            &file,
            0,
            length,
            MapOptions::READ_WRITE.synchronous(synchronous),
        )
        .map_err(Error::mapping(&path, "mmap"))?;
        Ok(Journal {
            file,
            mapping,
            sequence: 0,
            synchronous,
            bytes: 0,
        })
    }

    /// The valid entry at the start, if there is one.
    pub fn read(&mut self) -> Option<Redo> {
        let mut header = [0u8; ENTRY_HEADER];
        self.mapping.bytes().copy_to(0, &mut header)?;
        let header: EntryHeader = zerocopy::transmute!(header);
        let length = usize::try_from(header.length).ok()?;
        if header.magic != MAGIC || length > self.mapping.len() - ENTRY_HEADER {
            return None;
        }
        let mut bytes = vec![0u8; length];
        self.mapping.bytes().copy_to(ENTRY_HEADER, &mut bytes)?;
        if header.checksum != checksum(header.sequence, &bytes) {
            return None;
        }
        self.sequence = header.sequence;
        Some(Redo { bytes, last: None })
    }

    /// Bytes of entries written since this was asked last.
    pub fn take_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }

    /// Makes room for an entry of `size` bytes. ENOSPC: nothing has changed.
    pub fn reserve(&mut self, size: u64) -> std::result::Result<(), Errno> {
        let have = self.mapping.len() as u64;
        if size <= have {
            return Ok(());
        }
        if size > JOURNAL_MAX {
            return Err(Errno::NOSPC);
        }
        let wanted = size.next_power_of_two();
        allocate(&self.file, have, wanted - have)?;
        let length = usize::try_from(wanted).map_err(|_| Errno::NOSPC)?;
        self.mapping = Mapping::new(
            &self.file,
            0,
            length,
            MapOptions::READ_WRITE.synchronous(self.synchronous),
        )
        .map_err(|error| error.errno())?;
        Ok(())
    }

    /// Writes an entry and makes it durable; room was reserved.
    pub fn write(
        &mut self,
        redo: &Redo,
        pool: &Pool,
        sync: bool,
    ) -> std::result::Result<(), Errno> {
        self.sequence += 1;
        let header = EntryHeader {
            magic: MAGIC,
            sequence: self.sequence,
            length: redo.bytes.len() as u64,
            checksum: checksum(self.sequence, &redo.bytes),
            reserved0: 0,
            reserved: [0; 4],
        };
        let memory = self.mapping.bytes();
        let size = ENTRY_HEADER + redo.bytes.len();
        memory
            .stream_from(ENTRY_HEADER, &redo.bytes)
            .and_then(|()| memory.stream_from(0, header.as_bytes()))
            .ok_or(Errno::NOSPC)?;
        arck_pm::fence();
        self.bytes += size as u64;
        if sync
            && let Some(written) = memory.slice(0, size)
            && let Err(errno) = pool.write_back(written)
        {
            // It was not committed, so it must not be found either.
            memory.stream_u64(0, 0).ok_or(Errno::IO)?;
            arck_pm::fence();
            return Err(errno);
        }
        Ok(())
    }
}

fn checksum(sequence: u64, records: &[u8]) -> u32 {
    let seed = crc32c::crc32c_append(
        crc32c::crc32c(&sequence.to_le_bytes()),
        &(records.len() as u64).to_le_bytes(),
    );
    crc32c::crc32c_append(seed, records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined_and_all_come_back() {
        let mut redo = Redo::default();
        redo.put(Target::Pages, 4096, &[1; 8]);
        redo.put(Target::Pages, 4104, &[2; 8]);
        redo.put(Target::Pages, 4120, &[3; 3]);
        redo.put(Target::Pages, 4123, &[4; 8]);
        redo.put(Target::Bitmap, 0, &[5; 8]);
        let mut joined = vec![1; 8];
        joined.extend([2; 8]);
        let got: Vec<_> = redo
            .records()
            .map(|(target, offset, bytes)| (target, offset, bytes.to_vec()))
            .collect();
        assert_eq!(
            got,
            [
                (Target::Pages, 4096, joined),
                (Target::Pages, 4120, vec![3; 3]),
                (Target::Pages, 4123, vec![4; 8]),
                (Target::Bitmap, 0, vec![5; 8]),
            ]
        );
    }
}
