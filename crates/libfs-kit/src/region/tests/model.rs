//! Shuttle's schedules of the locks. A lost wake-up shows as a deadlock, which Shuttle reports.

use crate::region::{Holder, Lock, ReadWriteLock};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

const SCHEDULES: usize = 5_000;

fn holder(thread: u16) -> Holder {
    Holder { member: 1, thread }
}

/// Runs under random schedules, and under ones with few but adverse preemptions.
fn check(model: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(model, SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 3);
}

/// In the protected part: nobody else may be seen there, however the schedule goes.
fn alone(inside: &AtomicU32) {
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
    thread::yield_now();
    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
}

#[test]
fn a_lock_excludes_and_loses_no_wake_up() {
    check(|| {
        let shared = Arc::new((Lock::new(), AtomicU32::new(0)));
        let threads: Vec<_> = (0..3)
            .map(|index| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    for _ in 0..2 {
                        let guard = shared.0.lock(holder(index));
                        assert_eq!(shared.0.holder(), Some(holder(index)));
                        alone(&shared.1);
                        drop(guard);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(shared.0.holder(), None);
    });
}

#[test]
fn a_lock_of_the_dead_is_passed_on() {
    check(|| {
        let lock = Arc::new(Lock::new());
        std::mem::forget(lock.lock(Holder {
            member: 2,
            thread: 9,
        }));
        let threads: Vec<_> = (0..2)
            .map(|index| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || drop(lock.lock(holder(index))))
            })
            .collect();
        assert!(lock.release_dead(2));
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_read_write_lock_excludes_and_loses_no_wake_up() {
    check(|| {
        let shared = Arc::new((ReadWriteLock::new(), AtomicU32::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|index| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    for _ in 0..2 {
                        if index % 2 == 0 {
                            let guard = shared.0.write(holder(index));
                            assert_eq!(shared.0.holder(), Some(holder(index)));
                            alone(&shared.1);
                            drop(guard);
                        } else {
                            let guard = shared.0.read();
                            assert_eq!(shared.1.load(Ordering::SeqCst), 0);
                            thread::yield_now();
                            assert_eq!(shared.1.load(Ordering::SeqCst), 0);
                            drop(guard);
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(shared.0.try_write(holder(9)).is_some());
    });
}
