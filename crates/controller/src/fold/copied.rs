//! A fold set, marked and copied.
//!
//! # Invariant
//! * All of it stays marked until the fold ends, but for the directories that were sealed, whose sealed deltas nobody
//!   changes: so the copies stay what they are.

use crate::space::number_set::NumberSet;
use arck_core_state::InodeNumber;
use arck_verifier::{CopiedDelta, Places, SetMember};

/// See the module's head.
pub(super) struct Copied {
    pub set: NumberSet,
    pub members: Vec<SetMember>,
    pub deltas: Vec<CopiedDelta>,
    pub places: Places,
    /// Operations were still in flight when the copy was made.
    pub straddled: bool,
    /// What directories name that were sealed, and is uncommitted: marked, as all of the set is.
    pub born: Vec<InodeNumber>,
}

impl Copied {
    /// Delta pages of it.
    pub fn pages(&self) -> usize {
        self.deltas.iter().map(|delta| delta.pages.len()).sum()
    }
}
