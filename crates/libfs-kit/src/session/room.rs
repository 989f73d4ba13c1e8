//! Room for the descriptors that a session is sent, where the program has taken all that its limit leaves: a child that was
//! forked then goes on with the files that it has inherited.
//!
//! # Invariants
//! * One thread at a time raises the program's soft limit, by [`MORE`]. It is as it was when that thread is done, or as the
//!   program has set it meanwhile; also in a child that another thread forks then, but for those of `posix_spawn`, which run
//!   nothing of this.
//! * No lock is waited for: who finds it raised tries with what there is.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use std::sync::atomic::{AtomicU64, Ordering};

/// By so many, or up to the hard limit. Not to that: it may be a million, and a program that closes all that it could have
/// open would be at it for long, if it was forked meanwhile and nobody lowered it.
const MORE: u64 = 1024;

/// The soft limit before it was raised, and one; 0: it is not.
static RAISED: AtomicU64 = AtomicU64::new(0);

/// While it lives the process may have more descriptors.
pub(crate) struct Raised(());

impl Raised {
    /// `None`: another thread has done so, or there is no room.
    pub(crate) fn new() -> Option<Raised> {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        // Without a limit there is room.
        let was = current?;
        let (new, old) = (Ordering::AcqRel, Ordering::Relaxed);
        RAISED.compare_exchange(0, was + 1, new, old).ok()?;
        let raised = Raised(());
        let found = set(Some(raised_from(was, maximum)), maximum)?;
        if (found.current, found.maximum) != (current, maximum) {
            // The program has set it just now.
            set(found.current, found.maximum);
        }
        Some(raised)
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        lower();
    }
}

/// In a child that was forked: the thread that had raised it is not there.
pub(crate) fn in_child() {
    if RAISED.load(Ordering::Relaxed) != 0 {
        lower();
    }
}

fn lower() {
    let Some(was) = RAISED.load(Ordering::Acquire).checked_sub(1) else {
        return;
    };
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Else the program has set it since.
    if current == Some(raised_from(was, maximum))
        && let Some(found) = set(Some(was), maximum)
        && (found.current, found.maximum) != (current, maximum)
    {
        // It has done so just now.
        set(found.current, found.maximum);
    }
    RAISED.store(0, Ordering::Release);
}

fn raised_from(was: u64, maximum: Option<u64>) -> u64 {
    was.saturating_add(MORE).min(maximum.unwrap_or(u64::MAX))
}

/// Sets the limit; the one before. `None`: it is refused.
fn set(current: Option<u64>, maximum: Option<u64>) -> Option<Rlimit> {
    prlimit(None, Resource::Nofile, Rlimit { current, maximum }).ok()
}

/// Tries it, and where the process may have no more descriptors (EMFILE) tries it once more with room for them: with a higher
/// soft limit meanwhile. Blocks as it does.
pub fn with_room<R>(mut attempt: impl FnMut() -> Result<R, Errno>) -> Result<R, Errno> {
    match attempt() {
        Err(Errno::MFILE) => {
            let _raised = Raised::new();
            attempt()
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own: the limit is all threads'.
    #[test]
    fn the_limit_is_as_it_was_or_as_it_was_set() {
        // SAFETY: the child makes system calls, allocates a little, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a number.
            unsafe { libc::_exit(in_a_process_of_its_own()) };
        }
        let mut status = 0;
        // SAFETY: the kernel writes the number.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(
            status, 0,
            "of the child, in its second byte: which of them fails"
        );
    }

    fn in_a_process_of_its_own() -> i32 {
        let soft = || getrlimit(Resource::Nofile).current;
        let hard = getrlimit(Resource::Nofile).maximum;
        let mut checks = 0;
        let mut failed = 0;
        let mut is = |right: bool| {
            checks += 1;
            if !right && failed == 0 {
                failed = checks;
            }
        };
        let raised = Some(raised_from(64, hard));
        is(set(Some(64), hard).is_some() && raised > Some(64));
        let first = Raised::new();
        is(first.is_some() && soft() == raised);
        // Another thread's, meanwhile.
        is(Raised::new().is_none() && soft() == raised);
        drop(first);
        is(soft() == Some(64));
        // The program sets another one, also the hard one.
        // (One to which it was raised cannot be told from that.)
        let sets = [Some(65), hard].into_iter();
        for wanted in sets.filter(|wanted| *wanted != raised) {
            let raised = Raised::new();
            set(wanted, hard);
            drop(raised);
            is(soft() == wanted);
            set(Some(64), hard);
        }
        // A child that was forked meanwhile.
        std::mem::forget(Raised::new());
        is(soft() == raised);
        in_child();
        is(soft() == Some(64));
        let mut limits = Vec::with_capacity(2);
        let tried = with_room(|| {
            limits.push(soft());
            match limits.len() {
                1 => Err(Errno::MFILE),
                _ => Ok(()),
            }
        });
        is(tried.is_ok() && limits == [Some(64), raised] && soft() == Some(64));
        set(Some(66), Some(66));
        drop(Raised::new());
        is(soft() == Some(66) && RAISED.load(Ordering::Relaxed) == 0);
        failed
    }
}
