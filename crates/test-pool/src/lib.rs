//! A pool in memory with its controller in this process: what tests of a LibFS need to run in milliseconds,
//! beside its code.
//!
//! It is the real controller, in a thread, and the real verifier: nothing stands in for them that could answer
//! otherwise than they do. No LibFS is known here, so that each can have this for its unit tests.
//!
//! # Invariants
//! * Everything made here disappears when it is dropped, and touches nothing outside a temporary
//!   directory in memory.
//! * When a pool is dropped, the verifier has refused nothing on it ([`honest`]).

pub mod honest;

use arck_controller::{Controller, MkfsOptions, Options, RunningController, mkfs};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A pool in memory, served by a controller in this process.
pub struct TestPool {
    directory: tempfile::TempDir,
    controller: Option<RunningController>,
    options: Options,
    has_refusals: AtomicBool,
}

fn in_memory() -> tempfile::TempDir {
    let mut made = tempfile::Builder::new();
    let made = made.prefix("arck-test-").tempdir_in("/dev/shm");
    made.expect("a directory in /dev/shm")
}

impl TestPool {
    /// A new pool of `size` bytes.
    pub fn new(size: u64) -> TestPool {
        TestPool::with_options(size, Options::default())
    }

    /// A new pool, its controller run with `options`.
    pub fn with_options(size: u64, options: Options) -> TestPool {
        let directory = in_memory();
        let path = directory.path().join("pool");
        let made = MkfsOptions {
            size,
            mode: 0o755,
            force: false,
        };
        mkfs(&path, &made, &mut |_, _| {}).expect("mkfs");
        TestPool::served(directory, options)
    }

    /// Serves a pool that is there; it stays when this is dropped.
    pub fn adopt(path: &Path) -> TestPool {
        TestPool::adopt_with(path, Options::default())
    }

    /// The same, its controller run with `options`.
    pub fn adopt_with(path: &Path, options: Options) -> TestPool {
        let directory = in_memory();
        std::os::unix::fs::symlink(path, directory.path().join("pool")).expect("a link");
        TestPool::served(directory, options)
    }

    fn served(directory: tempfile::TempDir, options: Options) -> TestPool {
        let mut pool = TestPool {
            directory,
            controller: None,
            options,
            has_refusals: AtomicBool::new(false),
        };
        pool.serve();
        pool
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("pool")
    }

    /// Starts a controller on the pool.
    pub fn serve(&mut self) {
        let controller = Controller::open(&self.path(), self.options.clone()).expect("open");
        self.controller = Some(controller.spawn().expect("spawn"));
    }

    /// Ends the controller cleanly.
    pub fn stop(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.stop().expect("clean stop");
        }
    }

    /// Ends the controller as a kill would.
    pub fn kill(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.kill();
        }
    }

    /// What the verifier refused, a line each: nothing, as long as LibFSes are honest and right.
    pub fn violations(&self) -> String {
        honest::refused(&self.path())
    }

    /// The test is of what is refused, so that its pool may end with refusals; `why` is for who reads it.
    pub fn has_refusals(&self, why: &'static str) {
        assert!(!why.is_empty(), "an exception has a reason");
        self.has_refusals.store(true, Ordering::Relaxed);
    }
}

impl Drop for TestPool {
    fn drop(&mut self) {
        // What sessions have stored by now is folded, or refused.
        drop(self.controller.take());
        if !self.has_refusals.load(Ordering::Relaxed) {
            honest::assert_nothing_refused(&self.path());
        }
    }
}
