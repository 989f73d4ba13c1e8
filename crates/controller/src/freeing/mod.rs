//! What becomes free, and when: inodes without a name, pages that maps still show, segments that nobody needs.
//!
//! Beneath it are `sessions` and what lies under that.
//!
//! # Invariant
//! * What somebody has open or mapped is not used for anything else.

pub mod give_back;
pub mod maps;
pub mod orphans;
