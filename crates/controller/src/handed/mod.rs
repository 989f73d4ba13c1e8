//! What processes hand on to each other, and the advisory locks that go with it.
//!
//! Beneath it is `pool`. Who asks for it is looked at in [`crate::requests`].
//!
//! # Invariant
//! * Names cross a process boundary, rights do not (DESIGN section 8): what somebody gets for a description is what
//!   his credentials and the description's mode allow.

pub mod descriptions;
pub mod kept_locks;
pub mod lock_files;
pub mod watches;
