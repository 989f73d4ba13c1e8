//! Whether a session's maps show what has become of their files.
//!
//! Invariant: each session of a process has its own. What one has caught up with says nothing of another's maps, nor does
//! its group count as another group does.

use super::table::any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a session has brought up to date of its maps in this process, and what it has not.
#[derive(Default)]
pub struct UpToDate {
    /// The value of the group's `maps_moved` at which all maps were right.
    seen: AtomicU64,
    /// See [`take_lacking`](UpToDate::take_lacking).
    lacks_pages: AtomicBool,
}

impl UpToDate {
    /// Whether there are maps that others of the group may have made wrong since they were right last;
    /// then they are to be brought up to date, from now on with what is changed after `moved`.
    #[inline]
    pub fn take_moved(&self, moved: u64) -> bool {
        any() && self.seen.swap(moved, Ordering::AcqRel) != moved
    }

    /// Whether maps lack pages that another session's writing has brought, since this was asked last: the controller
    /// is to be asked for them.
    #[cold]
    pub fn take_lacking(&self) -> bool {
        self.lacks_pages.swap(false, Ordering::AcqRel)
    }

    /// Whether [`take_lacking`](UpToDate::take_lacking) would say so.
    #[inline(always)]
    pub fn are_lacking(&self) -> bool {
        self.lacks_pages.load(Ordering::Relaxed)
    }

    /// For [`take_lacking`](UpToDate::take_lacking).
    pub fn lacks_pages(&self) {
        self.lacks_pages.store(true, Ordering::Release);
    }
}
