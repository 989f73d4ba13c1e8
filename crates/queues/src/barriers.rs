//! The barriers of a file, and who waits for them: syncs and appends divide what is outstanding into stretches.
//!
//! A barrier waits for all that is earlier, and all that is later waits for it. Lists of who waits for whom would be as long as the square of
//! what is in flight. So each stretch counts its members, and a barrier's turn is when nothing is left in the stretches before it; and who
//! waits for barriers is noted at the last of those alone.
//!
//! # Invariants
//! * A stretch ends with its barrier; what is in none is behind the last. `before` counts the members of the stretch, without the barrier.
//! * A barrier's turn is when it is the first, and its stretch is empty: then there is no earlier member.
//! * Whoever is parked at a barrier is later than that, and earlier than the next one that was there when it was submitted. When a barrier is
//!   taken back, whoever is parked there goes to the barrier before it, and its members to the stretch behind: the order of the
//!   others stands.

use crate::request::RequestId;
use crate::rules::{Rule, Rules};
use std::collections::BTreeMap;
use std::ops::Bound;

#[derive(Default)]
struct Stretch {
    before: usize,
    parked: Vec<RequestId>,
}

/// See above.
#[derive(Default)]
pub struct Barriers {
    stretches: BTreeMap<RequestId, Stretch>,
    /// Members behind the last barrier.
    behind: usize,
}

impl Barriers {
    /// Whether there is no member, and no barrier.
    pub fn is_idle(&self) -> bool {
        self.behind == 0 && self.stretches.is_empty()
    }

    /// The last barrier.
    pub fn last(&self) -> Option<RequestId> {
        self.stretches.last_key_value().map(|(barrier, _)| *barrier)
    }

    fn members_beside(&mut self, request: RequestId) -> &mut usize {
        let stretch = self.stretches.range_mut(request..).next();
        stretch.map_or(&mut self.behind, |(_, stretch)| &mut stretch.before)
    }

    /// A member, that is no barrier.
    pub fn enter(&mut self, request: RequestId) {
        *self.members_beside(request) += 1;
    }

    /// A member is gone.
    pub fn leave(&mut self, request: RequestId) {
        let members = self.members_beside(request);
        // What was not counted, where a test has broken a rule, is not counted twice.
        *members = members.saturating_sub(1);
    }

    /// A barrier, later than all.
    pub fn close(&mut self, barrier: RequestId) {
        let before = std::mem::take(&mut self.behind);
        let stretch = Stretch {
            before,
            parked: Vec::new(),
        };
        self.stretches.insert(barrier, stretch);
    }

    /// Notes that a request, later than all, waits for the barriers. False: there is none.
    pub fn park(
        &mut self,
        request: RequestId,
        is_outstanding: impl Fn(&RequestId) -> bool,
    ) -> bool {
        let last = self.stretches.last_entry();
        last.is_some_and(|mut last| {
            note(&mut last.get_mut().parked, request, is_outstanding);
            true
        })
    }

    /// A barrier is done, or taken back. Gives those that wait for no barrier any more.
    pub fn remove(&mut self, barrier: RequestId, rules: Rules) -> Vec<RequestId> {
        let Some(mut stretch) = self.stretches.remove(&barrier) else {
            return Vec::new();
        };
        if rules.hold(Rule::NextBarrierWaitsForMore) {
            *self.members_beside(barrier) += stretch.before;
        }
        let earlier = (Bound::Unbounded, Bound::Excluded(barrier));
        match self.stretches.range_mut(earlier).next_back() {
            Some((_, earlier)) if rules.hold(Rule::WaitsForBarrierBefore) => {
                // The fewer to the more: so each moves as often as its list has doubled.
                if earlier.parked.len() < stretch.parked.len() {
                    std::mem::swap(&mut earlier.parked, &mut stretch.parked);
                }
                earlier.parked.append(&mut stretch.parked);
                Vec::new()
            }
            _ => stretch.parked,
        }
    }

    /// The barrier whose turn it is.
    pub fn turn(&self) -> Option<RequestId> {
        let (barrier, stretch) = self.stretches.first_key_value()?;
        (stretch.before == 0).then_some(*barrier)
    }
}

/// Adds to a list of requests that wait. Before that has to grow, what is not outstanding any more is taken off it: so it is no longer than
/// twice of what it is good for, whatever was cancelled meanwhile.
pub fn note(
    list: &mut Vec<RequestId>,
    request: RequestId,
    is_outstanding: impl Fn(&RequestId) -> bool,
) {
    if list.len() == list.capacity() {
        list.retain(is_outstanding);
        // Room for as many as are left, or the next look would come too soon.
        list.reserve(list.len().max(4));
    }
    list.push(request);
}
