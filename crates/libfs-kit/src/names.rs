//! Names: the overlay of those by which this session's deltas differ from the verified directories, creations
//! of new inodes beside their first names, and the end of inodes that were never committed. Several names can be
//! changed [`together`].

pub mod changes;
pub mod creations;
pub mod directories;
pub mod listing;
pub mod overlay;
pub mod records;
pub mod reuse;
pub mod together;

pub use crate::state::overlay::OverlayEntry;
