//! What members hold, the moment after they are gone; and what nobody is told before they have left.

use crate::{POOL, Process};
use arck_core_state::PagePtr;
use arck_testkit::{Shorthand, TestPool, connect_as};
use arckfs::{At, Errno, FileSystem, Handle, LockKind, LockOwner, LockRequest};

/// Of a process that takes both kinds of locks of a file, and waits.
pub fn hold_locks(fs: &FileSystem) {
    let handle = fs.open_at_root("d/file", libc::O_RDWR).expect("open");
    for owner in [LockOwner::Process, LockOwner::Flock] {
        fs.lock(handle, request(owner, LockKind::Exclusive), false, None)
            .expect("a lock");
    }
    println!("locked");
    let _ = std::io::stdin().read_line(&mut String::new());
    std::process::exit(0);
}

fn request(owner: LockOwner, kind: LockKind) -> LockRequest {
    LockRequest {
        kind,
        start: 0,
        end: u64::MAX,
        owner,
    }
}

/// Whoever has waited for a process's end, and then asks for a lock that it had, gets it: the
/// controller may not have looked yet whether the process is there.
pub fn locks_of_the_dead_stand_in_nobodys_way() {
    let pool = TestPool::new(POOL);
    let member = connect_as(&pool.path(), b"g");
    member.make_directory(At::Root, b"d", 0o777).expect("mkdir");
    member.put("d/file", b"").expect("put");
    let stranger = pool.session();
    let handles =
        [&member, &stranger].map(|fs| (fs, fs.open_at_root("d/file", libc::O_RDWR).expect("open")));
    for round in 0..600 {
        die_with_locks(&pool, &member, &handles, round);
    }
}

/// A process of the group takes locks of a file and ends; then others want them.
fn die_with_locks(
    pool: &TestPool,
    member: &FileSystem,
    handles: &[(&FileSystem, Handle); 2],
    round: usize,
) {
    let (fs, handle) = handles[round % 2];
    let owner = [LockOwner::Process, LockOwner::Flock][round / 2 % 2];
    let wanted = request(owner, LockKind::Exclusive);
    let mut process = Process::start(pool, "locks");
    assert_eq!(process.says(), member.session().number().to_string());
    assert_eq!(process.says(), "locked");
    assert_eq!(fs.lock(handle, wanted, false, None), Err(Errno::AGAIN));
    match round % 3 {
        0 => drop(process.child.stdin.take()),
        _ => process.child.kill().expect("killed"),
    }
    // Asking all the time, so that the controller has just looked who is there, and looks next who
    // asks.
    while process.child.try_wait().expect("a child").is_none() {
        let _ = fs.conflicting_lock(handle, wanted);
    }
    if round % 4 < 2 && owner == LockOwner::Process {
        let conflict = fs.conflicting_lock(handle, wanted);
        assert_eq!(
            conflict.map(|lock| lock.is_some()),
            Ok(false),
            "round {round}"
        );
    }
    assert_eq!(
        fs.lock(handle, wanted, false, None),
        Ok(()),
        "round {round}"
    );
    fs.lock(handle, request(owner, LockKind::Unlock), false, None)
        .expect("unlocked");
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
