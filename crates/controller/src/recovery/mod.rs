//! Opening a pool: the journal is replayed, the tables are read, and what dead sessions left is folded.
//!
//! # Invariant
//! * All of it can be interrupted anywhere and done again.

pub mod progress;
pub mod recover;
pub mod scan;
