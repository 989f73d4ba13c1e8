//! A request from its submission to its completion.
//!
//! # Invariants
//! * `waits_for` counts requests that are outstanding and list this one in `dependents`, and 1 for a barrier at which it is parked. What is named in a list and is not outstanding
//!   any more is passed over: numbers are not used twice.
//! * A request that is `Covered` by another stands in that one's `covers`, and in no other list of that kind; that one is outstanding, and
//!   whatever conflicts with it and came later waits for that one.
//! * Bytes of a write below `done_until` were written by a later write, `done_by`, which covered it and ended short.
//! * A barrier's `waits_for` is 1 until its turn comes, and 0 from then on.

use crate::request::{Operation, Request, RequestId};
use crate::spool::Spooled;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Which queue, of one [`Queues`](crate::Queues). Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct QueueId(pub u64);

/// Which file, as long as queues of it are open. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct FileNumber(pub u64);

/// What is to be done, with its bytes where a read can be served from them while they are written.
#[derive(Debug)]
pub enum Job {
    Read { position: u64, buffer: Vec<u8> },
    Write { position: u64, bytes: Arc<Vec<u8>> },
    Append { bytes: Vec<u8> },
    Sync { data_only: bool },
}

impl From<Operation> for Job {
    fn from(operation: Operation) -> Job {
        match operation {
            Operation::Read { position, buffer } => Job::Read { position, buffer },
            Operation::Write { position, bytes } => Job::Write {
                position,
                bytes: Arc::new(bytes),
            },
            Operation::Append { bytes } => Job::Append { bytes },
            Operation::Sync { data_only } => Job::Sync { data_only },
        }
    }
}

impl Job {
    /// The bytes of the file that it reads or writes, as far as that is known before it is done.
    pub fn range(&self) -> Range<u64> {
        match self {
            Job::Read { position, buffer } => *position..*position + buffer.len() as u64,
            Job::Write { position, bytes } => *position..*position + bytes.len() as u64,
            Job::Append { .. } | Job::Sync { .. } => 0..0,
        }
    }

    pub fn is_read(&self) -> bool {
        matches!(self, Job::Read { .. })
    }

    pub fn is_write(&self) -> bool {
        matches!(self, Job::Write { .. })
    }

    pub fn is_barrier(&self) -> bool {
        matches!(self, Job::Append { .. } | Job::Sync { .. })
    }

    /// How many bytes it moves.
    pub fn length(&self) -> usize {
        match self {
            Job::Read { buffer, .. } => buffer.len(),
            Job::Write { bytes, .. } => bytes.len(),
            Job::Append { bytes } => bytes.len(),
            Job::Sync { .. } => 0,
        }
    }

    /// The buffer that was given with it.
    pub fn into_buffer(self) -> Vec<u8> {
        match self {
            Job::Read { buffer, .. } => buffer,
            // Who serves a read from it at this moment has the other one.
            Job::Write { bytes, .. } => {
                Arc::try_unwrap(bytes).unwrap_or_else(|shared| shared.to_vec())
            }
            Job::Append { bytes } => bytes,
            Job::Sync { .. } => Vec::new(),
        }
    }
}

/// How far a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Waits for others or for a worker.
    Queued,
    /// Is not done unless this later write is not.
    Covered(RequestId),
    /// Has begun.
    Running,
}

/// A request that was submitted and has not completed.
#[derive(Debug)]
pub struct Outstanding {
    pub queue: QueueId,
    pub file: FileNumber,
    /// Of what runs, without the buffer.
    pub job: Job,
    /// What [`Job::range`] said at first.
    pub range: Range<u64>,
    /// The range, and of a write the zeroes between the file's end and that.
    pub reach: Range<u64>,
    pub urgent: bool,
    pub deadline: Option<Instant>,
    pub stage: Stage,
    pub waits_for: usize,
    pub dependents: Vec<RequestId>,
    pub covers: BTreeSet<RequestId>,
    /// A read was served from it: it is done, whatever comes.
    pub is_seen: bool,
    /// Of a read: the write that it is served from.
    pub served_by: Option<RequestId>,
    pub done_until: u64,
    pub done_by: Option<RequestId>,
    /// Where it stands in its queue's spool: it is done, whatever comes.
    pub spooled: Option<Spooled>,
}

impl Outstanding {
    pub fn new(
        queue: QueueId,
        file: FileNumber,
        request: Request,
        deadline: Option<Instant>,
        file_end: u64,
    ) -> Outstanding {
        let job = Job::from(request.operation);
        let range = job.range();
        let mut reach = range.clone();
        if job.is_write() && !range.is_empty() {
            reach.start = reach.start.min(file_end);
        }
        Outstanding {
            queue,
            file,
            done_until: range.start,
            range,
            reach,
            job,
            urgent: request.urgent,
            deadline,
            stage: Stage::Queued,
            waits_for: 0,
            dependents: Vec::new(),
            covers: BTreeSet::new(),
            is_seen: false,
            served_by: None,
            done_by: None,
            spooled: None,
        }
    }

    /// It can be taken back: nobody has begun it, nobody has seen it, and nobody was told that it is durable.
    pub fn can_be_withdrawn(&self) -> bool {
        self.stage != Stage::Running && !self.is_seen && self.spooled.is_none()
    }

    /// Whether the order of the two matters, neither of which is a barrier.
    pub fn conflicts_with(&self, other: &Outstanding) -> bool {
        let (one, two) = (&self.job, &other.job);
        match (one.is_write(), two.is_write()) {
            // Two writes behind the end come to the same in either order.
            (true, true) => overlap(&self.range, &other.range),
            (false, false) => false,
            _ => overlap(&self.reach, &other.reach),
        }
    }

    /// Of a write: what lies between the file's end and that.
    pub fn gap(&self) -> Option<Range<u64>> {
        let gap = self.reach.start..self.range.start;
        (!gap.is_empty()).then_some(gap)
    }

    /// Of a write: what lies below was written by another, if not before.
    pub fn is_done_until(&mut self, until: u64, by: RequestId) {
        if until > self.done_until {
            self.done_until = until;
            self.done_by = Some(by);
        }
    }

    /// It stands in the order of its file: neither is it covered, nor served.
    pub fn is_in_order(&self) -> bool {
        !matches!(self.stage, Stage::Covered(_)) && self.served_by.is_none()
    }

    pub fn is_ready(&self) -> bool {
        self.stage == Stage::Queued && self.waits_for == 0
    }
}

pub fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Whether one range lies in another.
pub fn lies_in(inner: &Range<u64>, outer: &Range<u64>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
