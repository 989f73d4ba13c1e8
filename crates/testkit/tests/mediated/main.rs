//! What is mediated (KucoFS): sessions that do not trust each other change it by messages.
//!
//! Invariant: each test has a pool of its own, on which nothing is refused.

mod extended;
mod files;
mod kinds;
mod names;

use arck_protocol::control::slot_state;
use arck_protocol::message::MESSAGE_MAX;
use arck_protocol::{Request, Response};
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, Failure, FileSystem, Mediation};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What is mediated: a file, or a directory.
const PATH: &str = "/shared";

fn pool() -> TestPool {
    TestPool::new(128 << 20)
}

fn set(session: &FileSystem, mediation: Mediation) {
    let set = session.set_mediation(At::Root, PATH.as_bytes(), mediation);
    set.expect("its owner may");
}

fn mediation(session: &FileSystem) -> Mediation {
    let told = session.mediation(At::Root, PATH.as_bytes());
    told.expect("there")
}

fn owns(session: &FileSystem) -> bool {
    session.owns(At::Root, PATH.as_bytes()).expect("there")
}

/// The last request of a session's one thread, as it stands where a controller that has done it has ended and nobody has answered: what
/// the next controller answers.
fn answered_by_the_next(
    pool: &mut TestPool,
    session: &FileSystem,
    request: &Request,
) -> Result<Response, Errno> {
    // One thread has one slot, in which its answer stands by now.
    let slot = &session.session().control().requests[0];
    let mut bytes = [0; MESSAGE_MAX];
    let used = request.encode(&mut bytes).expect("fits");
    for (word, value) in slot.payload.iter().zip(bytes.chunks_exact(8)) {
        let value = u64::from_le_bytes(value.try_into().unwrap());
        word.store(value, Ordering::Relaxed);
    }
    slot.length.store(used as u32, Ordering::Relaxed);
    assert_eq!(slot.state.load(Ordering::Acquire), slot_state::FREE);
    pool.kill();
    slot.state.store(slot_state::SUBMITTED, Ordering::Release);
    pool.serve();
    // By its next request the session comes back.
    session.fold(false).expect("folded");
    assert_eq!(slot.state.load(Ordering::Acquire), slot_state::DONE);
    arck_protocol::ring::finish(session.session().control(), 0, Duration::ZERO)
}

fn errno<T: std::fmt::Debug>(result: Result<T, Failure>) -> Errno {
    match result {
        Err(Failure::Errno(errno)) => errno,
        other => panic!("{other:?}"),
    }
}
