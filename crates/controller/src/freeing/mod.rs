//! What becomes free, and when: inodes without a name, and segments that nobody needs.
//!
//! Beneath it are `sessions` and what lies under that.
//!
//! # Invariant
//! * What somebody has open or mapped is not used for anything else.

pub mod charges;
pub mod give_back;
pub mod orphans;
pub mod spare_segments;

use crate::freeing::charges::{Charges, Doomed, Pace};
use crate::sessions::Sessions;
use crate::space::number_set::NumberSet;
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use std::collections::BTreeMap;
use std::time::Instant;

/// What is known of what is to be freed.
#[derive(Default)]
pub struct Freed {
    /// Orphans that stay at the expense of a user: see [`orphans`].
    pub charged: Charges,
    /// Orphans that are being freed.
    pub doomed: Doomed,
    pub pace: Pace,
    /// Orphans that are to be freed when what their owners have named is folded.
    pub owned: BTreeMap<SessionNumber, NumberSet>,
    /// Somebody is at that: see [`crate::fold::orphans`].
    pub is_freeing_owned: bool,
    /// Orphans that came one by one: to look whether any session has them open takes a barrier, which one does for several.
    pub together: Vec<InodeNumber>,
    /// When segments were given back last.
    pub gave_back: Option<Instant>,
}

impl Freed {
    /// Takes so many at most of some owner's.
    pub fn next_owned(&mut self, at_most: usize) -> Option<(SessionNumber, Vec<InodeNumber>)> {
        let mut first = self.owned.first_entry()?;
        let owner = *first.key();
        let next = first.get_mut().take_first(at_most);
        if first.get().is_empty() {
            first.remove();
        }
        Some((owner, next))
    }
}

/// Frees.
pub struct Freeing<'a> {
    pub sessions: &'a mut Sessions,
    pub freed: &'a mut Freed,
}
