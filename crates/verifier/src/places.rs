//! Where the verified names stand that records take away: found once, while it is looked for what must come along, and
//! used again when it is verified and applied.
//!
//! # Invariants
//! * What was found counts while the verified state is as it was: it says of itself which one it is
//!   ([`VerifiedState::revision`](crate::VerifiedState::revision)). Else it is looked for again.
//! * Who applies changes looks at the place whether the name stands there.
//! * A place is known by its record's unit of the arena, of which a fold set has each once.

use crate::effects::PlacedRecord;
use arck_core_state::directory::Dentry;
use arck_core_state::in_order::Place;

/// Where a verified name stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NamePlace {
    pub hash: u64,
    pub dentry: Dentry,
    pub place: Option<Place>,
}

/// See the module's head. Those of a set of deltas, in the order of units.
#[derive(Clone, Debug, Default)]
pub struct Places {
    known: Vec<(u64, NamePlace)>,
    /// Of which state.
    revision: Option<u64>,
}

/// Which name of a record: the one that goes from its source, or the one that it replaces.
pub(crate) fn key(placed: &PlacedRecord<'_>, is_source: bool) -> u64 {
    u64::from(placed.unit) * 2 + u64::from(!is_source)
}

impl Places {
    /// Notes places of a state, in any order, instead of what was noted before.
    pub(crate) fn note(&mut self, revision: Option<u64>, mut known: Vec<(u64, NamePlace)>) {
        if !known.is_sorted_by_key(|(key, _)| *key) {
            known.sort_unstable_by_key(|(key, _)| *key);
        }
        (self.known, self.revision) = (known, revision);
    }

    /// Reads them in about the order of units; nothing is known of another state.
    pub(crate) fn reader(
        &self,
        revision: Option<u64>,
    ) -> impl FnMut(u64) -> Option<NamePlace> + use<'_> {
        let known = match revision.is_some() && revision == self.revision {
            true => &self.known[..],
            false => &[],
        };
        let mut next = 0;
        move |key| {
            let is_next = |at: usize| known.get(at).is_some_and(|(known, _)| *known == key);
            if !is_next(next) {
                next = known.partition_point(|(known, _)| *known < key);
            }
            let found = is_next(next).then(|| known[next].1);
            next += usize::from(found.is_some());
            found
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arck_core_state::{FileKind, PagePtr};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Of the state of which it was noted, and of no other one.
        #[test]
        fn what_was_noted_is_read_in_any_order(noted in prop::collection::vec((0u64..60, any::<u64>()), 0..60),
            asked in prop::collection::vec(0u64..60, 0..60)) {
            let noted: BTreeMap<u64, u64> = noted.into_iter().collect();
            let of = |(&key, &hash): (&u64, &u64)| {
                let dentry = Dentry { inode: 7, generation: 1, kind: FileKind::File };
                (key, NamePlace { hash, dentry, place: Place::new(PagePtr(key + 1), 7) })
            };
            let mut places = Places::default();
            places.note(Some(3), noted.iter().rev().map(of).collect());
            let mut known = places.reader(Some(3));
            for other in [None, Some(4)] {
                prop_assert!((0..60).all(|key| places.reader(other)(key).is_none()));
            }
            for key in (0..60).chain(asked) {
                let expected = noted.get_key_value(&key).map(of).map(|(_, place)| place);
                prop_assert_eq!(known(key), expected);
            }
        }
    }
}
