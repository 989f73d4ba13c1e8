//! What a request is answered, now or later.

use crate::fold::folding::Failure;
use arck_protocol::Response;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Answer now, or look again.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Now(Response),
    /// At a later time.
    Later(Instant),
    /// When a worker has ended, but at this time at the latest.
    Growing(Instant),
}

impl Reply {
    /// An arena is being grown.
    pub fn growing() -> Reply {
        Reply::Growing(Instant::now() + GROWTH_AGAIN)
    }
}

impl From<Result<(), Errno>> for Reply {
    fn from(result: Result<(), Errno>) -> Reply {
        Reply::Now(match result {
            Ok(()) => Response::Done,
            Err(errno) => Response::Error(errno.raw_os_error()),
        })
    }
}

impl From<Errno> for Reply {
    fn from(errno: Errno) -> Reply {
        Reply::Now(Response::Error(errno.raw_os_error()))
    }
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Reply {
        match failure {
            Failure::Violation(violation) => Reply::Now(Response::Violation(violation.to_string())),
            Failure::Quiescing(_) => Errno::AGAIN.into(),
            Failure::Errno(errno) => errno.into(),
        }
    }
}

/// An arena that is being grown is looked at again after so long, whether a worker has ended or not: where a
/// user has as many as one may have, nobody tells.
const GROWTH_AGAIN: Duration = Duration::from_millis(5);
