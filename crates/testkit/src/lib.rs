//! What whole-system tests share: temporary pools with a controller in this process, and
//! sessions on them.
//!
//! # Invariants
//! * Everything made here disappears when it is dropped, and touches nothing outside a temporary
//!   directory in memory.
//! * When a pool is dropped, the verifier has refused nothing on it ([`honest`]).

pub mod differential;
pub mod explorer;
pub mod harness;
pub mod history;
pub mod honest;
pub mod locks;
mod random;
mod text;

pub use random::Random;
pub use text::differences;

use arck_controller::{Controller, MkfsOptions, Options, RunningController, mkfs};
use arckfs::{At, ConnectOptions, Errno, Failure, FileSystem, Handle};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Where temporary pools are mounted, as paths see it.
pub const MOUNT: &[u8] = b"/arck";

/// A pool in memory, served by a controller in this process.
pub struct TestPool {
    directory: tempfile::TempDir,
    controller: Option<RunningController>,
    options: Options,
    has_refusals: AtomicBool,
}

impl TestPool {
    /// A new pool of `size` bytes.
    pub fn new(size: u64) -> TestPool {
        TestPool::with_options(size, Options::default())
    }

    /// A new pool, its controller run with `options`.
    pub fn with_options(size: u64, options: Options) -> TestPool {
        let directory = tempfile::Builder::new()
            .prefix("arck-test-")
            .tempdir_in("/dev/shm")
            .expect("a directory in /dev/shm");
        let path = directory.path().join("pool");
        let made = MkfsOptions {
            size,
            mode: 0o755,
            force: false,
        };
        mkfs(&path, &made, &mut |_, _| {}).expect("mkfs");
        let mut pool = TestPool {
            directory,
            controller: None,
            options,
            has_refusals: AtomicBool::new(false),
        };
        pool.serve();
        pool
    }

    /// Serves a pool that is there; it stays when this is dropped.
    pub fn adopt(path: &Path) -> TestPool {
        TestPool::adopt_with(path, Options::default())
    }

    /// The same, its controller run with `options`.
    pub fn adopt_with(path: &Path, options: Options) -> TestPool {
        let directory = tempfile::Builder::new()
            .prefix("arck-test-")
            .tempdir_in("/dev/shm")
            .expect("a directory in /dev/shm");
        std::os::unix::fs::symlink(path, directory.path().join("pool")).expect("a link");
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

    /// A session of this process.
    pub fn session(&self) -> FileSystem {
        connect(&self.path())
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

/// Opens a session on a served pool.
pub fn connect(pool: &Path) -> FileSystem {
    connect_as(pool, b"")
}

/// The same as one of a trust group.
pub fn connect_as(pool: &Path, group: &[u8]) -> FileSystem {
    FileSystem::connect(&ConnectOptions {
        pool: pool.to_path_buf(),
        mount: MOUNT.to_vec(),
        group: group.to_vec(),
    })
    .expect("connect")
}

/// Short forms for tests.
pub trait Shorthand {
    fn open_at_root(&self, path: &str, flags: i32) -> Result<Handle, Failure>;
    /// Writes a whole file anew.
    fn put(&self, path: &str, content: &[u8]) -> Result<(), Failure>;
    /// Reads a whole file.
    fn get(&self, path: &str) -> Result<Vec<u8>, Failure>;
    /// Folds everything that the session changed; `release` also gives up what it owns.
    fn fold(&self, release: bool) -> Result<(), Errno>;
    /// Names in a directory, sorted, without `.` and `..`.
    fn names(&self, path: &str) -> Result<Vec<String>, Failure>;
    /// The same of a directory that is open, from its beginning.
    fn names_of(&self, handle: Handle) -> Result<Vec<String>, Errno>;
}

impl Shorthand for FileSystem {
    fn open_at_root(&self, path: &str, flags: i32) -> Result<Handle, Failure> {
        self.open(At::Root, path.as_bytes(), flags, 0o644)
    }

    fn put(&self, path: &str, content: &[u8]) -> Result<(), Failure> {
        let handle = self.open_at_root(path, libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY)?;
        let written = self.write(handle, content, None);
        self.close(handle);
        if written? == content.len() {
            Ok(())
        } else {
            Err(Errno::NOSPC.into())
        }
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let handle = self.open_at_root(path, libc::O_RDONLY)?;
        let read = || -> Result<Vec<u8>, Errno> {
            let mut content = Vec::new();
            let mut buffer = vec![0; 1 << 16];
            loop {
                let length = self.read(handle, &mut buffer, None)?;
                if length == 0 {
                    return Ok(content);
                }
                content.extend_from_slice(&buffer[..length]);
            }
        };
        let content = read();
        self.close(handle);
        Ok(content?)
    }

    fn fold(&self, release: bool) -> Result<(), Errno> {
        self.session()
            .ask(&arck_protocol::Request::CommitAll { release })
    }

    fn names(&self, path: &str) -> Result<Vec<String>, Failure> {
        let handle = self.open_at_root(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
        let names = self.names_of(handle);
        self.close(handle);
        Ok(names?)
    }

    fn names_of(&self, handle: Handle) -> Result<Vec<String>, Errno> {
        self.seek(handle, 0, libc::SEEK_SET)?;
        let mut names = Vec::new();
        let mut buffer = vec![0; 1 << 15];
        loop {
            let used = match self.read_directory(handle, &mut buffer)? {
                0 => break,
                used => used,
            };
            let mut at = 0;
            while at < used {
                let length = u16::from_ne_bytes([buffer[at + 16], buffer[at + 17]]) as usize;
                let name = &buffer[at + 19..at + length];
                let end = name
                    .iter()
                    .position(|&byte| byte == 0)
                    .unwrap_or(name.len());
                names.push(String::from_utf8_lossy(&name[..end]).into_owned());
                at += length;
            }
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }
}
