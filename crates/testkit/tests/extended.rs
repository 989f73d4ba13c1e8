//! Extended attributes across folds, sessions and crashes, in full pools, and under threads.

use arck_controller::Options;
use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, Errno, Failure, FileSystem, Subject};
use std::sync::atomic::{AtomicUsize, Ordering};

const POOL: u64 = 64 << 20;
/// Bytes of all attributes of an inode: each takes 4 besides its name and value.
const ROOM: usize = 4096;

fn at(path: &str) -> Subject<'_> {
    Subject::Path(At::Root, path.as_bytes(), 0)
}

fn set(session: &FileSystem, path: &str, name: &str, value: &[u8]) -> Result<(), Failure> {
    session.set_extended(at(path), name.as_bytes(), value, 0)
}

fn get(session: &FileSystem, path: &str, name: &str) -> Result<Vec<u8>, Failure> {
    let mut value = vec![0; 1 << 16];
    let length = session.get_extended(at(path), name.as_bytes(), &mut value)?;
    value.truncate(length);
    Ok(value)
}

fn remove(session: &FileSystem, path: &str, name: &str) -> Result<(), Failure> {
    session.remove_extended(at(path), name.as_bytes())
}

/// Names, sorted.
fn list(session: &FileSystem, path: &str) -> Vec<String> {
    let mut names = vec![0; 1 << 16];
    let length = session.list_extended(at(path), &mut names).expect("a list");
    let names = names[..length].split_inclusive(|&byte| byte == 0);
    let text = |name: &[u8]| String::from_utf8_lossy(&name[..name.len() - 1]).into_owned();
    let mut names: Vec<_> = names.map(text).collect();
    names.sort();
    names
}

fn failed<T>(errno: Errno) -> Result<T, Failure> {
    Err(Failure::Errno(errno))
}

#[test]
fn another_session_reads_and_changes_them() {
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    one.make_directory(At::Root, b"d", 0o755).unwrap();
    one.put("d/f", b"content").unwrap();
    for path in ["d", "d/f"] {
        set(&one, path, "user.a", b"first").unwrap();
        set(&one, path, "user.b", b"second").unwrap();
    }
    for path in ["d", "d/f"] {
        // Folded because somebody asks, the owner stays who it is.
        assert_eq!(get(&two, path, "user.a").unwrap(), b"first");
        set(&one, path, "user.a", b"changed").unwrap();
        assert_eq!(get(&two, path, "user.a").unwrap(), b"changed");
        assert_eq!(get(&two, path, "user.b").unwrap(), b"second");
        // Taken over.
        remove(&two, path, "user.a").unwrap();
        set(&two, path, "user.c", b"third").unwrap();
        assert_eq!(list(&one, path), ["user.b", "user.c"]);
        assert_eq!(get(&one, path, "user.a"), failed(Errno::NODATA));
        remove(&one, path, "user.b").unwrap();
        remove(&one, path, "user.c").unwrap();
        assert_eq!(list(&two, path), [""; 0]);
        // None on top of none.
        set(&one, path, "user.d", b"").unwrap();
        remove(&one, path, "user.d").unwrap();
        one.fold(true).unwrap();
        assert_eq!(list(&two, path), [""; 0]);
    }
    assert_eq!(two.get("d/f").unwrap(), b"content");
    assert_eq!(pool.violations(), "");
}

#[test]
fn they_outlive_a_kill_and_a_clean_end() {
    let mut pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("old", b"1").unwrap();
    session.put("bare", b"2").unwrap();
    for name in ["user.stays", "user.changes", "user.goes"] {
        set(&session, "old", name, name.as_bytes()).unwrap();
    }
    set(&session, "bare", "user.goes", b"x").unwrap();
    session.fold(false).unwrap();
    set(&session, "old", "user.changes", b"changed").unwrap();
    remove(&session, "old", "user.goes").unwrap();
    remove(&session, "bare", "user.goes").unwrap();
    session.put("new", b"3").unwrap();
    session.make_directory(At::Root, b"d", 0o755).unwrap();
    set(&session, "new", "user.a", b"of a file not yet folded").unwrap();
    set(&session, "d", "user.a", b"of a directory").unwrap();
    pool.kill();
    drop(session);
    for _ in 0..2 {
        pool.serve();
        let session = pool.session();
        assert_eq!(list(&session, "old"), ["user.changes", "user.stays"]);
        assert_eq!(get(&session, "old", "user.stays").unwrap(), b"user.stays");
        assert_eq!(get(&session, "old", "user.changes").unwrap(), b"changed");
        assert_eq!(list(&session, "bare"), [""; 0]);
        assert_eq!(
            get(&session, "new", "user.a").unwrap(),
            b"of a file not yet folded"
        );
        assert_eq!(get(&session, "d", "user.a").unwrap(), b"of a directory");
        // Pages in use are not given out again.
        session.put("big", &vec![7; 8 << 20]).unwrap();
        assert_eq!(get(&session, "d", "user.a").unwrap(), b"of a directory");
        session.disconnect().unwrap();
        pool.stop();
    }
    assert_eq!(pool.violations(), "");
}

#[test]
fn their_pages_come_back() {
    let pool = TestPool::new(16 << 20);
    let (session, other) = (pool.session(), pool.session());
    let value = vec![1; 3000];
    session.put("kept", b"x").unwrap();
    session.make_directory(At::Root, b"d", 0o755).unwrap();
    // Far more pages than the pool has.
    for round in 0..9008 {
        session.put("f", b"").unwrap();
        set(&session, "f", "user.a", &value).unwrap();
        set(&session, "kept", "user.a", &value).unwrap();
        set(&session, "d", "user.a", &value).unwrap();
        match round % 16 {
            3 => session.fold(false).unwrap(),
            7 => session.fold(true).unwrap(),
            11 => set(&other, "kept", "user.b", b"of the other").unwrap(),
            15 => {
                remove(&session, "kept", "user.a").unwrap();
                remove(&other, "kept", "user.b").unwrap();
                session.put("f", b"data").unwrap();
            }
            _ => {}
        }
        session.unlink(At::Root, b"f", 0).unwrap();
    }
    assert_eq!(list(&session, "kept"), ["user.a"; 0]);
    assert_eq!(pool.violations(), "");
}

#[test]
fn a_number_used_again_has_none() {
    for folds in [false, true] {
        let pool = TestPool::new(POOL);
        let session = pool.session();
        let mut seen = std::collections::HashSet::new();
        let mut again = 0;
        for round in 0..5000 {
            session.put("f", b"x").unwrap();
            let number = session.stat(At::Root, b"f", 0).unwrap().inode;
            assert_eq!(list(&session, "f"), ["user.a"; 0], "of inode {number}");
            if !seen.insert(number) {
                again += 1;
            }
            set(&session, "f", "user.a", b"value").unwrap();
            if folds && round % 2 == 0 {
                session.fold(round % 4 == 0).unwrap();
            }
            session.unlink(At::Root, b"f", 0).unwrap();
            if folds {
                session.fold(false).unwrap();
            }
            if again == 10 {
                break;
            }
        }
        assert_eq!(again, 10, "folds: {folds}");
    }
}

#[test]
fn a_page_of_them_is_all_that_fits() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("f", b"").unwrap();
    // Value and name of the only one.
    let most = ROOM - 4 - "user.a".len();
    assert_eq!(
        set(&session, "f", "user.a", &vec![1; most + 1]),
        failed(Errno::NOSPC)
    );
    assert_eq!(
        set(&session, "f", "user.a", &vec![1; 65_536]),
        failed(Errno::NOSPC)
    );
    assert_eq!(
        set(&session, "f", "user.a", &vec![1; 65_537]),
        failed(Errno::TOOBIG)
    );
    assert_eq!(list(&session, "f"), [""; 0]);
    set(&session, "f", "user.a", &vec![1; most]).unwrap();
    assert_eq!(set(&session, "f", "user.b", b""), failed(Errno::NOSPC));
    assert_eq!(get(&session, "f", "user.a").unwrap(), vec![1; most]);
    // One that grows over the end leaves its old value.
    set(&session, "f", "user.a", &vec![2; most - 100]).unwrap();
    set(&session, "f", "user.b", &[3; 90]).unwrap();
    assert_eq!(set(&session, "f", "user.b", &[4; 91]), failed(Errno::NOSPC));
    session.fold(true).unwrap();
    let other = pool.session();
    assert_eq!(get(&other, "f", "user.a").unwrap(), vec![2; most - 100]);
    assert_eq!(get(&other, "f", "user.b").unwrap(), [3; 90]);
}

#[test]
fn a_full_pool_leaves_them_as_they_were() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    let names: Vec<String> = (0..400).map(|number| format!("f{number}")).collect();
    for name in &names {
        session.put(name, b"").unwrap();
    }
    set(&session, &names[0], "user.a", b"0").unwrap();
    set(&session, &names[0], "user.b", b"0").unwrap();
    session.fold(false).unwrap();
    let handle = session
        .open_at_root("filler", libc::O_CREAT | libc::O_WRONLY)
        .unwrap();
    while session.write(handle, &[1; 4096], None) != Err(Errno::NOSPC) {}
    let mut done = 1;
    let refused = loop {
        match set(&session, &names[done], "user.a", names[done].as_bytes()) {
            Ok(()) => done += 1,
            Err(failure) => break failure,
        }
    };
    assert_eq!(refused, Failure::Errno(Errno::NOSPC));
    assert_eq!(list(&session, &names[done]), [""; 0]);
    // A change takes another page, and leaves the old one if there is none.
    let changed = set(&session, &names[0], "user.a", b"1");
    assert_eq!(changed, failed(Errno::NOSPC));
    assert_eq!(remove(&session, &names[0], "user.a"), failed(Errno::NOSPC));
    assert_eq!(list(&session, &names[0]), ["user.a", "user.b"]);
    assert_eq!(get(&session, &names[0], "user.a").unwrap(), b"0");
    for name in &names[1..done] {
        assert_eq!(get(&session, name, "user.a").unwrap(), name.as_bytes());
    }
    session.truncate_handle(handle, 0).ok();
    session.truncate(At::Root, b"filler", 0).unwrap();
    set(&session, &names[0], "user.a", b"1").unwrap();
    set(&session, &names[done], "user.a", b"1").unwrap();
    assert_eq!(get(&pool.session(), &names[0], "user.a").unwrap(), b"1");
    assert_eq!(pool.violations(), "");
}

#[test]
fn the_last_one_goes_without_a_page() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    session.put("f", b"").unwrap();
    set(&session, "f", "user.a", b"0").unwrap();
    session.fold(false).unwrap();
    let handle = session
        .open_at_root("filler", libc::O_CREAT | libc::O_WRONLY)
        .unwrap();
    while session.write(handle, &[1; 4096], None) != Err(Errno::NOSPC) {}
    remove(&session, "f", "user.a").unwrap();
    assert_eq!(list(&pool.session(), "f"), [""; 0]);
}

#[test]
fn the_change_time_moves_and_the_modification_time_does_not() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("f", b"").unwrap();
    let before = session.stat(At::Root, b"f", 0).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    set(&session, "f", "user.a", b"x").unwrap();
    let after = session.stat(At::Root, b"f", 0).unwrap();
    assert!(after.changed > before.changed);
    assert_eq!(after.modified, before.modified);
    let other = pool.session();
    assert_eq!(other.stat(At::Root, b"f", 0).unwrap(), after);
}

/// A session fills its page with anything; others read what there is of it, and go on.
#[test]
fn nothing_in_a_page_is_believed() {
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    one.put("f", b"x").unwrap();
    set(&one, "f", "user.first", b"value").unwrap();
    set(&one, "f", "user.second", b"value").unwrap();
    one.fold(false).unwrap();
    let number = one.stat(At::Root, b"f", 0).unwrap().inode as u32;
    let (_, inode) = one.session().verified(number).unwrap().expect("alive");
    let page = one.session().page_bytes(inode.attributes).expect("its own");
    let fill = |at: usize, bytes: &[u8]| {
        let _durable = arck_pm::order::fence(page.try_stream(at, bytes).expect("stored"));
    };
    // Behind the first: a value that reaches over the end.
    let second = 4 + "user.first".len() + "value".len();
    fill(second + 2, &u16::MAX.to_le_bytes());
    assert_eq!(list(&two, "f"), ["user.first"]);
    assert_eq!(get(&two, "f", "user.first").unwrap(), b"value");
    assert_eq!(get(&two, "f", "user.second"), failed(Errno::NODATA));
    let mut random = Random::new(1);
    for round in 0..500 {
        fill(0, &random.bytes(64));
        if round % 3 == 0 {
            fill(0, &[10, 0, (round % 256) as u8, 0]);
            fill(4, b"user.");
        }
        for name in list(&two, "f") {
            assert!(name.starts_with("user.") && name.len() > 5, "{name}");
        }
    }
    // Whoever writes it next puts it right.
    fill(0, &[0xff; 4096]);
    set(&two, "f", "user.a", b"right").unwrap();
    assert_eq!(list(&one, "f"), ["user.a"]);
    assert_eq!(pool.violations(), "");
}

/// One thread less, even if it panics.
struct Done<'c>(&'c AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Every answer is as if a thread were alone with its own attribute: a fold that gets in between
/// neither loses a change nor makes one twice.
fn threads_and_sessions(options: Options) {
    const ROUNDS: u64 = 10_000;
    let pool = TestPool::with_options(POOL, options);
    let (one, two) = (pool.session(), pool.session());
    one.put("f", b"x").unwrap();
    one.make_directory(At::Root, b"d", 0o755).unwrap();
    let work = |session: &FileSystem, number: usize| {
        let name = format!("user.of-{number}");
        let name = name.as_bytes();
        for round in 0..ROUNDS {
            for path in ["f", "d"] {
                let value = round.to_le_bytes();
                let set = |flags| session.set_extended(at(path), name, &value, flags);
                assert_eq!(set(libc::XATTR_REPLACE), failed(Errno::NODATA), "{round}");
                assert_eq!(set(libc::XATTR_CREATE), Ok(()), "{round}");
                assert_eq!(set(libc::XATTR_CREATE), failed(Errno::EXIST), "{round}");
                let mut found = [0; 8];
                assert_eq!(session.get_extended(at(path), name, &mut found), Ok(8));
                assert_eq!(found, value);
                assert_eq!(session.remove_extended(at(path), name), Ok(()), "{round}");
                let again = session.remove_extended(at(path), name);
                assert_eq!(again, failed(Errno::NODATA), "{round}");
            }
        }
    };
    let running = AtomicUsize::new(3);
    std::thread::scope(|scope| {
        let (running, work) = (&running, &work);
        for (number, session) in [&one, &one, &two].into_iter().enumerate() {
            scope.spawn(move || {
                let _done = Done(running);
                work(session, number);
            });
        }
        let third = pool.session();
        while running.load(Ordering::Relaxed) != 0 {
            for path in ["f", "d"] {
                assert!(list(&third, path).len() <= 3);
            }
            one.fold(false).unwrap();
        }
    });
    assert_eq!(list(&one, "f"), [""; 0]);
    assert_eq!(list(&two, "d"), [""; 0]);
    assert_eq!(pool.violations(), "");
}

#[test]
fn threads_and_sessions_each_with_one_of_their_own() {
    threads_and_sessions(Options::default());
}

/// Folds that wait for no operation: many get in between one's store and its second look.
#[test]
fn threads_and_sessions_with_folds_that_do_not_wait() {
    threads_and_sessions(Options {
        patience: std::time::Duration::ZERO,
        lease: std::time::Duration::ZERO,
        ..Options::default()
    });
}
