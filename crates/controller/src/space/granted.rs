//! How many pages of sessions' data segments are unused: see [`crate::space::free_pages`].

use arck_controller_state::segments::{SegmentEntry, SegmentKind};
use arck_core_state::geometry::SessionNumber;
use foldhash::HashMap;

/// Pages of sessions' data segments that the verified state does not use.
#[derive(Default)]
pub struct Granted {
    all: u64,
    of: HashMap<SessionNumber, u64>,
    /// Counts changes of anything that the numbers follow from.
    pub revision: u64,
}

impl Granted {
    /// Pages have come to be in use, or not any more, anywhere.
    pub fn note(&mut self) {
        self.revision += 1;
    }

    /// So many unused pages of such a segment are there now.
    pub fn add(&mut self, entry: &SegmentEntry, pages: u64) {
        if let Some(owner) = owner(entry) {
            self.all += pages;
            *self.of.entry(owner).or_default() += pages;
        }
        self.note();
    }

    /// So many unused pages of such a segment are there no more.
    pub fn take(&mut self, entry: &SegmentEntry, pages: u64) {
        if let Some(owner) = owner(entry) {
            self.all = self.all.saturating_sub(pages);
            if let Some(held) = self.of.get_mut(&owner) {
                *held = held.saturating_sub(pages);
                if *held == 0 {
                    self.of.remove(&owner);
                }
            }
        }
        self.note();
    }

    /// Of all sessions but this one; none has the number 0.
    pub fn of_others(&self, session: SessionNumber) -> u64 {
        self.all - self.of.get(&session).copied().unwrap_or(0)
    }
}

/// The session whose a data segment is.
pub fn owner(entry: &SegmentEntry) -> Option<SessionNumber> {
    (entry.kind() == SegmentKind::Data && entry.owner != 0).then_some(entry.owner)
}
