//! The clock that stamps files, and stamping them.
//!
//! # Invariants
//! * What a view says of modification and change is durable: it is set behind the fence of the
//!   operation that stamped the branch. The clock is coarse (some milliseconds, as the kernel's own
//!   file systems have it), so most operations find their stamp there and store none.

use crate::engine::{Attempt, Context};
use crate::state::CachedInode;
use arck_core_state::branch::offset;
use arck_libfs_kit::delta::Branch;
use arck_pm::Flushed;
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
    /// yet. False if they say so already, and durably. Inside an operation.
    #[inline(always)]
    pub fn put_times(&self, inode: &CachedInode, branch: &Branch<'_>, time: i64) -> Attempt<bool> {
        let time = time as u64;
        if inode.modified.load(Ordering::Acquire) == time
            && inode.changed.load(Ordering::Acquire) == time
        {
            return Ok(false);
        }
        let _ = branch.put(offset::MODIFIED, time)?;
        let _ = branch.put(offset::CHANGED, time)?;
        Ok(true)
    }

    /// As [`Context::put_times`], flushed; `None` if there is nothing to wait for.
    #[inline(always)]
    pub fn stamp(
        &self,
        inode: &CachedInode,
        branch: &Branch<'_>,
        time: i64,
    ) -> Attempt<Option<Flushed>> {
        Ok(match self.put_times(inode, branch, time)? {
            true => Some(branch.flush_line_0()?),
            false => None,
        })
    }
}

impl CachedInode {
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
