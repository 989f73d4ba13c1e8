//! Who was sent data segments to write that are no session's own ([`super::together`]).
//!
//! Invariant: whoever was sent a segment is known until nobody can write it, whatever has become of his session.

use arck_controller_state::segments::{SegmentEntry, TOGETHER};
use arck_core_state::SegmentNumber;
use arck_verifier::Credentials;
use foldhash::{HashMap, HashSet};

/// Who was sent segments to write that several sessions may have, whether his session is still there or not: he may have kept
/// them.
#[derive(Default)]
pub(super) struct Writers {
    known: HashMap<SegmentNumber, Vec<Credentials>>,
    /// Segments that an earlier controller had sent to nobody knows whom.
    before: HashSet<SegmentNumber>,
}

impl Writers {
    pub(super) fn note(&mut self, segment: SegmentNumber, who: &Credentials) {
        let known = self.known.entry(segment).or_default();
        let is_same = |other: &Credentials| {
            (other.uid, other.gid, &other.groups) == (who.uid, who.gid, &who.groups)
        };
        if !known.iter().any(is_same) {
            known.push(who.clone());
        }
    }

    pub(super) fn were_all(
        &self,
        segment: SegmentNumber,
        is: impl Fn(&Credentials) -> bool,
    ) -> bool {
        let known = self.known.get(&segment);
        !self.before.contains(&segment) && known.is_none_or(|all| all.iter().all(is))
    }

    pub(super) fn of(segments: &[SegmentEntry]) -> Writers {
        let numbered = (0..).zip(segments);
        let together = numbered.filter(|(_, entry)| entry.flags & TOGETHER != 0);
        Writers {
            known: HashMap::default(),
            before: together.map(|(segment, _)| segment).collect(),
        }
    }

    pub(super) fn forget(&mut self, segment: SegmentNumber) {
        self.known.remove(&segment);
        self.before.remove(&segment);
    }
}
