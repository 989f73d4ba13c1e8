//! What one call carries from attempt to attempt: how far it has come, what it has been [told](super::admission),
//! and what it has tried already, so that it ends.
//!
//! Invariant: belongs to one thread's call; nothing of it outlives that.

use super::admission::Admission;
use super::whole::Exclusive;
use crate::need::{Attempt, Stop};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};

/// Attempts that may end with ESTALE before the call does: what a name led to may have ended
/// between the look-up and the look at the inode, each time by another thread's work.
const STALE_ATTEMPTS: u32 = 32;

/// How often one call finds that what a path led to is gone, before it takes it that there is nothing.
const STALE_PATHS_MAX: u32 = 132;

/// After so many of them whoever makes and removes it gets the processor in between.
const STALE_PATHS_QUICK: u32 = 8;

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// Whatever comes of it, it can be made again as if it had not been.
    #[default]
    Looking,
    /// It has begun to change what may not be changed twice, while nothing was damaged: if it succeeds,
    /// it is not made again.
    Changing,
    /// It publishes what it has computed: all of that was reached.
    Publishing,
    /// What it does is in the delta: it is not made again, even if it fails.
    Published,
}

/// See the module's head.
#[derive(Default)]
pub struct Call {
    pub(crate) progress: Cell<Progress>,
    pub(crate) admission: Admission,
    /// How often what it was about was gone.
    stale: Cell<u32>,
    /// Memory has been made free for it already.
    has_freed_memory: Cell<bool>,
    /// Those have been waited for already who look at what is gone.
    has_waited_for_unseen: Cell<bool>,
    /// Exclusive I/O that it has had to take.
    exclusive: RefCell<Option<Exclusive>>,
}

impl Call {
    /// From here on the attempt has come at least so far.
    #[inline(always)]
    pub(crate) fn reach(&self, progress: Progress) {
        if self.progress.get() < progress {
            self.progress.set(progress);
        }
    }

    /// Whether what an attempt says may be wrong that has not reached something: what it has published
    /// before stands.
    #[cold]
    pub(crate) fn is_wrong<T>(&self, attempted: &Attempt<T>) -> bool {
        match attempted {
            Err(Stop::Failure(Errno::IO | Errno::STALE)) => true,
            Ok(_) | Err(_) => self.progress.get() < Progress::Publishing,
        }
    }

    /// Whether memory is to be made free for it: once.
    pub(crate) fn may_free_memory(&self) -> bool {
        !self.has_freed_memory.replace(true)
    }

    /// Whether those are waited for that look at what is gone: once.
    pub(crate) fn may_wait_for_unseen(&self) -> bool {
        !self.has_waited_for_unseen.replace(true)
    }

    /// Keeps exclusive I/O until the call ends.
    pub(crate) fn keep(&self, exclusive: Exclusive) {
        *self.exclusive.borrow_mut() = Some(exclusive);
    }

    /// Whether an inode that was gone is looked for again.
    pub(crate) fn looks_again(&self) -> bool {
        self.stale.replace(self.stale.get() + 1) < STALE_ATTEMPTS
    }

    /// What a path led to is gone: it is walked again from its start, as if it never had been. Others
    /// have changed what was recalled before that. ENOENT: it leads time and again to what is gone by then.
    #[cold]
    pub(crate) fn walks_again(&self) -> Result<(), Errno> {
        let stale = self.stale.get();
        if stale == STALE_PATHS_MAX {
            return Err(Errno::NOENT);
        }
        self.stale.set(stale + 1);
        self.admission.begin_again();
        if stale >= STALE_PATHS_QUICK {
            std::thread::yield_now();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_only_gets_further() {
        let call = Call::default();
        call.reach(Progress::Published);
        call.reach(Progress::Changing);
        assert_eq!(call.progress.get(), Progress::Published);
    }

    #[test]
    fn what_was_not_reached_is_wrong_unless_it_is_published() {
        let call = Call::default();
        for progress in [Progress::Looking, Progress::Changing] {
            call.reach(progress);
            assert!(call.is_wrong(&Ok(())), "{progress:?}");
            assert!(call.is_wrong::<()>(&Err(Errno::NOENT.into())));
        }
        for progress in [Progress::Publishing, Progress::Published] {
            call.reach(progress);
            assert!(!call.is_wrong(&Ok(())), "{progress:?}");
            assert!(!call.is_wrong::<()>(&Err(Errno::NOSPC.into())));
            assert!(call.is_wrong::<()>(&Err(Errno::IO.into())));
        }
    }

    #[test]
    fn calls_end() {
        let call = Call::default();
        assert_eq!((0..1000).filter(|_| call.looks_again()).count(), 32);
        let call = Call::default();
        assert_eq!(
            (0..1000).filter(|_| call.walks_again().is_ok()).count(),
            132
        );
        assert_eq!(call.walks_again(), Err(Errno::NOENT));
        let call = Call::default();
        assert_eq!(
            [(); 3].map(|()| call.may_free_memory()),
            [true, false, false]
        );
    }

    #[test]
    fn each_inode_is_recalled_once_for_each_walk() {
        let call = Call::default();
        let recall = |number| call.admission.may_recall(number);
        assert_eq!([7, 8, 7, 8].map(recall), [true, true, false, false]);
        assert_eq!(call.walks_again(), Ok(()));
        assert_eq!([7, 7].map(recall), [true, false]);
    }
}
