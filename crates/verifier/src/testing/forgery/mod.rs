//! Systematic forgery: honest deltas of every operation, and for every field that a session can
//! write, values that it should not have; for tests and for the fuzzer.
//!
//! * [`scene`]: the verified state that all of it happens in, and the honest deltas.
//! * [`fields`]: the one table of the fields that a session writes.
//! * [`values`]: what a forger puts into a field of each kind.
//! * [`corruption`]: all corruptions of a scene; and how one or more are put into its arena.
//! * [`judge`]: copies, verifies and applies what stands in an arena, and says whether the
//!   outcome is one that a verifier may give.
//! * [`rights`]: what a session may have changed, told without the verifier.
//! * [`image`]: an arena as bytes, for the fuzzer.

pub mod corruption;
pub mod fields;
pub mod image;
pub mod judge;
pub mod rights;
pub mod scene;
pub mod values;
