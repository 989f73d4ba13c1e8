//! What stands in a spool's file, byte by byte, and how it is read (docs/spool.md has it as tables).
//!
//! All numbers are little-endian. The file begins with a page: the *head*, and two *marks* that say where the ring begins. Behind it is the
//! ring, of records. Positions in the ring count on for ever: a record at `at` stands at `at` modulo the ring's length. So
//! no two records of a spool ever have the same `at`, and what is left of an older one is not taken for a newer.
//!
//! # Invariants
//! * What is read may be anything: a crash has torn it, or somebody else has written it. Whatever this module gives has been checked,
//!   and lies within the ring.
//! * Checksums cover the spool's identity, which is random: what was copied from another spool is none of this one's.
//! * The words that change in a record that is there (`state`, `end`, `end_check`) are not covered; each of them is told by a value that
//!   neither a torn store nor what stood there before looks like.

use crate::target::FileIdentity;

/// Where the ring begins, in bytes.
pub const RING: u64 = 4096;
/// Records begin at multiples of this, and a record's header is as long.
pub const UNIT: u64 = 128;
/// Bytes of a ring, at least and at most.
pub const SIZES: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 32;
/// Bytes of a name, at most.
pub const NAME_MAX: usize = 4096;

/// Where the marks stand.
pub const MARKS: [u64; 2] = [128, 256];
pub const MARK_LENGTH: usize = 32;
pub const HEAD_LENGTH: usize = 64;
pub const HEADER_LENGTH: usize = UNIT as usize;

const MAGIC: &[u8; 8] = b"ARCKSPOL";
/// What stands there while it is made.
pub const MAKING: &[u8; 8] = b"ARCKMAKE";
const VERSION: u32 = 1;

/// Which spool it is.
pub type Identity = [u8; 16];

/// What never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub identity: Identity,
    /// Bytes of the ring.
    pub size: u64,
}

/// Where the ring begins, for whoever reads it after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The later one counts.
    pub turn: u64,
    /// No record that lies before is needed.
    pub tail: u64,
    /// How often the spool was opened.
    pub epoch: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Nothing, up to the ring's end.
    Skip,
    Write,
    Append,
}

/// A record's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub at: u64,
    pub epoch: u64,
    pub kind: Kind,
    pub file: FileIdentity,
    /// Of a write.
    pub position: u64,
    /// Bytes to be written, behind the name. Of [`Kind::Skip`]: bytes that are passed over.
    pub length: u32,
    pub name_length: u32,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

impl Head {
    pub fn encode(&self) -> [u8; HEAD_LENGTH] {
        let mut bytes = [0; HEAD_LENGTH];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 16, &self.size.to_le_bytes());
        put(&mut bytes, 24, &self.identity);
        let sum = crc32c::crc32c(&bytes);
        put(&mut bytes, 12, &sum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; HEAD_LENGTH]) -> Option<Head> {
        let mut summed = *bytes;
        put(&mut summed, 12, &[0; 4]);
        let size = word(bytes, 16)?;
        let is_good = &bytes[..8] == MAGIC
            && half(bytes, 8) == Some(VERSION)
            && half(bytes, 12) == Some(crc32c::crc32c(&summed))
            && SIZES.contains(&size)
            && size.is_multiple_of(UNIT);
        is_good.then_some(Head {
            identity: bytes[24..40].try_into().ok()?,
            size,
        })
    }

    /// Where in the file a place in the ring is.
    pub fn offset(&self, at: u64) -> u64 {
        RING + at % self.size
    }

    /// How many bytes there are from a place to the ring's end.
    pub fn room(&self, at: u64) -> u64 {
        self.size - at % self.size
    }
}

impl Mark {
    pub fn encode(&self, identity: &Identity) -> [u8; MARK_LENGTH] {
        let mut bytes = [0; MARK_LENGTH];
        put(&mut bytes, 0, &self.turn.to_le_bytes());
        put(&mut bytes, 8, &self.tail.to_le_bytes());
        put(&mut bytes, 16, &self.epoch.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(identity), &bytes[..24]);
        put(&mut bytes, 24, &sum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; MARK_LENGTH], identity: &Identity) -> Option<Mark> {
        let mark = Mark {
            turn: word(bytes, 0)?,
            tail: word(bytes, 8)?,
            epoch: word(bytes, 16)?,
        };
        // A place from which nobody could count on is none.
        let numbers = [mark.turn, mark.tail, mark.epoch];
        let is_good = mark.encode(identity) == *bytes
            && numbers.iter().all(|&number| number < 1 << 62)
            && mark.tail.is_multiple_of(UNIT);
        is_good.then_some(mark)
    }
}

/// What a record's `state` is when it is done.
pub fn done(identity: &Identity, at: u64) -> [u8; 8] {
    let mut word = crc32c::crc32c_append(crc32c::crc32c(identity), &at.to_le_bytes()).to_le_bytes();
    // No byte of it is 0, which it was before: so a store of which a part is missing is another value.
    word.iter_mut().for_each(|byte| *byte |= 1);
    let mut bytes = [0; 8];
    put(&mut bytes, 0, &word);
    put(&mut bytes, 4, &word);
    bytes
}

/// What a record's `end` and `end_check` are when an append begins while the file has so many bytes.
pub fn begun(identity: &Identity, at: u64, end: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    put(&mut bytes, 0, &end.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(identity), &at.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &end.to_le_bytes());
    put(&mut bytes, 8, &(u64::from(sum) << 1 | 1).to_le_bytes());
    bytes
}

/// Where the parts of a header are.
pub mod offsets {
    pub const STATE: usize = 0;
    pub const END: usize = 8;
    pub const AT: usize = 24;
    pub const SUM: usize = 32;
    pub const KIND: usize = 36;
    pub const DEVICE: usize = 40;
    pub const INODE: usize = 56;
    pub const POSITION: usize = 64;
    pub const LENGTH: usize = 72;
    pub const NAME_LENGTH: usize = 76;
    pub const EPOCH: usize = 80;
}

impl Record {
    /// Bytes of the ring that it takes.
    pub fn total(&self) -> u64 {
        match self.kind {
            Kind::Skip => u64::from(self.length),
            _ => UNIT + self.payload().next_multiple_of(UNIT),
        }
    }

    /// Bytes behind the header that the checksum covers.
    pub fn payload(&self) -> u64 {
        match self.kind {
            Kind::Skip => 0,
            _ => u64::from(self.length) + u64::from(self.name_length),
        }
    }

    /// Writes it, with its name and data, in place of what stands in `into`.
    pub fn encode(&self, identity: &Identity, (name, data): (&[u8], &[u8]), into: &mut Vec<u8>) {
        use offsets::*;
        into.clear();
        into.resize(HEADER_LENGTH, 0);
        let kind: u32 = match self.kind {
            Kind::Skip => 1,
            Kind::Write => 2,
            Kind::Append => 3,
        };
        put(into, AT, &self.at.to_le_bytes());
        put(into, KIND, &kind.to_le_bytes());
        put(into, DEVICE, &self.file.device.to_le_bytes());
        put(into, INODE, &self.file.inode.to_le_bytes());
        put(into, POSITION, &self.position.to_le_bytes());
        put(into, LENGTH, &self.length.to_le_bytes());
        put(into, NAME_LENGTH, &self.name_length.to_le_bytes());
        put(into, EPOCH, &self.epoch.to_le_bytes());
        into.extend_from_slice(name);
        into.extend_from_slice(data);
        let sum = checksum(identity, into);
        put(into, SUM, &sum.to_le_bytes());
    }

    /// What a header says, if it is one and of this place; whether its checksum is right, [`checksum_is_right`] tells.
    pub fn decode(head: &Head, at: u64, bytes: &[u8]) -> Option<Record> {
        use offsets::*;
        let kind = match half(bytes, KIND)? {
            1 => Kind::Skip,
            2 => Kind::Write,
            3 => Kind::Append,
            _ => return None,
        };
        let record = Record {
            at,
            epoch: word(bytes, EPOCH)?,
            kind,
            file: FileIdentity {
                device: u128::from_le_bytes(bytes.get(DEVICE..INODE)?.try_into().ok()?),
                inode: word(bytes, INODE)?,
            },
            position: word(bytes, POSITION)?,
            length: half(bytes, LENGTH)?,
            name_length: half(bytes, NAME_LENGTH)?,
        };
        let total = record.total();
        // Of what is passed over, no position is looked at.
        let end = match kind {
            Kind::Skip => Some(0),
            _ => record.position.checked_add(u64::from(record.length)),
        };
        let is_good = word(bytes, AT)? == at
            && total <= head.room(at)
            && match kind {
                Kind::Skip => total == head.room(at),
                _ => total <= head.size / 2,
            }
            && total.is_multiple_of(UNIT)
            && total > 0
            && record.name_length as usize <= NAME_MAX
            && end.is_some_and(|end| end <= i64::MAX as u64);
        is_good.then_some(record)
    }
}

/// Of a header and what stands behind it.
fn checksum(identity: &Identity, record: &[u8]) -> u32 {
    use offsets::*;
    let sum = crc32c::crc32c_append(crc32c::crc32c(identity), &record[AT..SUM]);
    crc32c::crc32c_append(sum, &record[KIND..])
}

/// Whether a record, with its header, name and data, is as it was written.
pub fn checksum_is_right(identity: &Identity, record: &[u8]) -> bool {
    record.len() >= HEADER_LENGTH && half(record, offsets::SUM) == Some(checksum(identity, record))
}

/// Whether a header says that its record is done.
pub fn is_done(identity: &Identity, at: u64, header: &[u8]) -> bool {
    header.get(offsets::STATE..offsets::END) == Some(&done(identity, at))
}

/// How many bytes the file had when the append of a header began, if it did.
pub fn has_begun(identity: &Identity, at: u64, header: &[u8]) -> Option<u64> {
    let end = word(header, offsets::END)?;
    let stands = header.get(offsets::END..offsets::AT)?;
    (stands == begun(identity, at, end)).then_some(end)
}
