//! What one call has asked the controller, and been told, of what this session may see and cannot map yet.
//!
//! # Invariants
//! * The controller judges an inode by where it lies, unless it is shown the way there, once for a call.
//! * What was told of an inode counts as long as its header's sequence is the one that came with it.

use arck_core_state::directory::Dentry;
use arck_core_state::{Inode, InodeNumber};
use std::cell::{Cell, RefCell};

/// How often one call that walked a path is told by the controller that it may not reach what the path
/// led to, before it tells the program: directories may have moved, or been closed, since they were
/// walked, and what the path leads to now is another question. (Of eight times, a directory that moved there
/// and back all the time was closed at each, now and then, on a busy machine.)
const DENIED_MAX: u32 = 64;

/// What the controller has been asked, and has told, of inodes that others own or that this session
/// cannot map. Most calls have nothing of it, and pay for one word.
#[derive(Default)]
pub struct Admission {
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

    /// What a path led to is gone: nothing of what was told or asked on the way counts any more.
    pub fn begin_again(&self) {
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
    fn what_is_denied_is_not_asked_for_ever() {
        let admission = Admission::default();
        let denied = (0..1000).filter(|_| admission.is_to_be_asked_again());
        assert_eq!(denied.count(), 64);
    }
}
