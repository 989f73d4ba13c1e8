//! Panics of targets.
//!
//! Invariant: they end where the target was called.

/// Nothing, if it panics. The model's checker ends its own threads by panics.
pub fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    #[cfg(shuttle)]
    return Some(work());
    #[cfg(not(shuttle))]
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).ok()
}
