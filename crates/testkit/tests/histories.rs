//! Random operations of several threads of a session, while it is folded and another session
//! looks: what they tell has to be explained by some order of them (`arck_testkit::history`).
//!
//! `ARCK_HISTORIES` = runs (500; the pool has room for about 3,000); `ARCK_HISTORY_SEED` = first
//! seed; a failure prints its seed and the shortest history found that nothing explains.

use arck_testkit::history::{ArckSubject, Event, actions, explained, run, shorten, unexplained};
use arck_testkit::{Shorthand, TestPool};
use arckfs::At;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const THREADS: u64 = 3;
const OPERATIONS: usize = 30;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn some_order_explains_what_threads_are_told() {
    let pool = TestPool::new(256 << 20);
    let (one, two) = (pool.session(), pool.session());
    let stop = AtomicBool::new(false);
    let runs = AtomicU64::new(0);
    let history_of = |threads: &[Vec<_>]| -> Vec<Vec<Event>> {
        let base = format!("run{}", runs.fetch_add(1, Ordering::Relaxed));
        run(&ArckSubject::new(&one, &base), threads)
    };
    let outcome = std::thread::scope(|scope| {
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
        let first = number("ARCK_HISTORY_SEED", 1);
        let failed = (first..first + number("ARCK_HISTORIES", 500)).find_map(|seed| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| actions(seed, thread, OPERATIONS))
                .collect();
            let history = history_of(&threads);
            (!explained(&history)).then_some((seed, threads, history))
        });
        let outcome = failed.map(|(seed, threads, history)| {
            let fails = |threads: &[Vec<_>]| {
                let history = history_of(threads);
                (!explained(&history)).then_some(history)
            };
            let (_, shorter) = shorten(threads, 30, Duration::from_secs(20), fails);
            let history = shorter.unwrap_or(history);
            let places = unexplained(&history);
            let mut events: Vec<Event> = history.concat();
            events.sort_by_key(|event| event.begun);
            let lines = events.iter().map(|event| format!("  {event:?}\n"));
            format!(
                "seed {seed}: no order explains more than {places:?} of\n{}",
                lines.collect::<String>()
            )
        });
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    if let Some(text) = outcome {
        panic!("{text}");
    }
    assert_eq!(pool.violations(), "");
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
