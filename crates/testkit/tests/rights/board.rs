//! A few words that all processes of a test share, by which they wait for each other.
//!
//! # Invariants
//! * Counts only grow.
//! * Nobody waits for one who has failed: that is written here too, and ends every wait.

use super::world::{Child, Session, User, World};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WORDS: usize = 16;
const FAILED: usize = WORDS - 1;
/// Longer than any pause of the machine: whoever waits so long waits for ever.
const PATIENCE: Duration = Duration::from_secs(300);

/// See the module's head.
#[derive(Clone, Copy)]
pub struct Board(&'static [AtomicU64; WORDS]);

impl Board {
    /// A new one, for this process and those that are forked from it.
    pub fn new() -> Board {
        // SAFETY: a new mapping, which nobody ends.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        // SAFETY: zeroed, aligned to a page, large enough, there for ever, and all of it atomic.
        Board(unsafe { &*memory.cast() })
    }

    pub fn add(&self, word: usize) {
        self.0[word].fetch_add(1, Ordering::SeqCst);
    }

    pub fn get(&self, word: usize) -> u64 {
        self.0[word].load(Ordering::SeqCst)
    }

    pub fn has_failed(&self) -> bool {
        self.get(FAILED) != 0
    }

    /// Runs `what`; that it has panicked is told to all.
    pub fn guard<T>(&self, what: impl FnOnce() -> T) -> T {
        struct Tell(Board);
        impl Drop for Tell {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.add(FAILED);
                }
            }
        }
        let _tell = Tell(*self);
        what()
    }

    /// Waits until a count is there.
    pub fn wait(&self, word: usize, count: u64) {
        let began = Instant::now();
        while self.get(word) < count {
            assert!(!self.has_failed(), "another process has failed");
            assert!(began.elapsed() < PATIENCE, "waited for ever");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Runs `what` as a user in a process of its own; a failure is told to all.
    pub fn start(&self, world: &World, user: User, what: impl FnOnce(&Session)) -> Child {
        let (pool, board) = (world.pool(), *self);
        Child::start(user, move || board.guard(|| Session::run(&pool, what)))
    }
}
