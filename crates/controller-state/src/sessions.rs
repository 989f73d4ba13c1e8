//! The session table: what a controller that is started has to know of the sessions that were there.
//!
//! # Invariants
//! * A session entry counts only if its number is not 0; the number is stored last, and taken away
//!   first. All of it is durable before the session owns anything.
//! * The table begins with a page that holds the next session number (8 bytes).

use arck_core_state::PAGE_BYTES;
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Sessions at once.
pub const SESSIONS_MAX: usize = 4096;
/// And in a pool that an earlier release made: its table is made longer when it is opened.
const SESSIONS_EARLIER: usize = 1024;
/// Supplementary groups that are remembered for recovery.
pub const GROUPS_MAX: usize = 48;

/// An entry of the session table.
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
    /// Delta pages that it may fill with what adds to the verified state, for such a controller;
    /// changed by one store, without a flush: after a failure of the machine no session is there.
    pub credits: u64,
    /// The last request of it that was done and must not be done twice, in the same way; but this
    /// goes through the journal.
    pub done: u64,
    /// Fold numbers up to this one may have fold copies that are lost.
    pub fold_copies_lost: u64,
    pub groups: [u32; GROUPS_MAX],
}

/// Bytes of a session entry.
pub const SESSION_ENTRY_SIZE: usize = 256;
const _: () = assert!(size_of::<SessionEntry>() == SESSION_ENTRY_SIZE);
/// Byte offset of the word with the two page counts in an entry.
pub const PAGES_OFFSET: usize = offset_of!(SessionEntry, branch_pages);
/// Of the word with the credits.
pub const CREDITS_OFFSET: usize = offset_of!(SessionEntry, credits);
/// Of the word with the last request that was done.
pub const DONE_OFFSET: usize = offset_of!(SessionEntry, done);
/// Of the word with the fold copies that are lost.
pub const LOST_OFFSET: usize = offset_of!(SessionEntry, fold_copies_lost);
const _: () = assert!(
    PAGES_OFFSET.is_multiple_of(8)
        && CREDITS_OFFSET.is_multiple_of(8)
        && DONE_OFFSET.is_multiple_of(8)
        && LOST_OFFSET.is_multiple_of(8)
);

/// Byte offset of entry 0.
pub const TABLE_FIRST: usize = PAGE_BYTES;
/// Bytes of the session table.
pub const TABLE_SIZE: u64 = entry_offset(SESSIONS_MAX) as u64;
/// Of a pool that an earlier release made.
pub const TABLE_MIN: u64 = entry_offset(SESSIONS_EARLIER) as u64;

/// Byte offset of an entry in the table.
pub const fn entry_offset(index: usize) -> usize {
    TABLE_FIRST + index * SESSION_ENTRY_SIZE
}

impl SessionEntry {
    /// What stands in the bytes of an entry, if it counts.
    pub fn decode(bytes: [u8; SESSION_ENTRY_SIZE]) -> Option<SessionEntry> {
        let entry: SessionEntry = zerocopy::transmute!(bytes);
        (entry.session != 0).then_some(entry)
    }
}
