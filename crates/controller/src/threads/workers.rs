//! Work on files that sessions can write, in threads that nobody has to wait for.
//!
//! Who has a file can hold its lock for ever, with a write whose source never comes, and where it is
//! on persistent memory, punching waits for whoever has pinned its pages. So what needs such a lock
//! (growing, truncating, punching, removing) is never done by the thread that everybody waits for.
//!
//! # Invariants
//! * A worker touches nothing but the files that it was given, and says what came of it once.
//! * No user keeps more than [`WORKERS_MAX`] of them, whether the sessions are still there for
//!   which they were started or not.

use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Workers of a user that have not ended.
pub const WORKERS_MAX: usize = 8;

/// How many workers each user has.
type Counts = Arc<Mutex<HashMap<u32, usize>>>;

/// See the module's head; cheap to clone.
#[derive(Clone, Default)]
pub struct Workers(Counts);

/// Counts a worker until it is dropped.
struct Counted {
    counts: Counts,
    user: u32,
}

fn lock(counts: &Counts) -> MutexGuard<'_, HashMap<u32, usize>> {
    // Nothing panics with it, and every state of it is a good one.
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        if let Some(count) = counts.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.user);
            }
        }
    }
}

impl Workers {
    /// Starts work on a file of a user's. EAGAIN: the user has as many workers as one may have, or
    /// there are no threads. Does not block.
    pub fn start<T: Send + 'static>(
        &self,
        user: u32,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Receiver<T>, Errno> {
        let counted = {
            let mut counts = lock(&self.0);
            let count = counts.entry(user).or_insert(0);
            if *count == WORKERS_MAX {
                return Err(Errno::AGAIN);
            }
            *count += 1;
            Counted {
                counts: self.0.clone(),
                user,
            }
        };
        let (sender, outcome) = channel();
        std::thread::Builder::new()
            .name("arck-worker".into())
            .spawn(move || {
                let done = work();
                drop(counted);
                // Nobody listens any more where it has been given up.
                let _ = sender.send(done);
            })
            .map_err(|_| Errno::AGAIN)?;
        Ok(outcome)
    }

    /// Workers of a user that have not ended.
    #[cfg(test)]
    fn count(&self, user: u32) -> usize {
        lock(&self.0).get(&user).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_at_most_and_others_theirs() {
        let workers = Workers::default();
        let (hold, held) = std::sync::mpsc::sync_channel::<()>(0);
        let held = Arc::new(Mutex::new(held));
        let stuck: Vec<_> = (0..WORKERS_MAX)
            .map(|_| {
                let held = held.clone();
                workers.start(5, move || held.lock().unwrap().recv().is_ok())
            })
            .collect();
        assert!(stuck.iter().all(Result::is_ok));
        assert_eq!(workers.start(5, || ()).err(), Some(Errno::AGAIN));
        assert_eq!(workers.count(5), WORKERS_MAX);
        let other = workers.start(6, || 7).unwrap();
        assert_eq!(other.recv(), Ok(7));
        for _ in 0..WORKERS_MAX {
            hold.send(()).unwrap();
        }
        for outcome in stuck {
            assert_eq!(outcome.unwrap().recv(), Ok(true));
        }
        assert_eq!((workers.count(5), workers.count(6)), (0, 0));
        assert_eq!(workers.start(5, || 1).unwrap().recv(), Ok(1));
    }
}
