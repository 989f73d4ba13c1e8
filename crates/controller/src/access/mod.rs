//! Who can read what: moving what lies where the wrong ones can map it, and reading and writing for a session what
//! it cannot map.
//!
//! Beneath it are `state`, `sessions` and what lies under them.
//!
//! # Invariant
//! * What somebody may not read any more, he cannot map when the change that took his right has been answered.

pub mod by_message;
pub mod kept;
pub mod list_by_message;
pub mod relocate;
pub mod write_by_message;
