//! The clock that stamps files, and the times that views show.

use super::CachedInode;
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

impl CachedInode {
    /// A record that is durable says that names of it changed at that time, or the verified state says a
    /// time of change: the later one stands, as after a fold.
    #[inline(always)]
    pub fn changed_at(&self, time: i64) {
        let seen = self.changed.load(Ordering::Relaxed) as i64;
        if seen != time && (seen < time || seen > now()) {
            self.changed.store(time as u64, Ordering::Release);
        }
    }
}
