//! How often descriptors were replaced: by that a call finds out that it is to be made again.
//!
//! Invariant: a replacement is counted after the number stands for what is put there, and before what it
//! stood for fails. So what failed while the count stood still has failed on what the number is.

use std::sync::atomic::{AtomicU64, Ordering};

/// Away from what is written all the time.
#[repr(align(64))]
struct Line(AtomicU64);

/// The lower half: replacements of what is the pool's; the upper half: of what is the kernel's by
/// what is the pool's. Both begin anew after their largest number. The lowest bit is not counted: see
/// [`spawned_child`].
static COUNTS: Line = Line(AtomicU64::new(0));
/// In the lowest byte.
pub const SPAWNED_CHILD: u64 = 1;
const OF_POOLS: u64 = 2;
const OVER_KERNELS: u64 = 1 << 32;

/// What was counted when a call began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Count(u64);

#[inline(always)]
pub fn count() -> Count {
    Count(COUNTS.0.load(Ordering::SeqCst))
}

impl Count {
    /// Whether anything was replaced since.
    #[inline(always)]
    pub fn has_moved(self) -> bool {
        count() != self
    }

    /// See [`spawned_child`].
    #[inline(always)]
    pub fn is_of_spawned_child(self) -> bool {
        self.0 & SPAWNED_CHILD != 0
    }

    /// Whether something of the kernel's was replaced by a placeholder since.
    #[inline(always)]
    pub fn has_moved_over_kernels(self) -> bool {
        self.0 >> 32 != count().0 >> 32
    }
}

/// Something of the pool's was replaced, or its handle is about to be closed.
pub fn replaced() {
    COUNTS.0.fetch_add(OF_POOLS, Ordering::SeqCst);
}

/// A placeholder is about to replace something of the kernel's.
pub fn replaced_over_kernels() {
    COUNTS.0.fetch_add(OVER_KERNELS, Ordering::SeqCst);
}

/// Notes whether the process that runs in this memory is a spawned child, for which each call is
/// made in its own way: it stands here since each call looks here anyway.
pub fn spawned_child(is: bool) {
    if is {
        COUNTS.0.fetch_or(SPAWNED_CHILD, Ordering::SeqCst);
    } else {
        COUNTS.0.fetch_and(!SPAWNED_CHILD, Ordering::SeqCst);
    }
}

/// Whether this process runs in its parent's memory.
#[inline(always)]
pub fn is_spawned_child() -> bool {
    count().is_of_spawned_child()
}

/// Where [`SPAWNED_CHILD`] stands, for code that is written at run time.
pub fn spawned_child_flag() -> usize {
    COUNTS.0.as_ptr() as usize
}
