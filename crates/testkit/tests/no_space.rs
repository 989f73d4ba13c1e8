//! One operation that fails for want of space, alone: it says ENOSPC, or does a part that it tells
//! of, and what it has not done is as it was, times included, for other sessions and after a
//! crash too.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, Failure, FileSystem, Handle};

const PAGE: u64 = 4096;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;

/// Fills with one file until not a page is left, but `spare` bytes of data. Gives its handle.
fn fill(session: &FileSystem, spare: u64) -> Handle {
    let handle = session
        .open_at_root("filler", libc::O_CREAT | libc::O_WRONLY)
        .expect("open");
    let mut size = 0;
    for piece in [vec![1; 1 << 20], vec![1; 4096]] {
        while let Ok(length) = session.write(handle, &piece, None) {
            size += length as u64;
        }
    }
    session
        .truncate_handle(handle, size - spare)
        .expect("truncate");
    handle
}

/// Makes names until there is no room for any.
fn fill_names(session: &FileSystem) {
    session
        .make_directory(At::Root, b"names", 0o755)
        .expect("mkdir");
    session.put("linked", b"").expect("put");
    let mut made = 0;
    let failure = loop {
        let name = format!("names/{made:0>250}");
        match session.link(At::Root, b"linked", At::Root, name.as_bytes(), 0) {
            Ok(()) => made += 1,
            Err(failure) => break failure,
        }
    };
    assert_eq!(failure, Failure::Errno(Errno::NOSPC));
}

/// All that stat tells of a path but the time of access, and the content of a file.
fn picture(session: &FileSystem, path: &str) -> (String, Vec<u8>) {
    let mut stat = session
        .stat(At::Root, path.as_bytes(), libc::AT_SYMLINK_NOFOLLOW)
        .expect("stat");
    let content = match stat.mode & libc::S_IFMT {
        libc::S_IFREG => session.get(path).expect("get"),
        _ => session.names(path).expect("names").join("\n").into_bytes(),
    };
    stat.accessed = stat.modified;
    (format!("{stat:?}"), content)
}

/// Runs what has to fail, and compares paths before and after, here, elsewhere and after a fold.
fn refused(pool: &TestPool, session: &FileSystem, paths: &[&str], what: &str, fails: &dyn Fn()) {
    session.fold(false).expect("fold");
    let all = |session: &FileSystem| -> Vec<_> {
        paths.iter().map(|path| picture(session, path)).collect()
    };
    let before = all(session);
    for round in 0..3 {
        fails();
        assert!(all(session) == before, "{what}, round {round}");
    }
    session.fold(false).expect("fold");
    let after = all(session);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.0, after.0, "{what}, folded");
    }
    assert!(after == before, "{what}, folded");
    let other = pool.session();
    assert!(all(&other) == before, "{what}, another session");
    other.disconnect().expect("disconnect");
    assert_eq!(pool.violations(), "");
}

/// A file of data, a hole of three pages, and data that ends within a page.
fn with_hole(session: &FileSystem, name: &str) -> Handle {
    let handle = session
        .open_at_root(name, libc::O_CREAT | libc::O_RDWR)
        .expect("open");
    session.write(handle, &[3; 5000], Some(0)).expect("write");
    session
        .write(handle, &[4; 100], Some(5 * PAGE))
        .expect("write");
    handle
}

#[test]
fn fallocate_without_data_pages() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    let handle = with_hole(&session, "file");
    fill(&session, 40 * PAGE);
    for (mode, length) in [
        (0, 1 << 20),
        (ZERO, 1 << 20),
        (ZERO | libc::FALLOC_FL_KEEP_SIZE, 1 << 20),
        (libc::FALLOC_FL_KEEP_SIZE, 1 << 20),
        (0, 50 << 20),
    ] {
        refused(&pool, &session, &["file"], "fallocate", &|| {
            assert_eq!(
                session.allocate(handle, mode, 100, length),
                Err(Errno::NOSPC),
                "{mode} {length}"
            );
        });
    }
    session
        .allocate(handle, 0, 0, 30 * PAGE)
        .expect("what there is room for");
    assert_eq!(session.stat_handle(handle).unwrap().blocks, 30 * 8);
}

#[test]
fn fallocate_without_index_pages() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    let handle = with_hole(&session, "file");
    fill(&session, 2 << 20);
    fill_names(&session);
    for (mode, at) in [(0, 3 << 30), (ZERO, 3 << 30), (0, 300 << 30)] {
        refused(&pool, &session, &["file"], "fallocate", &|| {
            assert_eq!(
                session.allocate(handle, mode, at, 20 * PAGE),
                Err(Errno::NOSPC),
                "{mode} {at}"
            );
        });
    }
}

#[test]
fn writes_without_data_pages() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    let handle = with_hole(&session, "file");
    fill(&session, 0);
    // The first two pages are this session's own, the next is a hole.
    let written = session.write(handle, &[9; 4 * PAGE as usize], Some(100));
    assert_eq!(written, Ok(2 * PAGE as usize - 100));
    let mut expected = vec![0; 5 * PAGE as usize + 100];
    expected[..100].fill(3);
    expected[100..2 * PAGE as usize].fill(9);
    expected[5 * PAGE as usize..].fill(4);
    assert!(session.get("file").expect("get") == expected);
    assert!(pool.session().get("file").expect("get") == expected);
    refused(&pool, &session, &["file"], "write", &|| {
        for at in [2 * PAGE, 3 * PAGE + 7, 6 * PAGE, 1 << 30] {
            let written = session.write(handle, &[9; 3 * PAGE as usize], Some(at));
            assert_eq!(written, Err(Errno::NOSPC), "{at}");
        }
    });
    // Another session has pages of its own for nothing.
    let other = pool.session();
    refused(&pool, &session, &["file"], "write by another", &|| {
        let handle = other.open_at_root("file", libc::O_RDWR).expect("open");
        for at in [0, 50, 2 * PAGE, 5 * PAGE] {
            let written = other.write(handle, &[9; 100], Some(at));
            assert_eq!(written, Err(Errno::NOSPC), "{at}");
        }
        // The last page has to be zeroed behind the end, which takes a page.
        assert_eq!(other.truncate_handle(handle, 1 << 20), Err(Errno::NOSPC));
        other.close(handle);
    });
}

#[test]
fn writes_without_index_pages() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    // Data up to the last page that the first index page covers, a hole behind it.
    let handle = session
        .open_at_root("file", libc::O_CREAT | libc::O_RDWR)
        .expect("open");
    session
        .write(handle, &[3; 4 * PAGE as usize], Some(508 * PAGE))
        .expect("write");
    session
        .truncate_handle(handle, 5000 * PAGE)
        .expect("truncate");
    fill(&session, 2 << 20);
    fill_names(&session);
    refused(&pool, &session, &["file"], "write", &|| {
        for at in [512 * PAGE, 513 * PAGE + 9, 6000 * PAGE] {
            let written = session.write(handle, &[9; 9000], Some(at));
            assert_eq!(written, Err(Errno::NOSPC), "{at}");
        }
    });
    // Over own pages and into the hole: as far as told, and no further.
    let before = session.get("file").expect("get");
    let at = 510 * PAGE;
    let written = session.write(handle, &[9; 6 * PAGE as usize], Some(at));
    let written = written.expect("two pages are there already");
    assert_eq!(written as u64, 2 * PAGE);
    let mut expected = before.clone();
    expected[at as usize..at as usize + written].fill(9);
    assert!(session.get("file").expect("get") == expected);
    session.fold(false).expect("fold");
    assert!(pool.session().get("file").expect("get") == expected);
}

#[test]
fn names_without_room() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    for directory in ["one", "two"] {
        session
            .make_directory(At::Root, directory.as_bytes(), 0o755)
            .expect("mkdir");
    }
    for path in ["one/file", "one/target", "two/old"] {
        session.put(path, path.as_bytes()).expect("put");
    }
    session
        .make_directory(At::Root, b"one/directory", 0o755)
        .expect("mkdir");
    fill(&session, 2 << 20);
    fill_names(&session);
    let at = At::Root;
    let paths = [
        "",
        "one",
        "two",
        "one/file",
        "one/target",
        "two/old",
        "one/directory",
    ];
    let nospc = Err(Failure::Errno(Errno::NOSPC));
    let long = format!("two/{}", "n".repeat(200));
    let long = long.as_bytes();
    type Action<'a> = (&'a str, Box<dyn Fn() -> Result<(), Failure> + 'a>);
    let actions: [Action<'_>; 8] = [
        (
            "mkdir",
            Box::new(|| session.make_directory(at, long, 0o755)),
        ),
        ("symlink", Box::new(|| session.symlink(b"target", at, long))),
        (
            "link",
            Box::new(|| session.link(at, b"one/file", at, long, 0)),
        ),
        (
            "mknod",
            Box::new(|| session.make_node(at, long, libc::S_IFREG | 0o600, 0)),
        ),
        (
            "rename",
            Box::new(|| session.rename(at, b"one/file", at, long, 0)),
        ),
        (
            "rename over",
            Box::new(|| session.rename(at, b"one/file", at, b"two/old", 0)),
        ),
        (
            "rename of a directory",
            Box::new(|| session.rename(at, b"one/directory", at, long, 0)),
        ),
        (
            "exchange",
            Box::new(|| {
                let flags = libc::RENAME_EXCHANGE;
                session.rename(at, b"one/file", at, b"two/old", flags)
            }),
        ),
    ];
    for (name, action) in &actions {
        refused(&pool, &session, &paths, name, &|| {
            assert_eq!(action(), nospc, "{name}");
        });
    }
    refused(&pool, &session, &paths, "create", &|| {
        let flags = libc::O_CREAT | libc::O_WRONLY;
        assert_eq!(
            session.open(at, long, flags, 0o600),
            Err(Errno::NOSPC.into())
        );
    });
    // What makes room is possible, whatever stands in the way of the rest.
    let handle = session
        .open_at_root("one/target", libc::O_RDWR)
        .expect("open");
    session.truncate_handle(handle, 0).expect("truncate");
    session.unlink(at, b"one/file", 0).expect("unlink");
    session
        .unlink(at, b"one/directory", libc::AT_REMOVEDIR)
        .expect("rmdir");
    for name in session.names("names").expect("names") {
        let path = format!("names/{name}");
        session.unlink(at, path.as_bytes(), 0).expect("unlink");
    }
    // A number that a failed symbolic link had is given to a file without content.
    for number in 0..40 {
        let path = format!("two/empty{number}");
        session.put(&path, b"").expect("put");
    }
    session.fold(true).expect("fold");
    let other = pool.session();
    for number in 0..40 {
        let content = other.get(&format!("two/empty{number}")).expect("get");
        assert!(content.is_empty(), "{number} has {content:?}");
    }
    assert_eq!(pool.violations(), "");
}
