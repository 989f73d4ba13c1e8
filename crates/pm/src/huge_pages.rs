//! Huge pages of files in memory, where they are had at once (MADV_COLLAPSE, Linux 6.1, whatever tmpfs was mounted
//! with), and as long as they are cheap.
//!
//! The kernel zeroes a huge page, or copies what is there, in a twentieth of the time that 512 faults take. But it may
//! have none left, and look for long; and in a virtual machine that gives free memory back to its host, the first touch of
//! a huge page has the host find one, where small pages come from what the guest still has. That takes several times as
//! long as 512 faults (docs/performance.md, "As directories grow"). So each is timed.
//!
//! # Invariant
//! * Where no huge page was to be had, or looking for one took longer than [`DEAR`], none is asked for during [`WITHOUT`].

use crate::SharedBytes;
use crate::mapping::{self, HUGE_PAGE};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Processor time of one that is not worth it: what as many small pages take, at 2 µs each.
const DEAR: Duration = Duration::from_millis(1);
/// See the module's head; milliseconds.
const WITHOUT: u64 = 2_000;

/// What is known of them: to be shared by all that ask. Does not block.
#[derive(Debug, Default)]
pub struct HugePages {
    /// Milliseconds of [`now`] until which none is asked for.
    none_until: AtomicU64,
}

/// Milliseconds of a clock, without anything that a fork could leave half done.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

/// What this thread has worked: how long it was kept from working is no matter.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl HugePages {
    /// Whether any is to be asked for now.
    pub fn are_worth_it(&self) -> bool {
        now() >= self.none_until.load(Ordering::Relaxed)
    }

    /// Puts the pages of a range together, holes included but for one page of each 2 MiB, where that is possible and
    /// worth while; false if not: what is there is as good, but slower, and there may be holes. Blocks while the
    /// kernel copies.
    pub fn gather(&self, range: SharedBytes<'_>) -> bool {
        if !self.are_worth_it() {
            return false;
        }
        let before = worked();
        let gathered = mapping::collapse(range);
        self.took(worked().saturating_sub(before), range.len());
        match gathered.map_err(|error| error.errno()) {
            Ok(()) => true,
            // The pages were only busy, or whoever has the file has cut it: another time.
            Err(Errno::AGAIN | Errno::BUSY) => false,
            // There is none, or the kernel cannot.
            Err(_) => {
                self.go_without();
                false
            }
        }
    }

    /// So much time was spent on so many bytes.
    fn took(&self, took: Duration, bytes: usize) {
        let pages = u32::try_from(bytes.div_ceil(HUGE_PAGE)).unwrap_or(u32::MAX);
        if took > DEAR.saturating_mul(pages.max(1)) {
            self.go_without();
        }
    }

    fn go_without(&self) {
        let until = now().saturating_add(WITHOUT);
        self.none_until.store(until, Ordering::Relaxed);
    }

    /// Of none, for good: for tests of what is done without them.
    #[doc(hidden)]
    pub fn none() -> HugePages {
        HugePages {
            none_until: AtomicU64::new(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dear_is_not_asked_for_again_at_once() {
        let cases = [
            (Duration::from_micros(300), HUGE_PAGE, true),
            (DEAR, HUGE_PAGE, true),
            (DEAR * 2, HUGE_PAGE, false),
            (DEAR * 2, 2 * HUGE_PAGE, true),
            (DEAR * 3, 2 * HUGE_PAGE, false),
            (DEAR * 2, 4096, false),
            (Duration::ZERO, 0, true),
        ];
        for (took, bytes, worth) in cases {
            let pages = HugePages::default();
            pages.took(took, bytes);
            assert_eq!(pages.are_worth_it(), worth, "{took:?} for {bytes} bytes");
        }
        assert!(!HugePages::none().are_worth_it());
    }
}
