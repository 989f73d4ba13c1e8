//! The order of a file's requests, of all its queues: which earlier ones a request waits for, which it covers, and from
//! which it is served (CrossFS, section 3: "turns the file synchronization problem into a queue ordering problem").
//!
//! CrossFS puts a request that conflicts with another into that one's queue. Here it stays in its own, and waits: so it keeps its
//! queue's weight, and can wait for several that lie in several queues.
//!
//! # Invariants
//! * A request waits for *all* earlier outstanding ones that it conflicts with, not for the last of them alone: when one in between is
//!   cancelled, the order of the others stands. Who waits for barriers, and for whom these wait, is counted in `barriers`.
//! * Only earlier ones are waited for, so no two wait for each other.
//! * A write behind the file's end lengthens it for readers of what lies between: for them it begins at the end. `end` is no greater than the
//!   file is, as long as nobody cuts that by other calls.
//! * Reads, writes, and the gaps that writes leave behind the file's end, are looked for by themselves: reads do not meet reads, nor do writes that lengthen
//!   the file meet each other, however many are in flight.
//! * A write is covered only while all that wait for it are covered by the same write: nobody but that one sees whether it was done.
//! * A covered write is not looked for: whatever overlaps it overlaps the one that covers it, and waits for that. When it is to be done after
//!   all, those wait for it, too. So many writes of one range are as quick to place as two.
//! * A read is served only from the last write that overlaps it, and only if no append lies between: that waits for the end of the file.

use crate::barriers::Barriers;
use crate::intervals::Intervals;
use crate::numbered::ByNumber;
use crate::outstanding::{Job, Outstanding, Stage, lies_in};
use crate::request::RequestId;
use crate::rules::{Rule, Rules};
use std::collections::BTreeSet;

/// All requests that are outstanding.
pub type Requests = ByNumber<RequestId, Outstanding>;

/// Outstanding requests of a file, but for reads that are being served, and for writes that are covered: whoever overlaps one of those
/// overlaps what covers it.
#[derive(Default)]
pub struct FileOrder {
    /// Queues that are open.
    pub queues: usize,
    /// The file has so many bytes at least.
    pub end: u64,
    reads: Intervals,
    writes: Intervals,
    /// Between the file's end and a write behind it.
    gaps: Intervals,
    barriers: Barriers,
    appends: BTreeSet<RequestId>,
}

/// Where a request belongs that is no barrier.
#[derive(Default, Debug)]
pub struct Place {
    /// Beside barriers.
    pub waits_for: Vec<RequestId>,
    pub covers: BTreeSet<RequestId>,
    /// It is served from this write, and waits for nobody.
    pub served_by: Option<RequestId>,
}

impl FileOrder {
    /// Whether no request is outstanding that anything waits for.
    pub fn is_idle(&self) -> bool {
        self.barriers.is_idle()
    }

    /// Where a request belongs that is submitted now.
    pub fn place(&self, requests: &Requests, new: &Outstanding, rules: Rules) -> Place {
        let mut place = Place::default();
        if new.job.is_barrier() {
            return place;
        }
        let mut writes = Vec::new();
        self.writes.overlapping(&new.range, &mut writes);
        // The latest first.
        writes.sort_unstable_by(|one, other| other.cmp(one));
        if new.job.is_read() {
            place.served_by = self.serving(requests, new, &writes, rules);
            if place.served_by.is_some() {
                return place;
            }
            let beside = writes.len();
            self.gaps.overlapping(&new.range, &mut writes);
            if writes.len() > beside {
                // Some of them also overlap it by what they write.
                writes.sort_unstable();
                writes.dedup();
            }
        } else {
            let barrier = match rules.hold(Rule::CoversNothingBeforeBarrier) {
                true => self.barriers.last(),
                false => None,
            };
            let beneath = &mut place.covers;
            for &earlier in &writes {
                if barrier.is_none_or(|barrier| barrier < earlier)
                    && can_cover(&requests[&earlier], new, beneath, requests, rules)
                {
                    beneath.insert(earlier);
                }
            }
            if !beneath.is_empty() {
                writes.retain(|other| !beneath.contains(other));
            }
            self.reads.overlapping(&new.reach, &mut writes);
        }
        if rules.hold(Rule::WaitsForOverlapping) {
            place.waits_for = writes;
        }
        place
    }

    fn serving(
        &self,
        requests: &Requests,
        read: &Outstanding,
        writes: &[RequestId],
        rules: Rules,
    ) -> Option<RequestId> {
        let covers_all = |write: RequestId| {
            let write = &requests[&write];
            lies_in(&read.range, &(write.done_until..write.range.end))
        };
        let last = match rules.hold(Rule::ServesFromLast) {
            true => writes.first().copied().filter(|&last| covers_all(last)),
            false => writes.iter().copied().rfind(|&one| covers_all(one)),
        }?;
        let appends_behind = self.appends.last().is_some_and(|append| *append > last);
        (!appends_behind).then_some(last)
    }

    /// Notes that one which was placed, and is no barrier, waits for the barriers before it. False: there is none.
    pub fn waits_for_barriers(&mut self, id: RequestId, requests: &Requests, rules: Rules) -> bool {
        rules.hold(Rule::LaterWaitForBarrier)
            && self
                .barriers
                .park(id, |parked| requests.contains_key(parked))
    }

    /// Notes a request that was placed and is not served; or that is not covered any more.
    pub fn insert(&mut self, id: RequestId, request: &Outstanding) {
        match &request.job {
            Job::Read { .. } | Job::Write { .. } => self.barriers.enter(id),
            Job::Append { .. } | Job::Sync { .. } => self.barriers.close(id),
        }
        match &request.job {
            Job::Append { .. } => _ = self.appends.insert(id),
            Job::Sync { .. } => {}
            _ if request.range.is_empty() => {}
            Job::Read { .. } => self.reads.insert(request.range.clone(), id),
            Job::Write { .. } => {
                self.writes.insert(request.range.clone(), id);
                if let Some(gap) = request.gap() {
                    self.gaps.insert(gap, id);
                }
            }
        }
    }

    /// Notes that one which was inserted is not outstanding any more, or covered. Gives those that wait for no barrier any more.
    pub fn remove(&mut self, id: RequestId, request: &Outstanding, rules: Rules) -> Vec<RequestId> {
        match &request.job {
            Job::Append { .. } => _ = self.appends.remove(&id),
            Job::Sync { .. } => {}
            Job::Read { .. } => self.reads.remove(request.range.start, id),
            Job::Write { .. } => {
                self.writes.remove(request.range.start, id);
                if let Some(gap) = request.gap() {
                    self.gaps.remove(gap.start, id);
                }
            }
        }
        if request.job.is_barrier() {
            return self.barriers.remove(id, rules);
        }
        self.barriers.leave(id);
        Vec::new()
    }

    /// The barrier before which nothing is outstanding.
    pub fn turn(&self) -> Option<RequestId> {
        self.barriers.turn()
    }
}

/// Whether a queued write need not be done if a later one is, beneath which `beneath` lie already.
fn can_cover(
    earlier: &Outstanding,
    later: &Outstanding,
    beneath: &BTreeSet<RequestId>,
    requests: &Requests,
    rules: Rules,
) -> bool {
    let is_queued = match rules.hold(Rule::CoversOnlyQueued) {
        true => earlier.stage == Stage::Queued,
        false => !matches!(earlier.stage, Stage::Covered(_)),
    };
    let needed = |by: &RequestId| {
        let mut top = *by;
        // Beneath what is covered lies all that this covers.
        while let Some(request) = requests.get(&top) {
            match request.stage {
                _ if beneath.contains(&top) => return false,
                Stage::Covered(by) => top = by,
                _ => return true,
            }
        }
        false
    };
    earlier.job.is_write()
        && is_queued
        && lies_in(&earlier.range, &later.range)
        // Whoever asked for haste does not wait for somebody without.
        && (later.urgent || !earlier.urgent)
        // Nor who has a time to begin by.
        && earlier.deadline.is_none()
        // Nor is one covered that stands in a spool: it would have to be marked before the later one is.
        && (earlier.spooled.is_none() || !rules.hold(Rule::CoversNothingSpooled))
        && !(rules.hold(Rule::CoversWhatNobodyNeeds) && earlier.dependents.iter().any(needed))
}
