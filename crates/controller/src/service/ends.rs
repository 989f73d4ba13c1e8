//! Sessions that wait for their end: see [`super::endings`].

use crate::ownership::ending::Ending;
use crate::sessions::lent::Lent;
use arck_core_state::geometry::SessionNumber;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// One that waits for its end.
pub struct Waiting {
    pub session: SessionNumber,
    /// What its last requests have taken.
    pub asked: Duration,
    /// It has been cut off, and its end is under way.
    pub ending: Option<Ending>,
    /// Files of it that are to be cut.
    pub outgrown: Vec<Lent>,
}

/// See the module's head.
#[derive(Default)]
pub struct Endings {
    pub queues: BTreeMap<u32, VecDeque<Waiting>>,
}

impl Endings {
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}
