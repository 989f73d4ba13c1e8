//! What whole-system tests share: ArckFS's sessions on temporary pools with a controller in this process
//! ([`arck_test_pool`]), workloads, and what they are compared with.
//!
//! # Invariant
//! * Everything made here disappears when it is dropped, and touches nothing outside a temporary
//!   directory in memory.

pub mod differential;
pub mod explorer;
pub mod harness;
pub mod history;
pub mod locks;
pub mod mapped;
mod random;
mod stopping;
pub mod striped;
mod text;
pub mod under_test;
pub mod window;

pub use random::Random;
pub use stopping::StopAtEnd;
pub use text::differences;

use arck_controller::Options;
use arck_core_state::superblock::Superblock;
pub use arck_pm::DurabilityMode;
pub use arck_test_pool::honest;
use arckfs::{At, ConnectOptions, Errno, Failure, FileSystem, Handle, Resolver};
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// Where temporary pools are mounted, as paths see it.
pub const MOUNT: &[u8] = b"/arck";

/// A pool in memory, served by a controller in this process, and ArckFS's sessions on it.
pub struct TestPool(arck_test_pool::TestPool);

impl TestPool {
    /// A new pool of `size` bytes.
    pub fn new(size: u64) -> TestPool {
        TestPool(arck_test_pool::TestPool::new(size))
    }

    /// A new pool, its controller run with `options`.
    pub fn with_options(size: u64, options: Options) -> TestPool {
        TestPool(arck_test_pool::TestPool::with_options(size, options))
    }

    /// A new pool of `size` bytes that counts as one of this durability.
    pub fn counting_as(durability: DurabilityMode, size: u64) -> TestPool {
        let options = Options {
            durability: Some(durability),
            ..Options::default()
        };
        TestPool::with_options(size, options)
    }

    /// The machine has failed, as the next controller sees it: another boot. To be called between `kill` and `serve`.
    pub fn boot_again(&self) {
        let file = self.path().join("superblock");
        let superblock = std::fs::read(&file).expect("a superblock");
        let mut superblock = Superblock::decode(&superblock).expect("a superblock");
        superblock.boot[0] ^= 0x5a;
        std::fs::write(&file, superblock.encode()).expect("written");
    }

    /// Serves a pool that is there; it stays when this is dropped.
    pub fn adopt(path: &Path) -> TestPool {
        TestPool(arck_test_pool::TestPool::adopt(path))
    }

    /// The same, its controller run with `options`.
    pub fn adopt_with(path: &Path, options: Options) -> TestPool {
        TestPool(arck_test_pool::TestPool::adopt_with(path, options))
    }

    /// A session of this process.
    pub fn session(&self) -> FileSystem {
        connect(&self.path())
    }
}

impl Deref for TestPool {
    type Target = arck_test_pool::TestPool;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for TestPool {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// Opens a session on a served pool.
pub fn connect(pool: &Path) -> FileSystem {
    connect_as(pool, b"")
}

/// The same as one of a trust group.
pub fn connect_as(pool: &Path, group: &[u8]) -> FileSystem {
    connect_with(pool, group, resolver())
}

/// The same, of one of ArckFS's file systems.
pub fn connect_with(pool: &Path, group: &[u8], resolver: Resolver) -> FileSystem {
    FileSystem::connect(&ConnectOptions {
        pool: pool.to_path_buf(),
        mount: MOUNT.to_vec(),
        group: group.to_vec(),
        resolver,
    })
    .expect("connect")
}

/// Which of ArckFS's file systems tests are of that do not say: `ARCK_TEST_FS`, else ArckFS itself. So all that holds
/// for it is run over FPFS as well.
pub fn resolver() -> Resolver {
    match std::env::var("ARCK_TEST_FS") {
        Ok(name) => name.parse().expect("a file system"),
        Err(_) => Resolver::default(),
    }
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
