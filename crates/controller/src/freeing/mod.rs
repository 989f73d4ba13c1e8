//! What becomes free, and when: inodes without a name, and segments that nobody needs.
//!
//! Beneath it are `sessions` and what lies under that.
//!
//! # Invariant
//! * What somebody has open or mapped is not used for anything else.

pub mod charges;
pub mod give_back;
pub mod orphans;
pub mod spare_segments;

use crate::freeing::charges::{Charges, Doomed, Pace};
use crate::sessions::Sessions;
use std::time::Instant;

/// What is known of what is to be freed.
#[derive(Default)]
pub struct Freed {
    /// Orphans that stay at the expense of a user: see [`orphans`].
    pub charged: Charges,
    /// Orphans that are being freed.
    pub doomed: Doomed,
    pub pace: Pace,
    /// When segments were given back last.
    pub gave_back: Option<Instant>,
}

/// Frees.
pub struct Freeing<'a> {
    pub sessions: &'a mut Sessions,
    pub freed: &'a mut Freed,
}
