//! RLIMIT_FSIZE: how far the process's writes may reach, and its files grow.
//!
//! # Invariants
//! * A write that begins at the limit or beyond it is EFBIG, one that reaches it ends there, wherever the
//!   file ends; growing a file beyond it by truncate or fallocate is EFBIG. The signal that goes with
//!   EFBIG is for whoever serves the program ([`is_reached`]).
//! * No call asks the kernel each time: what is known is the limit as it was read when the session was
//!   opened, when the program set it, and at every [`EVERY`] bytes of writing. So one that another
//!   process sets (`prlimit`) holds at the latest when so much more has been written; and one that
//!   refuses is read again first.

use arck_core_state::geometry::FILE_SIZE_MAX;
use rustix::process::{Resource, getrlimit};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes, in which a write has to cross a multiple of them to look again.
const EVERY: u64 = 1 << 20;

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

/// After bytes were written there: reads it once in a while.
#[inline(always)]
pub(crate) fn have_written(at: u64, end: u64) {
    if at / EVERY != end / EVERY {
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
    fn a_write_looks_again_where_it_crosses_a_boundary() {
        let real = refresh();
        for (at, end, looks) in [
            (0, EVERY - 1, false),
            (0, EVERY, true),
            (EVERY - 1, EVERY + 1, true),
            (EVERY, 2 * EVERY - 1, false),
            (5, 9 * EVERY, true),
        ] {
            KNOWN.store(7, Ordering::Relaxed);
            have_written(at, end);
            assert_eq!(known() == real, looks, "{at} to {end}");
        }
        KNOWN.store(7, Ordering::Relaxed);
        assert!(is_reached());
        // What was raised since counts.
        assert!(!forbids(8) && known() == real);
        assert_eq!(forbids(u64::MAX), real != u64::MAX);
    }
}
