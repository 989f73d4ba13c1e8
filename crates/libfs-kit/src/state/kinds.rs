//! What the views of directories have, and those of what is none; see [`crate::views::kinds`].

use super::overlay::OverlayEntry;
use crate::region::AtomicOffset;
use crate::region_shared;
use arck_core_state::branch::TAILS;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

region_shared! {
    /// What a directory's view has besides.
    pub struct DirectoryPart {
        /// [`OVERLAID`] once its overlay has had an entry since it was last discarded; above that, how often it has
        /// been sealed.
        pub(crate) overlaid: AtomicU32,
        /// In the list of directories with a delta: the number of the next, or
        /// [`LAST`](super::inodes::LAST); 0 if it is in none.
        pub changed_next: AtomicU32,
    }

    /// What a sealed delta has left in its directory's view: of each shard, and of the one that it had before it
    /// was striped.
    pub struct SealedPart {
        /// Its fold number.
        pub fold: AtomicU64,
        pub tails: [AtomicU32; TAILS + 1],
        /// Names more than the verified directory has; fewer wrap.
        pub names: AtomicU32,
        /// Links more, likewise.
        pub links: AtomicU32,
        pub reserved: AtomicU32,
        pub overlays: [AtomicOffset<OverlayEntry>; TAILS + 1],
    }

    /// What a view of what is no directory has besides.
    pub struct FilePart {
        /// Data pages, the delta's included.
        pub pages: AtomicU64,
        /// Root of the delta's index. Protected by the inode's lock, as is `limit`.
        pub root: AtomicU64,
        /// Verified pages from here on are dropped. Of a directory, which has none: see
        /// [`above`](crate::views::above).
        pub limit: AtomicU64,
    }
}

impl DirectoryPart {
    pub(crate) fn new() -> DirectoryPart {
        let half = || AtomicU32::new(0);
        DirectoryPart {
            overlaid: half(),
            changed_next: half(),
        }
    }

    /// As in a new one, but for the list in which the view may be.
    pub(super) fn begin_again(&self) {
        self.nothing_overlaid();
    }

    /// Whether its overlay may have an entry.
    #[inline]
    pub fn is_overlaid(&self) -> bool {
        self.overlaid.load(Ordering::Acquire) & OVERLAID != 0
    }

    /// How often it has been sealed: so entries of the overlay know to which delta they belong.
    #[inline]
    pub fn seals(&self) -> u32 {
        self.overlaid.load(Ordering::Acquire) >> 1
    }

    /// Its overlay has an entry. Under the lock of a name.
    pub(crate) fn is_overlaid_now(&self) {
        if self.overlaid.load(Ordering::Relaxed) & OVERLAID == 0 {
            self.overlaid.fetch_or(OVERLAID, Ordering::Release);
        }
    }

    /// Its overlay has no entry. Under the whole inode's lock.
    pub(crate) fn nothing_overlaid(&self) {
        // As a rule it has none, and needs no locked instruction.
        if self.is_overlaid() {
            self.overlaid.fetch_and(!OVERLAID, Ordering::Release);
        }
    }

    /// It has been sealed once more. Under the whole inode's lock.
    pub(crate) fn is_sealed_again(&self) {
        self.overlaid.fetch_add(OVERLAID << 1, Ordering::Release);
    }
}

/// In [`DirectoryPart::overlaid`].
const OVERLAID: u32 = 1;

impl FilePart {
    pub(crate) fn new() -> FilePart {
        FilePart {
            pages: AtomicU64::new(0),
            root: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
        }
    }

    pub(super) fn begin_again(&self) {
        self.pages.store(0, Ordering::Relaxed);
        self.root.store(0, Ordering::Relaxed);
        self.limit.store(u64::MAX, Ordering::Relaxed);
    }

    /// It has so many pages more. Under the lock of the whole inode, so that no locked instruction is needed.
    #[inline]
    pub fn has_more_pages(&self, more: u64) {
        let pages = self.pages.load(Ordering::Relaxed);
        self.pages.store(pages + more, Ordering::Relaxed);
    }

    /// No delta says anything of its bytes.
    pub(crate) fn is_as_verified(&self) -> bool {
        self.root.load(Ordering::Relaxed) == 0 && self.limit.load(Ordering::Relaxed) == u64::MAX
    }

    /// The delta is over.
    pub(crate) fn forget_delta(&self) {
        self.root.store(0, Ordering::Release);
        self.limit.store(u64::MAX, Ordering::Release);
    }
}
