//! Folds: what an owner changed is copied, verified and applied, or refused.
//!
//! Beneath it are `freeing`, `sessions` and what lies under them.
//!
//! # Invariant
//! * A session's help is not needed for anything here, and what it waits for is bounded.

pub mod alone;
pub mod aside;
mod copied;
pub mod folding;
pub mod letting_go;
pub mod memory;
pub mod meter;
mod numbers;
pub mod orphans;
pub mod pages;
pub mod refusals;
pub mod reply;
pub mod seal;
pub mod tails;
pub mod tightened;
pub mod touched;

use crate::fold::meter::Meter;
use crate::fold::touched::Touched;
use crate::freeing::{Freed, Freeing};
use crate::pool::progress::Reporter;
use crate::sessions::Sessions;
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use std::collections::BTreeSet;
use std::time::Instant;

/// What folds have left to be done.
pub struct Folds {
    /// When grace periods end: of which session's which inode. Those that ended otherwise stay
    /// until they are due.
    pub refusals: BTreeSet<(Instant, SessionNumber, InodeNumber)>,
    /// What folds have changed that may tighten a class; [`crate::access`] looks at it when the fold is done.
    pub touched: Vec<Touched>,
    /// When it is tried again to fold what is sealed, of which sessions.
    pub sealed: BTreeSet<(Instant, SessionNumber)>,
    pub meter: Meter,
    /// Tells how far the opening is.
    pub progress: Reporter,
}

impl Folds {
    pub fn new(progress: Reporter) -> Folds {
        Folds {
            refusals: BTreeSet::new(),
            touched: Vec::new(),
            sealed: BTreeSet::new(),
            meter: Meter::default(),
            progress,
        }
    }
}

/// Folds. What that may have tightened waits in [`Folds::touched`]: who folds for a request does it by
/// [`crate::access::Access::fold`].
pub struct Folding<'a> {
    pub sessions: &'a mut Sessions,
    pub freed: &'a mut Freed,
    pub folds: &'a mut Folds,
}

impl Folding<'_> {
    pub fn freeing(&mut self) -> Freeing<'_> {
        Freeing {
            sessions: self.sessions,
            freed: self.freed,
        }
    }
}
