//! The private tables of the controller, read as `docs/format.md` says: segment table, session
//! table.
//!
//! Invariant: what is read is a copy; no number of it is used before it is checked.

use arck_core_state::PAGE_SIZE;
use arck_core_state::geometry::SessionNumber;

/// What a segment is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentKind {
    Free,
    Metadata,
    Data,
}

impl SegmentKind {
    /// The flags that a segment of this kind can have.
    pub fn flags(self) -> u32 {
        match self {
            SegmentKind::Free => USED,
            SegmentKind::Metadata => 0,
            SegmentKind::Data => 1,
        }
    }
}

/// Flag of a free segment: its file was used, and goes to nobody.
pub(crate) const USED: u32 = 2;

/// User of data segments that the controller fills, and of metadata of a class.
pub(crate) const CONTROLLER: u32 = u32::MAX;
/// User of such segments of data that are hidden.
pub(crate) const HIDDEN: u32 = u32::MAX - 1;

/// Bytes of an entry of the segment table.
pub(crate) const SEGMENT_ENTRY: usize = 32;

/// An entry of the segment table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SegmentEntry {
    pub kind: u32,
    pub class: u32,
    pub owner: u32,
    pub uid: u32,
    pub flags: u32,
}

/// The little-endian word of 4 bytes at `at`; 0 beyond the end.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes
        .get(at..at + 4)
        .and_then(|b| <[u8; 4]>::try_from(b).ok());
    word.map_or(0, u32::from_le_bytes)
}

impl SegmentEntry {
    pub fn decode(bytes: &[u8]) -> SegmentEntry {
        SegmentEntry {
            kind: word(bytes, 0),
            class: word(bytes, 4),
            owner: word(bytes, 8),
            uid: word(bytes, 12),
            flags: word(bytes, 16),
        }
    }

    /// An unknown kind counts as free, as for the controller.
    pub fn kind(&self) -> SegmentKind {
        match self.kind {
            1 => SegmentKind::Metadata,
            2 => SegmentKind::Data,
            _ => SegmentKind::Free,
        }
    }
}

/// Entries of the session table; of one that was made by an earlier release, and has not been served since.
pub(crate) const SESSIONS: usize = 4096;
const SESSIONS_EARLIER: usize = 1024;
/// Bytes of an entry of the session table.
pub(crate) const SESSION_ENTRY: usize = 256;
/// Byte offset of entry 0.
pub(crate) const SESSION_FIRST: usize = PAGE_SIZE as usize;
/// Bytes of the session table, and the least that it has.
pub(crate) const SESSION_TABLE: usize = SESSION_FIRST + SESSIONS * SESSION_ENTRY;
pub(crate) const SESSION_TABLE_MIN: usize = SESSION_FIRST + SESSIONS_EARLIER * SESSION_ENTRY;
/// Supplementary groups that an entry has room for.
pub(crate) const GROUPS: u32 = 48;

/// An entry of the session table that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SessionEntry {
    pub session: SessionNumber,
    pub groups: u32,
    pub branch_pages: u32,
    pub delta_pages: u32,
    /// Byte offset in the table.
    pub at: usize,
}

/// The entries that count.
pub(crate) fn sessions(table: &[u8]) -> Vec<SessionEntry> {
    let entry = |index: usize| {
        let at = SESSION_FIRST + index * SESSION_ENTRY;
        SessionEntry {
            session: word(table, at),
            groups: word(table, at + 4),
            branch_pages: word(table, at + 16),
            delta_pages: word(table, at + 20),
            at,
        }
    };
    let count = table.len().saturating_sub(SESSION_FIRST) / SESSION_ENTRY;
    let entries = (0..count.min(SESSIONS)).map(entry);
    entries.filter(|entry| entry.session != 0).collect()
}
