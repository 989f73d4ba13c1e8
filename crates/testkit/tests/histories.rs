//! Random operations of several threads of a session, while it is folded and another session
//! looks: what they tell has to be explained by some order of them (`arck_testkit::history`).
//!
//! `ARCK_HISTORIES` = runs (500, of values 100; the pool has room for about 3,000); `ARCK_HISTORY_SEED` = first
//! seed; a failure prints its seed and the shortest history found that nothing explains.

use arck_controller::Options;
use arck_testkit::history::values::{self, ValueSubject};
use arck_testkit::history::{
    ArckSubject, Event, Explained, History, actions, explained, run, shorten, unexplained,
};
use arck_testkit::under_test::LIBFSES;
use arck_testkit::{Shorthand, TestPool};
use arckfs::At;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const THREADS: u64 = 3;
const OPERATIONS: usize = 30;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Runs what each seed makes of it until nothing explains what was told, and tells of that.
fn first_unexplained<A: Explained>(
    seeds: Range<u64>,
    threads_of: impl Fn(u64) -> Vec<Vec<A>>,
    history_of: impl Fn(&[Vec<A>]) -> History<A>,
) -> Option<String> {
    seeds.into_iter().find_map(|seed| {
        let threads = threads_of(seed);
        let history = history_of(&threads);
        if explained(&history) {
            return None;
        }
        let fails = |threads: &[Vec<A>]| {
            let history = history_of(threads);
            (!explained(&history)).then_some(history)
        };
        let (_, shorter) = shorten(threads, 30, Duration::from_secs(20), fails);
        let history = shorter.unwrap_or(history);
        let places = unexplained(&history);
        let mut events: Vec<Event<A>> = history.concat();
        events.sort_by_key(|event| event.begun);
        let lines = events.iter().map(|event| format!("  {event:?}\n"));
        Some(format!(
            "seed {seed}: no order explains more than {places:?} of\n{}",
            lines.collect::<String>()
        ))
    })
}

/// Stops others when it is dropped, also by a panic.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn seeds(count: u64) -> Range<u64> {
    let first = number("ARCK_HISTORY_SEED", 1);
    first..first + number("ARCK_HISTORIES", count)
}

#[test]
fn some_order_explains_what_threads_are_told() {
    all_explained(TestPool::new(256 << 20), 500);
}

/// The same beside folds that take their time behind each seal, so that threads go on meanwhile.
#[test]
fn some_order_explains_what_threads_are_told_beside_what_is_sealed() {
    let hook = |point| {
        if point == "sealed" {
            std::thread::sleep(Duration::from_micros(500));
        }
    };
    let options = Options {
        crash_hook: Some(std::sync::Arc::new(hook)),
        seal_pages: 1,
        ..Options::default()
    };
    all_explained(TestPool::with_options(256 << 20, options), 300);
}

fn all_explained(pool: TestPool, count: u64) {
    let (one, two) = (pool.session(), pool.session());
    let stop = AtomicBool::new(false);
    let runs = AtomicU64::new(0);
    let outcome = std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                one.fold(false).expect("fold");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let base = format!("run{}", runs.load(Ordering::Relaxed).saturating_sub(1));
                for directory in ["0", "1"] {
                    // It may not be there yet.
                    let _ = two.names(&format!("{base}/{directory}"));
                }
                let _ = two.stat(At::Root, format!("{base}/file0").as_bytes(), 0);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        first_unexplained(
            seeds(count),
            |seed| {
                let threads = 0..THREADS;
                let threads = threads.map(|thread| actions(seed, thread, OPERATIONS));
                threads.collect()
            },
            |threads| {
                let base = format!("run{}", runs.fetch_add(1, Ordering::Relaxed));
                run(&ArckSubject::new(&one, &base), threads)
            },
        )
    });
    if let Some(text) = outcome {
        panic!("{text}");
    }
    assert_eq!(pool.violations(), "");
}

/// Threads of a session of each LibFS set and take away whole values, while that session is folded, and one of each
/// LibFS reads them, so that folds come at all times.
#[test]
fn some_order_explains_what_threads_are_told_of_values() {
    for libfs in LIBFSES {
        let pool = TestPool::new(256 << 20);
        let stop = AtomicBool::new(false);
        let (current, looks) = (Mutex::new(String::from("run")), AtomicU64::new(0));
        let runs = AtomicU64::new(0);
        let outcome = std::thread::scope(|scope| {
            let _stops = Stops(&stop);
            for reader in LIBFSES {
                let (pool, stop, current, looks) = (&pool, &stop, &current, &looks);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let directory = current.lock().expect("nobody panics with it").clone();
                        let files = reader.open(&pool.path(), &directory);
                        for _ in 0..5 {
                            for name in files.list().expect("names") {
                                // It may be gone meanwhile.
                                files.get(&name).expect("a value");
                            }
                            looks.fetch_add(1, Ordering::Relaxed);
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                });
            }
            first_unexplained(
                seeds(100),
                |seed| {
                    let threads = 0..THREADS;
                    let batches = libfs.has_batches();
                    let of = |thread| values::actions(seed, thread, OPERATIONS, batches);
                    threads.map(of).collect()
                },
                |threads| {
                    let base = format!("run{}", runs.fetch_add(1, Ordering::Relaxed));
                    let files = libfs.open(&pool.path(), &base);
                    *current.lock().expect("nobody panics with it") = base;
                    let is_done = AtomicBool::new(false);
                    std::thread::scope(|scope| {
                        let _stops = Stops(&is_done);
                        scope.spawn(|| {
                            while !is_done.load(Ordering::Relaxed) {
                                files.fold(false).expect("a fold");
                                std::thread::sleep(Duration::from_micros(300));
                            }
                        });
                        run(&ValueSubject(&*files), threads)
                    })
                },
            )
        });
        if let Some(text) = outcome {
            panic!("{}: {text}", libfs.name());
        }
        assert!(looks.load(Ordering::Relaxed) > 10, "nobody looked");
        assert_eq!(pool.violations(), "", "{}", libfs.name());
    }
}

/// A small write for which pages run out in the middle waits for more and is seen as a whole. (It
/// was written up to where they ran out, and then the rest.)
#[test]
fn a_write_at_the_end_of_a_segment_is_one_write() {
    let pool = TestPool::new(64 << 20);
    let one = pool.session();
    let flags = libc::O_CREAT | libc::O_RDWR;
    let handle = one.open_at_root("file", flags).expect("open");
    const LENGTH: usize = 3 * 4096;
    let written = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Several segments' worth: three pages do not divide the pages of one.
            for turn in 0..1000 {
                let result = one.write(handle, &[turn as u8; LENGTH], Some(turn * LENGTH as u64));
                assert_eq!(result, Ok(LENGTH));
                written.fetch_add(LENGTH as u64, Ordering::Release);
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            let before = written.load(Ordering::Acquire);
            let size = one.stat_handle(handle).expect("stat").size;
            assert_eq!(size % LENGTH as u64, 0, "a part of a write");
            assert!(size >= before, "{before} bytes written, {size} there");
        }
    });
}
