//! What ArckFS+ is known to get wrong, each as a test.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, Failure, FileSystem};
use std::sync::atomic::{AtomicBool, Ordering};

const POOL: u64 = 64 << 20;

fn is<T>(result: Result<T, Failure>, errno: Errno) -> bool {
    matches!(result, Err(Failure::Errno(found)) if found == errno)
}

fn append(session: &FileSystem, line: &[u8], times: usize) {
    let flags = libc::O_WRONLY | libc::O_APPEND;
    let handle = session.open_at_root("log", flags).expect("open");
    for _ in 0..times {
        assert_eq!(session.write(handle, line, None), Ok(line.len()));
    }
    session.close(handle);
}

#[test]
fn truncating_to_nothing_leaves_no_lock_held() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    let handle = session
        .open_at_root("file", libc::O_CREAT | libc::O_RDWR)
        .unwrap();
    for round in 0..10u8 {
        assert_eq!(session.write(handle, &[round; 5000], Some(0)), Ok(5000));
        session.truncate_handle(handle, 0).unwrap();
        session.truncate_handle(handle, 0).unwrap();
    }
    assert_eq!(session.get("file").unwrap(), b"");
}

#[test]
fn writing_behind_the_end_of_a_shrunk_file_touches_nothing_else() {
    let mut pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("other", &[7; 100_000]).unwrap();
    let handle = session
        .open_at_root("file", libc::O_CREAT | libc::O_RDWR)
        .unwrap();
    session.write(handle, &[1; 100_000], Some(0)).unwrap();
    session.truncate_handle(handle, 10).unwrap();
    assert_eq!(session.write(handle, &[2; 10], Some(50_000)), Ok(10));
    let mut expected = vec![0; 50_010];
    expected[..10].fill(1);
    expected[50_000..].fill(2);
    assert_eq!(session.get("file").unwrap(), expected);
    drop(session);
    pool.stop();
    pool.serve();
    let session = pool.session();
    assert_eq!(session.get("file").unwrap(), expected);
    assert_eq!(session.get("other").unwrap(), [7; 100_000]);
}

#[test]
fn an_unlinked_open_file_overwrites_no_other() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("old", &[1; 20_000]).unwrap();
    let handle = session.open_at_root("old", libc::O_RDWR).unwrap();
    session.unlink(At::Root, b"old", 0).unwrap();
    for number in 0..200u8 {
        session
            .put(&format!("new{number}"), &[number; 20_000])
            .unwrap();
    }
    assert_eq!(session.write(handle, &[0xee; 20_000], Some(0)), Ok(20_000));
    let mut buffer = [0; 20_000];
    assert_eq!(session.read(handle, &mut buffer, Some(0)), Ok(20_000));
    assert_eq!(buffer, [0xee; 20_000]);
    session.close(handle);
    for number in 0..200u8 {
        let content = session.get(&format!("new{number}")).unwrap();
        assert_eq!(content, [number; 20_000], "new{number}");
    }
}

#[test]
fn holes_show_zeroes_and_not_what_was_deleted() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    session.put("secret", &vec![0x5a; 8 << 20]).unwrap();
    session.fold(false).unwrap();
    session.unlink(At::Root, b"secret", 0).unwrap();
    session.fold(false).unwrap();
    let handle = session
        .open_at_root("holes", libc::O_CREAT | libc::O_RDWR)
        .unwrap();
    for place in (0..4u64 << 20).step_by(16_384) {
        assert_eq!(session.write(handle, b"x", Some(place + 5000)), Ok(1));
    }
    session.truncate_handle(handle, 4 << 20).unwrap();
    let content = session.get("holes").unwrap();
    for (at, &byte) in content.iter().enumerate() {
        let expected = if at % 16_384 == 5000 { b'x' } else { 0 };
        assert_eq!(byte, expected, "byte {at}");
    }
}

#[test]
fn names_are_found_while_the_index_grows() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    session.make_directory(At::Root, b"d", 0o755).unwrap();
    session.put("d/steady", b"here").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut looked = 0u64;
            while !done.load(Ordering::Relaxed) {
                assert_eq!(
                    session.stat(At::Root, b"d/steady", 0).expect("stat").size,
                    4
                );
                assert!(is(session.stat(At::Root, b"d/missing", 0), Errno::NOENT));
                looked += 1;
            }
            looked
        });
        for number in 0..8000 {
            session.put(&format!("d/{number}"), b"").expect("put");
            if number % 2000 == 1999 {
                session.fold(false).expect("fold");
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(looker.join().expect("the looker") > 0);
    });
}

#[test]
fn two_threads_that_append_lose_nothing() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("log", b"").unwrap();
    std::thread::scope(|scope| {
        for line in [b"one one\n", b"two two\n"] {
            let session = &session;
            scope.spawn(move || append(session, line, 5000));
        }
    });
    let content = session.get("log").unwrap();
    let count = |line: &[u8]| content.chunks(8).filter(|&found| found == line).count();
    assert_eq!((count(b"one one\n"), count(b"two two\n")), (5000, 5000));
    assert_eq!(content.len(), 80_000);
}

#[test]
fn a_missing_file_cannot_be_renamed() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("target", b"target").unwrap();
    for to in [&b"new"[..], b"target"] {
        let renamed = session.rename(At::Root, b"missing", At::Root, to, 0);
        assert!(is(renamed, Errno::NOENT));
    }
    assert_eq!(session.names("").unwrap(), ["target"]);
}

#[test]
fn names_of_255_bytes_are_listed() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    let names: Vec<String> = (0..50).map(|number| format!("{number:0>255}")).collect();
    for name in &names {
        session.put(name, b"x").unwrap();
    }
    assert_eq!(session.names("").unwrap(), names);
    session.fold(false).unwrap();
    assert_eq!(session.names("").unwrap(), names);
    assert_eq!(pool.session().names("").unwrap(), names);
}

#[test]
fn a_full_pool_is_told() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    let handle = session
        .open_at_root("file", libc::O_CREAT | libc::O_WRONLY)
        .unwrap();
    let piece = vec![1; 1 << 20];
    let mut written = 0;
    let errno = loop {
        match session.write(handle, &piece, None) {
            Ok(0) => panic!("nothing written, and no error"),
            Ok(length) => written += length as u64,
            Err(errno) => break errno,
        }
        assert!(written <= 16 << 20);
    };
    assert_eq!(errno, Errno::NOSPC);
    assert_eq!(session.stat_handle(handle).unwrap().size, written);
}

#[test]
fn deleted_names_leave_their_room() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    for number in 0..60_000u32 {
        let name = format!("{number:0>200}");
        session
            .put(&name, b"")
            .unwrap_or_else(|failure| panic!("{number}: {failure:?}"));
        session.unlink(At::Root, name.as_bytes(), 0).unwrap();
    }
    assert!(session.names("").unwrap().is_empty());
}
