//! What members hold, the moment after they are gone; and what nobody is told before they have left.

use crate::{POOL, Process};
use arck_core_state::PagePtr;
use arck_testkit::locks::{Kind, Owner, lock_all};
use arck_testkit::{Shorthand, TestPool, connect_as};
use arckfs::{At, Errno, FileSystem};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const OWNERS: [Owner; 2] = [Owner::Process, Owner::Flock];

/// Of a process that takes both kinds of locks of a file, and waits.
pub fn hold_locks(fs: &FileSystem) {
    let handle = fs.open_at_root("d/file", libc::O_RDWR).expect("open");
    let file = fs.lock_file(handle).expect("a lock file");
    for owner in OWNERS {
        lock_all(&file, owner, Kind::Exclusive).expect("a lock");
    }
    println!("locked");
    let _ = std::io::stdin().read_line(&mut String::new());
    std::process::exit(0);
}

/// Whoever has waited for a process's end, and then asks for a lock that it had, gets it, whether or not
/// the controller has looked, or is there at all.
pub fn locks_of_the_dead_stand_in_nobodys_way() {
    let mut pool = TestPool::new(POOL);
    let member = connect_as(&pool.path(), b"g");
    member.make_directory(At::Root, b"d", 0o777).expect("mkdir");
    member.put("d/file", b"").expect("put");
    let stranger = pool.session();
    let files = [&member, &stranger].map(|fs| {
        let handle = fs.open_at_root("d/file", libc::O_RDWR).expect("open");
        fs.lock_file(handle).expect("a lock file")
    });
    for round in 0..200 {
        die_with_locks(&mut pool, &files[round % 2], round);
    }
}

/// A process of the group takes locks of a file and ends; then others want them.
fn die_with_locks(pool: &mut TestPool, file: &OwnedFd, round: usize) {
    let owner = OWNERS[round / 2 % 2];
    let mut process = Process::start(pool, "locks");
    process.says();
    assert_eq!(process.says(), "locked");
    let refused = lock_all(file, owner, Kind::Exclusive);
    assert_eq!(refused, Err(Errno::AGAIN));
    let is_alone = round % 20 == 7;
    if is_alone {
        pool.kill();
    }
    match round % 3 {
        0 => drop(process.child.stdin.take()),
        _ => process.child.kill().expect("killed"),
    }
    process.child.wait().expect("a child");
    let taken = lock_all(file, owner, Kind::Exclusive);
    assert_eq!(taken, Ok(()), "round {round}");
    lock_all(file, owner, Kind::Unlock).expect("unlocked");
    if is_alone {
        pool.serve();
    }
}

/// A member that was killed while there was no controller is told to the next one by nobody: the others are
/// told of it all the same, clear away what it left, and its number can be another's.
pub fn who_dies_without_a_controller_is_departed() {
    let mut pool = TestPool::new(POOL);
    let member = connect_as(&pool.path(), b"g");
    member.make_directory(At::Root, b"d", 0o777).expect("mkdir");
    member.put("d/file", b"").expect("put");
    let header = &member.session().control().header;
    let members = || {
        let words = header.members.iter();
        words
            .map(|word| word.load(Ordering::SeqCst))
            .collect::<Vec<_>>()
    };
    let alone = members();
    for round in 0..5 {
        let mut process = Process::start(&pool, "locks");
        assert_eq!(process.says(), member.session().number().to_string());
        assert_eq!(process.says(), "locked");
        assert_ne!(members(), alone);
        pool.kill();
        process.child.kill().expect("killed");
        process.child.wait().expect("a child");
        pool.serve();
        member.put("d/other", b"asks").expect("put");
        member.fold(false).expect("a fold");
        let began = Instant::now();
        while members() != alone {
            assert!(began.elapsed() < Duration::from_secs(20), "round {round}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A member that is in the middle of reading never sees what another session writes into a segment that
/// its group has given back: it is given back once all that were inside have left.
pub fn segments_are_given_back_when_all_have_left() {
    const MUCH: usize = 36 << 20;
    let pool = TestPool::new(64 << 20);
    let [writer, reader] = [&b"g"[..], b"g"].map(|group| connect_as(&pool.path(), group));
    let other = pool.session();
    let filled = |byte: u8| vec![byte; MUCH];
    let put = |fs: &FileSystem, byte: u8| fs.put("big", &filled(byte));
    let remove = |fs: &FileSystem| fs.unlink(At::Root, b"big", 0).expect("unlink");
    put(&writer, b'w').expect("put");
    writer.fold(false).expect("a fold");
    assert!(reader.get("big") == Ok(filled(b'w')));

    let session = reader.session();
    let inside = session.thread().expect("a thread").slot().pin();
    let first_of = |page: u64| {
        let mut bytes = [0; 16];
        let page = session.page_bytes(PagePtr(page))?;
        page.copy_to(0, &mut bytes).map(|()| bytes)
    };
    let pages: Vec<u64> = (1..session.geometry().page_count())
        .filter(|&page| first_of(page) == Some([b'w'; 16]))
        .collect();
    assert!(pages.len() * 4096 >= MUCH, "{} pages", pages.len());
    remove(&writer);
    let _ = put(&other, b'o');
    let strange = pages
        .iter()
        .filter(|&&page| first_of(page) == Some([b'o'; 16]));
    assert_eq!(strange.count(), 0, "pages of another session's");
    remove(&other);
    drop(inside);

    // Once it has left, others get the room.
    put(&writer, b'w').expect("put");
    remove(&writer);
    put(&other, b'o').expect("room that the group has given back");
    for fs in [&writer, &reader] {
        assert!(fs.get("big") == Ok(filled(b'o')));
    }
    assert_eq!(pool.violations(), "");
}
