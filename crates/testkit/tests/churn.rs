//! Churn: making and removing many times what a pool holds leaves it as it was; nothing grows.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, FileSystem};

const POOL: u64 = 64 << 20;

/// Makes and removes far more than the pool holds.
fn churn(session: &FileSystem, bytes: u64, mut between: impl FnMut(u64)) {
    let mut done = 0;
    let mut round = 0u64;
    while done < bytes {
        let path = format!("file{}", round % 7);
        let content = vec![round as u8; 300_000];
        session.put(&path, &content).unwrap_or_else(|failure| {
            panic!("round {round}, {} MiB written: {failure:?}", done >> 20)
        });
        if round.is_multiple_of(3) {
            assert_eq!(session.get(&path).unwrap(), content);
        }
        if round.is_multiple_of(2) {
            session
                .unlink(At::Root, path.as_bytes(), 0)
                .expect("unlink");
        }
        done += content.len() as u64;
        between(round);
        round += 1;
    }
}

#[test]
fn churn_does_not_fill_the_pool() {
    let pool = TestPool::new(32 << 20);
    let session = pool.session();
    churn(&session, 512 << 20, |_| {});
    // With folds and another session's eyes on it.
    let other = pool.session();
    churn(&session, 256 << 20, |round| {
        if round % 5 == 0 {
            session.fold(round % 2 == 0).expect("fold");
        }
        if round % 9 == 0 {
            let _ = other.get("file1");
            other.put("other", b"other").expect("put");
        }
    });
}

#[test]
fn empty_files_and_directories_come_and_go() {
    let pool = TestPool::new(32 << 20);
    let session = pool.session();
    for round in 0..60_000u64 {
        let path = format!("{}", round % 50);
        match round % 4 {
            0 => {
                session
                    .make_directory(At::Root, path.as_bytes(), 0o755)
                    .expect("mkdir");
                session
                    .unlink(At::Root, path.as_bytes(), libc::AT_REMOVEDIR)
                    .expect("rmdir");
            }
            1 => {
                session
                    .symlink(b"target", At::Root, path.as_bytes())
                    .expect("symlink");
                session
                    .unlink(At::Root, path.as_bytes(), 0)
                    .expect("unlink");
            }
            _ => {
                session.put(&path, b"").expect("put");
                session
                    .rename(At::Root, path.as_bytes(), At::Root, b"renamed", 0)
                    .expect("rename");
                session.unlink(At::Root, b"renamed", 0).expect("unlink");
            }
        }
        if round % 1000 == 999 {
            session.fold(false).expect("fold");
        }
    }
    assert!(session.names("").unwrap().is_empty());
}

#[test]
fn a_big_file_rewritten_again_and_again() {
    let pool = TestPool::new(2 * POOL);
    let (one, two) = (pool.session(), pool.session());
    let size = 40 << 20;
    for round in 0..6u8 {
        let session = if round % 3 == 2 { &two } else { &one };
        let handle = session
            .open_at_root("big", libc::O_CREAT | libc::O_RDWR)
            .unwrap();
        let piece = vec![round + 1; 1 << 20];
        for at in (0..size).step_by(piece.len()) {
            // In the last rounds in another order.
            let at = if round < 4 {
                at
            } else {
                size - piece.len() - at
            };
            let mut done = 0;
            while done < piece.len() {
                let written = session
                    .write(handle, &piece[done..], Some((at + done) as u64))
                    .unwrap_or_else(|errno| panic!("round {round} at {at}: {errno:?}"));
                assert!(written > 0, "round {round} at {at}");
                done += written;
            }
        }
        session.close(handle);
        if round == 3 {
            session.fold(true).expect("fold");
        }
        for reader in [&one, &two] {
            let content = reader.get("big").expect("get");
            assert_eq!(content.len(), size);
            assert!(
                content.iter().all(|&byte| byte == round + 1),
                "round {round}: something old is left"
            );
        }
    }
    one.unlink(At::Root, b"big", 0).unwrap();
    two.put("other", &vec![1; size]).expect("room again");
}

/// What may grow.
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// Pages of the pool in use.
    pages: u64,
    /// Inode numbers in use.
    inodes: u64,
    /// Bytes of the group region in use.
    region: u64,
    /// Bytes of all files of the pool's directory, as the host has them allocated.
    host: u64,
}

fn usage(pool: &TestPool, session: &FileSystem) -> Usage {
    use std::os::unix::fs::MetadataExt;
    fn allocated(path: &std::path::Path) -> u64 {
        let listed = std::fs::read_dir(path).expect("read_dir");
        listed
            .map(|entry| {
                let entry = entry.expect("entry");
                let data = entry.metadata().expect("metadata");
                match data.is_dir() {
                    true => allocated(&entry.path()),
                    false => data.blocks() * 512,
                }
            })
            .sum()
    }
    session.fold(false).expect("fold");
    let statistics = session.statistics().expect("statistics");
    let region = session.session().region().statistics();
    assert_eq!(region.stray_references, 0);
    assert_eq!(region.bytes_leaked, 0);
    Usage {
        pages: statistics.pages - statistics.pages_free,
        inodes: statistics.inodes - statistics.inodes_free,
        region: region.bytes_in_use,
        host: allocated(&pool.path()),
    }
}

/// Nothing has grown by more than is a matter of chance.
fn assert_same(before: Usage, after: Usage) {
    let said = format!("before {before:?}\nafter  {after:?}");
    assert!(after.pages <= before.pages + 64, "{said}");
    assert!(after.inodes <= before.inodes + 256, "{said}");
    assert!(
        after.region <= before.region + before.region / 8 + 65_536,
        "{said}"
    );
    // A step of the arena and a segment.
    assert!(after.host <= before.host + (4 << 20), "{said}");
}

/// A hundred times the bytes of the smallest pool.
#[test]
fn a_hundred_times_the_pools_bytes() {
    const SMALL: u64 = 16 << 20;
    let pool = TestPool::new(SMALL);
    let session = pool.session();
    // As much before as after: the arena grows by a step when more lies unfolded at once than
    // ever before, and so do segments' files when places are used for the first time.
    churn(&session, 100 * SMALL, |_| {});
    let before = usage(&pool, &session);
    churn(&session, 100 * SMALL, |_| {});
    assert_same(before, usage(&pool, &session));
}

/// A hundred times the inode numbers of the smallest pool, of all kinds, with names of all
/// lengths, folded now and then.
#[test]
fn a_hundred_times_the_pools_inodes() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    let inodes = session.statistics().unwrap().inodes;
    let round = |number: u64| {
        let path = format!("{number:0>0$}", 1 + (number % 200) as usize);
        let path = path.as_bytes();
        match number % 4 {
            0 => {
                session
                    .make_directory(At::Root, path, 0o755)
                    .expect("mkdir");
                session
                    .unlink(At::Root, path, libc::AT_REMOVEDIR)
                    .expect("rmdir");
            }
            1 => {
                session.symlink(b"target", At::Root, path).expect("symlink");
                session.unlink(At::Root, path, 0).expect("unlink");
            }
            2 => {
                session
                    .put(std::str::from_utf8(path).unwrap(), b"x")
                    .expect("put");
                if number.is_multiple_of(50) {
                    session.fold(number.is_multiple_of(100)).expect("fold");
                }
                session
                    .rename(At::Root, path, At::Root, b"renamed", 0)
                    .expect("rename");
                session.unlink(At::Root, b"renamed", 0).expect("unlink");
            }
            _ => {
                let flags = libc::O_CREAT | libc::O_RDWR;
                let handle = session.open(At::Root, path, flags, 0o600).expect("open");
                session
                    .unlink(At::Root, path, 0)
                    .expect("unlink of an open file");
                assert_eq!(session.write(handle, b"still there", None), Ok(11));
                session.close(handle);
            }
        }
    };
    (0..2 * inodes).for_each(round);
    let before = usage(&pool, &session);
    (0..100 * inodes).for_each(round);
    let after = usage(&pool, &session);
    assert_same(before, after);
    assert!(session.names("").unwrap().is_empty());
}

/// Sessions come and go, each of which fills much of the pool.
#[test]
fn sessions_that_come_and_go() {
    let pool = TestPool::new(16 << 20);
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("proc").count();
    let mut first = None;
    for round in 0..120u64 {
        let session = pool.session();
        for file in 0..4 {
            session
                .put(&format!("file{file}"), &vec![round as u8; 1 << 20])
                .unwrap_or_else(|failure| panic!("round {round}: {failure:?}"));
        }
        session
            .make_directory(At::Root, format!("directory{round}").as_bytes(), 0o755)
            .expect("mkdir");
        if round > 0 {
            let before = format!("directory{}", round - 1);
            session
                .unlink(At::Root, before.as_bytes(), libc::AT_REMOVEDIR)
                .expect("rmdir");
        }
        let now = (usage(&pool, &session), descriptors());
        if round < 8 {
            first = Some(now);
        }
        if let Some((before, open)) = first {
            assert_same(before, now.0);
            // The wake descriptor of an ended session stays; nothing else does.
            assert!(
                now.1 <= open + round as usize + 8,
                "{} descriptors open",
                now.1
            );
        }
        if round.is_multiple_of(3) {
            drop(session);
        } else {
            session.disconnect().expect("disconnect");
        }
    }
}

/// Two sessions that live side by side take turns in replacing the same files.
#[test]
fn two_sessions_take_turns() {
    let pool = TestPool::new(32 << 20);
    let (one, two) = (pool.session(), pool.session());
    let mut before = None;
    for round in 0..400u64 {
        let session = if round.is_multiple_of(2) { &one } else { &two };
        let content = vec![round as u8; 1 << 20];
        session
            .put("shared", &content)
            .unwrap_or_else(|failure| panic!("round {round}: {failure:?}"));
        if round % 4 == 3 {
            session.unlink(At::Root, b"shared", 0).expect("unlink");
        }
        if round == 40 {
            before = Some((usage(&pool, &one), usage(&pool, &two)));
        }
    }
    let (first, second) = before.expect("set in round 40");
    assert_same(first, usage(&pool, &one));
    assert_same(second, usage(&pool, &two));
}
