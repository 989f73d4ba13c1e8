//! A controller that emulates a medium sends it to its sessions, and their data takes as long as the medium says. Times are
//! looked at from below only.

use arck_controller::Options;
use arck_pm::medium::{Curve, Delegated, Direction, Model, model};
use arck_testkit::{Shorthand, TestPool};
use std::time::{Duration, Instant};

const LARGE: usize = 1 << 20;

/// 100 MB/s, whoever accesses it.
fn slow() -> Model {
    let direction = Direction {
        latency: 10_000,
        by_threads: Curve::new(&[(1, 100)]).unwrap(),
        by_size: Curve::NONE,
    };
    Model {
        nodes: 2,
        stripe: 1 << 21,
        unit: 256,
        read: direction,
        write: direction,
        delegated: Delegated::usual(&direction.by_threads),
        at_once: Delegated::usual_at_once(&direction.by_threads),
    }
}

#[test]
fn a_session_is_as_slow_as_the_medium_of_its_pool() {
    let options = Options {
        medium: Some(slow()),
        ..Options::default()
    };
    let pool = TestPool::with_options(64 << 20, options);
    let session = pool.session();
    assert_eq!(model(), Some(&slow()));
    // With a medium, stores are flushed: else none would reach it.
    assert_eq!(arck_pm::policy(), arck_pm::PersistPolicy::Flush);
    let content = vec![b'm'; LARGE];
    // A megabyte at 100 MB/s; it may be on both nodes.
    let least = Duration::from_millis(5);
    let begun = Instant::now();
    session.put("file", &content).unwrap();
    let wrote = begun.elapsed();
    assert!(wrote >= least, "{wrote:?}");
    let begun = Instant::now();
    let read = session.get("file").unwrap();
    let took = begun.elapsed();
    assert!(took >= least, "{took:?}");
    assert_eq!(read, content);
}
