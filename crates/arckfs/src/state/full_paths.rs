//! What FPFS remembers of full paths, in the region; [`paths`](crate::names::paths::table) says how it is used.

use super::levels::{Identity, StoredLevel};
use arck_libfs_kit::region::{Offset, Region, ThreadSlot};
use arck_libfs_kit::region_shared;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Words of eight bytes for a path; it is shorter than that.
pub const WORDS: usize = 32;
/// Directories on the way to one, the start included and the one itself not.
pub const LEVELS: usize = 23;
/// Entries; a power of two. Pages of the region are taken by those that are used.
pub const ENTRIES: usize = 1 << 14;

region_shared! {
    /// One directory's path. In its first line stands all but the path and the levels.
    pub struct FullPath {
        pub sequence: AtomicU64,
        pub hash: AtomicU64,
        /// Bytes of the path; 0 = free.
        pub length: AtomicU32,
        /// Levels in use.
        pub depth: AtomicU32,
        /// [`paths`](crate::state::AuxiliaryState::paths) before the walk.
        pub version: AtomicU64,
        /// The change clock when the headers were found as they are noted here.
        pub clock: AtomicU64,
        /// Where the path begins, and where it leads.
        pub start: Identity,
        pub end: Identity,
        line: AtomicU64,
        pub words: [AtomicU64; WORDS],
        pub levels: [StoredLevel; LEVELS],
        rest: [AtomicU64; 4],
    }
}

const _: () = assert!(size_of::<FullPath>().is_multiple_of(64));

impl FullPath {
    /// Room for a table in a new region. ENOMEM.
    pub fn create(region: &Region, slot: &ThreadSlot<'_>) -> Result<Offset<FullPath>, Errno> {
        region
            .allocate_zeroed::<FullPath>(slot, ENTRIES)
            .map_err(|_| Errno::NOMEM)
    }
}
