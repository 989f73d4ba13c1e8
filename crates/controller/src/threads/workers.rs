//! Work on files that sessions can write, in threads that nobody has to wait for.
//!
//! Who has a file can hold its lock for ever, with a write whose source never comes, and where it is
//! on persistent memory, punching waits for whoever has pinned its pages. So what needs such a lock
//! (growing, truncating, punching, removing) is never done by the thread that everybody waits for.
//!
//! # Invariants
//! * A worker touches nothing but the files that it was given, and says what came of it once.
//! * When one has said it, that is an event ([`Workers::notice`]): nobody looks again and again.
//! * No user keeps more than [`WORKERS_MAX`] of them, whether the sessions are still there for
//!   which they were started or not.

use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Workers of a user that have not ended.
pub const WORKERS_MAX: usize = 8;

/// How many workers each user has.
type Counts = Arc<Mutex<HashMap<u32, usize>>>;

/// See the module's head; cheap to clone.
#[derive(Clone, Default)]
pub struct Workers(Counts, Arc<Ended>);

/// That workers have ended.
struct Ended {
    count: AtomicU64,
    /// An eventfd, if there is one: written after the count has changed.
    notice: Option<OwnedFd>,
}

impl Default for Ended {
    fn default() -> Ended {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ended {
            count: AtomicU64::new(0),
            notice: rustix::event::eventfd(0, flags).ok(),
        }
    }
}

impl Ended {
    fn note(&self) {
        self.count.fetch_add(1, Ordering::Release);
        if let Some(notice) = &self.notice {
            // A full counter is readable as well.
            let _ = rustix::io::write(notice, &1u64.to_ne_bytes());
        }
    }
}

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
        let ended = self.1.clone();
        std::thread::Builder::new()
            .name("arck-worker".into())
            .spawn(move || {
                let done = work();
                drop(counted);
                // Nobody listens any more where it has been given up.
                let _ = sender.send(done);
                ended.note();
            })
            .map_err(|_| Errno::AGAIN)?;
        Ok(outcome)
    }

    /// How many have ended so far. Who finds that one is still at work has asked this before, and waits until it is
    /// another number.
    pub fn ended(&self) -> u64 {
        self.1.count.load(Ordering::Acquire)
    }

    /// As if one had ended: something else that is waited for has come.
    pub fn note(&self) {
        self.1.note();
    }

    /// Readable once one has ended, until it is read. `None`: there are no descriptors left.
    pub fn notice(&self) -> Option<BorrowedFd<'_>> {
        self.1.notice.as_ref().map(AsFd::as_fd)
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
    fn an_end_is_an_event() {
        let workers = Workers::default();
        let before = workers.ended();
        let outcome = workers.start(5, || 7).unwrap();
        assert_eq!(outcome.recv(), Ok(7));
        let notice = workers.notice().unwrap();
        let events = rustix::event::PollFlags::IN;
        let mut polled = [rustix::event::PollFd::from_borrowed_fd(notice, events)];
        assert_eq!(rustix::event::poll(&mut polled, None), Ok(1));
        assert_eq!(workers.ended(), before + 1);
        rustix::io::read(notice, &mut [0; 8]).unwrap();
    }

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
