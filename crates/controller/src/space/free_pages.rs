//! How many pages are free for whom: what `statfs` and `arck status` tell.
//!
//! A session stores to its data segments without asking, so nobody but it knows what is free in them:
//! for all others they are used up, as a whole; for itself, what the verified state does not use of
//! them is free, which is exact after a fold.
//!
//! # Invariants
//! * [`Granted`] follows the segment table and the bitmap page by page: nothing is looked through to
//!   tell a number.
//! * No number is more than the pages that the verified state does not use.

use crate::core::Core;
use crate::space::pages::Space;
use arck_controller_state::segments::{SegmentEntry, SegmentKind};
use arck_core_state::geometry::SessionNumber;
use foldhash::HashMap;
use std::sync::atomic::Ordering;

/// Pages of sessions' data segments that the verified state does not use.
#[derive(Default)]
pub struct Granted {
    all: u64,
    of: HashMap<SessionNumber, u64>,
    /// Counts changes of anything that the numbers follow from.
    revision: u64,
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
    fn of_others(&self, session: SessionNumber) -> u64 {
        self.all - self.of.get(&session).copied().unwrap_or(0)
    }
}

/// The session whose a data segment is.
fn owner(entry: &SegmentEntry) -> Option<SessionNumber> {
    (entry.kind() == SegmentKind::Data && entry.owner != 0).then_some(entry.owner)
}

impl Space {
    /// Pages that a session can fill: those that nobody uses and no other session was granted,
    /// beyond what is kept for metadata.
    pub fn pages_free_for(&self, session: SessionNumber) -> u64 {
        self.pages_unused()
            .saturating_sub(self.granted().of_others(session))
    }

    /// Pages that a new session could fill.
    pub fn pages_free(&self) -> u64 {
        self.pages_free_for(0)
    }
}

impl Core {
    /// Tells every session how much space is left for it, if that may have changed.
    pub fn publish_free_counts(&mut self, always: bool) {
        let space = &self.state.space;
        let inodes = self.state.numbers.count_free();
        let published = Some((space.granted().revision, inodes));
        if published == self.published && !always {
            return;
        }
        self.published = published;
        for session in self.sessions.values() {
            if let Some(live) = &session.live {
                let header = &live.control().header;
                let pages = space.pages_free_for(session.number);
                header.pages_free.store(pages, Ordering::Relaxed);
                header.inodes_free.store(inodes, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestCore;
    use arck_core_state::{Geometry, PagePtr, SegmentNumber};

    fn data(owner: SessionNumber) -> SegmentEntry {
        SegmentEntry {
            kind: SegmentKind::Data as u32,
            owner,
            ..SegmentEntry::default()
        }
    }

    /// As found by looking through everything.
    fn counted(geometry: &Geometry, space: &Space, session: SessionNumber) -> u64 {
        let segments = 0..geometry.segment_count;
        let is_others = |&segment: &SegmentNumber| {
            let entry = space.entry(segment).unwrap();
            owner(&entry).is_some_and(|owner| owner != session)
        };
        let others: u64 = segments.filter(is_others).map(|s| space.unused_in(s)).sum();
        space.pages_unused().saturating_sub(others)
    }

    #[test]
    fn numbers_are_those_that_looking_at_everything_gives() {
        let mut test = TestCore::new();
        let geometry = test.core.state.pool.geometry();
        let space = &mut test.core.state.space;
        let free: Vec<SegmentNumber> = (0..geometry.segment_count)
            .filter(|&segment| space.kind(segment) == SegmentKind::Free)
            .take(4)
            .collect();
        let before = space.pages_free();
        let pages = geometry.pages_per_segment();
        for (at, &segment) in free.iter().enumerate() {
            space.set_entry(segment, data(5 + at as u32 % 2));
        }
        assert_eq!(space.pages_free(), before - 4 * pages);
        assert_eq!(space.pages_free_for(5), before - 2 * pages);
        assert_eq!(space.pages_free_for(7), space.pages_free());
        for (at, &segment) in free.iter().enumerate() {
            let first = geometry.first_page(segment);
            for page in 0..10 + at as u64 {
                space.set_used(PagePtr(first.0 + page), true);
            }
            space.set_used(first, false);
            for session in [0, 5, 6, 7] {
                assert_eq!(
                    space.pages_free_for(session),
                    counted(&geometry, space, session)
                );
            }
        }
        // To another one, to nobody, to the controller, and free again.
        space.set_entry(free[0], data(6));
        space.set_entry(free[1], data(0));
        let metadata = SegmentEntry {
            kind: SegmentKind::Metadata as u32,
            ..SegmentEntry::default()
        };
        space.set_entry(free[2], metadata);
        for session in [0, 5, 6, 7] {
            assert_eq!(
                space.pages_free_for(session),
                counted(&geometry, space, session)
            );
        }
        assert_eq!(space.pages_free_for(5), space.pages_free(), "5 has nothing");
        assert!(space.pages_free_for(6) > space.pages_free());
    }
}
