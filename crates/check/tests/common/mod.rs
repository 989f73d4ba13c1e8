//! Pools to be damaged: one of everything, closed, and copies of it with words changed.

#![allow(dead_code)]

use arck_check::{Options, Report, Rule};
use arck_core_state::superblock::Superblock;
use arck_core_state::{Geometry, Inode, PAGE_SIZE};
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, FileSystem};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Fills a session's pool with something of everything.
pub fn fill(fs: &FileSystem) {
    for directory in ["d", "d/e", "d/e/f", "many"] {
        fs.make_directory(At::Root, directory.as_bytes(), 0o755)
            .unwrap();
    }
    for index in 0..2000 {
        let path = format!("many/a name that takes more than one unit {index}");
        fs.put(&path, path.as_bytes()).unwrap();
    }
    fs.put("empty", b"").unwrap();
    fs.put("d/small", b"some text").unwrap();
    fs.put("d/big", &vec![7; 1 << 20]).unwrap();
    fs.link(At::Root, b"d/small", At::Root, b"d/e/other", 0)
        .unwrap();
    fs.symlink(b"../small", At::Root, b"d/e/link").unwrap();
    // Others than root make none but the one that stands for nothing.
    let device = if rustix::process::geteuid().is_root() {
        0x103
    } else {
        0
    };
    fs.make_node(At::Root, b"device", libc::S_IFCHR | 0o600, device)
        .unwrap();
}

/// Bytes of the pools that are damaged here.
pub const POOL_SIZE: u64 = 24 << 20;

/// Bytes of their segments.
pub fn segment_size() -> u64 {
    Geometry::for_pool_size(POOL_SIZE).unwrap().segment_size
}

/// A closed pool with something of everything in it.
pub fn made() -> TestPool {
    let mut pool = TestPool::new(POOL_SIZE);
    pool.stop();
    // The same each time: so are the places of names.
    let place = pool.path().join("superblock");
    let mut superblock = Superblock::decode(&std::fs::read(&place).unwrap()).unwrap();
    superblock.hash_seed = 42;
    std::fs::write(&place, superblock.encode()).unwrap();
    pool.serve();
    let fs = pool.session();
    fill(&fs);
    fs.disconnect().unwrap();
    pool.stop();
    pool
}

/// A copy of a pool's directory.
pub struct Copy {
    directory: tempfile::TempDir,
    /// Bytes of a segment, as the superblock said when it was copied.
    segment_size: u64,
}

impl Copy {
    pub fn of(pool: &Path) -> Copy {
        let directory = tempfile::Builder::new()
            .prefix("arck-check-")
            .tempdir_in("/dev/shm")
            .unwrap();
        let copied = std::process::Command::new("cp")
            .args(["-a", "--sparse=always"])
            .arg(pool)
            .arg(directory.path().join("pool"))
            .status()
            .unwrap();
        assert!(copied.success());
        // One that is damaged is of a pool of these here.
        let superblock = std::fs::read(pool.join("superblock")).unwrap_or_default();
        let segment_size = match Superblock::decode(&superblock) {
            Ok(superblock) => superblock.geometry.segment_size,
            Err(_) => segment_size(),
        };
        Copy {
            directory,
            segment_size,
        }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("pool")
    }

    /// 0 where there is nothing.
    pub fn word(&self, place: &(String, u64)) -> u64 {
        let mut bytes = [0; 8];
        if let Ok(file) = std::fs::File::open(self.path().join(&place.0)) {
            let _ = file.read_at(&mut bytes, place.1).unwrap();
        }
        u64::from_le_bytes(bytes)
    }

    pub fn set(&self, place: &(String, u64), word: u64) {
        self.write(place, &word.to_le_bytes());
    }

    pub fn write(&self, place: &(String, u64), bytes: &[u8]) {
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path().join(&place.0))
            .unwrap();
        file.write_all_at(bytes, place.1).unwrap();
    }

    pub fn check(&self) -> Report {
        arck_check::check(&self.path(), &Options::default()).unwrap()
    }

    pub fn paths(&self) -> BTreeMap<String, (u32, Inode)> {
        let paths = arck_check::paths(&self.path()).unwrap();
        let text = |path: Vec<u8>| String::from_utf8(path).unwrap();
        paths.into_iter().map(|(p, i)| (text(p), i)).collect()
    }

    pub fn inode(&self, path: &str) -> (u32, Inode) {
        self.paths()[path]
    }

    /// The place of a word of the header of a path's inode.
    pub fn header(&self, path: &str, offset: u64) -> (String, u64) {
        (
            "headers".into(),
            u64::from(self.inode(path).0) * 64 + offset,
        )
    }

    /// The segment that a byte of the pool's address space lies in.
    pub fn segment(&self, address: u64) -> u64 {
        address / self.segment_size
    }

    /// The place of a byte of the pool's address space.
    pub fn place(&self, address: u64) -> (String, u64) {
        let size = self.segment_size;
        (format!("segments/{:08x}", address / size), address % size)
    }

    /// The place of a field of a path's inode.
    pub fn field(&self, path: &str, offset: u64) -> (String, u64) {
        self.place(self.word(&self.header(path, 8)) + offset)
    }

    /// The place of a byte of a page.
    pub fn page(&self, page: u64, offset: u64) -> (String, u64) {
        self.place(page * PAGE_SIZE + offset)
    }

    pub fn rules(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = self.check().findings.iter().map(|f| f.rule).collect();
        rules.dedup();
        rules
    }
}
