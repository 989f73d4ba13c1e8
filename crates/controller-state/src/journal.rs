//! The redo journal: one file, one entry at a time, that says which bytes go where.
//!
//! # Invariants
//! * An entry counts if its checksum holds. Where its records lead is for who applies them to check.
//! * Only whole aligned words are put, so that a record can be applied word by word.

use crate::header_runs::{HEADER_RUN_SIZE, HeaderRun};
use arck_core_state::InodeNumber;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: u64 = u64::from_le_bytes(*b"ARCKREDO");
/// Largest journal that the controller makes, bytes.
pub const JOURNAL_MAX: u64 = 1 << 30;
/// And the smallest that a pool is made with.
pub const JOURNAL_MIN: u64 = 1 << 20;

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
    /// Headers of numbers that follow each other: the bytes are [`HeaderRun`]s.
    HeaderRuns = 6,
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
            6 => Some(Target::HeaderRuns),
            _ => None,
        }
    }
}

/// Before the records of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EntryHeader {
    pub magic: u64,
    /// Counts entries.
    pub sequence: u64,
    /// Bytes of the records behind the header.
    pub length: u64,
    /// CRC32C of sequence, length and records.
    pub checksum: u32,
    pub reserved0: u32,
    pub reserved: [u64; 4],
}

/// Bytes of an entry's header.
pub const ENTRY_HEADER_SIZE: usize = 64;
const _: () = assert!(size_of::<EntryHeader>() == ENTRY_HEADER_SIZE);

/// Before the bytes of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordHeader {
    pub target: u32,
    /// Bytes that follow, padded to 8.
    pub length: u32,
    pub offset: u64,
}

/// Bytes of a record's header.
pub const RECORD_HEADER_SIZE: usize = 16;
const _: () = assert!(size_of::<RecordHeader>() == RECORD_HEADER_SIZE);

impl EntryHeader {
    /// Of an entry with these records.
    pub fn new(sequence: u64, records: &[u8]) -> EntryHeader {
        EntryHeader {
            magic: MAGIC,
            sequence,
            length: records.len() as u64,
            checksum: checksum(sequence, records),
            reserved0: 0,
            reserved: [0; 4],
        }
    }

    /// What stands at the beginning of a journal. `None` if no entry begins there. Its length is not to be
    /// believed before it has been compared with the file's.
    pub fn decode(bytes: &[u8]) -> Option<EntryHeader> {
        let (header, _) = EntryHeader::read_from_prefix(bytes).ok()?;
        (header.magic == MAGIC).then_some(header)
    }

    /// Whether these are the records of this entry.
    pub fn is_of(&self, records: &[u8]) -> bool {
        self.length == records.len() as u64 && self.checksum == checksum(self.sequence, records)
    }
}

fn checksum(sequence: u64, records: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&sequence.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &(records.len() as u64).to_le_bytes());
    crc32c::crc32c_append(sum, records)
}

/// "These bytes go there."
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    pub target: Target,
    /// Byte offset in the file, or byte address in the pool.
    pub offset: u64,
    pub bytes: &'a [u8],
    /// Byte offset of the record in the journal.
    pub at: usize,
}

/// The records of an entry, or the byte offset in the journal of what is none.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Record<'_>, usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let place = ENTRY_HEADER_SIZE + at;
        let record = || {
            let (header, behind) = RecordHeader::read_from_prefix(rest).ok()?;
            let length = usize::try_from(header.length).ok()?;
            let record = Record {
                target: Target::from_u32(header.target)?,
                offset: header.offset,
                bytes: behind.get(..length)?,
                at: place,
            };
            Some((record, RECORD_HEADER_SIZE + length.next_multiple_of(8)))
        };
        let Some((record, size)) = record() else {
            at = bytes.len();
            return Some(Err(place));
        };
        at += size;
        Some(Ok(record))
    })
}

/// The runs that the bytes of a record are; half a run is none.
pub fn runs(bytes: &[u8]) -> impl Iterator<Item = HeaderRun> {
    let runs = bytes.as_chunks::<HEADER_RUN_SIZE>().0.iter();
    runs.filter_map(|bytes| HeaderRun::read_from_bytes(bytes).ok())
}

/// The records of an entry being put together.
#[derive(Clone, Debug, Default)]
pub struct Redo {
    bytes: Vec<u8>,
    /// Where the last record stands, and what it covers, to be continued by its neighbour.
    last: Option<(Target, u64, usize)>,
}

impl Redo {
    /// With room for so many bytes.
    pub fn with_room(bytes: usize) -> Redo {
        Redo {
            bytes: Vec::with_capacity(bytes),
            last: None,
        }
    }

    /// The entry at the beginning of a journal, if one counts that stands there.
    pub fn decode(header: &EntryHeader, records: Vec<u8>) -> Option<Redo> {
        header.is_of(&records).then_some(Redo {
            bytes: records,
            last: None,
        })
    }

    /// Adds "these bytes go there"; joins what directly continues the record before it.
    pub fn put(&mut self, target: Target, offset: u64, bytes: &[u8]) {
        let joins = self.last.filter(|&(last, end, at)| {
            // Only whole words can be continued without a gap of padding.
            last == target && end == offset && self.bytes.len() > at && offset.is_multiple_of(8)
        });
        if let Some((_, end, at)) = joins {
            let length = self.bytes.len() - at - RECORD_HEADER_SIZE + bytes.len();
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

    /// All records, as they are stored.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that the entry takes, header included.
    pub fn size(&self) -> u64 {
        (ENTRY_HEADER_SIZE + self.bytes.len()) as u64
    }

    /// Adds runs of headers.
    pub fn put_runs(&mut self, runs: &[HeaderRun]) {
        self.put(Target::HeaderRuns, 0, runs.as_bytes());
    }

    /// The records of what is stored as it is, in order, up to what is none.
    pub fn records(&self) -> impl Iterator<Item = (Target, u64, &[u8])> {
        self.all()
            .filter(|record| !matches!(record.target, Target::Sequences | Target::HeaderRuns))
            .map(|record| (record.target, record.offset, record.bytes))
    }

    /// The inodes that readers must see change in one step.
    pub fn sequenced(&self) -> Vec<InodeNumber> {
        let listed = self
            .all()
            .filter(|record| record.target == Target::Sequences);
        let numbers = listed.flat_map(|record| record.bytes.as_chunks::<8>().0);
        numbers
            .filter_map(|bytes| InodeNumber::try_from(u64::from_le_bytes(*bytes)).ok())
            .collect()
    }

    /// The runs of headers.
    pub fn runs(&self) -> impl Iterator<Item = HeaderRun> {
        let listed = self
            .all()
            .filter(|record| record.target == Target::HeaderRuns);
        listed.flat_map(|record| runs(record.bytes))
    }

    fn all(&self) -> impl Iterator<Item = Record<'_>> {
        records(&self.bytes).map_while(Result::ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_are_joined_and_all_come_back() {
        let mut redo = Redo::default();
        redo.put(Target::Pages, 4096, &[1; 8]);
        redo.put(Target::Pages, 4104, &[2; 8]);
        redo.put(Target::Pages, 4120, &[3; 3]);
        redo.put(Target::Pages, 4123, &[4; 8]);
        redo.put(Target::Bitmap, 0, &[5; 8]);
        redo.put(Target::Sequences, 0, &[6, 0, 0, 0, 0, 0, 0, 0]);
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
        assert_eq!(redo.sequenced(), [6]);
        assert_eq!(redo.runs().count(), 0);
        let run = HeaderRun {
            fold: 9,
            session: 2,
            first: 3,
            count: 4,
            generation: 5,
            slot: 6,
            reserved: 0,
        };
        redo.put_runs(&[run, HeaderRun { first: 70, ..run }]);
        let firsts: Vec<_> = redo.runs().map(|run| run.first).collect();
        assert_eq!(
            (redo.records().count(), redo.runs().next(), firsts),
            (4, Some(run), vec![3, 70])
        );
    }

    #[test]
    fn a_record_that_is_none_ends_an_entry_and_says_where_it_stands() {
        let mut redo = Redo::default();
        redo.put(Target::Headers, 64, &[1; 8]);
        let good = redo.bytes().to_vec();
        for (what, tail) in [
            (
                "a target that nobody knows",
                [7u32, 8, 0, 0].as_bytes().to_vec(),
            ),
            ("more than there is", [1u32, 8, 0, 0].as_bytes().to_vec()),
            ("half a header", vec![0; 8]),
        ] {
            let bytes = [good.clone(), tail].concat();
            let all: Vec<_> = records(&bytes).collect();
            assert!(
                matches!(all[0], Ok(record) if record.bytes == [1; 8]),
                "{what}"
            );
            assert_eq!(all[1..], [Err(ENTRY_HEADER_SIZE + good.len())], "{what}");
        }
    }

    proptest! {
        #[test]
        fn an_entry_is_not_another_s(bytes in prop::collection::vec(any::<u8>(), 0..200),
            sequence: u64, flipped in any::<prop::sample::Index>()) {
            let header = EntryHeader::new(sequence, &bytes);
            prop_assert_eq!(EntryHeader::decode(header.as_bytes()), Some(header));
            prop_assert!(header.is_of(&bytes));
            // Reserved bytes are not looked at.
            let mut stored = header.as_bytes().to_vec();
            stored.truncate(28);
            stored.extend(&bytes);
            let at = flipped.index(stored.len());
            stored[at] ^= 0x10;
            let mut again = stored[..28].to_vec();
            again.resize(ENTRY_HEADER_SIZE, 0);
            let counts = EntryHeader::decode(&again).is_some_and(|header| header.is_of(&stored[28..]));
            prop_assert!(!counts);
        }

        /// Whatever stands in a journal is read to its end.
        #[test]
        fn no_bytes_are_read_for_ever(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(records(&bytes).count() <= bytes.len() / RECORD_HEADER_SIZE + 1);
        }
    }
}
