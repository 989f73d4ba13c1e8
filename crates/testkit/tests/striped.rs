//! Directories that several threads of a session change at the same time, so that they are
//! striped: what stands in the tails of a directory's delta is what the threads did, to this session,
//! to one that reads, and after a kill.

use arck_testkit::striped::striped_directory;
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
