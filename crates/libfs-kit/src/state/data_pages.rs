//! Data segments of the session, as they stand in the region; see [`crate::data_pages`].

use crate::region::{AtomicOffset, Lock};
use crate::region_shared;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Words of bits for the largest segment (16 MiB, 4096 pages).
pub(crate) const WORDS: usize = 64;
/// Segments that members have mapped last, of which a process asks for all with the first.
pub(crate) const RECENT: usize = 4;
/// Segments in a leaf of the table.
pub(crate) const LEAF: usize = 512;

region_shared! {
    /// A data segment of this session.
    pub struct OwnSegment {
        pub(crate) number: AtomicU32,
        /// Word at which the next search begins.
        pub(crate) hint: AtomicU32,
        /// Next in the list of own segments.
        pub(crate) next: AtomicOffset<OwnSegment>,
        /// 1 once it was given back: it stays in the list, for when it is granted again.
        pub(crate) is_withdrawn: AtomicU64,
        /// The count of withdrawals at the last one of this segment; 0 before the first.
        pub(crate) withdrawn_at: AtomicU64,
        pub(crate) taken: [AtomicU64; WORDS],
    }

    /// In the auxiliary state.
    pub struct DataPages {
        pub(crate) lock: Lock,
        pub(crate) segments: AtomicU32,
        /// Pages that files have lost since somebody last looked whether segments can be given back.
        pub(crate) dropped: AtomicU64,
        /// How often segments were given back.
        pub(crate) withdrawals: AtomicU64,
        /// Segments that members have mapped last to read, and which was noted last: see
        /// [`DataPages::recent`].
        pub(crate) recent: [AtomicU32; RECENT],
        pub(crate) noted: AtomicU64,
        /// All own segments.
        pub(crate) first: AtomicOffset<OwnSegment>,
        /// The one in which a page was found last.
        pub(crate) current: AtomicOffset<OwnSegment>,
        /// Own segments by number: a leaf for each [`LEAF`] of the pool's.
        pub(crate) table: AtomicOffset<AtomicOffset<SegmentLeaf>>,
    }

    /// See [`DataPages`].
    pub struct SegmentLeaf {
        pub(crate) segments: [AtomicOffset<OwnSegment>; LEAF],
    }
}
