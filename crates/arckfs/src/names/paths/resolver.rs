//! The resolver of a session: what it remembers of paths, and where.

use super::cache::{self, PathCache};
use super::key::Limits;
use super::table::{self, FullPaths};

/// What a session remembers of paths, and where.
#[expect(clippy::large_enum_variant, reason = "there is one in a session")]
pub enum Paths {
    /// ArckFS.
    Threads(PathCache),
    /// FPFS.
    Table(FullPaths),
}

impl Paths {
    #[inline(always)]
    pub fn limits(&self) -> Limits {
        match self {
            Paths::Threads(_) => cache::LIMITS,
            Paths::Table(_) => table::LIMITS,
        }
    }
}
