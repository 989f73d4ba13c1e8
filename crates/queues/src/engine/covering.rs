//! Writes that a later one covers: not done, or done after all.
//!
//! # Invariants
//! * A covered write is in no schedule, and is not looked for in the order of its file.
//! * It leaves that state with the one that covers it: done by that, or queued again in its place in the order.

use super::Engine;
use crate::outstanding::{Outstanding, Stage};
use crate::request::{Completion, RequestId};
use crate::rules::Rule;

impl Engine {
    pub(super) fn cover(&mut self, covered: RequestId, by: RequestId) {
        let Some(request) = self.requests.get_mut(&covered) else {
            return;
        };
        let was_ready = request.is_ready();
        request.stage = Stage::Covered(by);
        let queue = request.queue;
        if let Some(file) = self.files.get_mut(&request.file) {
            // No barrier lies behind it, so none's turn has come.
            file.remove(covered, request, self.rules);
        }
        if was_ready {
            self.schedule.remove(queue, covered);
        }
        if !self.rules.hold(Rule::CoveredCompletesLater) {
            let gone = self.as_covered(covered, by);
            gone.into_iter()
                .for_each(|(completion, until)| self.leave(completion, until));
        }
    }

    /// The one that covered a write is gone. Gives what comes of the write if it need not be done.
    pub(super) fn uncover(
        &mut self,
        covered: RequestId,
        (gone, covering): (&Completion, &Outstanding),
        written_until: u64,
    ) -> Option<(Completion, u64)> {
        let by = gone.id;
        // Who has written up to a byte: one that covered the covering one, in part or in place of it, or that one itself.
        let writer = |until: u64| match covering.done_by {
            _ if !self.rules.hold(Rule::NamesWhatWasDone) => by,
            Some(before) if until <= covering.done_until => before,
            _ => gone.covered_by.unwrap_or(by),
        };
        let mut request = self.requests.remove(&covered)?;
        let is_done = request.range.end <= written_until;
        if request.stage != Stage::Covered(by) {
            self.requests.insert(covered, request);
            return None;
        }
        if is_done || !self.rules.hold(Rule::DoesCoveredAfterAll) {
            let writer = writer(request.range.end);
            self.requests.insert(covered, request);
            return self.as_covered(covered, writer);
        }
        if self.rules.hold(Rule::KeepsWhatCoveringWrote) {
            let writer = writer(written_until);
            request.is_done_until(written_until, writer);
        }
        request.stage = Stage::Queued;
        if let Some(file) = self.files.get_mut(&request.file) {
            file.insert(covered, &request);
        }
        self.inherit(&mut request, &covering.dependents);
        let is_ready = request.is_ready();
        self.requests.insert(covered, request);
        if is_ready {
            self.make_ready(covered);
        }
        None
    }

    /// Whoever waits for what covered a write, which is gone in a moment, has to wait for the write.
    pub(super) fn inherit(&mut self, write: &mut Outstanding, dependents: &[RequestId]) {
        for later in dependents {
            if let Some(dependent) = self.requests.get_mut(later)
                && dependent.conflicts_with(write)
                && self.rules.hold(Rule::LaterWaitForUncovered)
            {
                dependent.waits_for += 1;
                write.dependents.push(*later);
            }
        }
    }

    /// What comes of a covered write that is not to be done.
    fn as_covered(&mut self, covered: RequestId, by: RequestId) -> Option<(Completion, u64)> {
        let request = self.requests.get(&covered)?;
        if let Some(deadline) = request.deadline {
            self.deadlines.remove(&(deadline, covered));
        }
        self.counters.covered += 1;
        let length = request.range.end - request.range.start;
        let completion = Completion::of(covered, Ok(length as usize));
        let completion = Completion {
            covered_by: Some(by),
            ..completion
        };
        Some((completion, request.range.end))
    }
}
