//! What is taken back before it has begun: cancelled, late, or of a queue that is closed.
//!
//! # Invariants
//! * Of what is taken back nothing has been done, and nobody has seen it.
//! * What it covered is done as if it never had been, or covered by what covers it.

use super::Engine;
use crate::outstanding::{Outstanding, QueueId, Stage};
use crate::request::{Closing, Completion, RequestId};
use crate::rules::Rule;
use rustix::io::Errno;
use std::time::Instant;

impl Engine {
    /// Takes back what has not begun.
    fn withdraw(&mut self, id: RequestId, errno: Errno) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let (queue, stage) = (request.queue, request.stage);
        let (done_until, done_by) = (request.done_until, request.done_by);
        if let Some(deadline) = request.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        match stage {
            Stage::Covered(by) if self.rules.hold(Rule::PassesCoveredOn) => {
                let covers = std::mem::take(&mut request.covers);
                let dependents = request.dependents.clone();
                for &covered in &covers {
                    let Some(mut write) = self.requests.remove(&covered) else {
                        continue;
                    };
                    write.stage = Stage::Covered(by);
                    if let Some(writer) = done_by {
                        write.is_done_until(done_until, writer);
                    }
                    // All of them lie beneath the same: they matter to each other if that goes, too.
                    self.inherit(&mut write, &dependents);
                    self.requests.insert(covered, write);
                }
                if let Some(by) = self.requests.get_mut(&by) {
                    by.covers.remove(&id);
                    by.covers.extend(covers);
                }
            }
            Stage::Covered(_) | Stage::Running => {}
            Stage::Queued => self.schedule.remove(queue, id),
        }
        match errno {
            Errno::TIMEDOUT => self.counters.timed_out += 1,
            _ => self.counters.cancelled += 1,
        }
        self.leave(Completion::of(id, Err(errno)), done_until);
    }

    fn can_be_withdrawn(&self, id: RequestId) -> bool {
        self.requests.get(&id).is_some_and(|request| {
            request.can_be_withdrawn()
                || request.stage != Stage::Running
                    && !(self.rules.hold(Rule::KeepsWhatWasSeen)
                        && self.rules.hold(Rule::KeepsWhatIsSpooled))
                || !self.rules.hold(Rule::CancelsOnlyQueued)
        })
    }

    /// Cancels a request of a queue. EALREADY: it has begun, or a read has seen it. ENOENT: it is none, or not outstanding.
    pub fn cancel(&mut self, queue: QueueId, id: RequestId) -> Result<(), Errno> {
        if self
            .requests
            .get(&id)
            .is_none_or(|request| request.queue != queue)
        {
            return Err(Errno::NOENT);
        }
        if !self.can_be_withdrawn(id) {
            return Err(Errno::ALREADY);
        }
        self.withdraw(id, Errno::CANCELED);
        Ok(())
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Ends what should have begun by now and has not.
    pub fn expire(&mut self, now: Instant) {
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            self.deadlines.remove(&(deadline, id));
            if self.can_be_withdrawn(id) {
                self.withdraw(id, Errno::TIMEDOUT);
            }
        }
    }

    /// Takes no more requests of a queue; cancels what has not begun if that is wished.
    pub fn close(&mut self, id: QueueId, closing: Closing) {
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        queue.is_closed = true;
        if closing == Closing::Cancel {
            // A look at the requests of all queues: a queue that has some is seldom closed so.
            let is_its = |(_, request): &(&RequestId, &Outstanding)| request.queue == id;
            let mut outstanding: Vec<RequestId> = match queue.outstanding {
                0 => Vec::new(),
                _ => self
                    .requests
                    .iter()
                    .filter(is_its)
                    .map(|(id, _)| *id)
                    .collect(),
            };
            outstanding.sort_unstable();
            for request in outstanding {
                if self.can_be_withdrawn(request) {
                    self.withdraw(request, Errno::CANCELED);
                }
            }
        }
    }

    /// Closes all, and opens no more.
    pub fn end(&mut self) {
        self.has_ended = true;
        let mut all: Vec<_> = self.queues.keys().copied().collect();
        all.sort_unstable();
        for queue in all {
            self.close(queue, Closing::Cancel);
        }
    }
}
