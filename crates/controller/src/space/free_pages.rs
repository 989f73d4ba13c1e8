//! How many pages are free for whom: what `statfs` and `arck status` tell.
//!
//! A session stores to its data segments without asking, so nobody but it knows what is free in them:
//! for all others they are used up, as a whole; for itself, what the verified state does not use of
//! them is free, which is exact after a fold.
//!
//! # Invariants
//! * [`Granted`](super::granted::Granted) follows the segment table and the bitmap page by page: nothing is looked through to
//!   tell a number.
//! * No number is more than the pages that the verified state does not use.

use crate::space::pages::Space;
use arck_core_state::geometry::SessionNumber;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::granted::owner;
    use crate::testing::TestCore;
    use arck_controller_state::segments::{SegmentEntry, SegmentKind};
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
        let geometry = test.core.sessions.state.pool.geometry();
        let space = &mut test.core.sessions.state.space;
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
