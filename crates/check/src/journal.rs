//! The redo journal, read as `docs/format.md` says.
//!
//! Invariant: an entry is decoded from a private copy, and only if its checksum holds; where it
//! leads is for who applies it to check.

/// Bytes of the entry's header.
pub(crate) const ENTRY_HEADER: usize = 64;
/// Bytes of a record's header.
pub(crate) const RECORD_HEADER: usize = 16;
pub(crate) const MAGIC: &[u8; 8] = b"ARCKREDO";

/// What a record changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Headers,
    Bitmap,
    Segments,
    Pages,
    Sessions,
    /// Numbers of inodes; nothing is stored.
    Sequences,
}

/// "These bytes go there."
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record<'a> {
    pub target: Target,
    /// Byte offset in the file, or byte address in the pool.
    pub offset: u64,
    pub bytes: &'a [u8],
    /// Byte offset of the record in the journal.
    pub at: usize,
}

/// What stands in a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Journal<'a> {
    /// No entry, or one that was not written whole: it does not count.
    Empty,
    /// An entry that counts.
    Entry(Vec<Record<'a>>),
    /// Its checksum holds, but a record (byte offset) is none.
    Senseless(usize),
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Bytes of the records of the entry that begins a journal; `None` if none begins there.
pub(crate) fn length(header: &[u8]) -> Option<u64> {
    (header.get(..8)? == MAGIC).then_some(())?;
    long(header, 16)
}

/// The checksum of an entry.
pub(crate) fn checksum(sequence: u64, records: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&sequence.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &(records.len() as u64).to_le_bytes());
    crc32c::crc32c_append(sum, records)
}

/// Decodes a journal's bytes, or its beginning with all of the entry.
pub(crate) fn decode(bytes: &[u8]) -> Journal<'_> {
    let entry = || {
        let length = usize::try_from(length(bytes)?).ok()?;
        let records = bytes.get(ENTRY_HEADER..ENTRY_HEADER.checked_add(length)?)?;
        let sum = crate::tables::word(bytes, 24);
        (sum == checksum(long(bytes, 8)?, records)).then_some(records)
    };
    let Some(records) = entry() else {
        return Journal::Empty;
    };
    let mut found = Vec::new();
    let mut at = 0;
    while at < records.len() {
        let record = || {
            let target = match crate::tables::word(records, at) {
                0 => Target::Headers,
                1 => Target::Bitmap,
                2 => Target::Segments,
                3 => Target::Pages,
                4 => Target::Sessions,
                5 => Target::Sequences,
                _ => return None,
            };
            let length = crate::tables::word(records, at + 4) as usize;
            let from = at + RECORD_HEADER;
            let record = Record {
                target,
                offset: long(records, at + 8)?,
                bytes: records.get(from..from + length)?,
                at: ENTRY_HEADER + at,
            };
            Some((record, from + length.next_multiple_of(8)))
        };
        let Some((record, next)) = record() else {
            return Journal::Senseless(ENTRY_HEADER + at);
        };
        found.push(record);
        at = next;
    }
    Journal::Entry(found)
}
