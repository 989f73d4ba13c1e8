//! Files that several threads of a session read and overwrite at the same time, so that they are striped: bytes are read as
//! they were written, and what was overwritten does not come back.

use arck_testkit::striped::{striped_directory, striped_file};
use arck_testkit::{Random, Shorthand, StopAtEnd, TestPool};
use arckfs::{At, FileSystem, Purpose};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const THREADS: u64 = 4;

#[test]
fn bytes_that_threads_overwrite_are_never_torn() {
    /// Each file is striped once, in the middle of everything.
    const FILES: u32 = 60;
    let pool = TestPool::new(128 << 20);
    let session = pool.session();
    let end = Instant::now() + Duration::from_secs(120);
    let mut reached = [0; 3];
    for file in 0..FILES {
        let contest = &CONTESTS[file as usize % CONTESTS.len()];
        // A new one each time: what is striped stays so.
        let name = format!("file-{file}");
        session.put(&name, &vec![0; SIZE]).expect("put");
        let stripes = || {
            session
                .stripes_are_for(ROOT, name.as_bytes())
                .expect("stat")
        };
        contest.run(&session, &name, || {
            !matches!(stripes(), Some(Purpose::Bytes(_))) && Instant::now() < end
        });
        let place = |purpose| match purpose {
            Purpose::Threads => 0,
            Purpose::Bytes(4096) => 1,
            Purpose::Bytes(_) => 2,
        };
        if let Some(purpose) = stripes() {
            reached[place(purpose)] += 1;
        }
    }
    println!("{reached:?} for threads, pages, larger pieces");
    // What is for threads at first is for bytes once two have waited to overwrite some.
    assert!(reached[1] > 0 && reached[2] > 0, "reached: {reached:?}");
    assert!(session.striped_inodes() >= FILES, "threads never waited");
    assert_eq!(pool.violations(), "");
}

#[test]
fn who_reads_a_file_with_others_takes_a_lock_of_his_own() {
    let pool = TestPool::new(64 << 20);
    let session = pool.session();
    session.put("read", &vec![7; SIZE]).expect("put");
    let stripes = || session.stripes_are_for(ROOT, b"read").expect("stat");
    assert_eq!(stripes(), None);
    let end = Instant::now() + Duration::from_secs(60);
    let is_for_threads = || stripes() == Some(Purpose::Threads) || Instant::now() > end;
    let read_until = |done: &(dyn Fn() -> bool + Sync)| {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let handle = session.open_at_root("read", libc::O_RDONLY).expect("open");
                    let mut buffer = vec![0; SIZE];
                    while !done() {
                        assert_eq!(session.read(handle, &mut buffer, Some(0)), Ok(SIZE));
                        let torn = buffer.iter().position(|&byte| byte != buffer[0]);
                        assert_eq!(torn, None, "a read sees parts of two writes");
                    }
                    session.close(handle);
                });
            }
        });
    };
    read_until(&is_for_threads);
    assert_eq!(stripes(), Some(Purpose::Threads));
    // One who writes keeps all away that read, and has a lock for what he writes when he has waited often enough.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| read_until(&|| stop.load(Ordering::Relaxed)));
        let _stop = StopAtEnd(&stop);
        let handle = session.open_at_root("read", libc::O_WRONLY).expect("open");
        let mut fill = 0u8;
        while stripes() == Some(Purpose::Threads) && Instant::now() < end {
            fill = fill.wrapping_add(1);
            assert_eq!(session.write(handle, &vec![fill; SIZE], Some(0)), Ok(SIZE));
        }
        session.close(handle);
    });
    assert_eq!(stripes(), Some(Purpose::Bytes(PIECE)));
    assert_eq!(pool.violations(), "");
}

/// # Regression
/// Who read many pages took all stripes that were for pages, and so did who wrote beside many that read: one that writes
/// beside two that read had an eighth of the writes done.
#[test]
fn locks_are_for_larger_pieces_where_those_wait_who_read_many_pages() {
    let pool = TestPool::new(64 << 20);
    let session = pool.session();
    session.put("file", &vec![0; SIZE]).expect("put");
    let stripes = || session.stripes_are_for(ROOT, b"file").expect("stat");
    let end = Instant::now() + Duration::from_secs(60);
    let becomes = |purpose| stripes() == Some(Purpose::Bytes(purpose)) || Instant::now() > end;
    let open = |flags| session.open_at_root("file", flags).expect("open");
    let write_until = |done: &dyn Fn() -> bool| {
        let handle = open(libc::O_WRONLY);
        while !done() {
            let written = session.write(handle, &[1; 4096], Some(PIECE));
            assert_eq!(written, Ok(4096));
        }
        session.close(handle);
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| write_until(&|| becomes(4096)));
        }
    });
    assert_eq!(stripes(), Some(Purpose::Bytes(4096)));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let handle = open(libc::O_RDONLY);
                let mut buffer = vec![0; PIECE as usize];
                while !becomes(PIECE) {
                    let read = session.read(handle, &mut buffer, Some(0));
                    assert_eq!(read, Ok(buffer.len()));
                }
                session.close(handle);
            });
        }
        write_until(&|| becomes(PIECE));
    });
    assert_eq!(stripes(), Some(Purpose::Bytes(PIECE)));
    assert_eq!(pool.violations(), "");
}

const SIZE: usize = 256 << 10;
const ROOT: At = At::Root;
/// Where a range that has one lock ends, where pieces are not pages.
const PIECE: u64 = 64 << 10;

/// Two threads overwrite bytes behind `end`, where a range ends that has one lock; one of them those before it, too.
struct Contest {
    end: usize,
    before: usize,
    behind: usize,
}

const CONTESTS: [Contest; 2] = [
    Contest {
        end: 64 << 10,
        before: 4096,
        behind: 8192,
    },
    Contest {
        end: 4096,
        before: 1000,
        behind: 2000,
    },
];

impl Contest {
    /// Others read what is written, and change the file elsewhere. Ends with a few hundred writes after `goes_on` says so.
    fn run(&self, session: &FileSystem, name: &str, goes_on: impl Fn() -> bool) {
        let &Contest {
            end,
            before,
            behind,
        } = self;
        let from = (end - before) as u64;
        let open = |flags| session.open_at_root(name, flags).expect("open");
        let stop = AtomicBool::new(false);
        let runs = || !stop.load(Ordering::Relaxed);
        let written = AtomicU64::new(0);
        // What lies before and behind the end was written at once.
        let is_whole = |buffer: &[u8]| {
            for part in [&buffer[..before], &buffer[before..]] {
                let torn = part.iter().position(|&byte| byte != part[0]);
                assert_eq!(torn, None, "a read sees parts of two writes");
            }
        };
        std::thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            for (writer, before) in [(0u8, before), (1, 0)] {
                let (runs, open, written) = (&runs, &open, &written);
                scope.spawn(move || {
                    let handle = open(libc::O_WRONLY);
                    let mut fill = writer;
                    while runs() {
                        fill = fill.wrapping_add(2);
                        let bytes = vec![fill; before + behind];
                        let done = session.write(handle, &bytes, Some((end - before) as u64));
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
            scope.spawn(|| {
                let handle = open(libc::O_RDONLY);
                let mut buffer = vec![0; before + behind];
                while runs() {
                    let read = session.read(handle, &mut buffer, Some(from));
                    assert_eq!(read, Ok(buffer.len()));
                    is_whole(&buffer);
                }
                session.close(handle);
            });
            let handle = open(libc::O_RDONLY);
            let mut buffer = vec![0; before + behind];
            let mut last = u64::MAX;
            while written.load(Ordering::Relaxed) < last {
                if last == u64::MAX && !goes_on() {
                    last = written.load(Ordering::Relaxed) + 300;
                }
                let read = session.read(handle, &mut buffer, Some(from));
                assert_eq!(read, Ok(buffer.len()));
                is_whole(&buffer);
            }
            session.close(handle);
        });
    }
}

#[test]
fn times_that_threads_stamp_are_those_that_are_stored() {
    const ROUNDS: usize = 800;
    let pool = TestPool::new(128 << 20);
    let (session, reader) = (pool.session(), pool.session());
    striped_directory(&session);
    striped_file(&session, "file", SIZE);
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
            let done = session.write(handle, &[1], Some(thread * PIECE));
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
fn what_was_overwritten_does_not_come_back() {
    let pool = TestPool::new(128 << 20);
    let (session, other) = (pool.session(), pool.session());
    striped_file(&session, "file", SIZE);
    let stop = AtomicBool::new(false);
    let runs = || !stop.load(Ordering::Relaxed);
    let end = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for (writer, at) in [
            (0u64, 0),
            (1, 0),
            (0, PIECE),
            (0, 2 * PIECE),
            (0, 3 * PIECE),
        ] {
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
    assert_eq!(pool.violations(), "");
}
