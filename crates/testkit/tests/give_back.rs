//! Sessions that live give room back that they have freed: others can use it at once.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, FileSystem};

const POOL: u64 = 64 << 20;
const MUCH: usize = 40 << 20;
const PIECE: usize = 1 << 20;

fn piece(seed: usize) -> Vec<u8> {
    let value = |i: usize| (i / 4096 * 31 + i + seed) as u8;
    (0..PIECE).map(value).collect()
}

/// Writes a file of so many bytes, in pieces.
fn write(session: &FileSystem, path: &str, bytes: usize, seed: usize) -> Result<(), Errno> {
    let handle = session
        .open_at_root(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC)
        .expect("open");
    let written = (0..bytes / PIECE).try_for_each(|number| {
        let mut data = piece(seed + number);
        while !data.is_empty() {
            let length = session.write(handle, &data, None)?;
            data.drain(..length);
        }
        Ok(())
    });
    session.close(handle);
    written
}

fn check(session: &FileSystem, path: &str, bytes: usize, seed: usize) {
    let content = session.get(path).expect("get");
    assert_eq!(content.len(), bytes, "{path}");
    for (number, part) in content.chunks(PIECE).enumerate() {
        assert!(part == piece(seed + number), "{path}, piece {number}");
    }
}

fn unlink(session: &FileSystem, path: &str) {
    session
        .unlink(At::Root, path.as_bytes(), 0)
        .expect("unlink");
}

/// Each in turn fills most of the pool and removes it again, while the others live.
#[test]
fn what_one_session_removes_others_can_use() {
    let pool = TestPool::new(POOL);
    let sessions = [pool.session(), pool.session(), pool.session()];
    for (turn, session) in (0..6).zip(sessions.iter().cycle()) {
        write(session, "big", MUCH, turn).expect("room that another has freed");
        for other in &sessions {
            check(other, "big", MUCH, turn);
        }
        unlink(session, "big");
    }
    assert_eq!(pool.violations(), "");
}

/// Many small files, one that was never folded, one that is cut, and one that is open without a name.
#[test]
fn whatever_way_it_was_lost() {
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    let small = piece(7)[..40_000].to_vec();
    type Way = (&'static str, fn(&FileSystem, &[u8]));
    let ways: [Way; 4] = [
        ("many", |session, small| {
            for number in 0..1000 {
                session.put(&format!("small{number}"), small).expect("put");
            }
            session.fold(false).expect("fold");
            for number in 0..1000 {
                unlink(session, &format!("small{number}"));
            }
        }),
        ("never folded", |session, _| {
            write(session, "big", MUCH, 1).expect("write");
            unlink(session, "big");
        }),
        ("cut", |session, _| {
            write(session, "big", MUCH, 1).expect("write");
            session.fold(false).expect("fold");
            session.truncate(At::Root, b"big", 100).expect("truncate");
        }),
        ("open", |session, _| {
            write(session, "big", MUCH, 1).expect("write");
            session.fold(false).expect("fold");
            let handle = session.open_at_root("big", libc::O_RDONLY).expect("open");
            unlink(session, "big");
            session.fold(false).expect("fold");
            let mut byte = [0];
            assert_eq!(session.read(handle, &mut byte, Some(0)), Ok(1));
            assert_eq!(byte[0], piece(1)[0]);
            session.close(handle);
        }),
    ];
    for (what, way) in ways {
        way(&one, &small);
        write(&two, "others", MUCH, 2).unwrap_or_else(|errno| panic!("{what}: {errno}"));
        check(&one, "others", MUCH, 2);
        unlink(&two, "others");
    }
    assert_eq!(pool.violations(), "");
}

/// Two sessions fill and empty a pool at the same time, each with several threads: what is there is
/// right, however often segments go to and fro.
#[test]
fn to_and_fro() {
    let pool = TestPool::new(32 << 20);
    let (one, two) = (pool.session(), pool.session());
    std::thread::scope(|scope| {
        for (name, session) in [("a", &one), ("b", &two), ("c", &one), ("d", &two)] {
            scope.spawn(move || {
                let mut full = 0;
                for turn in 0..40 {
                    let bytes = (1 + turn % 6) * PIECE;
                    match write(session, name, bytes, turn) {
                        Ok(()) => check(session, name, bytes, turn),
                        Err(errno) => {
                            assert_eq!(errno, Errno::NOSPC);
                            full += 1;
                        }
                    }
                    unlink(session, name);
                }
                assert!(full < 40, "never any room");
            });
        }
    });
    assert_eq!(pool.violations(), "");
}
