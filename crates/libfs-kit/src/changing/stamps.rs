//! Stamping inodes with their times.
//!
//! # Invariants
//! * What a view says of modification and change is durable: it is set behind the fence of the
//!   operation that stamped the branch, or of the record that changed the inode's names. The clock is
//!   coarse (some milliseconds, as the kernel's own file systems have it), so most operations find
//!   their stamp there and store none.

use super::Changing;
use crate::delta::{Branch, InBranch, Line0};
use crate::need::Attempt;
use crate::views::CachedInode;
use crate::views::times::now;
use arck_pm::order;
use arck_pm::{Durable, Flushed};
use std::sync::atomic::Ordering;

impl Changing<'_> {
    /// Puts a file's or directory's times of modification and change into its branch, not flushed
    /// yet. False if they say so already, and durably. Inside an operation, under the lock of the
    /// whole inode.
    #[inline(always)]
    pub fn put_times(&self, inode: &CachedInode, line: &Line0<'_>, time: i64) -> Attempt<bool> {
        if inode.is_stamped(time) {
            return Ok(false);
        }
        line.put_modified(time)?;
        line.put_changed(time)?;
        Ok(true)
    }

    /// Stamps a branch as [`Changing::put_times`]. Both times are of one operation: where several
    /// threads may stamp an inode, one does at a time, and durably at once.
    #[inline(always)]
    pub fn stamp(
        &self,
        inode: &'static CachedInode,
        branch: &Branch<'_>,
        time: i64,
    ) -> Attempt<Stamp> {
        if inode.is_stamped(time) {
            return Ok(Stamp { stored: None, time });
        }
        if let Some(_alone) = self.lock_branch(inode) {
            return self.stamp_alone(inode, branch);
        }
        let line = branch.line_0();
        self.put_times(inode, &line, time)?;
        let stored = Some(line.flush()?);
        Ok(Stamp { stored, time })
    }

    #[cold]
    fn stamp_alone(&self, inode: &CachedInode, branch: &Branch<'_>) -> Attempt<Stamp> {
        // Who had to wait must not set the times back.
        let time = now();
        let line = branch.line_0();
        if self.put_times(inode, &line, time)? {
            inode.stamped(time, Some(order::fence(line.flush()?)));
        }
        Ok(Stamp { stored: None, time })
    }
}

/// What a stamp leaves to be done.
pub struct Stamp {
    /// To be fenced, for [`CachedInode::stamped`]; nothing if the view says so already.
    pub stored: Option<Flushed<InBranch>>,
    pub time: i64,
}

impl CachedInode {
    /// Whether its branch, or what is verified where that says nothing, has this for both times.
    #[inline(always)]
    fn is_stamped(&self, time: i64) -> bool {
        let time = time as u64;
        self.modified.load(Ordering::Acquire) == time
            && self.changed.load(Ordering::Acquire) == time
    }

    /// Its branch says these times, durably.
    pub fn has_times(&self, modified: Option<i64>, changed: i64, _durable: &Durable<InBranch>) {
        if let Some(time) = modified {
            self.modified.store(time as u64, Ordering::Relaxed);
        }
        self.changed.store(changed as u64, Ordering::Relaxed);
    }

    /// Its branch has been stamped with `time`, if there is a proof of that. Stores only what is new: other
    /// threads read it.
    #[inline(always)]
    pub fn stamped(&self, time: i64, durable: Option<Durable<InBranch>>) {
        if durable.is_none() {
            return;
        }
        for field in [&self.modified, &self.changed] {
            if field.load(Ordering::Relaxed) != time as u64 {
                field.store(time as u64, Ordering::Release);
            }
        }
    }
}
