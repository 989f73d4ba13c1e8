//! Operations that are in the middle when a fold marks their directory.

use super::{Next, PATIENCE, Window, begin, rename, tree, unlink};
use arck_testkit::Shorthand;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Whoever is caught by the mark of a fold, in the middle of an operation, waits until the directory is sealed, and
/// no longer: what he has done is part of what is sealed.
///
/// # Regression
/// He asked the controller whether it was, which answered when all was folded: the longest calls of a storm.
#[test]
fn who_is_caught_by_the_mark_waits_for_the_seal_alone() {
    const THREADS: usize = 3;
    const BEFORE: u64 = 300;
    const BEHIND: u64 = 5;
    let (mut pool, window) = Window::pool();
    let owner = pool.session();
    let mut model = begin(&owner);
    let (rounds, ends) = (
        [const { AtomicU64::new(0) }; THREADS],
        AtomicBool::new(false),
    );
    let wait_for = |each: &dyn Fn(usize) -> u64| {
        let since = Instant::now();
        while !(0..THREADS).all(|thread| rounds[thread].load(Ordering::SeqCst) >= each(thread)) {
            assert!(since.elapsed() < PATIENCE, "{rounds:?}");
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        for (thread, rounds) in rounds.iter().enumerate() {
            let (owner, ends) = (&owner, &ends);
            scope.spawn(move || {
                while !ends.load(Ordering::SeqCst) {
                    let round = rounds.load(Ordering::SeqCst);
                    let path = |what: &str| format!("a/{what} {thread} {round}");
                    owner.put(&path("new"), b"").expect("put");
                    rename(owner, &path("new"), &path("moved"));
                    if round % 2 == 0 {
                        unlink(owner, &path("moved"), 0);
                    }
                    rounds.store(round + 1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..20 {
            let begun: Vec<u64> = rounds
                .iter()
                .map(|done| done.load(Ordering::SeqCst))
                .collect();
            wait_for(&|thread| begun[thread] + BEFORE);
            window.open(scope, &owner);
            let sealed: Vec<u64> = rounds
                .iter()
                .map(|done| done.load(Ordering::SeqCst))
                .collect();
            // The controller stands still.
            wait_for(&|thread| sealed[thread] + BEHIND);
            window.close(Next::GoesOn);
        }
        ends.store(true, Ordering::SeqCst);
    });
    for (thread, rounds) in rounds.iter().enumerate() {
        for round in (1..rounds.load(Ordering::SeqCst)).step_by(2) {
            model.insert(format!("a/moved {thread} {round}"), Some(Vec::new()));
        }
    }
    assert_eq!(tree(&owner), model);
    assert_eq!(tree(&pool.session()), model, "to others");
    assert_eq!(pool.violations(), "");
    pool.kill();
    drop(owner);
    pool.serve();
    assert_eq!(tree(&pool.session()), model, "after a crash");
}
