//! What is mediated (KucoFS): sessions that do not trust each other change it by messages.
//!
//! Invariant: each test has a pool of its own, on which nothing is refused.

mod files;
mod names;

use arck_testkit::TestPool;
use arckfs::{At, Errno, Failure, FileSystem, Mediation};

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

fn errno<T: std::fmt::Debug>(result: Result<T, Failure>) -> Errno {
    match result {
        Err(Failure::Errno(errno)) => errno,
        other => panic!("{other:?}"),
    }
}
