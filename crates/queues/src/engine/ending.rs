//! What happens when a request is not outstanding any more: to what it covered, to those that waited for it, and to who asked for it.
//!
//! # Invariants
//! * A completion is there once, and everything that waited for the request knows when it is.
//! * What a write covered is looked after before the write leaves the order: no barrier's turn comes in between.

use super::{Engine, Outcome};
use crate::outstanding::{Job, Outstanding, QueueId};
use crate::request::{Completion, RequestId};
use crate::rules::Rule;
use std::sync::Arc;

impl Engine {
    /// Something that had begun has come to its end.
    pub fn finish(&mut self, id: RequestId, outcome: Outcome) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        self.counters.panicked += u64::from(outcome.panicked);
        let mut completion = Completion {
            buffer: outcome.buffer,
            end: outcome.end,
            ..Completion::of(id, outcome.result)
        };
        let mut written_until = request.done_until;
        match &request.job {
            Job::Read { .. } => completion.served_by = request.served_by,
            Job::Write { .. } => {
                if let Ok(length) = outcome.result {
                    written_until += length as u64;
                    completion.result = Ok((written_until - request.range.start) as usize);
                }
            }
            Job::Append { .. } | Job::Sync { .. } => {}
        }
        let is_write = request.job.is_write() && written_until > request.done_until;
        let end = outcome.end.or(is_write.then_some(written_until));
        if let (Some(end), Ok(_), Some(file)) =
            (end, completion.result, self.files.get_mut(&request.file))
        {
            file.end = file.end.max(end);
        }
        self.leave(completion, written_until);
    }

    /// A request is not outstanding any more; what it covered is done by what was written, up to a byte, or is to be done after all.
    pub(super) fn leave(&mut self, completion: Completion, written_until: u64) {
        // Not by recursion: a chain of writes that cover each other is as long as all queues are deep.
        let mut leaving = Vec::new();
        let mut next = Some((completion, written_until));
        while let Some((mut completion, written_until)) = next {
            if let Some(mut request) = self.requests.remove(&completion.id) {
                for covered in std::mem::take(&mut request.covers) {
                    let by = (&completion, &request);
                    leaving.extend(self.uncover(covered, by, written_until));
                }
                self.free_dependents(completion.id, &request);
                if completion.buffer.is_empty() {
                    completion.buffer = request.job.into_buffer();
                }
                self.deliver(request.queue, completion);
            }
            next = leaving.pop();
        }
    }

    /// Whoever waited for one that is not outstanding any more does so no longer.
    fn free_dependents(&mut self, id: RequestId, request: &Outstanding) {
        for later in &request.dependents {
            self.waits_for_one_less(*later);
        }
        if request.is_in_order() {
            self.leave_order(id, request);
        }
    }

    /// A request is taken out of the order of its file; it may have been what barriers waited for, or a barrier.
    fn leave_order(&mut self, id: RequestId, request: &Outstanding) {
        let Some(file) = self.files.get_mut(&request.file) else {
            return;
        };
        let freed = file.remove(id, request, self.rules);
        let turn = file.turn();
        for later in freed {
            self.waits_for_one_less(later);
        }
        if let Some(barrier) = turn
            && self
                .requests
                .get(&barrier)
                .is_some_and(|one| one.waits_for > 0)
        {
            self.waits_for_one_less(barrier);
        }
    }

    fn waits_for_one_less(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.waits_for -= 1;
        if request.is_ready() {
            self.make_ready(id);
        }
    }

    fn deliver(&mut self, queue: QueueId, completion: Completion) {
        self.counters.completed += 1;
        let Some(queue) = self.queues.get_mut(&queue) else {
            return;
        };
        queue.outstanding -= 1;
        queue.completions.push(completion);
        let is_enough =
            queue.completions.len() >= queue.wanted || queue.outstanding + queue.reserved == 0;
        if queue.sleeping > 0 && is_enough && self.rules.hold(Rule::WakesWaiting) {
            queue.wanted = usize::MAX;
            self.rung.push(Arc::clone(&queue.bell));
        }
    }
}
