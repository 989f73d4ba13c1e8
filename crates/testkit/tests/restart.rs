//! Sessions that outlive their controller: it is killed and started again under them, and they go
//! on, without an error and without losing anything.

use arck_testkit::locks::{Kind, Owner, lock};
use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, ConnectOptions, Errno, Failure, FileSystem};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SIZE: u64 = 256 << 20;

fn file(fs: &FileSystem, path: &str, content: &[u8]) {
    fs.put(path, content)
        .unwrap_or_else(|failure| panic!("{path}: {failure:?}"));
}

#[test]
fn a_session_goes_on_with_what_it_owns_and_is_taken_up() {
    let mut pool = TestPool::new(SIZE);
    let fs = pool.session();
    file(&fs, "first", b"one");
    let open = fs
        .open_at_root("open", libc::O_CREAT | libc::O_RDWR)
        .unwrap();
    assert_eq!(fs.write(open, b"before", None), Ok(6));
    pool.kill();
    // Nobody serves the pool: what it owns it can still change.
    assert_eq!(fs.write(open, b" and meanwhile", None), Ok(14));
    file(&fs, "first", b"two");
    pool.serve();
    assert_eq!(fs.write(open, b" and after", None), Ok(10));
    // More than it has numbers, data pages and arena pages for.
    for i in 0..2000 {
        file(&fs, &format!("file {i}"), &[i as u8; 5000]);
    }
    fs.fold(false).unwrap();
    let other = pool.session();
    assert_eq!(
        other.get("open").unwrap(),
        b"before and meanwhile and after"
    );
    assert_eq!(other.get("first").unwrap(), b"two");
    assert_eq!(
        other.get("file 1999").unwrap(),
        vec![1999_usize as u8; 5000]
    );
    assert_eq!(pool.violations(), "");
}

#[test]
fn a_request_waits_for_the_next_controller() {
    let mut pool = TestPool::new(SIZE);
    let fs = pool.session();
    file(&fs, "file", b"content");
    pool.kill();
    let asked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            asked.store(true, Ordering::SeqCst);
            fs.fold(true)
        });
        while !asked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished());
        pool.serve();
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(pool.session().get("file").unwrap(), b"content");
}

/// A controller that dies when it has taken a program's connection, and before it has answered.
#[test]
fn a_program_that_is_just_started_waits_for_the_next_controller() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, accept, bind, listen, socket};
    let mut pool = TestPool::new(SIZE);
    pool.kill();
    let place = pool.path().join("socket");
    // It may have left its own.
    let _ = std::fs::remove_file(&place);
    let dying = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&dying, &SocketAddrUnix::new(&place).unwrap()).unwrap();
    listen(&dying, 1).unwrap();
    std::thread::scope(|scope| {
        let options = ConnectOptions {
            pool: pool.path(),
            mount: b"/arck".to_vec(),
            group: Vec::new(),
            resolver: arck_testkit::resolver(),
        };
        let starting = scope.spawn(move || FileSystem::connect_waiting(&options));
        for _ in 0..3 {
            let mut connection = [PollFd::new(&dying, PollFlags::IN)];
            let patience = Timespec::try_from(Duration::from_secs(20)).unwrap();
            assert_eq!(poll(&mut connection, Some(&patience)), Ok(1), "it gave up");
            drop(accept(&dying).unwrap());
        }
        assert!(!starting.is_finished());
        drop(dying);
        std::fs::remove_file(&place).unwrap();
        pool.serve();
        let fs = starting.join().unwrap().unwrap();
        file(&fs, "file", b"content");
        assert_eq!(fs.get("file").unwrap(), b"content");
    });
}

#[test]
fn the_changes_of_a_session_that_is_away_are_folded_for_others() {
    let mut pool = TestPool::new(SIZE);
    let idle = pool.session();
    file(&idle, "file", b"mine");
    let open = idle.open_at_root("file", libc::O_RDWR).unwrap();
    file(&idle, "gone", b"open and without a name");
    let gone = idle.open_at_root("gone", libc::O_RDWR).unwrap();
    idle.unlink(At::Root, b"gone", 0).unwrap();
    pool.kill();
    pool.serve();
    // It has not come back: nothing makes it.
    let other = pool.session();
    assert_eq!(other.get("file").unwrap(), b"mine");
    file(&other, "file", b"taken over");
    other.fold(true).unwrap();
    // It comes back, and finds what has changed, and what it had open.
    assert_eq!(idle.get("file").unwrap(), b"taken over");
    assert_eq!(idle.write(open, b"T", None), Ok(1));
    assert_eq!(other.get("file").unwrap(), b"Taken over");
    let mut buffer = [0; 32];
    let length = idle.read(gone, &mut buffer, Some(0)).unwrap();
    assert_eq!(&buffer[..length], b"open and without a name");
    assert_eq!(pool.violations(), "");
}

#[test]
fn a_session_that_dies_while_it_is_away_is_recovered() {
    let mut pool = TestPool::new(SIZE);
    let fs = pool.session();
    file(&fs, "file", b"content");
    pool.kill();
    pool.serve();
    // Ends it without a word: nobody is connected.
    fs.session().vanish();
    std::mem::forget(fs);
    let other = pool.session();
    assert_eq!(other.get("file").unwrap(), b"content");
    file(&other, "file", b"taken over");
    assert_eq!(other.get("file").unwrap(), b"taken over");
}

/// Locks are there while their holder is, whatever becomes of controllers; and whoever asks for the first
/// time finds those that others took in an earlier one's time.
#[test]
fn locks_outlive_the_controller() {
    let mut pool = TestPool::new(SIZE);
    let (fs, other) = (pool.session(), pool.session());
    file(&fs, "file", b"content");
    let open = |fs: &FileSystem| {
        let handle = fs.open_at_root("file", libc::O_RDWR).unwrap();
        fs.lock_file(handle).unwrap()
    };
    let (ours, theirs) = (open(&fs), open(&other));
    for owner in [Owner::Description, Owner::Flock] {
        let range = |start| match owner {
            Owner::Flock => (0, 0),
            _ => (start, 10),
        };
        let try_to = |file: &OwnedFd, start| {
            let taken = lock(file, owner, Kind::Exclusive, range(start));
            if taken.is_ok() {
                lock(file, owner, Kind::Unlock, range(start)).unwrap();
            }
            taken
        };
        lock(&ours, owner, Kind::Exclusive, range(140)).unwrap();
        for _ in 0..3 {
            pool.kill();
            assert_eq!(try_to(&theirs, 140), Err(Errno::AGAIN));
            pool.serve();
            assert_eq!(try_to(&theirs, 140), Err(Errno::AGAIN));
            assert_eq!(try_to(&open(&other), 140), Err(Errno::AGAIN));
            if owner == Owner::Description {
                assert_eq!(try_to(&open(&other), 160), Ok(()));
            }
        }
        pool.kill();
        lock(&ours, owner, Kind::Unlock, range(140)).unwrap();
        assert_eq!(try_to(&theirs, 140), Ok(()));
        pool.serve();
        assert_eq!(try_to(&open(&other), 140), Ok(()));
        // Those that are dropped while there is no controller are gone.
        lock(&ours, owner, Kind::Exclusive, range(140)).unwrap();
    }
    pool.kill();
    drop(ours);
    pool.serve();
    for owner in [Owner::Description, Owner::Flock] {
        assert_eq!(lock(&open(&other), owner, Kind::Exclusive, (0, 0)), Ok(()));
    }
}

/// What a thread of a session knows of its own names.
type Known = BTreeMap<String, Vec<u8>>;

/// One step of the storm: each thread has names of its own, and all share the directories.
fn step(fs: &FileSystem, random: &mut Random, thread: usize, known: &mut Known) {
    let name = |n: u64| format!("d{}/t{thread}-{}", n % 3, n / 3);
    let path = name(random.below(60));
    let other = name(random.below(60));
    match random.below(10) {
        0..=4 => {
            let content = vec![random.below(256) as u8; random.below(9000) as usize];
            file(fs, &path, &content);
            known.insert(path, content);
        }
        5 | 6 => {
            let removed = fs.unlink(At::Root, path.as_bytes(), 0);
            match known.remove(&path) {
                Some(_) => removed.unwrap_or_else(|f| panic!("unlink {path}: {f:?}")),
                None => assert!(matches!(removed, Err(Failure::Errno(Errno::NOENT)))),
            }
        }
        7 | 8 => {
            let renamed = fs.rename(At::Root, path.as_bytes(), At::Root, other.as_bytes(), 0);
            match known.remove(&path) {
                Some(content) => {
                    renamed.unwrap_or_else(|f| panic!("rename {path} {other}: {f:?}"));
                    known.insert(other, content);
                }
                None => assert!(matches!(renamed, Err(Failure::Errno(Errno::NOENT)))),
            }
        }
        _ => match known.get(&path) {
            Some(content) => assert!(fs.get(&path).unwrap() == *content, "{path}"),
            None => assert!(fs.get(&path).is_err(), "{path}"),
        },
    }
}

/// Threads of two sessions in a storm, while controllers are killed and started.
#[test]
fn a_storm_goes_on_through_many_controllers() {
    let rounds: u64 = std::env::var("ARCK_RESTARTS").map_or(12, |text| text.parse().unwrap());
    let seed: u64 = std::env::var("ARCK_RESTART_SEED").map_or(1, |text| text.parse().unwrap());
    let mut pool = TestPool::new(SIZE);
    let sessions = [pool.session(), pool.session()];
    for directory in 0..3 {
        let path = format!("d{directory}");
        sessions[0]
            .make_directory(At::Root, path.as_bytes(), 0o755)
            .unwrap();
    }
    let ends = AtomicBool::new(false);
    let steps = AtomicU64::new(0);
    let known: Vec<Known> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (fs, ends, steps) = (&sessions[thread % 2], &ends, &steps);
                scope.spawn(move || {
                    let mut random = Random::new(seed * 100 + thread as u64);
                    let mut known = Known::new();
                    while !ends.load(Ordering::Relaxed) {
                        step(fs, &mut random, thread, &mut known);
                        steps.fetch_add(1, Ordering::Relaxed);
                    }
                    known
                })
            })
            .collect();
        let mut random = Random::new(seed);
        for _ in 0..rounds {
            let before = steps.load(Ordering::Relaxed);
            while steps.load(Ordering::Relaxed) < before + 20
                && threads.iter().all(|thread| !thread.is_finished())
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            pool.kill();
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            pool.serve();
        }
        ends.store(true, Ordering::Relaxed);
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(pool.violations(), "");
    for check in 0..2 {
        let reader = pool.session();
        for known in &known {
            for (path, content) in known {
                let found = reader.get(path).unwrap_or_else(|f| panic!("{path}: {f:?}"));
                assert!(found == *content, "{path}");
            }
        }
        let names: usize = (0..3)
            .map(|d| reader.names(&format!("d{d}")).unwrap().len())
            .sum();
        assert_eq!(names, known.iter().map(BTreeMap::len).sum::<usize>());
        if check == 0 {
            pool.stop();
            pool.serve();
        }
    }
}

/// Members of a trust group that have nothing to ask come back when they have: their numbers are nobody
/// else's till then, and the session is theirs, whoever of the others has come back and gone.
#[test]
fn members_that_come_back_late_are_who_they_were() {
    let mut pool = TestPool::new(SIZE);
    let [one, two, three] = [1, 2, 3].map(|_| arck_testkit::connect_as(&pool.path(), b"g"));
    let number = one.session().number();
    file(&one, "file", b"of the first");
    let handle = three.open_at_root("file", libc::O_RDWR).expect("open");
    pool.kill();
    pool.serve();
    one.fold(false).expect("the first comes back");
    let new = arck_testkit::connect_as(&pool.path(), b"g");
    assert_eq!(new.session().number(), number);
    let members = [&one, &two, &three, &new].map(|fs| fs.session().member());
    assert_eq!(members, [1, 2, 3, 4]);
    two.fold(false).expect("the second comes back");
    for fs in [new, one, two] {
        drop(fs);
    }
    // What it has open is still open, and what it owns it owns.
    assert_eq!(three.write(handle, b"by the third", Some(0)), Ok(12));
    three.fold(false).expect("the third comes back");
    let other = pool.session();
    assert_eq!(other.get("file").as_deref(), Ok(&b"by the third"[..]));
    let next = arck_testkit::connect_as(&pool.path(), b"g");
    assert_eq!(next.session().number(), number);
    assert_eq!(next.get("file").as_deref(), Ok(&b"by the third"[..]));
    drop((three, next));
    drop(arck_testkit::connect_as(&pool.path(), b"g"));
    assert_eq!(pool.violations(), "");
}
