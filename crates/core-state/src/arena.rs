//! Arenas: one file per session, written by the session, read by the controller by guarded
//! copies.
//!
//! ```text
//! page 0                header
//! page 1 ..             branch table, 32 slots a page, up to BRANCH_PAGES pages
//! page DELTA_FIRST ..   delta pages: directory records and index pages
//! ```
//! The file is sparse; its two parts are allocated in steps, on request.

use crate::branch::BRANCH_SIZE;
use crate::cast;
use crate::geometry::PAGE_BYTES;
use crate::geometry::PAGE_SIZE;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// "ARCKARNA".
pub const MAGIC: u64 = u64::from_le_bytes(*b"ARCKARNA");
/// Pages reserved for the branch table.
pub const BRANCH_PAGES: u32 = 16 * 1024;
/// Branches in a page.
pub const BRANCHES_PER_PAGE: u32 = cast::count(PAGE_BYTES / BRANCH_SIZE);
/// Slots at most.
pub const BRANCH_SLOTS: u32 = BRANCH_PAGES * BRANCHES_PER_PAGE;
/// First delta page.
pub const DELTA_FIRST: u32 = 1 + BRANCH_PAGES;
/// Bytes of address space for an arena: the greatest size it can reach.
pub const ARENA_SPAN: u64 = 1 << 30;
/// Pages at most.
pub const ARENA_PAGES: u32 = cast::low(ARENA_SPAN / PAGE_SIZE);

/// Page 0, written by the controller when it makes the arena (and not trusted afterwards).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ArenaHeader {
    pub magic: u64,
    pub session: u32,
    pub reserved: u32,
}
const _: () = assert!(size_of::<ArenaHeader>() == 16);

/// Byte offset of a branch slot in the arena; `None` beyond the table.
pub fn branch_offset(slot: u32) -> Option<u64> {
    (slot < BRANCH_SLOTS).then(|| PAGE_SIZE + u64::from(slot) * BRANCH_SIZE as u64)
}

/// Whether a page number may be a delta page.
pub fn is_delta_page(page: u32) -> bool {
    (DELTA_FIRST..ARENA_PAGES).contains(&page)
}
