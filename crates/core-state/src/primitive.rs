//! The one seam for concurrency primitives: `std` in a build, `shuttle` in model checking.
//!
//! Everything that takes part in the ownership protocol (header words, operation counters) uses
//! these types, so the model checker runs the real code. Layout assertions hold only for `std`.

#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(shuttle))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Tells the processor (or the model's scheduler) that this thread is waiting for another.
pub fn spin_hint() {
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(shuttle))]
    std::hint::spin_loop();
}
