//! The formats that are private to the controller: segment table, read classes and session table.
//!
//! # Invariants
//! * The segment table changes through the journal only.
//! * A session entry counts only if its number is not 0; the number is stored last, and taken away
//!   first. All of it is durable before the session owns anything.

use arck_core_state::{PAGE_SIZE, SegmentNumber};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a segment is used for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum SegmentKind {
    /// Nobody's; its file need not exist.
    Free = 0,
    /// Directories, inodes and index pages of one read class.
    Metadata = 1,
    /// File contents of one read class and one owner session.
    Data = 2,
}

/// An entry of the segment table.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SegmentEntry {
    /// [`SegmentKind`].
    pub kind: u32,
    /// Read class ([`crate::classes`]); 0 = nobody but root and the pool's user.
    pub class: u32,
    /// Session that may write it; 0 = nobody (any more).
    pub owner: u32,
    /// User of the last owner: a segment with pages in use goes to nobody else.
    /// [`CONTROLLER`]: data that the controller moved to a class.
    pub uid: u32,
    /// [`FOREIGN`], [`STALE`].
    pub flags: u32,
    pub reserved: [u32; 3],
}

/// The user of data segments that no session writes; nobody's number.
pub const CONTROLLER: u32 = u32::MAX;
/// The user of data segments that were those of a class, and are now nobody's: nothing is put there.
pub const HIDDEN: u32 = u32::MAX - 1;
/// Flag of a data segment: it has had pages of files of other users than `uid`, and so goes to no
/// other session while it has pages in use.
pub const FOREIGN: u32 = 1;

/// Flag of a free segment: its file was used, and somebody may have kept a mapping of it.
pub const STALE: u32 = 2;

/// Bytes of a segment entry.
pub const SEGMENT_ENTRY_SIZE: u64 = 32;
const _: () = assert!(size_of::<SegmentEntry>() as u64 == SEGMENT_ENTRY_SIZE);

impl SegmentEntry {
    pub fn kind(&self) -> SegmentKind {
        match self.kind {
            1 => SegmentKind::Metadata,
            2 => SegmentKind::Data,
            _ => SegmentKind::Free,
        }
    }
}

/// Bytes of the segment table of so many segments.
pub fn segment_table_size(segments: SegmentNumber) -> u64 {
    (u64::from(segments) * SEGMENT_ENTRY_SIZE).next_multiple_of(PAGE_SIZE)
}

/// Words of the conditions of a class.
pub const CLASS_WORDS: usize = 60;

/// A read class ([`crate::classes`]): record *n* - 1 of the file is class *n*.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StoredClass {
    /// CRC32C of the rest of the record.
    pub checksum: u32,
    pub number: u32,
    /// Conditions that count.
    pub count: u32,
    pub reserved: u32,
    /// Of each condition: user, group, who passes.
    pub conditions: [u32; CLASS_WORDS],
}
const _: () = assert!(size_of::<StoredClass>() == 256);

/// Sessions at once.
pub const SESSIONS_MAX: usize = 4096;
/// And in a pool that an earlier release made: its table is made longer when it is opened.
pub const SESSIONS_EARLIER: usize = 1024;
/// Supplementary groups that are remembered for recovery.
pub const GROUPS_MAX: usize = 48;

/// An entry of the session table: what recovery has to know of a session that died.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SessionEntry {
    /// 0 = no session.
    pub session: u32,
    pub group_count: u32,
    pub uid: u32,
    pub gid: u32,
    /// Pages of the arena's two parts that are allocated, changed by one 8-byte store.
    pub branch_pages: u32,
    pub delta_pages: u32,
    /// By which the session proves itself to a controller that is started while it is there.
    pub secret: [u64; 2],
    /// Its room ([`crate::room`]), for such a controller; changed by one store, without a flush:
    /// after a failure of the machine no session is there.
    pub room: u64,
    /// The last request of it that was done and must not be done twice, in the same way; but this
    /// goes through the journal.
    pub done: u64,
    /// Fold numbers up to this one may have receipts that are lost.
    pub receipts_lost: u64,
    pub groups: [u32; GROUPS_MAX],
}

/// Bytes of a session entry.
pub const SESSION_ENTRY_SIZE: usize = 256;
const _: () = assert!(size_of::<SessionEntry>() == SESSION_ENTRY_SIZE);
/// Byte offset of the word with the two page counts.
pub const SESSION_PAGES_OFFSET: usize = 16;
/// Of the word with the room.
pub const SESSION_ROOM_OFFSET: usize = 40;
/// Of the word with the last request that was done.
pub const SESSION_DONE_OFFSET: usize = 48;
/// Of the word with the receipts that are lost.
pub const SESSION_LOST_OFFSET: usize = 56;
const _: () = {
    assert!(std::mem::offset_of!(SessionEntry, branch_pages) == SESSION_PAGES_OFFSET);
    assert!(std::mem::offset_of!(SessionEntry, room) == SESSION_ROOM_OFFSET);
    assert!(std::mem::offset_of!(SessionEntry, done) == SESSION_DONE_OFFSET);
    assert!(std::mem::offset_of!(SessionEntry, receipts_lost) == SESSION_LOST_OFFSET);
};
/// The table begins with a page that holds the next session number (8 bytes).
pub const SESSION_TABLE_FIRST: usize = PAGE_SIZE as usize;
/// Bytes of the session table.
pub const SESSION_TABLE_SIZE: u64 =
    (SESSION_TABLE_FIRST + SESSIONS_MAX * SESSION_ENTRY_SIZE) as u64;
/// Of a pool that an earlier release made.
pub const SESSION_TABLE_MIN: u64 =
    (SESSION_TABLE_FIRST + SESSIONS_EARLIER * SESSION_ENTRY_SIZE) as u64;
