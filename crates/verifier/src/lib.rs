//! The verifier: (verified state, copied delta, grants) → changes or a violation (DESIGN
//! section 6). Pure and safe: no I/O, no unsafe, no clock, no allocation that a hostile delta
//! could make larger than a fixed multiple of itself.
//!
//! * [`copy`]: takes a private copy of a delta, walking untrusted pointers within bounds.
//! * [`closure`](mod@closure): what else must be folded in the same step.
//! * [`Places`]: where names stand that go, from the one to the other; `order`: in which order names are looked up.
//! * [`verify`](mod@verify): checks the copies; `effects`, `names` and `named`, `file` and
//!   `permission` hold the rules.
//! * [`rule`]: the rules, and what a broken one looks like.
//! * [`state`]: what the verifier asks of the verified state and of the grants.
//! * [`change`]: what it answers.
//! * [`by_number`]: what is known of inodes, by their number.
//!
//! # Invariants
//! * Only private copies are looked at: there is no window between check and use.
//! * A delta that passes leaves the verified state with invariants I1 to I4 intact once all of
//!   its changes are applied in one atomic step.
//!
//! What a session writes is the key of the maps here, of which it cannot know the seeds.
#![forbid(unsafe_code)]
// Numbers are narrowed by what is meant: see `arck_core_state::cast`.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod by_number;
pub mod change;
pub mod closure;
pub mod copy;
mod effects;
mod file;
mod fold_set;
mod named;
mod names;
mod order;
mod page_set;
mod permission;
mod places;
pub mod rule;
pub mod state;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "worlds and forgeries of tests"
)]
pub mod testing;
pub mod verify;

#[cfg(test)]
mod tests;

pub use by_number::ByNumber;
pub use change::{ChangedName, Changes, Creation, InodeChange};
pub use closure::{closure, closure_with, removed_last};
pub use copy::{
    ArenaSource, CopiedDelta, CopyFault, PageBudget, copy_delta, copy_readable, partners_of,
};
pub use fold_set::SetMember;
pub use permission::{extended_refused, mode_after_write, set_id_bits};
pub use places::Places;
pub use rule::{Rule, Violation};
pub use state::{Credentials, VerifiedState, may_touch};
pub use verify::{verify, verify_with};
