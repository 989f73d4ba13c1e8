//! The segment table: what each segment is used for, who may be sent it, and who may write it.
//!
//! # Invariant
//! The table changes through the [journal](crate::journal) only.

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

impl SegmentKind {
    /// The flags that a segment of this kind can have.
    pub fn flags(self) -> u32 {
        match self {
            SegmentKind::Free => STALE | UNSHARED,
            SegmentKind::Metadata => 0,
            SegmentKind::Data => FOREIGN | TOGETHER,
        }
    }
}

/// An entry of the segment table.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SegmentEntry {
    /// [`SegmentKind`].
    pub kind: u32,
    /// Number of a [read class](crate::classes); 0 = nobody but root and the pool's user.
    pub class: u32,
    /// Session that may write it; 0 = nobody (any more).
    pub owner: u32,
    /// User of the last owner: a segment with pages in use goes to nobody else.
    /// [`CONTROLLER`]: data that the controller moved to a class.
    pub uid: u32,
    /// [`FOREIGN`], [`STALE`], [`UNSHARED`], [`TOGETHER`].
    pub flags: u32,
    /// With [`TOGETHER`]: the file that has all pages of the segment, and its generation; sessions that may write it are
    /// sent the segment to write. 0: no more are, and nothing is put there.
    pub file: u32,
    pub generation: u32,
    pub reserved: u32,
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
/// Flag of a free segment that is [`STALE`]: nobody but root and the pool's user was sent its file. Sessions may
/// look at it still, so the file stays, and is emptied.
pub const UNSHARED: u32 = 4;

/// Flag of a data segment: several sessions may have been sent it to write, at the same time, since they have maps of the
/// one file whose pages it has.
pub const TOGETHER: u32 = 8;

/// Bytes of a segment entry.
pub const SEGMENT_ENTRY_SIZE: usize = 32;
const _: () = assert!(size_of::<SegmentEntry>() == SEGMENT_ENTRY_SIZE);

impl SegmentEntry {
    /// An unknown kind counts as free.
    pub fn kind(&self) -> SegmentKind {
        match self.kind {
            1 => SegmentKind::Metadata,
            2 => SegmentKind::Data,
            _ => SegmentKind::Free,
        }
    }
}

/// Byte offset of a segment's entry in the table.
pub fn entry_offset(segment: SegmentNumber) -> u64 {
    u64::from(segment) * SEGMENT_ENTRY_SIZE as u64
}

/// Bytes of the segment table of so many segments.
pub fn table_size(segments: SegmentNumber) -> u64 {
    entry_offset(segments).next_multiple_of(PAGE_SIZE)
}
