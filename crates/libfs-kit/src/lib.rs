//! What every LibFS needs, and no policy: the shared region of a trust group, the session with the
//! controller, access to the core state, stocks of inode numbers and pages, the writing of deltas, views
//! of inodes, the overlay of names, and the engine that runs operations. Paths, descriptors, maps and
//! who may do what belong to each LibFS (ArckFS has its own); a second LibFS is written on this crate alone.
//!
//! * [`region`]: memory shared by the processes of a group.
//! * [`state`]: what the kit keeps in the auxiliary state.
//! * [`session`]: what the controller sent, mapped; messages to it.
//! * [`thread`]: a thread's slots; entering and leaving operations.
//! * `membership`: what threads use of the session. [`members`]: processes of the group that are gone, or stopped. [`per_process`]: sessions of forked children.
//! * [`carried`]: what of the deltas goes on when the auxiliary state is built anew.
//! * [`numbers`], [`data_pages`], [`arena_pages`]: what was granted and is free. [`need`]: what is lacking.
//! * [`format`], [`messages`], [`memory`]: what a LibFS needs of the crates beneath; it depends on none of them.
//! * [`delta`]: branches, records and index pages, in an order that the types check.
//! * [`telling`]: lines for people.
//! * [`ownership`]: what this session owns, and what to do when a fold got in between.
//! * [`attempt`]: one attempt at an operation. [`views`]: what this session sees of inodes. [`changing`]: changing
//!   them, between a first and a second check. [`names`]: looking them up, and changing them.
//! * [`engine`]: runs attempts, and gets what they need.

pub mod arena_pages;
pub mod attempt;
pub mod carried;
pub mod changing;
pub mod connection;
pub mod data_pages;
pub mod delta;
pub mod engine;
pub mod forks;
pub mod format;
pub mod members;
mod membership;
pub mod memory;
pub mod messages;
pub mod names;
pub mod need;
pub mod numbers;
pub mod ownership;
pub mod per_process;
mod received;
pub mod region;
pub mod session;
pub mod state;
pub mod telling;
pub mod thread;
pub mod views;

pub use session::{ConnectError, Session};
pub use thread::{Operation, ThreadContext};
