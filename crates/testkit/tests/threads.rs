//! Threads of one session, with other sessions that read and write in the same directories, so
//! that folds and hand-overs happen under them all the time.

use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, Errno, Failure, FileSystem};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const POOL: u64 = 128 << 20;
const THREADS: usize = 4;
/// How long a storm goes on at the least, and at the most: until enough has been done.
const STORM: Duration = Duration::from_millis(2500);
const PATIENCE: Duration = Duration::from_secs(300);

/// Whether a storm goes on, as all its threads see it.
struct Storm<E> {
    begun: Instant,
    /// One of its threads has panicked.
    broken: AtomicBool,
    enough: E,
}

impl<E: Fn() -> bool> Storm<E> {
    fn until(enough: E) -> Self {
        Storm {
            begun: Instant::now(),
            broken: AtomicBool::new(false),
            enough,
        }
    }

    fn goes_on(&self) -> bool {
        let time = self.begun.elapsed();
        let broken = self.broken.load(Ordering::Relaxed);
        !broken && (time < STORM || (time < PATIENCE && !(self.enough)()))
    }

    /// Held by each thread: its panic ends the storm for all.
    fn part(&self) -> Part<'_> {
        Part(&self.broken)
    }
}

struct Part<'s>(&'s AtomicBool);

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs the storm in threads of `one` while a second session reads and a third writes, until
/// `enough` has been done.
fn with_neighbours(
    pool: &TestPool,
    one: &FileSystem,
    enough: impl Fn() -> bool + Sync,
    storm: impl Fn(usize, &dyn Fn() -> bool) + Sync,
    read: impl Fn(&FileSystem) + Sync,
    write: impl Fn(&FileSystem, u64) + Sync,
) {
    let all = Storm::until(enough);
    let goes_on = || all.goes_on();
    let (two, three) = (pool.session(), pool.session());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (storm, all, goes_on) = (&storm, &all, &goes_on);
            scope.spawn(move || {
                let _part = all.part();
                storm(thread, goes_on);
            });
        }
        scope.spawn(|| {
            let _part = all.part();
            while goes_on() {
                read(&two);
            }
        });
        scope.spawn(|| {
            let _part = all.part();
            let mut round = 0;
            while goes_on() {
                write(&three, round);
                round += 1;
            }
        });
        scope.spawn(|| {
            let _part = all.part();
            while goes_on() {
                one.fold(false).expect("fold");
                std::thread::sleep(Duration::from_millis(3));
            }
        });
    });
}

/// Names of a directory, each once.
fn names_once(session: &FileSystem, path: &str) -> BTreeSet<String> {
    let names = session.names(path).expect("a listing");
    let set: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(set.len(), names.len(), "a name is listed twice: {names:?}");
    set
}

fn is(result: &Result<impl Sized, Failure>, errno: Errno) -> bool {
    matches!(result, Err(Failure::Errno(found)) if *found == errno)
}

#[test]
fn names_in_a_shared_directory() {
    let pool = TestPool::new(POOL);
    let one = pool.session();
    one.make_directory(At::Root, b"shared", 0o755).unwrap();
    let done = AtomicU64::new(0);
    let expected: Vec<std::sync::Mutex<BTreeSet<String>>> =
        (0..THREADS).map(|_| Default::default()).collect();
    with_neighbours(
        &pool,
        &one,
        || done.load(Ordering::Relaxed) > 1000,
        |thread, goes_on| {
            // Each thread's names are its own; the directory is everybody's.
            let mut random = Random::new(thread as u64);
            let mut mine = expected[thread].lock().unwrap();
            while goes_on() {
                let name = format!("shared/{thread}-{}", random.below(30));
                let other = format!("shared/{thread}-{}", random.below(30));
                match random.below(4) {
                    0 => {
                        let made = one.open(
                            At::Root,
                            name.as_bytes(),
                            libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY,
                            0o644,
                        );
                        match made {
                            Ok(handle) => {
                                assert_eq!(
                                    one.write(handle, name.as_bytes(), None),
                                    Ok(name.len())
                                );
                                one.close(handle);
                                assert!(mine.insert(name.clone()), "{name} was there already");
                            }
                            other => {
                                assert!(is(&other, Errno::EXIST), "create {name}: {other:?}");
                                assert!(mine.contains(&name), "{name} was not there");
                            }
                        }
                    }
                    1 => {
                        let removed = one.unlink(At::Root, name.as_bytes(), 0);
                        assert_eq!(
                            removed.is_ok(),
                            mine.remove(&name),
                            "unlink {name}: {removed:?}"
                        );
                    }
                    2 => {
                        let renamed =
                            one.rename(At::Root, name.as_bytes(), At::Root, other.as_bytes(), 0);
                        assert_eq!(
                            renamed.is_ok(),
                            mine.contains(&name),
                            "rename {name} {other}: {renamed:?}"
                        );
                        if name != other && mine.remove(&name) {
                            mine.insert(other);
                        }
                    }
                    _ => {
                        let stat = one.stat(At::Root, name.as_bytes(), 0);
                        assert_eq!(stat.is_ok(), mine.contains(&name), "stat {name}: {stat:?}");
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        },
        |two| {
            for name in names_once(two, "shared") {
                let content = two.get(&format!("shared/{name}"));
                assert!(
                    content.is_ok() || is(&content, Errno::NOENT) || is(&content, Errno::STALE),
                    "{name}: {content:?}"
                );
            }
        },
        |three, round| {
            let name = format!("shared/three-{}", round % 50);
            three.put(&name, b"three").expect("put");
            if round % 2 == 1 {
                three.unlink(At::Root, name.as_bytes(), 0).expect("unlink");
            }
        },
    );
    let mut all: BTreeSet<String> = expected
        .iter()
        .flat_map(|mine| mine.lock().unwrap().clone())
        .map(|name| name["shared/".len()..].to_string())
        .collect();
    let found = names_once(&one, "shared");
    all.extend(
        found
            .iter()
            .filter(|name| name.starts_with("three"))
            .cloned(),
    );
    assert_eq!(found, all);
    assert_eq!(names_once(&pool.session(), "shared"), all);
    assert!(
        done.load(Ordering::Relaxed) > 1000,
        "hardly anything was done"
    );
}

#[test]
fn trees_of_their_own_and_moves_between_them() {
    let pool = TestPool::new(POOL);
    let one = pool.session();
    for thread in 0..THREADS {
        for part in ["x", "y"] {
            one.make_directory(At::Root, format!("{thread}{part}").as_bytes(), 0o755)
                .unwrap();
        }
    }
    let kept = AtomicU64::new(0);
    with_neighbours(
        &pool,
        &one,
        || kept.load(Ordering::Relaxed) > 10,
        |thread, goes_on| {
            let mut round = 0u64;
            while goes_on() {
                let (x, y) = (format!("{thread}x/{round}"), format!("{thread}y/{round}"));
                one.put(&x, y.as_bytes()).expect("put");
                let renamed = one.rename(At::Root, x.as_bytes(), At::Root, y.as_bytes(), 0);
                let tell = || {
                    let fresh = pool.session();
                    let is_there =
                        |path| (one.stat(At::Root, path, 0), fresh.stat(At::Root, path, 0));
                    format!(
                        "x {:?} y {:?}",
                        is_there(x.as_bytes()),
                        is_there(y.as_bytes())
                    )
                };
                assert!(renamed.is_ok(), "rename: {renamed:?}: {}", tell());
                let content = one.get(&y);
                assert!(content.is_ok(), "get: {content:?}: {}", tell());
                assert_eq!(content.expect("content"), y.as_bytes());
                if round.is_multiple_of(16) && kept.load(Ordering::Relaxed) < 2000 {
                    kept.fetch_add(1, Ordering::Relaxed);
                } else {
                    one.unlink(At::Root, y.as_bytes(), 0).expect("unlink");
                }
                let directory = format!("{thread}x/directory");
                one.make_directory(At::Root, directory.as_bytes(), 0o755)
                    .expect("mkdir");
                one.unlink(At::Root, directory.as_bytes(), libc::AT_REMOVEDIR)
                    .expect("rmdir");
                round += 1;
            }
        },
        |two| {
            for thread in 0..THREADS {
                names_once(two, &format!("{thread}x"));
                names_once(two, &format!("{thread}y"));
            }
        },
        |three, round| {
            let name = format!("{}y/three", round % THREADS as u64);
            three.put(&name, b"three").expect("put");
            three.unlink(At::Root, name.as_bytes(), 0).expect("unlink");
        },
    );
    let fresh = pool.session();
    let mut found = 0;
    for thread in 0..THREADS {
        assert!(names_once(&fresh, &format!("{thread}x")).is_empty());
        for name in names_once(&fresh, &format!("{thread}y")) {
            let path = format!("{thread}y/{name}");
            assert_eq!(fresh.get(&path).expect("get"), path.as_bytes());
            found += 1;
        }
    }
    assert_eq!(found, kept.load(Ordering::Relaxed));
    assert!(found > 10, "hardly anything was done");
}

#[test]
fn appends_are_not_lost() {
    let pool = TestPool::new(POOL);
    let one = pool.session();
    one.put("log", b"").unwrap();
    const LINE: usize = 40;
    let written = AtomicU64::new(0);
    // Of each writer, the neighbour last.
    let lines: [AtomicU64; THREADS + 1] = Default::default();
    let line = |who: u64, round: u64| format!("{who:9} {round:29}\n").into_bytes();
    let append = |session: &FileSystem, who: u64, round: u64| {
        let handle = session
            .open(At::Root, b"log", libc::O_WRONLY | libc::O_APPEND, 0)
            .expect("open");
        assert_eq!(session.write(handle, &line(who, round), None), Ok(LINE));
        session.close(handle);
        written.fetch_add(1, Ordering::SeqCst);
    };
    with_neighbours(
        &pool,
        &one,
        || lines.iter().all(|count| count.load(Ordering::Relaxed) > 0),
        |thread, goes_on| {
            let handle = one
                .open(At::Root, b"log", libc::O_WRONLY | libc::O_APPEND, 0)
                .expect("open");
            let mut round = 0;
            while goes_on() {
                if written.load(Ordering::Relaxed) > 300_000 && round > 0 {
                    break;
                }
                assert_eq!(
                    one.write(handle, &line(thread as u64, round), None),
                    Ok(LINE)
                );
                written.fetch_add(1, Ordering::SeqCst);
                lines[thread].fetch_add(1, Ordering::Relaxed);
                round += 1;
            }
            one.close(handle);
        },
        |two| {
            // What was written before we looked is there, and whole.
            let before = written.load(Ordering::SeqCst) as usize;
            let size = two.stat(At::Root, b"log", 0).expect("stat").size as usize;
            assert!(
                size >= before * LINE,
                "{before} lines written, {size} bytes there"
            );
            assert_eq!(size % LINE, 0);
            let handle = two.open_at_root("log", libc::O_RDONLY).expect("open");
            let mut buffer = vec![0; 100 * LINE];
            let from = (size / LINE).saturating_sub(100) * LINE;
            let read = two
                .read(handle, &mut buffer, Some(from as u64))
                .expect("read");
            for line in buffer[..read].chunks(LINE) {
                assert_eq!(line.last(), Some(&b'\n'), "{}", line.escape_ascii());
                assert!(!line.contains(&0), "{}", line.escape_ascii());
            }
            two.close(handle);
        },
        |three, round| {
            append(three, 1000, round);
            lines[THREADS].fetch_add(1, Ordering::Relaxed);
        },
    );
    let content = pool.session().get("log").expect("get");
    assert_eq!(
        content.len(),
        written.load(Ordering::SeqCst) as usize * LINE
    );
    // Each writer's lines are all there, in its order.
    let mut next = std::collections::BTreeMap::new();
    for line in content.chunks(LINE) {
        let text = std::str::from_utf8(line).expect("text");
        let mut words = text
            .split_whitespace()
            .map(|word| word.parse::<u64>().expect("number"));
        let (who, round) = (words.next().unwrap(), words.next().unwrap());
        let expected = next.entry(who).or_insert(0);
        assert_eq!(round, *expected, "writer {who}");
        *expected += 1;
    }
    assert_eq!(next.len(), THREADS + 1);
}

#[test]
fn one_winner_for_each_name() {
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    one.make_directory(At::Root, b"race", 0o755).unwrap();
    let wins = AtomicU64::new(0);
    let removals = AtomicU64::new(0);
    const NAMES: u64 = 300;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let wins = &wins;
            let session = if thread % 2 == 0 { &one } else { &two };
            scope.spawn(move || {
                for name in 0..NAMES {
                    let path = format!("race/{name}");
                    let made = session.open(
                        At::Root,
                        path.as_bytes(),
                        libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY,
                        0o600,
                    );
                    match made {
                        Ok(handle) => {
                            wins.fetch_add(1, Ordering::Relaxed);
                            session.close(handle);
                        }
                        other => assert!(is(&other, Errno::EXIST), "{path}: {other:?}"),
                    }
                }
            });
        }
    });
    assert_eq!(wins.load(Ordering::Relaxed), NAMES);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let removals = &removals;
            let session = if thread % 2 == 0 { &one } else { &two };
            scope.spawn(move || {
                for name in 0..NAMES {
                    let path = format!("race/{name}");
                    match session.unlink(At::Root, path.as_bytes(), 0) {
                        Ok(()) => {
                            removals.fetch_add(1, Ordering::Relaxed);
                        }
                        other => assert!(is(&other, Errno::NOENT), "{path}: {other:?}"),
                    }
                }
            });
        }
    });
    assert_eq!(removals.load(Ordering::Relaxed), NAMES);
    assert!(names_once(&one, "race").is_empty());
    assert!(names_once(&two, "race").is_empty());
}

/// A directory's buckets grow and shrink, and pages that they leave become something else, while
/// threads look names up and others bring the session's view up to date: a search that finds
/// itself in a page that is no bucket any more begins again, whoever has refreshed the view in the
/// meantime. (It was told to be damage: EIO, from any call with a path.)
#[test]
fn look_ups_while_buckets_come_and_go() {
    const NAMES: usize = 400;
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    one.make_directory(At::Root, b"d", 0o755).unwrap();
    one.put("d/stays", b"").unwrap();
    one.fold(true).unwrap();
    let looked_up = AtomicU64::new(0);
    let rounds = AtomicU64::new(0);
    let all = Storm::until(|| {
        rounds.load(Ordering::Relaxed) > 2 && looked_up.load(Ordering::Relaxed) > 1000
    });
    std::thread::scope(|scope| {
        for thread in 0..2 * THREADS {
            let (one, looked_up, all) = (&one, &looked_up, &all);
            scope.spawn(move || {
                let _part = all.part();
                let mut random = Random::new(thread as u64);
                while all.goes_on() {
                    let stays = one.stat(At::Root, b"d/stays", 0);
                    assert!(stays.is_ok(), "{stays:?}");
                    let name = format!("d/{:0100}", random.below(NAMES as u64));
                    let found = one.stat(At::Root, name.as_bytes(), 0);
                    assert!(
                        found.is_ok() || is(&found, Errno::NOENT) || is(&found, Errno::STALE),
                        "{found:?}"
                    );
                    looked_up.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _part = all.part();
        while all.goes_on() {
            for name in 0..NAMES {
                two.put(&format!("d/{name:0100}"), b"").expect("put");
            }
            two.fold(true).expect("fold");
            for name in 0..NAMES {
                let name = format!("d/{name:0100}");
                two.unlink(At::Root, name.as_bytes(), 0).expect("unlink");
            }
            two.fold(true).expect("fold");
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!((all.enough)(), "hardly anything was done");
}

/// Threads that end give their places back, while another one ends the session.
///
/// # Regression
/// A thread gave back pages of the region that who ended the session had given back already: the allocator's assertion.
#[test]
fn a_session_ends_while_threads_end() {
    let pool = TestPool::new(POOL);
    for round in 0..400 {
        let session = std::sync::Arc::new(pool.session());
        let together = std::sync::Arc::new(std::sync::Barrier::new(THREADS + 1));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (session, together) = (session.clone(), together.clone());
                std::thread::spawn(move || {
                    let name = format!("{round}-{thread}");
                    session.put(&name, b"text").expect(&name);
                    together.wait();
                })
            })
            .collect();
        together.wait();
        session.end();
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("a thread"));
    }
    let session = pool.session();
    let names = session.names("").expect("a listing");
    assert_eq!(names.len(), 400 * THREADS);
}
