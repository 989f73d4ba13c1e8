//! What the views of directories have, and those of what is none; see [`crate::views::kinds`].

use crate::region_shared;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

region_shared! {
    /// What a directory's view has besides.
    pub struct DirectoryPart {
        /// Names in the verified state.
        pub base_entries: AtomicU32,
        /// 1 once its overlay has had an entry since it was last discarded.
        pub overlaid: AtomicU32,
        /// In the list of directories with a delta: the number of the next, or
        /// [`LAST`](super::inodes::LAST); 0 if it is in none.
        pub changed_next: AtomicU32,
    }

    /// What a view of what is no directory has besides.
    pub struct FilePart {
        /// Data pages, the delta's included.
        pub pages: AtomicU64,
        /// Root of the delta's index. Protected by the inode's lock, as is `limit`.
        pub root: AtomicU64,
        /// Verified pages from here on are dropped.
        pub limit: AtomicU64,
    }
}

impl DirectoryPart {
    pub(crate) fn new() -> DirectoryPart {
        let half = || AtomicU32::new(0);
        DirectoryPart {
            base_entries: half(),
            overlaid: half(),
            changed_next: half(),
        }
    }

    /// As in a new one, but for the list in which the view may be.
    pub(super) fn begin_again(&self) {
        self.base_entries.store(0, Ordering::Relaxed);
        self.overlaid.store(0, Ordering::Relaxed);
    }
}

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
