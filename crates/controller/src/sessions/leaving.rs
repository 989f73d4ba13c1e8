//! Files that were mapped together, and are on their way to their owners ([`crate::access::together`]): how far each has come.
//!
//! Invariant: nothing of it outlives the controller, and whoever maps such a file anew begins with nothing of it.

use arck_core_state::SegmentNumber;
use foldhash::HashMap;

#[derive(Default)]
pub struct Leaving {
    pub generation: u32,
    /// The first page that has not been looked at.
    pub next: u64,
    /// Of segments, whether somebody can write them.
    pub reached: HashMap<SegmentNumber, bool>,
}
