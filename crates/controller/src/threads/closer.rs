//! Closes what came from sessions: their sockets, and descriptors that they sent.
//!
//! The last closing of a descriptor can take as long as its owner likes (a connection that lingers
//! over data which nobody takes, a file of a file system that does not answer), and closing a
//! socket closes what lies in it unread. So none of it is done by the thread that everybody waits
//! for.
//!
//! # Invariants
//! * What is given here is closed by a thread of this module; the one that gives never waits.
//! * A thread that is stuck keeps nobody else's: while something waits and nobody is free for it,
//!   another thread is started, up to [`THREADS_MAX`].

use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads at once: as many descriptors can take for ever to close before others wait for them.
const THREADS_MAX: usize = 256;
/// A thread with nothing to do ends after this time.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<OwnedFd>,
    threads: usize,
    idle: usize,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics with it, and every state of it is a good one.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(descriptor) = queue.waiting.pop_front() {
                drop(queue);
                drop(descriptor);
                queue = self.lock();
                continue;
            }
            queue.idle += 1;
            let (guard, timeout) = self
                .more
                .wait_timeout(queue, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            queue = guard;
            queue.idle -= 1;
            if timeout.timed_out() && queue.waiting.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}

/// See the module's head.
#[derive(Clone, Default)]
pub struct Closer(Arc<Shared>);

impl Closer {
    /// Closes descriptors, some time soon. Does not block.
    pub fn close(&self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        let mut queue = self.0.lock();
        let before = queue.waiting.len();
        queue.waiting.extend(descriptors);
        if queue.waiting.len() == before {
            // Most packets bring none: nobody is woken for that.
            return;
        }
        let wanted = queue.waiting.len().saturating_sub(queue.idle);
        if wanted > 0 && queue.threads < THREADS_MAX {
            let shared = self.0.clone();
            let started = std::thread::Builder::new()
                .name("arck-closer".into())
                .spawn(move || shared.run());
            // Without one, they wait for the threads that there are, or for the next attempt.
            queue.threads += usize::from(started.is_ok());
        }
        let is_one = queue.waiting.len() == before + 1;
        drop(queue);
        match is_one {
            true => self.0.more.notify_one(),
            // One of them may be stuck with the first.
            false => self.0.more.notify_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn everything_is_closed() {
        let closer = Closer::default();
        for _ in 0..3 {
            let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
            let (here, there): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            closer.close(there.into_iter().map(OwnedFd::from));
            for mut socket in here {
                // Ends when the other end is closed.
                assert_eq!(socket.read(&mut [0]).unwrap(), 0);
            }
        }
    }
}
