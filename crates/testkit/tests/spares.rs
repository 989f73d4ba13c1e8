//! Files of segments that are made ahead of their need, where the file system has no room for anything
//! else: whatever needs some gets theirs. Run as root, which mounts file systems of memory.

use arck_controller::{MkfsOptions, mkfs};
use arck_protocol::Request;
use arck_testkit::{Shorthand, TestPool};
use arckfs::FileSystem;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const POOL: u64 = 64 << 20;
const SEGMENT: u64 = 1 << 20;
/// As many as are made.
const SPARES: u64 = 3;

/// A pool on a file system of memory of its own.
struct Place {
    pool: Option<TestPool>,
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        // SAFETY: of this thread and those that it starts; no descriptors are unshared, only what is
        // mounted where.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.expect("run this test as root");
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).expect("a namespace of its own");
        let directory = tempfile::tempdir().expect("a directory");
        let options = CString::new(format!("size={}", 2 * POOL)).expect("plain text");
        let flags = MountFlags::empty();
        mount("arck-test", directory.path(), "tmpfs", flags, &*options).expect("a file system");
        let path = directory.path().join("pool");
        let made = MkfsOptions {
            size: POOL,
            mode: 0o755,
            force: false,
        };
        mkfs(&path, &made, &mut |_, _| {}).expect("mkfs");
        let pool = Some(TestPool::adopt(&path));
        Place { pool, directory }
    }

    fn pool(&self) -> &TestPool {
        self.pool.as_ref().expect("a pool")
    }

    /// Bytes in use of the file system, and of those what files have that have names.
    fn used(&self) -> (u64, u64) {
        let system = rustix::fs::statvfs(self.directory.path()).expect("statvfs");
        let used = (system.f_blocks - system.f_bfree) * system.f_frsize;
        (used, named(self.directory.path()))
    }

    /// What is made ahead is there; gives its size.
    fn spares(&self) -> u64 {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let (used, named) = self.used();
            if used >= named + SPARES * SEGMENT || Instant::now() > deadline {
                return used.saturating_sub(named);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Leaves no room in the file system.
    fn fill(&self) {
        let mut file = File::create(self.directory.path().join("ballast")).expect("a file");
        for piece in [1 << 20, 4096] {
            while file.write_all(&vec![1; piece]).is_ok() {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool = None;
        let _ = unmount(self.directory.path(), UnmountFlags::DETACH);
    }
}

/// Bytes that the files below a directory have.
fn named(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).expect("a directory");
    entries
        .map(|entry| {
            let path: PathBuf = entry.expect("an entry").path();
            match std::fs::symlink_metadata(&path) {
                Ok(file) if file.is_dir() => named(&path),
                Ok(file) => file.blocks() * 512,
                Err(_) => 0,
            }
        })
        .sum()
}

/// Fills the file system of a pool while spares are there, and then does something that needs memory of it.
fn with_spares_alone(needs: impl FnOnce(&TestPool, &FileSystem) -> Result<(), Errno> + Send) {
    with_full_file_system(needs, |spares| spares < SEGMENT);
}

/// The same, and looks how many bytes of spares are left.
fn with_full_file_system(
    needs: impl FnOnce(&TestPool, &FileSystem) -> Result<(), Errno> + Send,
    is_left: impl FnOnce(u64) -> bool + Send,
) {
    // A thread of its own: it has a mount namespace of its own.
    std::thread::scope(|scope| {
        let needing = scope.spawn(move || {
            let place = Place::new();
            let fs = place.pool().session();
            fs.put("file", b"its segment").expect("put");
            let spares = place.spares();
            assert!(spares >= SPARES * SEGMENT, "{spares} bytes of spares");
            place.fill();
            assert_eq!(needs(place.pool(), &fs), Ok(()));
            let (used, named) = place.used();
            let left = used.saturating_sub(named);
            assert!(is_left(left), "{used} bytes used, {named} named");
            assert_eq!(fs.get("file").as_deref(), Ok(&b"its segment"[..]));
            assert_eq!(place.pool().violations(), "");
        });
        needing.join().expect("all of it");
    });
}

#[test]
fn an_arena_grows() {
    with_spares_alone(|_, fs| {
        let delta_pages = fs.session().welcome().delta_pages + 256;
        fs.session().ask(&Request::GrowArena {
            branch_pages: 0,
            delta_pages,
        })
    });
}

#[test]
fn another_session_begins() {
    with_spares_alone(|pool, _| {
        let other = pool.session();
        other.get("file").map(drop).map_err(|_| Errno::IO)
    });
}

#[test]
fn numbers_are_granted() {
    with_spares_alone(|_, fs| {
        // The table of headers is allocated as far as it is needed.
        for _ in 0..10 {
            fs.session().request(&Request::GrantInodes { count: 200 })?;
        }
        Ok(())
    });
}

/// A lock file is a name and no bytes: the spares are left for who needs them.
#[test]
fn files_are_locked() {
    let locks = |_: &TestPool, fs: &FileSystem| {
        let handle = fs.open_at_root("file", libc::O_RDWR).expect("open");
        fs.lock_file(handle).map(drop)
    };
    with_full_file_system(locks, |spares| spares >= SPARES * SEGMENT);
}
