//! Quick requests that a thread has taken together, to do them one right after the other: between two accesses of memory there is little else
//! then, and the lock of all is taken once.
//!
//! # Invariants
//! * What a thread has taken together takes about as long as waking another would, going by what was measured last. Should one of them take
//!   long all the same, a worker that naps does the rest, and finishes what is done: nobody is kept from anything by a thread that is stuck.
//! * Each is done once: who takes it out does it.

use crate::engine::{Outcome, Work};
use crate::primitive::{Mutex, lock};
use crate::request::RequestId;

/// So many at most.
pub const HANDFUL_MOST: usize = 8;

/// See above.
pub struct Handful(Mutex<Parts>);

struct Parts {
    /// The last one is next.
    to_do: Vec<Work>,
    done: Vec<(RequestId, Outcome)>,
}

impl Handful {
    /// In their order.
    pub fn new(mut works: Vec<Work>) -> Handful {
        works.reverse();
        Handful(Mutex::new(Parts {
            done: Vec::with_capacity(works.len()),
            to_do: works,
        }))
    }

    /// Notes what came of one, and takes the next.
    pub fn next(&self, done: Option<(RequestId, Outcome)>) -> Option<Work> {
        let mut parts = lock(&self.0);
        parts.done.extend(done);
        parts.to_do.pop()
    }

    /// What is done, to be finished.
    pub fn take_done(&self) -> Vec<(RequestId, Outcome)> {
        std::mem::take(&mut lock(&self.0).done)
    }
}
