//! What an `arck run` does when the private controller ends under its command: it starts another
//! one, which the sessions of the programs find by themselves and go on with.
//!
//! All who use the pool watch, whoever started the controller. The first to get the start lock starts
//! the next one; the others find it. A controller that is not private is left to whoever started it.
//!
//! # Invariants
//! * A controller that ended in order, as by SIGTERM, is not started again: somebody wanted that.
//! * It is started at most [`STARTS`] times within [`WINDOW`].
//! * Only the pool that was there is served again: not another one at its path.
//! * One line on standard error when the first one is lost, and one if there will be no other.

use super::locks::{USE_LOCK, connect_to, is_private, take_start_lock};
use super::private::{PrivateController, START_LIMIT, Wishes, being_opened};
use super::telling::{plain, say};
use crate::owner;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So many controllers are started within [`WINDOW`], to take the place of those that ended.
const STARTS: usize = 10;
/// See [`STARTS`].
const WINDOW: Duration = Duration::from_secs(60);
/// Between two tries to start one: the system may still be taking the last one down.
const PAUSE: Duration = Duration::from_millis(20);

/// By whom the pool is served, and what tells that he is gone.
pub enum Served {
    /// A private controller that this process started.
    Ours(PrivateController),
    /// One that another `arck run` started.
    Others(OwnedFd),
    /// A controller that is not private; the connection is open so that it notices our end.
    Kept {
        _connection: OwnedFd,
    },
    Nobody,
}

impl Served {
    /// By somebody whom this process is connected with.
    pub fn by_another(connection: OwnedFd, use_lock: Option<&OwnedFd>) -> Served {
        match use_lock.is_some_and(is_private) {
            true => Served::Others(connection),
            false => Served::Kept {
                _connection: connection,
            },
        }
    }
}

/// See the module's head.
pub struct Guard {
    watching: Watching,
}

enum Watching {
    Thread {
        /// Readable when it is to stop.
        stop: Arc<OwnedFd>,
        thread: JoinHandle<Served>,
    },
    /// There is nothing to be done.
    Not(Served),
}

impl Guard {
    /// Watches over a private controller, until it is stopped.
    pub fn start(
        pool: &Path,
        wishes: &Wishes,
        use_lock: Option<Arc<OwnedFd>>,
        served: Served,
    ) -> Guard {
        let is_watched = matches!(served, Served::Ours(_) | Served::Others(_));
        // What the thread is to watch follows when there is one: of one that cannot be started nothing comes back.
        let (hand, taken) = std::sync::mpsc::channel();
        let start = |use_lock| {
            let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).ok()?);
            let watch = Watch {
                pool: pool.to_path_buf(),
                wishes: wishes.clone(),
                use_lock,
                stop: stop.clone(),
                starts: Starts::default(),
                has_said: false,
            };
            let run = move || watch.run(taken.recv().unwrap_or(Served::Nobody));
            let thread = std::thread::Builder::new().spawn(run).ok()?;
            Some((stop, thread))
        };
        let watching = match use_lock.filter(|_| is_watched).and_then(start) {
            Some((stop, thread)) => {
                // It waits for that.
                let _ = hand.send(served);
                Watching::Thread { stop, thread }
            }
            // No lock, by which others would know of us; or no descriptors, or threads: as without a guard.
            None => Watching::Not(served),
        };
        Guard { watching }
    }

    /// By whom the pool is served now. Blocks if another controller is just being started.
    pub fn stop(self) -> Served {
        match self.watching {
            Watching::Not(served) => served,
            Watching::Thread { stop, thread } => {
                // A counter that is 0 can always be added to.
                let _ = rustix::io::write(&*stop, &1u64.to_ne_bytes());
                // It has told of it if it panicked.
                thread.join().unwrap_or(Served::Nobody)
            }
        }
    }
}

/// When controllers were started.
#[derive(Default)]
struct Starts(Vec<Instant>);

impl Starts {
    /// Whether there may be one more.
    fn another(&mut self, now: Instant) -> bool {
        self.0.retain(|&then| now.duration_since(then) < WINDOW);
        let may = self.0.len() < STARTS;
        if may {
            self.0.push(now);
        }
        may
    }
}

/// What the thread knows.
struct Watch {
    pool: PathBuf,
    wishes: Wishes,
    use_lock: Arc<OwnedFd>,
    stop: Arc<OwnedFd>,
    starts: Starts,
    has_said: bool,
}

impl Watch {
    fn run(mut self, mut served: Served) -> Served {
        loop {
            let goes_on = match &served {
                Served::Ours(controller) => self.wait(controller.sign_of_life()),
                Served::Others(connection) => self.wait(connection.as_fd()),
                Served::Kept { .. } | Served::Nobody => false,
            };
            if !goes_on {
                return served;
            }
            served = self.lost(served);
        }
    }

    /// Waits until the other end of `sign_of_life` is closed; false if it is to stop before.
    fn wait(&self, sign_of_life: BorrowedFd<'_>) -> bool {
        loop {
            let mut set = [
                PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
                // That it is closed is told whatever is asked for.
                PollFd::from_borrowed_fd(sign_of_life, PollFlags::empty()),
            ];
            match poll(&mut set, None) {
                Err(Errno::INTR) => {}
                Err(_) => return false,
                Ok(_) if !set[0].revents().is_empty() => return false,
                Ok(_) if !set[1].revents().is_empty() => return true,
                Ok(_) => {}
            }
        }
    }

    /// Who serves the pool after that one.
    fn lost(&mut self, served: Served) -> Served {
        let how = match served {
            Served::Ours(mut controller) => {
                let end = controller.ended();
                if end.in_order {
                    self.give_up("it was told to end");
                    return Served::Nobody;
                }
                Some(end.how)
            }
            // Its status is its parent's to know.
            _ => None,
        };
        if !self.starts.another(Instant::now()) {
            self.give_up(&format!(
                "that was the {STARTS}th within {} s",
                WINDOW.as_secs()
            ));
            return Served::Nobody;
        }
        if let Some(how) = how
            && !std::mem::replace(&mut self.has_said, true)
        {
            say(&format!(
                "the private controller of {} ended ({how}); another one is started, and whoever needs \
                 it waits",
                self.pool.display()
            ));
        }
        match self.next() {
            Ok(served) => served,
            Err(why) => {
                self.give_up(&why);
                Served::Nobody
            }
        }
    }

    fn give_up(&self, why: &str) {
        say(&format!(
            "the private controller of {pool} ended, and no other one is started: {why}; programs on \
             the pool get errors until somebody serves it (arck serve {pool})",
            pool = self.pool.display()
        ));
    }

    /// Finds the next controller, or starts it.
    fn next(&self) -> Result<Served, String> {
        let failed = |errno: Errno| {
            let why = plain(&errno.into());
            format!("cannot use the pool {}: {why}", self.pool.display())
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, &self.pool, flags, Mode::empty()).map_err(failed)?;
        take_start_lock(&self.pool, &directory)?;
        self.is_same(&directory).map_err(failed)?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(connection) = connect_to(&directory).map_err(failed)? {
                return Ok(Served::by_another(connection, Some(&self.use_lock)));
            }
            match PrivateController::start(&self.pool, &self.wishes) {
                Ok(Some(controller)) => return Ok(Served::Ours(controller)),
                Ok(None) if Instant::now() >= deadline => return Err(being_opened(&self.pool)),
                Err(why) if Instant::now() >= deadline => return Err(why),
                // The last one may still have the pool's lock.
                Ok(None) | Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Whether this directory is the pool's whose use lock we have; ENOENT.
    fn is_same(&self, directory: &OwnedFd) -> Result<(), Errno> {
        let ours = rustix::fs::fstat(&*self.use_lock)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let there = owner::as_owner(directory, || {
            openat(directory, USE_LOCK, flags, Mode::empty())
        })?;
        let there = rustix::fs::fstat(&there)?;
        match (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) {
            true => Ok(()),
            false => Err(Errno::NOENT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_are_started_within_a_time() {
        let mut starts = Starts::default();
        let begin = Instant::now();
        for start in 0..STARTS as u32 {
            assert!(starts.another(begin + Duration::from_secs(1) * start));
        }
        assert!(!starts.another(begin + WINDOW - Duration::from_secs(1)));
        // The first is long ago by now.
        assert!(starts.another(begin + WINDOW));
        assert!(!starts.another(begin + WINDOW));
    }
}
