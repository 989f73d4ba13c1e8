//! The files of a pool: made, opened, mapped, replaced; the journal among them.
//!
//! Everything else in this crate stands on this room. It knows what bytes lie where, and nothing of
//! inodes, users or sessions.
//!
//! # Invariant
//! * A file takes its place whole and durably, or not at all. What is mapped writable here, nobody but the
//!   controller writes.

pub mod beneath;
pub mod clock;
pub mod files;
pub mod filling;
pub mod header_table;
pub mod journal;
pub mod mkfs;
pub mod names;
pub mod progress;
pub mod reach;
pub mod segment_files;
pub mod spare_files;
pub mod superblock;
pub mod written;
