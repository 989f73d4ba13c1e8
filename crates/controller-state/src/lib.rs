//! What a pool holds that is the controller's own: segment table, read classes, session table, redo
//! journal, rights that are kept of what was open. No session sees any of it; it is part of the format
//! version, and stands beside the core state in `docs/format.md`.
//!
//! The controller writes it, and whoever checks or repairs a pool that nobody serves reads it: both by
//! the definitions here. This crate does no I/O, holds no mapping and contains no unsafe code.
//!
//! # Invariants
//! * Every stored structure has a fixed little-endian layout without implicit padding; its size is
//!   asserted beside its definition, its fields are compared with `docs/format.md` by a test.
//! * Decoding never trusts a length or an enumeration: it returns `None`, or a value that says so.
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

pub mod classes;
pub mod header_runs;
pub mod journal;
pub mod kept_rights;
pub mod segments;
pub mod sessions;
