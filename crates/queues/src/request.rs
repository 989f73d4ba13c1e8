//! What is asked of a queue, and what it answers.
//!
//! # Invariants
//! * A buffer that was given is given back, with the completion or with the refusal.

use rustix::io::Errno;
use std::fmt;
use std::time::Duration;

/// A request of one [`Queues`](crate::Queues), and its timestamp: the later one was submitted later. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RequestId(pub(crate) u64);

impl RequestId {
    /// The timestamp, from 1 on.
    pub fn timestamp(self) -> u64 {
        self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Reads as many bytes as the buffer has.
    Read {
        /// From which byte on.
        position: u64,
        /// Where to.
        buffer: Vec<u8>,
    },
    /// Writes.
    Write {
        /// From which byte on.
        position: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Writes at the file's end. A barrier: it waits for all earlier requests of the file, and all later ones wait for it.
    Append {
        /// What.
        bytes: Vec<u8>,
    },
    /// Makes durable what was written. A barrier.
    Sync {
        /// Leaves out what is not needed to read the data.
        data_only: bool,
    },
}

/// A request that is to be submitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// What is to be done.
    pub operation: Operation,
    /// Goes before what is not urgent; among urgent ones, reads go before the others.
    pub urgent: bool,
    /// By when, from its submission on, it has to have begun: it completes with ETIMEDOUT otherwise.
    pub deadline: Option<Duration>,
}

impl From<Operation> for Request {
    fn from(operation: Operation) -> Request {
        Request {
            operation,
            urgent: false,
            deadline: None,
        }
    }
}

impl Request {
    /// Reads `length` bytes into a buffer of its own.
    pub fn read(position: u64, length: usize) -> Request {
        Request::read_into(position, vec![0; length])
    }

    /// Reads as many bytes as the buffer has.
    pub fn read_into(position: u64, buffer: Vec<u8>) -> Request {
        Operation::Read { position, buffer }.into()
    }

    /// Writes.
    pub fn write(position: u64, bytes: impl Into<Vec<u8>>) -> Request {
        let bytes = bytes.into();
        Operation::Write { position, bytes }.into()
    }

    /// Writes at the file's end.
    pub fn append(bytes: impl Into<Vec<u8>>) -> Request {
        let bytes = bytes.into();
        Operation::Append { bytes }.into()
    }

    /// Makes durable what was written.
    pub fn sync() -> Request {
        Operation::Sync { data_only: false }.into()
    }

    /// The same, without what is not needed to read the data.
    pub fn sync_data() -> Request {
        Operation::Sync { data_only: true }.into()
    }

    /// The same, to go first.
    pub fn urgent(mut self) -> Request {
        self.urgent = true;
        self
    }

    /// The same, to begin within so long or not at all.
    pub fn within(mut self, deadline: Duration) -> Request {
        self.deadline = Some(deadline);
        self
    }
}

/// A request that was not taken. It can be submitted again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why.
    pub errno: Errno,
    /// The request.
    pub request: Request,
}

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Errno {
        refused.errno
    }
}

impl From<Refused> for std::io::Error {
    fn from(refused: Refused) -> std::io::Error {
        refused.errno.into()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the request was not taken: {}", self.errno)
    }
}

impl std::error::Error for Refused {}

/// What became of requests that were submitted together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Submitted {
    /// Those that were taken, in their order.
    pub taken: Vec<RequestId>,
    /// Why the next one was not, as for [`Queue::submit`](crate::Queue::submit); nothing, if all were taken.
    pub refused: Option<Errno>,
}

/// What came of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Which.
    pub id: RequestId,
    /// How many bytes were read or written; 0 for a sync. ECANCELED: it was cancelled; ETIMEDOUT: it had not begun by its deadline;
    /// EIO: the target panicked; otherwise what the target said.
    pub result: Result<usize, Errno>,
    /// The buffer of the request. Of a read, the first bytes of it, as many as `result` says, were read.
    pub buffer: Vec<u8>,
    /// The position behind the bytes that were appended.
    pub end: Option<u64>,
    /// The write whose bytes a read was served from, before that was done. Where the write fails afterwards, as its own completion says,
    /// the read has seen what never was in the file.
    pub served_by: Option<RequestId>,
    /// The later write that was done in place of this one, as far as this one reaches: not one that was covered itself, or cancelled.
    pub covered_by: Option<RequestId>,
}

impl Completion {
    pub(crate) fn of(id: RequestId, result: Result<usize, Errno>) -> Completion {
        Completion {
            id,
            result,
            buffer: Vec::new(),
            end: None,
            served_by: None,
            covered_by: None,
        }
    }
}

/// How a queue is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// What is queued is done.
    Finish,
    /// What has not begun is cancelled.
    Cancel,
}

/// What requests of one [`Queues`](crate::Queues) have come to, since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Were taken.
    pub submitted: u64,
    /// Have completed, in whatever way.
    pub completed: u64,
    /// Completed with ECANCELED.
    pub cancelled: u64,
    /// Completed with ETIMEDOUT without having begun.
    pub timed_out: u64,
    /// Writes that were not done since a later one covered them.
    pub covered: u64,
    /// Reads that were served from a write that was not done yet.
    pub served: u64,
    /// Targets that panicked.
    pub panicked: u64,
}
