//! Who owns what: acquiring, recalling, releasing, and the end of a session. An inode is taken from its owner by a
//! fold.
//!
//! Beneath it are `access` and what lies under that.
//!
//! # Invariant
//! * A session's help is not needed for anything here, and what is waited for is bounded.

pub mod acquiring;
pub mod credits;
pub mod ending;
pub mod eviction;
pub mod sweep;
pub mod sweeps;

use crate::access::{Access, Places};
use crate::fold::Folds;
use crate::freeing::{Freed, Freeing};
use crate::ownership::sweeps::{Spent, Sweep};
use crate::sessions::Sessions;
use arck_core_state::geometry::SessionNumber;
use std::collections::BTreeMap;

/// Folds of all that sessions own.
#[derive(Default)]
pub struct Sweeps {
    /// What sessions have asked to be folded, all of it, and by which request.
    pub under_way: BTreeMap<SessionNumber, (u64, Sweep)>,
    /// What refusals at the ends of sessions have cost of each user.
    pub spent: Spent,
}

/// Gives and takes.
pub struct Owners<'a> {
    pub sessions: &'a mut Sessions,
    pub freed: &'a mut Freed,
    pub folds: &'a mut Folds,
    pub places: &'a mut Places,
    pub sweeps: &'a mut Sweeps,
}

impl Owners<'_> {
    pub fn freeing(&mut self) -> Freeing<'_> {
        Freeing {
            sessions: self.sessions,
            freed: self.freed,
        }
    }

    pub fn access(&mut self) -> Access<'_> {
        Access {
            sessions: self.sessions,
            freed: self.freed,
            folds: self.folds,
            places: self.places,
        }
    }
}
