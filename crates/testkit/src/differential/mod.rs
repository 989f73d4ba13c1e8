//! The differential oracle: a random sequence of file system operations runs on ArckFS and on a
//! directory of tmpfs, and every result has to be the same.
//!
//! | module | idea |
//! | --- | --- |
//! | `operation` | what can be done |
//! | `draw` | how sequences are drawn |
//! | `outcome` | what an operation told, as far as it is comparable |
//! | `arck_side`, `host_side` | the two that are compared |
//! | `tree` | everything that is there, through path walk |
//! | `times` | by which step something was stamped |
//! | `run` | runs a sequence on both, and shortens one that fails |
//!
//! # Invariant
//! A sequence depends on its seed alone, not on what its operations meet, so that leaving some of
//! them out leaves the others as they were.

mod arck_side;
mod draw;
mod host_side;
mod operation;
mod outcome;
mod run;
mod times;
mod tree;

pub use arck_side::ArckSide;
pub use draw::sequence;
pub use host_side::HostSide;
pub use operation::{Base, Operation, Place, Step, Subject};
pub use outcome::{Outcome, View};
pub use run::{Difference, Settings, check, run, shorten};
pub use tree::{Node, tree};

/// One of the two that are compared.
pub trait Side {
    /// Does one operation as session `actor`.
    fn apply(&mut self, actor: usize, operation: &Operation) -> Outcome;
    /// Times of modification and change of what a subject is, in nanoseconds; `None` if it is not there.
    fn stamps(&mut self, actor: usize, subject: &Subject) -> Option<[i64; 2]>;
    /// Closes a slot if it is open.
    fn close(&mut self, actor: usize, slot: usize);
}
