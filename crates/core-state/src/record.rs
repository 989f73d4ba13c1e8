//! Directory records: what an owner appends to the delta of a directory.
//!
//! A record says up to three things, its *effects*, each of which lives by one bit of the
//! record's state: a name is added; a name of the verified state is removed (the source of a
//! rename, or a name that goes); another record of the delta is replaced. So rename, unlink and
//! replacement commit with the one store that makes the record valid, and a later operation
//! takes an effect back by clearing its bit.
//!
//! # Invariants
//! * A record is valid if its checksum holds; the checksum covers everything but the state and
//!   is seeded with directory, fold number and place, so that what an earlier use of the page
//!   left there is never valid.
//! * State bits are only ever cleared, except that a record may be written with them.
//! * Records of a page stand one behind another; the first invalid one ends the page.

use crate::cast;
use crate::geometry::PAGE_BYTES;
use crate::geometry::{InodeNumber, NAME_MAX};
use crate::inode::FileKind;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Records begin at multiples of this many bytes.
pub const RECORD_UNIT: usize = 64;
/// Units in a delta page; unit 0 is the page's own header.
pub const UNITS_PER_PAGE: usize = PAGE_BYTES / RECORD_UNIT;
/// Longest record in units: header, two names, a time.
pub const RECORD_UNITS_MAX: usize = 1 + (2 * NAME_MAX + CHANGED_SIZE).div_ceil(RECORD_UNIT);
/// Bytes of the time behind the names.
const CHANGED_SIZE: usize = size_of::<i64>();

/// Effects, bits of the state.
pub mod effect {
    /// `name` is added, leading to `inode`.
    pub const ADD: u32 = 1;
    /// The verified name `source` of directory `source_directory` (this one if 0) is removed.
    pub const REMOVE_SOURCE: u32 = 2;
    /// The verified name `name` of this directory is replaced.
    pub const REPLACE: u32 = 4;
    /// The record `kills[0]` (of the source directory's delta) counts as without ADD.
    pub const KILL_SOURCE: u32 = 8;
    /// The record `kills[1]` (of this directory's delta) counts as without ADD.
    pub const KILL_TARGET: u32 = 16;
    pub const ALL: u32 = 31;
}

/// Names another record: place and sequence.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RecordRef {
    /// Arena byte offset divided by [`RECORD_UNIT`]; 0 = none.
    pub unit: u32,
    pub sequence: u32,
}

/// First unit of a record, as stored; the names follow at byte 64, source directly behind name, and
/// directly behind both a time, if there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StoredRecord {
    /// CRC32C over bytes 8.. to the end of names and time, seeded.
    pub checksum: u32,
    /// [`effect`] bits.
    pub state: u32,
    /// Never the same for two records of one branch.
    pub sequence: u32,
    /// [`FileKind`] of `inode`.
    pub kind: u8,
    pub name_length: u8,
    pub source_length: u8,
    /// 1: a time of change stands behind the names.
    pub timed: u8,
    pub inode: u32,
    pub generation: u32,
    /// Directory that `source` and `kills[0]` belong to; 0 = this one.
    pub source_directory: u32,
    /// Creation: permission bits, owner and time of an inode not yet committed.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Nanoseconds; all four times of the new inode.
    pub created: i64,
    pub kills: [RecordRef; 2],
}
const _: () = assert!(size_of::<StoredRecord>() == RECORD_UNIT);

/// Header of a delta page (unit 0).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeltaPageHeader {
    pub directory: u32,
    /// Next arena page of this tail, 0 = last.
    pub next: u32,
    pub fold: u64,
    pub reserved: [u64; 6],
}
const _: () = assert!(size_of::<DeltaPageHeader>() == RECORD_UNIT);
/// Byte offset of [`DeltaPageHeader::next`].
pub const NEXT_OFFSET: u64 = 4;

/// A decoded record; names borrowed from the copy it was decoded from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    pub state: u32,
    pub sequence: u32,
    pub kind: FileKind,
    pub inode: InodeNumber,
    pub generation: u32,
    pub source_directory: InodeNumber,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub created: i64,
    /// Nanoseconds: the time of change of each inode whose name comes or goes by this record, or by
    /// the end of a record that this one kills.
    pub changed: Option<i64>,
    pub kills: [RecordRef; 2],
    pub name: &'a [u8],
    pub source: &'a [u8],
}

impl Record<'_> {
    /// A record without effect, to be filled.
    pub const fn of_nothing() -> Record<'static> {
        Record {
            state: 0,
            sequence: 0,
            kind: FileKind::File,
            inode: 0,
            generation: 0,
            source_directory: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            created: 0,
            changed: None,
            kills: [RecordRef {
                unit: 0,
                sequence: 0,
            }; 2],
            name: b"",
            source: b"",
        }
    }
}

impl<'a> Record<'a> {
    /// Units this record takes.
    pub fn units(&self) -> usize {
        units(self.behind_header())
    }

    /// Writes the record into `buffer` (at least `units() * 64` bytes); gives the bytes used.
    /// `None` if a name is too long or the buffer too small.
    pub fn encode(&self, seed: Seed, buffer: &mut [u8]) -> Option<usize> {
        let bytes = self.units() * RECORD_UNIT;
        let buffer = buffer.get_mut(..bytes)?;
        self.fill(buffer)?;
        seal(seed, buffer)?;
        Some(bytes)
    }

    /// As [`encode`](Self::encode), and quicker: the seed goes before the record, so that one pass makes the checksum.
    pub fn encode_in<'r>(&self, seed: Seed, room: &'r mut RecordRoom) -> Option<&'r [u8]> {
        let bytes = self.units() * RECORD_UNIT;
        let record = RecordRoom::FRONT..RecordRoom::FRONT + bytes;
        self.fill(room.bytes.get_mut(record.clone())?)?;
        // The checksum does not cover itself and the state, in whose place the seed ends.
        let covered = record.start + RECORD_UNIT + self.behind_header();
        room.bytes[..SEED_SIZE].copy_from_slice(&seed.bytes());
        let checksum = crc32c::crc32c(room.bytes.get(..covered)?);
        room.bytes[record.start..record.start + 4].copy_from_slice(&checksum.to_le_bytes());
        room.bytes[record.start + 4..SEED_SIZE].copy_from_slice(&self.state.to_le_bytes());
        room.bytes.get(record)
    }

    /// Writes all but the checksum into a buffer of the record's size.
    #[inline(always)]
    fn fill(&self, buffer: &mut [u8]) -> Option<()> {
        let stored = StoredRecord {
            checksum: 0,
            state: self.state,
            sequence: self.sequence,
            kind: self.kind as u8,
            name_length: u8::try_from(self.name.len()).ok()?,
            source_length: u8::try_from(self.source.len()).ok()?,
            timed: u8::from(self.changed.is_some()),
            inode: self.inode,
            generation: self.generation,
            source_directory: self.source_directory,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            created: self.created,
            kills: self.kills,
        };
        let names = RECORD_UNIT + self.name.len() + self.source.len();
        buffer[RECORD_UNIT..RECORD_UNIT + self.name.len()].copy_from_slice(self.name);
        buffer[RECORD_UNIT + self.name.len()..names].copy_from_slice(self.source);
        buffer[names..].fill(0);
        if let Some(changed) = self.changed {
            buffer[names..names + CHANGED_SIZE].copy_from_slice(&changed.to_le_bytes());
        }
        buffer[..RECORD_UNIT].copy_from_slice(stored.as_bytes());
        Some(())
    }

    /// Bytes behind the header that the checksum covers.
    fn behind_header(&self) -> usize {
        behind_header(self.name.len(), self.source.len(), self.changed.is_some())
    }

    /// Decodes the record at the start of `bytes` (a private copy reaching to the end of its
    /// page). `None` if it is not valid: that ends the page.
    pub fn decode(seed: Seed, bytes: &'a [u8]) -> Option<Record<'a>> {
        Record::decode_if(bytes, |stored, covered| {
            stored.checksum == checksum(seed, covered)
        })
    }

    /// Decodes a record of which it is known that it is valid, as [`decode`](Self::decode) would.
    fn decode_valid(bytes: &'a [u8]) -> Option<Record<'a>> {
        Record::decode_if(bytes, |_, _| true)
    }

    fn decode_if(
        bytes: &'a [u8],
        is_valid: impl FnOnce(&StoredRecord, &[u8]) -> bool,
    ) -> Option<Record<'a>> {
        let (stored, rest) = StoredRecord::read_from_prefix(bytes).ok()?;
        let (name_length, source_length) = (
            usize::from(stored.name_length),
            usize::from(stored.source_length),
        );
        let name = rest.get(..name_length)?;
        let names = name_length + source_length;
        let source = rest.get(name_length..names)?;
        let covered = bytes.get(..RECORD_UNIT + stored.behind())?;
        if !is_valid(&stored, covered) {
            return None;
        }
        Some(Record {
            state: stored.state,
            sequence: stored.sequence,
            kind: FileKind::from_u8(stored.kind)?,
            inode: stored.inode,
            generation: stored.generation,
            source_directory: stored.source_directory,
            mode: stored.mode,
            uid: stored.uid,
            gid: stored.gid,
            created: stored.created,
            changed: match stored.timed {
                0 => None,
                1 => Some(i64::from_le_bytes(*rest.get(names..)?.first_chunk()?)),
                _ => return None,
            },
            kills: stored.kills,
            name,
            source,
        })
    }
}

impl StoredRecord {
    /// Bytes behind the header that the checksum covers.
    fn behind(&self) -> usize {
        let (name, source) = (self.name_length.into(), self.source_length.into());
        behind_header(name, source, self.timed != 0)
    }
}

/// Bytes behind the header: the names, and the time.
fn behind_header(name_length: usize, source_length: usize, timed: bool) -> usize {
    name_length + source_length + if timed { CHANGED_SIZE } else { 0 }
}

/// Units of a record with so many bytes behind its header.
fn units(behind_header: usize) -> usize {
    1 + behind_header.div_ceil(RECORD_UNIT)
}

/// What the checksum is seeded with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed {
    pub directory: InodeNumber,
    pub fold: u64,
    /// Arena byte offset divided by [`RECORD_UNIT`].
    pub unit: u32,
}

/// Bytes of what a checksum is seeded with.
const SEED_SIZE: usize = 16;

impl Seed {
    fn bytes(&self) -> [u8; SEED_SIZE] {
        let mut bytes = [0u8; SEED_SIZE];
        bytes[..4].copy_from_slice(&self.directory.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.fold.to_le_bytes());
        bytes[12..].copy_from_slice(&self.unit.to_le_bytes());
        bytes
    }
}

/// Room for one record of whatever length, for [`Record::encode_in`].
#[repr(align(8))]
pub struct RecordRoom {
    bytes: [u8; RecordRoom::FRONT + RECORD_UNITS_MAX * RECORD_UNIT],
}

impl RecordRoom {
    /// Bytes before the record: with the first two words of that, which the checksum does not cover, the seed's.
    const FRONT: usize = SEED_SIZE - 8;

    #[inline]
    pub const fn new() -> RecordRoom {
        RecordRoom {
            bytes: [0; RecordRoom::FRONT + RECORD_UNITS_MAX * RECORD_UNIT],
        }
    }
}

impl Default for RecordRoom {
    fn default() -> Self {
        RecordRoom::new()
    }
}

/// Makes the record at the start of `bytes` valid, whatever it says: stores the checksum of what
/// stands there. `None` if the names that it claims reach beyond `bytes`.
pub fn seal(seed: Seed, bytes: &mut [u8]) -> Option<()> {
    let (stored, _) = StoredRecord::read_from_prefix(bytes).ok()?;
    let sum = checksum(seed, bytes.get(..RECORD_UNIT + stored.behind())?);
    bytes.get_mut(..4)?.copy_from_slice(&sum.to_le_bytes());
    Some(())
}

fn checksum(seed: Seed, covered: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&seed.bytes()), &covered[8..])
}

/// The records of a copied delta page with their unit numbers in the arena, up to the first
/// invalid one. `arena_page` is the page's number in the arena.
pub fn records(
    page: &[u8; 4096],
    arena_page: u32,
    directory: InodeNumber,
    fold: u64,
) -> impl Iterator<Item = (u32, Record<'_>)> {
    let first = arena_page.wrapping_mul(cast::count(UNITS_PER_PAGE));
    let mut at = 1usize;
    core::iter::from_fn(move || {
        let unit = first.wrapping_add(cast::count(at));
        let bytes = page.get(at * RECORD_UNIT..)?;
        let record = Record::decode(
            Seed {
                directory,
                fold,
                unit,
            },
            bytes,
        )?;
        at += record.units();
        Some((unit, record))
    })
}

/// Units of a copied delta page that are its header or valid records: where the first invalid one begins.
pub fn valid_units(page: &[u8; 4096], arena_page: u32, directory: InodeNumber, fold: u64) -> u8 {
    let mut units = 1;
    records(page, arena_page, directory, fold).for_each(|(_, record)| units += record.units());
    // No more than the units of a page: a record that reaches beyond it is none.
    u8::try_from(units.min(UNITS_PER_PAGE)).unwrap_or(u8::MAX)
}

/// As [`records`], of a page of which it is known how many [units are valid](valid_units): in private memory, their
/// checksums hold for ever.
pub fn valid_records(
    page: &[u8; 4096],
    arena_page: u32,
    valid: u8,
) -> impl Iterator<Item = (u32, Record<'_>)> {
    let first = arena_page.wrapping_mul(cast::count(UNITS_PER_PAGE));
    let mut at = 1usize;
    core::iter::from_fn(move || {
        let bytes = page.get(at * RECORD_UNIT..usize::from(valid) * RECORD_UNIT)?;
        let record = Record::decode_valid(bytes)?;
        let unit = first.wrapping_add(cast::count(at));
        at += record.units();
        Some((unit, record))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample<'a>(name: &'a [u8], source: &'a [u8]) -> Record<'a> {
        Record {
            state: effect::ADD | effect::REMOVE_SOURCE,
            sequence: 11,
            kind: FileKind::File,
            inode: 77,
            generation: 3,
            source_directory: 0,
            mode: 0o644,
            uid: 1,
            gid: 2,
            created: 5,
            changed: None,
            kills: [
                RecordRef::default(),
                RecordRef {
                    unit: 99,
                    sequence: 4,
                },
            ],
            name,
            source,
        }
    }

    proptest! {
        #[test]
        fn survives_and_any_flip_is_noticed(
            name in prop::collection::vec(any::<u8>(), 0..=255usize),
            source in prop::collection::vec(any::<u8>(), 0..=255usize),
            changed: Option<i64>, at: prop::sample::Index, bit in 0u8..8) {
            let seed = Seed { directory: 9, fold: 1 << 40, unit: 65 };
            let record = Record { changed, ..sample(&name, &source) };
            let mut bytes = [0xaa; RECORD_UNITS_MAX * RECORD_UNIT];
            prop_assert!(record.encode(seed, &mut bytes).is_some());
            // Of whatever was encoded there before.
            let mut room = RecordRoom { bytes: [0xa5; RecordRoom::FRONT + RECORD_UNITS_MAX * RECORD_UNIT] };
            prop_assert_eq!(record.encode_in(seed, &mut room), Some(&bytes[..record.units() * RECORD_UNIT]));
            prop_assert_eq!(Record::decode(seed, &bytes), Some(record));
            for other in [Seed { directory: 8, ..seed }, Seed { fold: 2, ..seed }, Seed { unit: 64, ..seed }] {
                prop_assert_eq!(Record::decode(other, &bytes), None);
            }
            let behind = name.len() + source.len() + if changed.is_some() { 8 } else { 0 };
            let covered = RECORD_UNIT + behind;
            let at = at.index(covered);
            bytes[at] ^= 1 << bit;
            let decoded = Record::decode(seed, &bytes);
            if (4..8).contains(&at) {
                prop_assert!(decoded.is_some_and(|d| d.state != record.state));
            } else {
                prop_assert_eq!(decoded, None);
            }
        }
    }

    #[test]
    fn a_page_ends_at_the_first_invalid_record() {
        let mut page = [0u8; 4096];
        let mut at = 1;
        let mut starts = vec![];
        for name in [&b"a"[..], &[b'x'; 200], b"last"] {
            let record = sample(name, b"");
            let seed = Seed {
                directory: 9,
                fold: 4,
                unit: 3 * 64 + at as u32,
            };
            record.encode(seed, &mut page[at * 64..]).unwrap();
            starts.push(at);
            at += record.units();
        }
        let names = |page: &[u8; 4096]| {
            records(page, 3, 9, 4)
                .map(|(_, r)| r.name.len())
                .collect::<Vec<_>>()
        };
        let known_names = |page: &[u8; 4096]| {
            let valid = valid_units(page, 3, 9, 4);
            let all = records(page, 3, 9, 4).collect::<Vec<_>>();
            assert_eq!(valid_records(page, 3, valid).collect::<Vec<_>>(), all);
            (names(page), usize::from(valid))
        };
        assert_eq!(known_names(&page), (vec![1, 200, 4], at));
        page[starts[1] * 64 + 70] ^= 1;
        assert_eq!(known_names(&page), (vec![1], starts[1]));
        page[starts[0] * 64] ^= 1;
        assert_eq!(known_names(&page), (vec![], 1));
    }
}
