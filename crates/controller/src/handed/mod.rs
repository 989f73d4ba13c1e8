//! What processes hand on to each other, the advisory locks that go with it, and where they meet in the kernel.
//!
//! Beneath it is `pool`. Who asks for it is looked at in [`crate::requests`].
//!
//! # Invariant
//! * Names cross a process boundary, rights do not (DESIGN section 8): what somebody gets for a description is what
//!   his credentials and the description's mode allow.

mod careful;
pub mod descriptions;
pub mod kept_locks;
pub mod lock_files;
pub mod named_pipes;
mod nodes;
pub mod sockets;
pub mod watches;
pub mod watching;
