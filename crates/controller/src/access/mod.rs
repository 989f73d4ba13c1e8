//! Who can map what: what lies where the wrong ones could is moved.
//!
//! Beneath it are `fold`, since what moves is folded first, and what lies under that.
//!
//! # Invariant
//! * What somebody may not read any more, he cannot map when the change that took his right has been answered.

pub mod admitting;
pub mod closing;
pub mod closings;
pub mod emptying;
pub mod emptyings;
pub mod leftovers;
pub mod moving;
pub mod parts;
pub mod relabellings;
#[cfg(test)]
mod tests;
pub mod tighten;
pub mod together;

use crate::access::closings::Closings;
use crate::access::emptyings::Emptyings;
use crate::access::relabellings::{NoRoom, Relabellings};
use crate::fold::folding::{After, Failure};
use crate::fold::{Folding, Folds};
use crate::freeing::{Freed, Freeing};
use crate::sessions::Sessions;
use crate::state::change::Change;
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use rustix::io::Errno;

/// What is being moved.
#[derive(Default)]
pub struct Places {
    /// What folds have tightened, and is not done yet.
    pub closings: Closings,
    /// Pages that moved away, and that cannot be emptied yet.
    pub emptyings: Emptyings,
    pub relabelling: Relabellings,
    /// What could not be moved to its readers.
    pub no_room: NoRoom,
}

/// Moves, and folds with what follows from it for who may read what.
pub struct Access<'a> {
    pub sessions: &'a mut Sessions,
    pub freed: &'a mut Freed,
    pub folds: &'a mut Folds,
    pub places: &'a mut Places,
}

impl Access<'_> {
    pub fn freeing(&mut self) -> Freeing<'_> {
        Freeing {
            sessions: self.sessions,
            freed: self.freed,
        }
    }

    pub fn folding(&mut self) -> Folding<'_> {
        Folding {
            sessions: self.sessions,
            freed: self.freed,
            folds: self.folds,
        }
    }

    /// Folds what `owner` has changed of `wanted`, and what must come along. Inodes that it does
    /// not own are left out. What becomes tighter by that is closed.
    pub fn fold(
        &mut self,
        owner: SessionNumber,
        wanted: &[InodeNumber],
        after: After,
    ) -> Result<(), Failure> {
        self.folding().fold(owner, wanted, after)?;
        self.tighten(Vec::new());
        Ok(())
    }

    /// As [`fold`](Self::fold), with a change of the controller's own in the same atomic step;
    /// it adds to the list what loses its last name.
    pub fn fold_and(
        &mut self,
        owner: SessionNumber,
        wanted: &[InodeNumber],
        after: After,
        extra: impl FnOnce(&mut Change<'_>, &mut Vec<InodeNumber>) -> Result<(), Errno>,
    ) -> Result<(), Failure> {
        self.folding().fold_and(owner, wanted, after, extra)?;
        self.tighten(Vec::new());
        Ok(())
    }

    /// See [`Folding::free_next_orphans`]. What becomes tighter by that is closed.
    pub fn free_next_orphans(&mut self) {
        self.folding().free_next_orphans();
        self.tighten(Vec::new());
    }

    /// The same of [`Folding::free_orphans`].
    pub fn free_orphans(&mut self, which: Option<&[InodeNumber]>) {
        self.folding().free_orphans(which);
        self.tighten(Vec::new());
    }

    /// See [`Folding::finish_due`]. What becomes tighter by that is closed.
    pub fn finish_due(&mut self) {
        if self.folding().finish_due() {
            self.tighten(Vec::new());
        }
    }

    /// Takes an inode away from an owner whose delta cannot be folded: see [`Folding::take_away`].
    pub fn take_away(&mut self, owner: SessionNumber, inode: InodeNumber, why: &Failure) {
        self.folding().take_away(owner, inode, why);
        self.tighten(Vec::new());
    }

    /// The same of all that is sealed: see [`Folding::take_away_sealed`].
    pub fn take_away_sealed(&mut self, owner: SessionNumber, why: Errno) -> bool {
        let had_any = self.folding().take_away_sealed(owner, why);
        if had_any {
            self.tighten(Vec::new());
        }
        had_any
    }
}
