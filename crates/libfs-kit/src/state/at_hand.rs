//! What each thread keeps at hand, as it stands in the region; see [`crate::views::reuse`].

use super::inodes::CachedInode;
use crate::region::{AtomicOffset, Offset, Region, THREAD_SLOTS, ThreadSlot};
use crate::region_shared;
use rustix::io::Errno;
use std::sync::atomic::AtomicU32;

/// Inode numbers kept by a thread.
pub(crate) const NUMBERS: usize = 54;

region_shared! {
    /// Inodes that died uncommitted, oldest first, linked by `reuse_next`, not yet handed on to the
    /// session's queue. Changed by its thread alone.
    pub struct Dead {
        pub(crate) first: AtomicOffset<CachedInode>,
        pub(crate) last: AtomicOffset<CachedInode>,
        pub(crate) count: AtomicU32,
        pub(crate) reserved: AtomicU32,
    }

    /// Four cache lines of a thread. (Processors fetch lines in pairs.)
    pub struct ThreadNumbers {
        pub(crate) count: AtomicU32,
        /// Place in the open table plus one; 0 = none known.
        pub(crate) place: AtomicU32,
        pub(crate) numbers: [AtomicU32; NUMBERS],
        pub(crate) dead: Dead,
        pub(crate) apart: [AtomicU32; 2],
    }
}

const _: () = assert!(size_of::<ThreadNumbers>() == 256);

impl ThreadNumbers {
    /// Room for all threads' in a new region. ENOMEM.
    pub fn create(region: &Region, slot: &ThreadSlot<'_>) -> Result<Offset<ThreadNumbers>, Errno> {
        // More than a page, and so at the beginning of one.
        region
            .allocate_zeroed::<ThreadNumbers>(slot, THREAD_SLOTS)
            .map_err(|_| Errno::NOMEM)
    }
}
