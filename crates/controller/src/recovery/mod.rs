//! Opening a pool: the journal is replayed, the tables are read, and what dead sessions left is folded; and closing it.
//!
//! Beneath it are all rooms but `service`.
//!
//! # Invariant
//! * All of it can be interrupted anywhere and done again.

pub mod opening;
pub mod recover;
pub mod scan;
