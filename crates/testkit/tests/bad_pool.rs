//! A pool that is missing, damaged, of another version, too small or already served: one line
//! that says what it is and what to do, and nothing is changed.

use arck_controller::{Controller, Error, MkfsOptions, Options, mkfs};
use arck_testkit::{MOUNT, Shorthand, TestPool};
use arckfs::{ConnectOptions, FileSystem};
use std::os::unix::fs::FileExt;
use std::path::Path;

const POOL: u64 = 64 << 20;

fn make(path: &Path, size: u64, force: bool) -> Result<(), Error> {
    let options = MkfsOptions {
        size,
        mode: 0o755,
        force,
    };
    mkfs(path, &options, &mut |_, _| {}).map(|_| ())
}

fn temporary() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("arck-test-")
        .tempdir_in("/dev/shm")
        .expect("a directory in /dev/shm")
}

/// One line that names the pool and holds all of `words`.
fn is_one_line(message: &str, pool: &Path, words: &[&str]) {
    assert!(!message.contains('\n'), "more than a line: {message}");
    assert!(
        message.contains(&pool.display().to_string()),
        "the pool is not named: {message}"
    );
    for word in words {
        assert!(message.contains(word), "{word:?} is missing: {message}");
    }
}

fn open_error(pool: &Path) -> String {
    match Controller::open(pool, Options::default()) {
        Ok(_) => panic!("{} could be opened", pool.display()),
        Err(error) => error.to_string(),
    }
}

/// Makes a pool, lets `damage` loose on it, and gives what opening says.
fn damaged(damage: impl FnOnce(&Path)) -> (tempfile::TempDir, String) {
    let directory = temporary();
    let pool = directory.path().join("pool");
    make(&pool, POOL, false).expect("mkfs");
    damage(&pool);
    let message = open_error(&pool);
    is_one_line(&message, &pool, &[]);
    (directory, message)
}

fn overwrite(pool: &Path, name: &str, offset: u64, bytes: &[u8]) {
    std::fs::File::options()
        .write(true)
        .open(pool.join(name))
        .expect("a file of the pool")
        .write_all_at(bytes, offset)
        .expect("write");
}

const SUPERBLOCK: &str = arck_core_state::layout::SUPERBLOCK;
const HEADERS: &str = arck_core_state::layout::HEADERS;

#[test]
fn missing() {
    let directory = temporary();
    let pool = directory.path().join("nowhere");
    is_one_line(&open_error(&pool), &pool, &["arck mkfs"]);
    assert!(!pool.exists(), "opening made something");
    // A directory that is no pool.
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    is_one_line(&open_error(&empty), &empty, &["arck mkfs"]);
    // Not even a directory.
    let file = directory.path().join("file");
    std::fs::write(&file, "no pool").unwrap();
    is_one_line(&open_error(&file), &file, &[]);
    assert_eq!(std::fs::read(&file).unwrap(), b"no pool");
}

#[test]
fn connecting_where_nobody_serves() {
    let directory = temporary();
    let connect = |pool: &Path| {
        FileSystem::connect(&ConnectOptions {
            pool: pool.to_path_buf(),
            mount: MOUNT.to_vec(),
            group: Vec::new(),
            resolver: arck_testkit::resolver(),
        })
        .err()
        .expect("an error")
        .to_string()
    };
    let missing = directory.path().join("nowhere");
    is_one_line(&connect(&missing), &missing, &[]);
    let pool = directory.path().join("pool");
    make(&pool, POOL, false).expect("mkfs");
    is_one_line(&connect(&pool), &pool, &["arck serve"]);
}

#[test]
fn damaged_superblock() {
    let (_kept, message) = damaged(|pool| overwrite(pool, SUPERBLOCK, 0, b"no magic here"));
    assert!(message.contains("cannot use the pool"), "{message}");
    // Every other byte is covered by the checksum.
    for offset in (8..200).step_by(7) {
        let changed = |pool: &Path| {
            let bytes = std::fs::read(pool.join(SUPERBLOCK)).unwrap();
            overwrite(pool, SUPERBLOCK, offset, &[bytes[offset as usize] ^ 0x40]);
        };
        damaged(changed);
    }
    damaged(|pool| {
        std::fs::File::options()
            .write(true)
            .open(pool.join(SUPERBLOCK))
            .unwrap()
            .set_len(10)
            .unwrap();
    });
    damaged(|pool| std::fs::write(pool.join(SUPERBLOCK), b"").unwrap());
}

#[test]
fn another_version() {
    // Behind the magic; see docs/format.md.
    let version = 8;
    let (_kept, message) = damaged(|pool| {
        let mut bytes = std::fs::read(pool.join(SUPERBLOCK)).unwrap();
        bytes[version] = bytes[version].wrapping_add(1);
        std::fs::write(pool.join(SUPERBLOCK), bytes).unwrap();
    });
    assert!(message.contains("version"), "{message}");
}

#[test]
fn missing_and_cut_files() {
    let (_kept, message) = damaged(|pool| std::fs::remove_file(pool.join(HEADERS)).unwrap());
    assert!(message.contains(HEADERS), "{message}");
    let (_kept, message) = damaged(|pool| {
        std::fs::File::options()
            .write(true)
            .open(pool.join(HEADERS))
            .unwrap()
            .set_len(4096)
            .unwrap();
    });
    assert!(message.contains(HEADERS), "{message}");
    damaged(|pool| std::fs::remove_dir_all(pool.join(arck_core_state::layout::SEGMENTS)).unwrap());
}

/// The files of the segments of data.
fn data_files(pool: &Path) -> Vec<String> {
    let table = std::fs::read(pool.join(arck_core_state::layout::SEGMENT_TABLE)).unwrap();
    let entries = table.chunks_exact(32).enumerate();
    entries
        .filter(|(_, entry)| entry[0] == 2)
        .map(|(segment, _)| format!("segments/{segment:08x}"))
        .collect()
}

#[test]
fn missing_data() {
    let mut pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("file", &[7; 10_000]).unwrap();
    session.disconnect().unwrap();
    pool.stop();
    let files = data_files(&pool.path());
    let [file] = &files[..] else {
        panic!("more than one segment of data: {files:?}")
    };
    let (place, away) = (pool.path().join(file), pool.path().join("away"));
    std::fs::rename(&place, &away).unwrap();
    let message = open_error(&pool.path());
    is_one_line(&message, &pool.path(), &[file, "missing", "arck check"]);
    // It comes back, and so does what was in it.
    std::fs::rename(&away, &place).unwrap();
    pool.serve();
    let session = pool.session();
    assert_eq!(session.get("file").unwrap(), [7; 10_000]);
    // With nothing in it, it is not missed.
    session.unlink(arckfs::At::Root, b"file", 0).unwrap();
    session.disconnect().unwrap();
    pool.stop();
    std::fs::remove_file(&place).unwrap();
    pool.serve();
    let session = pool.session();
    session.put("another", &[8; 10_000]).unwrap();
    assert_eq!(session.get("another").unwrap(), [8; 10_000]);
    session.disconnect().unwrap();
}

#[test]
fn data_that_goes_missing_while_it_is_served() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("file", &[7; 10_000]).unwrap();
    session.disconnect().unwrap();
    for file in data_files(&pool.path()) {
        std::fs::remove_file(pool.path().join(file)).unwrap();
    }
    let session = pool.session();
    let gone = arckfs::Failure::Errno(arckfs::Errno::IO);
    assert_eq!(session.get("file").unwrap_err(), gone);
    assert_eq!(session.get("file").unwrap_err(), gone);
    // All else goes on.
    session.put("another", &[8; 10_000]).unwrap();
    assert_eq!(session.get("another").unwrap(), [8; 10_000]);
    session.disconnect().unwrap();
}

#[test]
fn sizes_and_places_for_a_pool() {
    let directory = temporary();
    let pool = directory.path().join("pool");
    for size in [0, 1, 4096, 1 << 20, u64::MAX] {
        let message = make(&pool, size, false).unwrap_err().to_string();
        assert!(
            !message.contains('\n') && message.contains("size"),
            "{message}"
        );
        assert!(!pool.exists(), "size {size} left something behind");
    }
    make(&pool, POOL, false).expect("mkfs");
    let again = make(&pool, POOL, false).unwrap_err().to_string();
    is_one_line(&again, &pool, &["not empty", "--force"]);
    make(&pool, POOL, true).expect("mkfs --force");
    // Somebody else's files are not an old pool.
    let other = directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("letter"), "dear").unwrap();
    for force in [false, true] {
        let message = make(&other, POOL, force).unwrap_err().to_string();
        is_one_line(&message, &other, &["not empty"]);
    }
    assert_eq!(std::fs::read(other.join("letter")).unwrap(), b"dear");
    let nowhere = directory.path().join("no/such/place");
    is_one_line(
        &make(&nowhere, POOL, false).unwrap_err().to_string(),
        &nowhere,
        &[],
    );
}

#[test]
fn already_served() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("file", b"content").unwrap();
    let message = open_error(&pool.path());
    is_one_line(&message, &pool.path(), &["already served"]);
    for force in [false, true] {
        let message = make(&pool.path(), POOL, force).unwrap_err().to_string();
        assert!(!message.contains('\n'), "{message}");
    }
    assert_eq!(session.get("file").unwrap(), b"content");
    session.put("another", b"one").unwrap();
}
