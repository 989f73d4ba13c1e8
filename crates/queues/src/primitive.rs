//! The one seam for locks and threads: `std` in a build, `shuttle` in model checking.
//!
//! # Invariants
//! * A lock that somebody panicked under is taken all the same: what stands under it is changed by this crate alone, and no target
//!   is called there.

#[cfg(shuttle)]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
#[cfg(shuttle)]
pub use shuttle::thread::{self, JoinHandle};
#[cfg(not(shuttle))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub use std::thread::{self, JoinHandle};

use std::sync::PoisonError;
use std::time::{Duration, Instant};

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until it is woken, or for so long at most; it may also wake for nothing. The model's clock stands still.
pub fn sleep<'m, T>(
    bell: &Condvar,
    guard: MutexGuard<'m, T>,
    most: Option<Duration>,
) -> MutexGuard<'m, T> {
    match most {
        None => bell.wait(guard).unwrap_or_else(PoisonError::into_inner),
        Some(most) => {
            let woken = bell.wait_timeout(guard, most);
            woken.unwrap_or_else(PoisonError::into_inner).0
        }
    }
}

/// How long ago that was. In the model nothing takes any time.
pub fn nanoseconds(begin: Instant) -> u64 {
    match cfg!(shuttle) {
        true => 0,
        false => begin.elapsed().as_nanos().try_into().unwrap_or(u64::MAX),
    }
}
