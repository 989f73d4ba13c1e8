//! C's functions. Each has its place in `arck.h`, with the comment that stands here.
//!
//! Invariant: nothing here follows a pointer; [`boundary`](crate::boundary) does.

mod attributes;
mod extended;
mod files;
mod listing;
mod log;
mod names;
mod paths;
mod queues;
mod sessions;
mod store;
