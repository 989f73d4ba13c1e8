//! Descriptors that a session takes in a process that has as many open as it may (RLIMIT_NOFILE): a child that was
//! forked there has to open a session of its own, and its parent has something to map, or one to keep for each description
//! that the child gets.
//!
//! Once one was lacking, the limit is raised for the moment in which others are taken, as far as the process may do that
//! itself; a descriptor stays open when the limit is lower again.
//!
//! # Invariants
//! * A process that was never short of descriptors has its limit left alone.
//! * One thread raises it at a time, and nobody forks meanwhile: it is done inside [`arck_pm::forks::mapping`].
//! * What the program sets meanwhile stays.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whether the process has lacked descriptors.
static SHORT: AtomicBool = AtomicBool::new(false);
static RAISED: Mutex<()> = Mutex::new(());

/// Notes that descriptors were lacking. Whether trying again may help: that has not been known before.
pub(crate) fn is_news() -> bool {
    !SHORT.swap(true, Ordering::Relaxed)
}

/// Takes a descriptor that is the session's, or this process's for the session, not the program's. It must not block.
///
/// # Errors
/// Those of `take`.
pub fn take<T>(take: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    let once = || arck_pm::forks::mapping(|| beyond(&take));
    match once() {
        Err(Errno::MFILE) if is_news() => once(),
        other => other,
    }
}

/// Runs what takes descriptors, where nobody forks. It must not block.
pub(crate) fn beyond<R>(take: impl FnOnce() -> R) -> R {
    if !SHORT.load(Ordering::Relaxed) {
        return take();
    }
    let _alone = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    let is_raised = setrlimit(Resource::Nofile, raised).is_ok();
    let taken = take();
    if is_raised && getrlimit(Resource::Nofile) == raised {
        let _ = setrlimit(Resource::Nofile, before);
    }
    taken
}
