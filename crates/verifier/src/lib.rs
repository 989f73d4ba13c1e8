//! The verifier: (verified state, copied delta, grants) → changes or a violation (DESIGN
//! section 6). Pure and safe: no I/O, no unsafe, no clock, no allocation that a hostile delta
//! could make larger than a fixed multiple of itself.
//!
//! * [`copy`]: takes a private copy of a delta, walking untrusted pointers within bounds.
//! * [`state`]: what the verifier asks of the verified state and of the grants.
//! * [`change`]: what it answers.
//!
//! # Invariants
//! * Only private copies are looked at: there is no window between check and use.
//! * A delta that passes leaves the verified state with invariants I1 to I4 intact once all of
//!   its changes are applied in one atomic step.
#![forbid(unsafe_code)]

pub mod change;
pub mod state;
