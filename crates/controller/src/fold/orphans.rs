//! When inodes that have lost their last name are freed.
//!
//! A name that an inode's owner has given it is in his delta, which nobody may have folded when somebody else's
//! fold takes the last verified one away. It was alive when it was named, so the name is a good one, and the
//! inode must not be freed beneath it: its owner's delta is folded first, after which it is no orphan any more.
//! The verifier lets an orphan's owner name it for that.
//!
//! # Invariant
//! * No orphan is freed that a delta names which was there when its owner's operations were last waited for.
//!   Afterwards nobody owns it, so nobody names it.

use crate::fold::Folding;
use crate::fold::folding::{After, Failure};
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use std::collections::{BTreeMap, BTreeSet};

impl Folding<'_> {
    /// Frees those of the next orphans in turn that no session lists that counts: of all, if they are not
    /// very many.
    pub fn free_next_orphans(&mut self) {
        let next = self.freeing().next_orphans();
        self.free_orphans(Some(&next));
    }

    /// Frees those of the given orphans (`None`: of all) that no session lists that counts. Where very
    /// much is listed, perhaps later: the service asks for all now and then.
    pub fn free_orphans(&mut self, which: Option<&[InodeNumber]>) {
        self.free_unkept(which, &BTreeSet::new());
    }

    /// The same of what has lost its last name by a fold. Of those that are `settled` nothing is left that is
    /// not folded.
    pub fn free_dying(&mut self, dying: &[InodeNumber], settled: &BTreeSet<InodeNumber>) {
        self.free_unkept(Some(dying), settled);
    }

    fn free_unkept(&mut self, which: Option<&[InodeNumber]>, settled: &BTreeSet<InodeNumber>) {
        let mut unkept = self.freeing().unkept(which);
        if !unkept.is_empty() {
            self.fold_names_of(&mut unkept, settled);
            self.freeing().doom(unkept);
        }
    }

    /// Folds what owners have changed of orphans, and leaves those that are to be freed: not those that turn
    /// out to have a name, nor those of which that is not known yet.
    fn fold_names_of(&mut self, unkept: &mut Vec<InodeNumber>, settled: &BTreeSet<InodeNumber>) {
        let mut owners: BTreeMap<SessionNumber, Vec<InodeNumber>> = BTreeMap::new();
        for number in unkept.iter().filter(|number| !settled.contains(number)) {
            let header = self.sessions.state.pool.header(*number);
            let owner = header.map_or(0, |header| header.ownership().session());
            if self.sessions.all.contains_key(&owner) {
                owners.entry(owner).or_default().push(*number);
            }
        }
        let mut unknown = BTreeSet::new();
        for (owner, numbers) in owners {
            match self.fold(owner, &numbers, After::Release) {
                // What is refused comes to nothing.
                Ok(()) | Err(Failure::Violation(_)) => {}
                Err(Failure::Unsettled(_) | Failure::Errno(_)) => unknown.extend(numbers),
            }
        }
        let orphans = &self.sessions.state.orphans;
        unkept.retain(|number| orphans.contains(number) && !unknown.contains(number));
    }
}
