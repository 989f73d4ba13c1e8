//! What a program meets whose LibFS wrote nonsense: EIO for what was refused, and for nothing
//! else; then the verified state.

use arck_controller::Options;
use arck_core_state::InodeNumber;
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::offset;
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, Failure, FileSystem, Handle};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const POOL: u64 = 64 << 20;
/// So long that no test sees its end.
const FOR_EVER: Duration = Duration::from_secs(100_000);
const SHORT: Duration = Duration::from_millis(30);
const EIO: Failure = Failure::Errno(Errno::IO);

fn pool(grace: Duration) -> TestPool {
    let options = Options {
        grace,
        ..Options::default()
    };
    let pool = TestPool::with_options(POOL, options);
    pool.has_refusals("a session writes nonsense into its arena");
    pool
}

fn number(fs: &FileSystem, path: &str) -> InodeNumber {
    let found = fs.stat(At::Root, path.as_bytes(), 0).unwrap();
    found.inode as InodeNumber
}

/// A word of the session's own arena.
struct Word<'a> {
    fs: &'a FileSystem,
    at: u64,
    right: u64,
}

impl Word<'_> {
    /// A field of an inode's branch.
    fn of(fs: &FileSystem, inode: InodeNumber, field: u64) -> Word<'_> {
        let slot = fs.session().header(inode).unwrap().branch_slot();
        let at = branch_offset(slot).unwrap() + field;
        let arena = fs.session().arena_at(at as usize);
        let right = arena.load_u64(at as usize, Ordering::SeqCst).unwrap();
        Word { fs, at, right }
    }
    fn store(&self, value: u64) {
        let arena = self.fs.session().arena_at(self.at as usize);
        let _ = arena.write_u64(self.at as usize, value).unwrap();
    }
    fn repair(&self) {
        self.store(self.right);
    }
}

fn wait_until_evicted(fs: &FileSystem, inode: InodeNumber) {
    let started = Instant::now();
    while fs.session().header(inode).unwrap().evicted() == 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Writes behind the five bytes that a file begins with. (What is overwritten in place is what
/// everybody reads, whatever becomes of the delta.)
fn change(fs: &FileSystem, path: &str, content: &[u8]) -> Result<(), Failure> {
    let handle = fs.open_at_root(path, libc::O_WRONLY)?;
    let written = fs.write(handle, content, Some(5));
    fs.close(handle);
    assert_eq!(written?, content.len());
    Ok(())
}

/// Files `bad` and `good`, both changed and not folded; of `bad`, what is changed is refused.
fn with_a_bad_file(fs: &FileSystem) -> (InodeNumber, Word<'_>) {
    for name in ["bad", "good"] {
        fs.put(name, b"first").unwrap();
    }
    fs.fold(false).unwrap();
    for name in ["bad", "good"] {
        change(fs, name, b"other").unwrap();
    }
    let bad = number(fs, "bad");
    let size = Word::of(fs, bad, offset::SIZE);
    size.store(1 << 62);
    assert_eq!(fs.fold(false), Err(Errno::IO));
    (bad, size)
}

#[test]
fn a_refused_file_is_eio_until_it_is_repaired() {
    let pool = pool(FOR_EVER);
    let fs = pool.session();
    let handle = {
        fs.put("bad", b"").unwrap();
        fs.open_at_root("bad", libc::O_RDWR).unwrap()
    };
    let (_, size) = with_a_bad_file(&fs);
    for _ in 0..2 {
        assert_eq!(fs.get("bad"), Err(EIO));
        assert_eq!(change(&fs, "bad", b"more"), Err(EIO));
        assert_eq!(fs.write(handle, b"x", None), Err(Errno::IO));
        assert_eq!(fs.read(handle, &mut [0; 1], None), Err(Errno::IO));
    }
    // Everything else goes on, and is folded.
    change(&fs, "good", b"third").unwrap();
    fs.put("new", b"new").unwrap();
    assert_eq!(fs.fold(false), Err(Errno::IO));
    let other = pool.session();
    assert_eq!(other.get("bad").unwrap(), b"first");
    assert_eq!(other.get("good").unwrap(), b"firstthird");
    assert_eq!(other.get("new").unwrap(), b"new");
    assert_eq!(fs.get("good").unwrap(), b"firstthird");
    size.repair();
    fs.fold(false).unwrap();
    assert_eq!(fs.get("bad").unwrap(), b"firstother");
    change(&fs, "bad", b"again").unwrap();
    assert_eq!(other.get("bad").unwrap(), b"firstagain");
    fs.close(handle);
    assert!(!pool.path().join(arck_controller::ASIDE).exists());
}

#[test]
fn what_was_set_aside_is_reported_once() {
    let pool = pool(SHORT);
    let fs = pool.session();
    let (bad, _) = with_a_bad_file(&fs);
    wait_until_evicted(&fs, bad);
    // Whatever comes first is told so; folds in between do not hide it.
    fs.put("new", b"new").unwrap();
    fs.fold(false).unwrap();
    assert_eq!(fs.get("bad"), Err(EIO));
    assert_eq!(fs.get("bad").unwrap(), b"first");
    assert_eq!(fs.get("good").unwrap(), b"firstother");
    change(&fs, "bad", b"again").unwrap();
    fs.fold(true).unwrap();
    let other = pool.session();
    assert_eq!(other.get("bad").unwrap(), b"firstagain");
    assert_eq!(other.get("good").unwrap(), b"firstother");
    assert_eq!(other.get("new").unwrap(), b"new");
}

#[test]
fn a_writer_that_comes_first_ends_the_grace_period() {
    let pool = pool(FOR_EVER);
    let fs = pool.session();
    let handle = {
        fs.put("bad", b"").unwrap();
        fs.open_at_root("bad", libc::O_RDWR).unwrap()
    };
    with_a_bad_file(&fs);
    let other = pool.session();
    change(&other, "bad", b"their").unwrap();
    assert_eq!(fs.write(handle, b"x", Some(0)), Err(Errno::IO));
    assert_eq!(fs.write(handle, b"x", Some(0)), Ok(1));
    assert_eq!(other.get("bad").unwrap(), b"xirsttheir");
    fs.close(handle);
}

/// A directory `d` with the file `old`, and unfolded `young`, which is open; refused.
fn with_a_bad_directory(fs: &FileSystem) -> (InodeNumber, Word<'_>, Handle) {
    fs.make_directory(At::Root, b"d", 0o755).unwrap();
    fs.put("d/old", b"first").unwrap();
    fs.fold(false).unwrap();
    fs.put("d/young", b"first").unwrap();
    fs.put("beside", b"first").unwrap();
    let young = fs.open_at_root("d/young", libc::O_RDWR).unwrap();
    let directory = number(fs, "d");
    let tails = Word::of(fs, directory, offset::TAILS);
    // Pages that no delta can have.
    tails.store(u64::from(u32::MAX) | u64::from(u32::MAX) << 32);
    assert_eq!(fs.fold(false), Err(Errno::IO));
    (directory, tails, young)
}

#[test]
fn what_lies_beneath_a_refused_directory_can_be_reached() {
    let pool = pool(FOR_EVER);
    let fs = pool.session();
    let (_, tails, young) = with_a_bad_directory(&fs);
    change(&fs, "d/old", b"other").unwrap();
    change(&fs, "d/young", b"other").unwrap();
    assert_eq!(fs.get("d/old").unwrap(), b"firstother");
    assert_eq!(fs.names("d").unwrap(), ["old", "young"]);
    assert_eq!(fs.put("d/more", b""), Err(EIO));
    assert_eq!(fs.unlink(At::Root, b"d/old", 0), Err(EIO));
    let other = pool.session();
    assert_eq!(other.names("d").unwrap(), ["old"]);
    assert_eq!(other.get("beside").unwrap(), b"first");
    tails.repair();
    fs.fold(false).unwrap();
    fs.put("d/more", b"").unwrap();
    assert_eq!(other.names("d").unwrap(), ["more", "old", "young"]);
    assert_eq!(other.get("d/young").unwrap(), b"firstother");
    fs.close(young);
}

#[test]
fn what_was_to_be_born_in_a_directory_that_is_set_aside_is_gone() {
    let pool = pool(SHORT);
    let fs = pool.session();
    fs.put("before", b"").unwrap();
    let (directory, _, young) = with_a_bad_directory(&fs);
    wait_until_evicted(&fs, directory);
    assert_eq!(fs.names("d"), Err(EIO));
    assert_eq!(fs.names("d").unwrap(), ["old"]);
    assert_eq!(fs.write(young, b"x", None), Err(Errno::IO));
    assert_eq!(fs.write(young, b"x", None), Err(Errno::STALE));
    fs.close(young);
    fs.put("d/young", b"again").unwrap();
    fs.put("d/new", b"new").unwrap();
    fs.fold(true).unwrap();
    let other = pool.session();
    assert_eq!(other.names("d").unwrap(), ["new", "old", "young"]);
    assert_eq!(other.get("d/young").unwrap(), b"again");
    assert_eq!(other.get("beside").unwrap(), b"first");
}
