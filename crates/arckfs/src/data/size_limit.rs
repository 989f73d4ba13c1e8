//! RLIMIT_FSIZE: how far the process's writes may reach, and its files grow.
//!
//! # Invariants
//! * A write that begins at the limit or beyond it is EFBIG, one that reaches it ends there, wherever the
//!   file ends; growing a file beyond it by truncate or fallocate is EFBIG. The signal that goes with
//!   EFBIG is for whoever serves the program ([`is_reached`]).
//! * No call asks the kernel each time: what is known is the limit as it was read when the session was
//!   opened, when the program set it, and at every [`EVERY`] bytes by which a file grows. So one that
//!   another process sets (`prlimit`) holds at the latest when a file has grown by so much more; and one
//!   that refuses is read again first.

use arck_libfs_kit::format::FILE_SIZE_MAX;
use rustix::process::{Resource, getrlimit};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes, of which a file has to grow across a multiple to look again.
const EVERY: u64 = 16 << 20;

/// Bytes; all ones = none.
static KNOWN: AtomicU64 = AtomicU64::new(u64::MAX);

/// As it is known.
#[inline(always)]
pub fn known() -> u64 {
    KNOWN.load(Ordering::Relaxed)
}

/// Reads it.
#[cold]
pub fn refresh() -> u64 {
    let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    if known() != limit {
        KNOWN.store(limit, Ordering::Relaxed);
    }
    limit
}

/// After a write to a file that had so many bytes, up to there: reads it once in a while.
#[inline(always)]
pub(crate) fn may_have_grown(size: u64, end: u64) {
    if size < end && size / EVERY != end / EVERY {
        refresh();
    }
}

/// Whether no file may grow to so many bytes.
pub(crate) fn forbids(size: u64) -> bool {
    size > known() && size > refresh()
}

/// Whether EFBIG is due to it, and not to the largest file that there is.
pub fn is_reached() -> bool {
    known() < FILE_SIZE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_across_a_boundary_looks_again() {
        let real = refresh();
        for (size, end, looks) in [
            (0, EVERY - 1, false),
            (0, EVERY, true),
            (EVERY - 1, EVERY + 1, true),
            (EVERY, 2 * EVERY - 1, false),
            (5, 9 * EVERY, true),
            (EVERY, 5, false),
            (2 * EVERY, EVERY + 1, false),
        ] {
            KNOWN.store(7, Ordering::Relaxed);
            may_have_grown(size, end);
            assert_eq!(known() == real, looks, "{size} to {end}");
        }
        KNOWN.store(7, Ordering::Relaxed);
        assert!(is_reached());
        // What was raised since counts.
        assert!(!forbids(8) && known() == real);
        assert_eq!(forbids(u64::MAX), real != u64::MAX);
    }
}
