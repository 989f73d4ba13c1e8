//! How a controller behaves.

use crate::pool::progress::ProgressHook;
use crate::state::tables::CrashHook;
use arck_pm::medium::Model;
use arck_pm::{DurabilityMode, PersistOption};
use std::time::Duration;

/// How the numbers of inodes are divided among the threads that read them when a pool is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// 0: as many as there are processors, but no more than 8.
    pub threads: usize,
    /// Numbers that one reads at a time; 0: many.
    pub chunk: u32,
}

/// How a controller behaves.
#[derive(Clone)]
pub struct Options {
    /// Which stores are flushed.
    pub persist: PersistOption,
    /// The medium that the controller and all its sessions emulate. With one, `persist` is `Always` where it is `Auto`:
    /// what is not flushed has no medium to reach.
    pub medium: Option<Model>,
    /// An owner keeps an inode at least so long against other writers.
    pub lease: Duration,
    /// After a refusal, the owner may repair its delta for so long, unless another session wants
    /// to write the inode.
    pub grace: Duration,
    /// A fold waits at most so long for operations in flight.
    pub patience: Duration,
    /// After the last request the doorbells are polled for so long.
    pub polling: Duration,
    /// Delta pages that the arena of a session may have, and with them what it may have unfolded;
    /// no fewer than the 64 with which it begins.
    pub arena_pages: u32,
    /// After a start, requests that would need sessions which outlived another controller wait so
    /// long for them to come back.
    pub take_up: Duration,
    /// Serves all users; else root and the pool's user alone.
    pub shared: bool,
    /// Told how far the opening of a pool has come.
    pub progress: Option<ProgressHook>,
    /// The pool counts as one of this durability, whatever its file system offers; for tests, which shall
    /// not depend on where they run.
    #[doc(hidden)]
    pub durability: Option<DurabilityMode>,
    /// By how many threads headers and inodes are read when a pool is opened; for tests.
    #[doc(hidden)]
    pub division: Division,
    /// So many inodes are folded at once where all of a session's are; for tests that want each
    /// alone.
    #[doc(hidden)]
    pub slice: usize,
    /// Delta pages of a fold from which on directories are sealed for it; for tests that want that always, or
    /// never.
    #[doc(hidden)]
    pub seal_pages: usize,
    /// Delta pages from which on that is done before they are verified.
    #[doc(hidden)]
    pub seal_unverified_pages: usize,
    /// A session that owns more inodes than these, granted ones among them, keeps none of the files that a fold
    /// brings: it acquires again what it comes back to.
    #[doc(hidden)]
    pub owned_kept: usize,
    /// Called at named points of every commit; for tests that want a crash there.
    #[doc(hidden)]
    pub crash_hook: Option<CrashHook>,
}

impl Options {
    /// Which stores are flushed, the medium considered.
    pub(crate) fn persist(&self) -> PersistOption {
        match (self.persist, self.medium) {
            (PersistOption::Auto, Some(_)) => PersistOption::Always,
            (persist, _) => persist,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            persist: PersistOption::Auto,
            medium: None,
            lease: Duration::from_micros(500),
            grace: Duration::from_secs(2),
            patience: Duration::from_millis(2),
            polling: Duration::from_micros(100),
            arena_pages: u32::MAX,
            take_up: Duration::from_secs(2),
            shared: false,
            progress: None,
            durability: None,
            division: Division::default(),
            slice: 512,
            // Small where tests run, so that they meet it.
            seal_pages: if cfg!(debug_assertions) { 1 } else { 8 },
            seal_unverified_pages: if cfg!(debug_assertions) { 3 } else { 64 },
            owned_kept: if cfg!(debug_assertions) { 64 } else { 32_768 },
            crash_hook: None,
        }
    }
}
