//! What one call carries from attempt to attempt: how far it has come, what it has been told, and what
//! it has tried already, so that it ends.
//!
//! Invariant: belongs to one thread's call; nothing of it outlives that.

use crate::need::{Attempt, Stop};
use crate::views::whole::Exclusive;
use arck_core_state::directory::Dentry;
use arck_core_state::{Inode, InodeNumber};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};

/// Attempts that may end with ESTALE before the call does: what a name led to may have ended
/// between the look-up and the look at the inode, each time by another thread's work.
const STALE_ATTEMPTS: u32 = 32;

/// How often one call finds that what a path led to is gone, before it takes it that there is nothing.
const STALE_PATHS_MAX: u32 = 132;

/// After so many of them whoever makes and removes it gets the processor in between.
const STALE_PATHS_QUICK: u32 = 8;

/// How often one call that walked a path is told by the controller that it may not reach what the path
/// led to, before it tells the program: directories may have moved, or been closed, since they were
/// walked, and what the path leads to now is another question.
const DENIED_MAX: u32 = 8;

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
    pub(super) progress: Cell<Progress>,
    pub(super) admission: Admission,
    /// How often what it was about was gone.
    stale: Cell<u32>,
    /// Memory has been made free for it already.
    has_freed_memory: Cell<bool>,
    /// Exclusive I/O that it has had to take.
    exclusive: RefCell<Option<Exclusive>>,
}

impl Call {
    /// From here on the attempt has come at least so far.
    #[inline(always)]
    pub(super) fn reach(&self, progress: Progress) {
        if self.progress.get() < progress {
            self.progress.set(progress);
        }
    }

    /// Whether what an attempt says may be wrong that has not reached something: what it has published
    /// before stands.
    #[cold]
    pub(super) fn is_wrong<T>(&self, attempted: &Attempt<T>) -> bool {
        match attempted {
            Err(Stop::Failure(Errno::IO | Errno::STALE)) => true,
            Ok(_) | Err(_) => self.progress.get() < Progress::Publishing,
        }
    }

    /// Whether memory is to be made free for it: once.
    pub(super) fn may_free_memory(&self) -> bool {
        !self.has_freed_memory.replace(true)
    }

    /// Keeps exclusive I/O until the call ends.
    pub(super) fn keep(&self, exclusive: Exclusive) {
        *self.exclusive.borrow_mut() = Some(exclusive);
    }

    /// Whether an inode that was gone is looked for again.
    pub(super) fn looks_again(&self) -> bool {
        self.stale.replace(self.stale.get() + 1) < STALE_ATTEMPTS
    }

    /// What a path led to is gone: it is walked again from its start, as if it never had been. Others
    /// have changed what was recalled before that. ENOENT: it leads time and again to what is gone by then.
    #[cold]
    pub(super) fn walks_again(&self) -> Result<(), Errno> {
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

/// What the controller has been asked, and has told, of inodes that others own or that this session
/// cannot map. Most calls have nothing of it, and pay for one word.
#[derive(Default)]
pub(super) struct Admission {
    notes: RefCell<Option<Box<Notes>>>,
    /// How often it has refused what the call needed.
    denied: Cell<u32>,
}

#[derive(Default)]
struct Notes {
    /// Recalled: each once for each walk.
    recalled: Vec<InodeNumber>,
    /// Told, since they cannot be mapped, and at which sequence of their headers.
    told: Vec<(u64, Inode)>,
    /// What it has told of names.
    names: Vec<ToldName>,
    /// To which it has been asked the way.
    shown: Vec<InodeNumber>,
}

/// What the controller has told of a name: of which verified directory, and at which sequence of its header.
struct ToldName {
    directory: InodeNumber,
    sequence: u64,
    name: Vec<u8>,
    told: Option<Dentry>,
}

impl Admission {
    #[cold]
    fn note<T>(&self, note: impl FnOnce(&mut Notes) -> T) -> T {
        note(self.notes.borrow_mut().get_or_insert_default())
    }

    /// Notes a recall; false if this call has recalled the inode already. A path leads through as
    /// many inodes as it has names, and forty links have more.
    pub fn may_recall(&self, number: InodeNumber) -> bool {
        self.note(|notes| is_new(&mut notes.recalled, number))
    }

    /// What the controller has told of an inode: the sequence of its header, and the inode.
    pub fn note_told(&self, told: (u64, Inode)) {
        self.note(|notes| notes.told.push(told));
    }

    /// What it has told, if it still is so.
    pub fn told(&self, number: InodeNumber, sequence: u64) -> Option<Inode> {
        let notes = self.notes.borrow();
        let of_now = |told: &&(u64, Inode)| told.1.number == number && told.0 == sequence;
        let mut told = notes.as_ref()?.told.iter().rev();
        told.find(of_now).map(|told| told.1)
    }

    /// What the controller has told of a name.
    pub fn note_told_name(
        &self,
        directory: InodeNumber,
        sequence: u64,
        name: &[u8],
        told: Option<Dentry>,
    ) {
        let told = ToldName {
            directory,
            sequence,
            name: name.to_vec(),
            told,
        };
        self.note(|notes| notes.names.push(told));
    }

    /// What it has told, if it has and it still is so.
    pub fn told_name(
        &self,
        directory: InodeNumber,
        sequence: u64,
        name: &[u8],
    ) -> Option<Option<Dentry>> {
        let notes = self.notes.borrow();
        let names = notes.as_ref()?.names.iter();
        let mut of_now = names
            .filter(|one| (one.directory, one.sequence, &*one.name) == (directory, sequence, name));
        of_now.next().map(|one| one.told)
    }

    /// Notes that the controller is asked the way to an inode; whether it has been for this call.
    pub fn note_shown(&self, number: InodeNumber) -> bool {
        self.note(|notes| !is_new(&mut notes.shown, number))
    }

    /// Whether the controller has refused what the call needed.
    #[inline]
    pub fn was_denied(&self) -> bool {
        self.denied.get() != 0
    }

    /// Whether a path is to be walked again after the controller has said EACCES. The way is shown to
    /// it again then: what was moved to where it may be reached may have been closed since.
    pub fn is_to_be_asked_again(&self) -> bool {
        self.note(|notes| notes.shown.clear());
        self.denied.replace(self.denied.get() + 1) < DENIED_MAX
    }

    fn begin_again(&self) {
        *self.notes.borrow_mut() = None;
    }
}

/// Adds a number to those that are noted; whether it was not among them.
fn is_new(noted: &mut Vec<InodeNumber>, number: InodeNumber) -> bool {
    let is_new = !noted.contains(&number);
    if is_new {
        noted.push(number);
    }
    is_new
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
        let admission = Admission::default();
        let denied = (0..1000).filter(|_| admission.is_to_be_asked_again());
        assert_eq!(denied.count(), 8);
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
