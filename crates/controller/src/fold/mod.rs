//! Folds: what an owner changed is copied, verified and applied, or refused; and who owns what, since an inode is
//! taken from its owner by a fold.
//!
//! Beneath it are `freeing`, `sessions` and what lies under them.
//!
//! # Invariant
//! * A session's help is not needed for anything here, and what it waits for is bounded.

pub mod apply;
pub mod aside;
pub mod ending;
pub mod folding;
pub mod meter;
pub mod move_names;
pub mod ownership;
pub mod refusals;
pub mod sweep;
