//! The clock that stamps files, and stamping them.
//!
//! # Invariants
//! * What a view says of modification and change is durable: it is set behind the fence of the
//!   operation that stamped the branch, or of the record that changed the inode's names. The clock is
//!   coarse (some milliseconds, as the kernel's own file systems have it), so most operations find
//!   their stamp there and store none.

use crate::delta::Branch;
use crate::engine::{Attempt, Context};
use crate::views::CachedInode;
use arck_core_state::branch::offset;
use arck_pm::Flushed;
use arck_pm::order;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::Ordering;

/// Nanoseconds since the epoch, from the coarse clock that the kernel stamps files with; read
/// through the vDSO, without a system call.
pub fn now() -> i64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    time.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec)
}

impl Context<'_> {
    /// Puts a file's or directory's times of modification and change into its branch, not flushed
    /// yet. False if they say so already, and durably. Inside an operation, under the lock of the
    /// whole inode.
    #[inline(always)]
    pub fn put_times(&self, inode: &CachedInode, branch: &Branch<'_>, time: i64) -> Attempt<bool> {
        if inode.is_stamped(time) {
            return Ok(false);
        }
        let _ = branch.put(offset::MODIFIED, time as u64)?;
        let _ = branch.put(offset::CHANGED, time as u64)?;
        Ok(true)
    }

    /// Stamps a branch as [`Context::put_times`]. Both times are of one operation: where several
    /// threads may stamp an inode, one does at a time, and durably at once.
    #[inline(always)]
    pub fn stamp(
        &self,
        inode: &'static CachedInode,
        branch: &Branch<'_>,
        time: i64,
    ) -> Attempt<Stamp> {
        if inode.is_stamped(time) {
            return Ok(Stamp::default());
        }
        if let Some(_alone) = self.lock_branch(inode) {
            return self.stamp_alone(inode, branch);
        }
        self.put_times(inode, branch, time)?;
        Ok(Stamp {
            stored: Some(branch.flush_line_0()?),
            time: Some(time),
        })
    }

    #[cold]
    fn stamp_alone(&self, inode: &CachedInode, branch: &Branch<'_>) -> Attempt<Stamp> {
        // Who had to wait must not set the times back.
        let time = now();
        if self.put_times(inode, branch, time)? {
            let _durable = order::fence(branch.flush_line_0()?);
            inode.stamped(time);
        }
        Ok(Stamp::default())
    }
}

/// What a stamp leaves to be done.
#[derive(Default)]
pub struct Stamp {
    /// To be fenced.
    pub stored: Option<Flushed>,
    /// What the view is to say then ([`CachedInode::stamped`]), if it does not yet.
    pub time: Option<i64>,
}

impl CachedInode {
    /// Whether its branch, or what is verified where that says nothing, has this for both times.
    #[inline(always)]
    fn is_stamped(&self, time: i64) -> bool {
        let time = time as u64;
        self.modified.load(Ordering::Acquire) == time
            && self.changed.load(Ordering::Acquire) == time
    }

    /// A record that is durable says that names of it changed at that time, or the verified state says a
    /// time of change: the later one stands, as after a fold.
    #[inline(always)]
    pub fn changed_at(&self, time: i64) {
        let seen = self.changed.load(Ordering::Relaxed) as i64;
        if seen != time && (seen < time || seen > now()) {
            self.changed.store(time as u64, Ordering::Release);
        }
    }

    /// Its branch has been stamped, durably. Stores only what is new: other threads read it.
    #[inline(always)]
    pub fn stamped(&self, time: i64) {
        for field in [&self.modified, &self.changed] {
            if field.load(Ordering::Relaxed) != time as u64 {
                field.store(time as u64, Ordering::Release);
            }
        }
    }
}
