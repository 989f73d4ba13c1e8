//! Directories and files that several threads of a session change at the same time, so that they are
//! striped: what stands in the tails of a directory's delta is what the threads did, to this session,
//! to one that reads, and after a kill; bytes of a file are read as they were written.

use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, FileSystem};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const THREADS: u64 = 4;
const ROUNDS: u64 = 6;
/// Changes that a thread makes in a round.
const CHANGES: u64 = 1500;
/// Names that are a thread's own, and that all threads take from each other.
const OWN: u64 = 40;
const COMMON: u64 = 10;

/// Random changes of one thread, which keeps in `own` which of its names are there, and with what.
fn change(session: &FileSystem, thread: u64, random: &mut Random, own: &mut BTreeMap<String, u64>) {
    for _ in 0..CHANGES {
        let name = format!("d/{thread}-{}", random.below(OWN));
        let other = format!("d/{thread}-{}", random.below(OWN));
        let common = format!("d/common-{}", random.below(COMMON));
        match random.below(6) {
            0 | 1 => {
                let content = random.below(1 << 40);
                session.put(&name, &content.to_le_bytes()).expect("put");
                own.insert(name, content);
            }
            2 => {
                let there = own.remove(&name).is_some();
                let removed = session.unlink(At::Root, name.as_bytes(), 0);
                assert_eq!(removed.is_ok(), there, "unlink {name}: {removed:?}");
            }
            3 => {
                let there = own.get(&name).copied();
                let moved =
                    session.rename(At::Root, name.as_bytes(), At::Root, other.as_bytes(), 0);
                assert_eq!(moved.is_ok(), there.is_some(), "rename {name}: {moved:?}");
                if let Some(content) = there {
                    own.remove(&name);
                    own.insert(other, content);
                }
            }
            4 => {
                // Replaces what any thread has put there.
                let there = own.remove(&name).is_some();
                let moved =
                    session.rename(At::Root, name.as_bytes(), At::Root, common.as_bytes(), 0);
                assert_eq!(moved.is_ok(), there, "rename {name}: {moved:?}");
            }
            _ => drop(session.unlink(At::Root, common.as_bytes(), 0)),
        }
    }
}

/// What a session sees: names with contents.
fn seen(session: &FileSystem) -> BTreeMap<String, u64> {
    let names = session.names("d").expect("a listing");
    let with_content = names.into_iter().map(|name| {
        let content = session.get(&format!("d/{name}")).expect("a file");
        let content = u64::from_le_bytes(content.try_into().expect("eight bytes"));
        (format!("d/{name}"), content)
    });
    with_content.collect()
}

#[test]
fn what_threads_did_in_one_directory_is_there_after_a_kill() {
    let mut pool = TestPool::new(128 << 20);
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    println!("seed {seed}");
    let mut owns = vec![BTreeMap::new(); THREADS as usize];
    let mut session = pool.session();
    session
        .make_directory(At::Root, b"d", 0o755)
        .expect("mkdir");
    let end = Instant::now() + Duration::from_secs(60);
    let mut round = 0;
    let mut was_striped = false;
    while round < ROUNDS || (!was_striped && Instant::now() < end) {
        std::thread::scope(|scope| {
            for (thread, own) in (0..).zip(&mut owns) {
                let session = &session;
                let mut random = Random::new(seed ^ (round * THREADS + thread));
                scope.spawn(move || change(session, thread, &mut random, own));
            }
        });
        was_striped |= session.striped_inodes() != 0;
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        owns.iter().for_each(|own| expected.extend(own.clone()));
        let mut now = seen(&session);
        let before = now.clone();
        now.retain(|name, _| !name.starts_with("d/common"));
        assert_eq!(now, expected, "round {round}");
        match round % 3 {
            0 => {
                // Nothing of the delta has been folded: recovery finds it in the tails.
                pool.kill();
                pool.serve();
                session = pool.session();
            }
            1 => session.fold(false).expect("fold"),
            _ => assert_eq!(seen(&pool.session()), before, "round {round}, a reader"),
        }
        assert_eq!(seen(&session), before, "round {round}, afterwards");
        assert_eq!(pool.violations(), "");
        round += 1;
    }
    assert!(was_striped, "threads never waited for each other");
}

#[test]
fn bytes_that_threads_overwrite_are_never_torn() {
    /// Each file is striped once, in the middle of everything.
    const FILES: u32 = 60;
    let pool = TestPool::new(128 << 20);
    let session = pool.session();
    let end = Instant::now() + Duration::from_secs(120);
    for file in 0..FILES {
        // A new one each time: what is striped stays so.
        let name = format!("file-{file}");
        session.put(&name, &vec![0; SIZE]).expect("put");
        contest(&session, &name, || {
            session.striped_inodes() <= file && Instant::now() < end
        });
    }
    assert!(session.striped_inodes() >= FILES, "threads never waited");
    assert_eq!(pool.violations(), "");
}

const SIZE: usize = 256 << 10;
/// Where a range that has one lock ends.
const END: u64 = 64 << 10;

/// Two threads overwrite bytes behind the end of a range, one of them those before it too; others
/// read them, and change the file elsewhere. Ends with a few hundred writes after `goes_on` says so.
fn contest(session: &FileSystem, name: &str, goes_on: impl Fn() -> bool) {
    const BEFORE: usize = 4096;
    const BEHIND: usize = 8192;
    let open = |flags| session.open_at_root(name, flags).expect("open");
    let stop = AtomicBool::new(false);
    let runs = || !stop.load(Ordering::Relaxed);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for (writer, before) in [(0u8, BEFORE), (1, 0)] {
            let (runs, open, written) = (&runs, &open, &written);
            scope.spawn(move || {
                let handle = open(libc::O_WRONLY);
                let mut fill = writer;
                while runs() {
                    fill = fill.wrapping_add(2);
                    let bytes = vec![fill; before + BEHIND];
                    let done = session.write(handle, &bytes, Some(END - before as u64));
                    assert_eq!(done, Ok(bytes.len()));
                    written.fetch_add(1, Ordering::Relaxed);
                }
                session.close(handle);
            });
        }
        scope.spawn(|| {
            // All that needs the whole file.
            let handle = open(libc::O_WRONLY | libc::O_APPEND);
            while runs() {
                assert_eq!(session.write(handle, &[9; 5000], None), Ok(5000));
                session
                    .truncate_handle(handle, SIZE as u64)
                    .expect("truncate");
                session.fold(false).expect("fold");
            }
            session.close(handle);
        });
        scope.spawn(|| {
            // What one thread alone writes, it reads.
            let handle = open(libc::O_RDWR);
            let mut buffer = [0; 5000];
            let mut fill = 0u8;
            while runs() {
                fill = fill.wrapping_add(1);
                let bytes = [fill; 5000];
                assert_eq!(session.write(handle, &bytes, Some(130_000)), Ok(5000));
                assert_eq!(session.read(handle, &mut buffer, Some(130_000)), Ok(5000));
                assert_eq!(buffer, bytes);
            }
            session.close(handle);
        });
        let handle = open(libc::O_RDONLY);
        let mut buffer = [0; BEFORE + BEHIND];
        let mut last = u64::MAX;
        while written.load(Ordering::Relaxed) < last {
            if last == u64::MAX && !goes_on() {
                last = written.load(Ordering::Relaxed) + 300;
            }
            let read = session.read(handle, &mut buffer, Some(END - BEFORE as u64));
            assert_eq!(read, Ok(buffer.len()));
            for part in [&buffer[..BEFORE], &buffer[BEFORE..]] {
                let torn = part.iter().position(|&byte| byte != part[0]);
                assert_eq!(torn, None, "a read sees parts of two writes");
            }
        }
        session.close(handle);
    });
}

/// Ends the other threads, even if this one panics.
struct StopAtEnd<'s>(&'s AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes threads wait for each other in the directory `d` until it is striped.
fn striped_directory(session: &FileSystem) {
    session
        .make_directory(At::Root, b"d", 0o755)
        .expect("mkdir");
    let end = Instant::now() + Duration::from_secs(120);
    let before = session.striped_inodes();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let name = format!("d/first-{thread}");
                while session.striped_inodes() == before && Instant::now() < end {
                    session.put(&name, b"").expect("put");
                    session
                        .unlink(At::Root, name.as_bytes(), 0)
                        .expect("unlink");
                }
            });
        }
    });
    assert!(session.striped_inodes() > before, "threads never waited");
}

/// Calls all at about the same time, one a little later than another, by chance.
fn at_once(random: &mut Random, calls: &[&(dyn Fn() + Sync)]) {
    let ready = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for call in calls {
            let most = 1 << random.below(9);
            let later = random.below(most);
            let ready = &ready;
            scope.spawn(move || {
                ready.fetch_add(1, Ordering::AcqRel);
                while ready.load(Ordering::Acquire) < calls.len() as u64 {
                    std::hint::spin_loop();
                }
                (0..later).for_each(|_| std::hint::spin_loop());
                call();
            });
        }
    });
}

#[test]
fn names_that_leave_a_directory_at_one_time_are_folded_with_where_they_go() {
    const ROUNDS: usize = 1000;
    let pool = TestPool::new(128 << 20);
    let session = pool.session();
    striped_directory(&session);
    let targets = ["1", "2", "3", "4"];
    for target in targets {
        session
            .make_directory(At::Root, target.as_bytes(), 0o755)
            .expect("mkdir");
    }
    let reader = pool.session();
    let mut random = Random::new(1);
    for round in 0..ROUNDS {
        for target in targets {
            let name = format!("d/{target}");
            session.put(&name, target.as_bytes()).expect("put");
        }
        session.fold(false).expect("fold");
        // The directory's branch begins, and nothing has left it yet.
        session.put("d/more", b"").expect("put");
        session.unlink(At::Root, b"d/more", 0).expect("unlink");
        let leave = |target: &str| {
            let (from, to) = (format!("d/{target}"), format!("{target}/x"));
            let moved = session.rename(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0);
            moved.expect("rename");
        };
        at_once(&mut random, &[&|| leave("1"), &|| leave("2")]);
        at_once(&mut random, &[&|| leave("3"), &|| leave("4")]);
        // A reader has the directory folded alone, but for what its branch names.
        let left = reader.names("d").expect("names");
        assert_eq!(left, [""; 0], "round {round}");
        for target in targets {
            let path = format!("{target}/x");
            let content = reader.get(&path).expect("there");
            assert_eq!(content, target.as_bytes(), "round {round}");
            let removed = session.unlink(At::Root, path.as_bytes(), 0);
            removed.expect("unlink");
        }
    }
    assert_eq!(pool.violations(), "");
}

#[test]
fn a_link_beside_the_removal_of_the_last_name_counts() {
    const ROUNDS: usize = 3000;
    let pool = TestPool::new(128 << 20);
    let session = pool.session();
    striped_directory(&session);
    let mut linked = 0;
    let mut random = Random::new(1);
    for round in 0..ROUNDS {
        session.put("d/a", b"content").expect("put");
        session.fold(false).expect("fold");
        session.put("d/more", b"").expect("put");
        session.unlink(At::Root, b"d/more", 0).expect("unlink");
        let made = AtomicBool::new(false);
        at_once(
            &mut random,
            &[
                &|| session.unlink(At::Root, b"d/a", 0).expect("unlink"),
                &|| {
                    let link = session.link(At::Root, b"d/a", At::Root, b"d/b", 0);
                    made.store(link.is_ok(), Ordering::Relaxed);
                },
            ],
        );
        if made.load(Ordering::Relaxed) {
            linked += 1;
            let links = session.stat(At::Root, b"d/b", 0).expect("stat").links;
            assert_eq!(links, 1, "round {round}");
            let link = session.link(At::Root, b"d/b", At::Root, b"d/c", 0);
            assert_eq!(link, Ok(()), "round {round}");
            for name in [b"d/b", b"d/c"] {
                session.unlink(At::Root, name, 0).expect("unlink");
            }
        }
    }
    println!("{linked} links of {ROUNDS}");
    assert_eq!(pool.violations(), "");
}

/// Makes threads wait for each other to overwrite a file until it is striped.
fn striped_file(session: &FileSystem, name: &str) {
    session.put(name, &vec![0; SIZE]).expect("put");
    let end = Instant::now() + Duration::from_secs(120);
    let before = session.striped_inodes();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let handle = session.open_at_root(name, libc::O_WRONLY).expect("open");
                while session.striped_inodes() == before && Instant::now() < end {
                    let done = session.write(handle, &[0; 30_000], Some(0));
                    assert_eq!(done, Ok(30_000));
                }
                session.close(handle);
            });
        }
    });
    assert!(session.striped_inodes() > before, "threads never waited");
}

#[test]
fn times_that_threads_stamp_are_those_that_are_stored() {
    const ROUNDS: usize = 800;
    let pool = TestPool::new(128 << 20);
    let (session, reader) = (pool.session(), pool.session());
    striped_directory(&session);
    striped_file(&session, "file");
    let times = |session: &FileSystem, path: &str| {
        let found = session.stat(At::Root, path.as_bytes(), 0).expect("stat");
        (found.modified, found.changed)
    };
    let name = |thread: u64| format!("d/{thread}");
    let change = |path: &str, thread: u64| match path {
        "d" => {
            session.put(&name(thread), b"").expect("put");
            let removed = session.unlink(At::Root, name(thread).as_bytes(), 0);
            removed.expect("unlink");
        }
        _ => {
            let handle = session.open_at_root(path, libc::O_WRONLY).expect("open");
            let done = session.write(handle, &[1], Some(thread * END));
            assert_eq!(done, Ok(1));
            session.close(handle);
        }
    };
    let mut random = Random::new(1);
    for round in 0..ROUNDS {
        let path = ["d", "file"][round % 2];
        // The branch begins: threads go on beside each other.
        change(path, 0);
        // At about the time at which the clock goes on once more: one thread may be told what it was
        // before, and one what it is then.
        let edge = next_tick() + tick();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let change = &change;
                let early = Duration::from_micros(random.below(100));
                scope.spawn(move || {
                    while Instant::now() + early < edge {
                        std::hint::spin_loop();
                    }
                    change(path, thread);
                });
            }
        });
        let seen = times(&session, path);
        assert_eq!(seen.0, seen.1, "{path}, round {round}");
        assert_eq!(times(&reader, path), seen, "{path}, round {round}");
    }
    assert_eq!(pool.violations(), "");
}

/// How often the clock goes on that files are stamped with.
fn tick() -> Duration {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::RealtimeCoarse);
    Duration::new(tick.tv_sec as u64, tick.tv_nsec as u32)
}

/// Waits until it has gone on.
fn next_tick() -> Instant {
    let now = || rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let before = now();
    while now() == before {
        std::hint::spin_loop();
    }
    Instant::now()
}

#[test]
fn directories_that_were_striped_are_removed_and_made_anew() {
    const ROUNDS: u64 = 300;
    let pool = TestPool::new(128 << 20);
    let session = pool.session();
    let end = Instant::now() + Duration::from_secs(120);
    let mut round = 0;
    // Numbers of directories that are not committed are used again soon, with the buckets they have.
    while round < ROUNDS || (session.striped_inodes() < 2 && Instant::now() < end) {
        for directory in ["x", "y"] {
            let made = session.make_directory(At::Root, directory.as_bytes(), 0o755);
            made.expect("mkdir");
            assert_eq!(session.names(directory).expect("names"), [""; 0]);
        }
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let session = &session;
                let mut random = Random::new(round * THREADS + thread);
                scope.spawn(move || names_in_two_directories(session, thread, &mut random));
            }
            if round % 3 == 1 {
                scope.spawn(|| session.fold(round % 2 == 0).expect("fold"));
            }
        });
        for directory in ["x", "y"] {
            let removed = session.unlink(At::Root, directory.as_bytes(), libc::AT_REMOVEDIR);
            assert_eq!(removed, Ok(()), "round {round}");
        }
        if round % 4 == 3 {
            session.fold(false).expect("fold");
        }
        assert_eq!(pool.violations(), "");
        round += 1;
    }
    assert!(session.striped_inodes() >= 2, "threads never waited");
    assert_eq!(pool.session().names("").expect("names"), [""; 0]);
}

/// Makes names, renames and links them within and between `x` and `y`, and removes them all.
fn names_in_two_directories(session: &FileSystem, thread: u64, random: &mut Random) {
    let place = |random: &mut Random| {
        let directory = *random.pick(&["x", "y"]);
        format!("{directory}/{thread}-{}", random.below(6))
    };
    let mut there: Vec<String> = Vec::new();
    for _ in 0..150 {
        let (one, other) = (place(random), place(random));
        let (from, to) = (one.as_bytes(), other.as_bytes());
        let is_there = there.contains(&one);
        match random.below(4) {
            0 | 1 => {
                session.put(&one, b"content").expect("put");
                there.push(one);
            }
            2 => {
                let moved = session.rename(At::Root, from, At::Root, to, 0);
                assert_eq!(moved.is_ok(), is_there, "rename {one} {other}: {moved:?}");
                // Names of one file stay both.
                let stays = session.stat(At::Root, from, 0).is_ok();
                if is_there && !stays {
                    there.retain(|name| *name != one);
                }
                if is_there {
                    there.push(other);
                }
            }
            _ => {
                let is_free = !there.contains(&other);
                let linked = session.link(At::Root, from, At::Root, to, 0);
                let may = is_there && is_free;
                assert_eq!(linked.is_ok(), may, "link {one} {other}: {linked:?}");
                if may {
                    there.push(other);
                }
            }
        }
        there.sort();
        there.dedup();
    }
    for name in there {
        let removed = session.unlink(At::Root, name.as_bytes(), 0);
        assert_eq!(removed, Ok(()), "unlink {name}");
    }
}

#[test]
fn threads_make_room_in_a_directory_of_a_full_pool() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    striped_directory(&session);
    let name = |thread: u64, number: u64| format!("d/{thread}-{number}-{}", "n".repeat(200));
    for round in 0..3 {
        let made = [const { AtomicU64::new(0) }; THREADS as usize];
        std::thread::scope(|scope| {
            for (thread, made) in (0..).zip(&made) {
                let session = &session;
                scope.spawn(move || {
                    for number in 0.. {
                        let path = name(thread, number);
                        let flags = libc::O_CREAT | libc::O_EXCL;
                        match session.open(At::Root, path.as_bytes(), flags, 0o644) {
                            Ok(handle) => session.close(handle),
                            Err(failure) => {
                                let full = arckfs::Failure::Errno(arckfs::Errno::NOSPC);
                                assert_eq!(failure, full, "{path}");
                                made.store(number, Ordering::Relaxed);
                                break;
                            }
                        }
                    }
                });
            }
        });
        if round == 1 {
            session.fold(false).expect("fold");
        }
        std::thread::scope(|scope| {
            for (thread, made) in (0..).zip(&made) {
                let session = &session;
                scope.spawn(move || {
                    for number in 0..made.load(Ordering::Relaxed) {
                        let path = name(thread, number);
                        let removed = session.unlink(At::Root, path.as_bytes(), 0);
                        assert_eq!(removed, Ok(()), "round {round}, {path}");
                    }
                });
            }
        });
        assert_eq!(session.names("d").expect("names"), [""; 0]);
        assert_eq!(pool.violations(), "");
    }
    session
        .unlink(At::Root, b"d", libc::AT_REMOVEDIR)
        .expect("rmdir");
    session.fold(false).expect("fold");
    assert_eq!(pool.violations(), "");
}

#[test]
fn what_was_overwritten_does_not_come_back() {
    let pool = TestPool::new(128 << 20);
    let (session, other) = (pool.session(), pool.session());
    striped_file(&session, "file");
    let stop = AtomicBool::new(false);
    let runs = || !stop.load(Ordering::Relaxed);
    let end = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for (writer, at) in [(0u64, 0), (1, 0), (0, END), (0, 2 * END), (0, 3 * END)] {
            let (runs, session) = (&runs, &session);
            scope.spawn(move || {
                let handle = session.open_at_root("file", libc::O_WRONLY).expect("open");
                let mut value = writer;
                while runs() {
                    value += 2;
                    let done = session.write(handle, &value.to_le_bytes(), Some(at));
                    assert_eq!(done, Ok(8));
                }
                session.close(handle);
            });
        }
        scope.spawn(|| {
            while runs() {
                other.get("file").expect("read");
            }
        });
        let handle = session.open_at_root("file", libc::O_RDONLY).expect("open");
        let mut last = [0, 0];
        let mut current = 0;
        let mut changes = 0u64;
        while Instant::now() < end {
            let mut bytes = [0; 8];
            assert_eq!(session.read(handle, &mut bytes, Some(0)), Ok(8));
            let value = u64::from_le_bytes(bytes);
            if value != current {
                let newest: &mut u64 = &mut last[(value % 2) as usize];
                assert!(
                    value > *newest,
                    "{value} again after {current}, change {changes}"
                );
                (*newest, current) = (value, value);
                changes += 1;
            }
        }
        println!("{changes} changes");
        session.close(handle);
    });
}
