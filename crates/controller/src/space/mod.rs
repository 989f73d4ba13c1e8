//! What is free: segments, pages, places for inodes.
//!
//! Beneath it is `pool`.
//!
//! # Invariant
//! * What the verified state refers to is not free, and what a change has freed is free only when that change
//!   is durable.

mod data_segments;
pub mod free_pages;
pub mod free_set;
pub mod granted;
pub mod number_set;
pub mod pages;
pub mod slots;
pub mod together;
pub mod unused;
pub mod used;
mod writers;
