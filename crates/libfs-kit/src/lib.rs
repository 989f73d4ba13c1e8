//! What every LibFS needs, and no policy: the shared region of a trust group, the session with the
//! controller, access to the core state, stocks of inode numbers and pages, and the writing of
//! deltas. Indexes, locks of files, descriptors and paths belong to each LibFS (ArckFS has its
//! own); a second LibFS is written on this crate alone.
//!
//! * [`region`]: memory shared by the processes of a group.
//! * [`session`]: what the controller sent, mapped; messages to it.
//! * [`thread`]: a thread's slots; entering and leaving operations.
//! * [`members`]: processes of the group that are gone, or stopped.
//! * [`carried`]: what of the deltas goes on when the auxiliary state is built anew.
//! * [`numbers`], [`data_pages`], [`arena_pages`]: what was granted and is free.
//! * [`delta`]: branches, records and index pages, in an order that the types check.
//! * [`telling`]: lines for people.
//! * [`ownership`]: what this session owns, and what to do when a fold got in between.

pub mod arena_pages;
pub mod carried;
pub mod connection;
pub mod data_pages;
pub mod delta;
pub mod forks;
pub mod members;
pub mod numbers;
pub mod ownership;
pub mod region;
pub mod session;
pub mod telling;
pub mod thread;

pub use session::{ConnectError, Session};
pub use thread::{Operation, ThreadContext};
