//! What is to be mounted.
//!
//! Invariant: a [`Point`] was looked at when it was found; the kernel looks again.

use crate::point::Point;
use std::path::PathBuf;

/// What to mount, and how.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Directory of the pool, absolute.
    pub pool: PathBuf,
    pub point: Point,
    pub read_only: bool,
}
