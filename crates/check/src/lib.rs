//! The whole-pool check: reads a pool as it lies in its files and tells every invariant of the
//! format that does not hold.
//!
//! Written against `docs/format.md`, not against the controller or the verifier: what they think
//! that they have written is of no interest here. Nothing of a pool is changed by [`check`].
//!
//! | module | idea |
//! | --- | --- |
//! | `pool`, `memory` | the files, and what a crash left in the journal |
//! | `inode`, `directory` | one inode with all of its pages |
//! | `survey`, `sums` | all inodes, in parallel; what they add up to |
//! | `lost` | files of data that are gone, and who had what in them |
//! | `classes` | whether who may be sent something may read it |
//! | `served` | the same while a controller changes it |
//! | `superblock` | the superblock, and its copy |
//! | `repair` | making it whole again |
//! | `finding`, `paths` | telling of it |
//!
//! # Invariants
//! * Every byte is taken for what a hostile or broken machine may have put there: all walks are
//!   bounded, and no number is used before it is checked.
//! * A pool that is as the format says has no findings, closed or not.
//!
//! A pool that was not closed is checked as the next controller will find it: with the journal's
//! last entry applied. What sessions had changed and nobody has folded yet is no part of it.
#![forbid(unsafe_code)]

mod classes;
mod directory;
mod finding;
mod inode;
mod lost;
mod memory;
mod paths;
mod pool;
mod repair;
mod served;
mod sums;
mod superblock;
mod survey;

pub use finding::{Finding, Place, Rule, quoted};
pub use repair::Repaired;

use arck_core_state::superblock::SuperblockError;
use arck_core_state::{Inode, InodeNumber};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Why a pool could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no pool at {}", path.display())]
    Missing { path: PathBuf },
    #[error(
        "{} belongs to user {owner} and was another user's when this began; root mends a pool as its owner \
         alone: begin again", path.display()
    )]
    Replaced { path: PathBuf, owner: u32 },
    #[error("cannot check {}: {reason}{}", path.display(), superblock::advice(*reason, *has_copy))]
    Superblock {
        path: PathBuf,
        reason: SuperblockError,
        /// It has one that is whole.
        has_copy: bool,
    },
    #[error("cannot {operation} {}: {}", path.display(), plain(*errno))]
    System {
        path: PathBuf,
        operation: &'static str,
        errno: Errno,
    },
    #[error("{} is served, and its controller does not answer", path.display())]
    Silent { path: PathBuf },
    #[error(
        "{} changes too much to be sure of {suspicions} suspicions; check it when there is less \
         to do, or when nobody serves it",
        path.display()
    )]
    Busy { path: PathBuf, suspicions: usize },
    #[error("{} is in use; end who serves or checks it first", path.display())]
    Served { path: PathBuf },
    #[error("{} has no room for a repair; nothing was changed", path.display())]
    NoRoom { path: PathBuf },
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    pub(crate) fn system(
        path: &Path,
        operation: &'static str,
    ) -> impl FnOnce(Errno) -> Error + use<> {
        let path = path.to_path_buf();
        move |errno| Error::System {
            path,
            operation,
            errno,
        }
    }
}

/// An error of the system, without its number.
pub(crate) fn plain(errno: Errno) -> String {
    let text = errno.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// What can go wrong with a check as a whole.
pub type Result<T> = std::result::Result<T, Error>;

/// How to check.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Threads; 0 = as many as there are processors.
    pub threads: usize,
    /// Findings that are kept; more are counted.
    pub findings_max: usize,
    /// Told how many inode numbers are done, of how many; from several threads.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
    /// Set by somebody who wants no answer any more: [`Error::Interrupted`].
    pub stop: Option<&'a AtomicBool>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            threads: 0,
            findings_max: 1000,
            progress: None,
            stop: None,
        }
    }
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What is wrong, by rule, inode and place.
    pub findings: Vec<Finding>,
    /// Findings beyond those that are kept.
    pub more: u64,
    /// Somebody serves it.
    pub served: bool,
    /// The pool was closed by its controller.
    pub closed: bool,
    /// Sessions whose changes are not folded yet; in a pool that was not closed.
    pub unfolded: u64,
    /// Living inodes, orphans among them.
    pub inodes: u64,
    pub directories: u64,
    pub orphans: u64,
    pub names: u64,
    /// Pages in use.
    pub pages: u64,
}

impl Report {
    /// Nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.more == 0
    }
}

/// Checks a pool. Blocks. Nobody can begin to serve the pool meanwhile; if somebody does already,
/// what is checked is the verified state, and what is merely being changed is no finding.
///
/// # Errors
/// [`Error`]: no pool, no superblock, files that cannot be read; of a pool that is served, that
/// it changes too much for half a minute to be sure of what looks wrong.
pub fn check(path: &Path, options: &Options<'_>) -> Result<Report> {
    let mut findings = Vec::new();
    let pool = pool::Pool::open(path, &mut findings)?;
    if pool.served {
        return served::check(path, options);
    }
    survey::check(&pool, findings, options)
}

/// Repairs a pool that nobody serves: all that [`check`] finds. One that it finds nothing of is not
/// touched. Blocks until all is durable. What it has to tell is kept in the pool's directory until
/// [`repair_was_told`].
///
/// # Errors
/// As [`check`]; somebody serves or checks the pool; it has no room for what has to be written
/// anew, and then nothing was changed but files that were too short.
pub fn repair(path: &Path, options: &Options<'_>) -> Result<Repaired> {
    repair::repair(path, options)
}

/// Whether a repair of the pool was cut off, or its output lost, before anybody was told of it: then
/// the next one tells ([`Repaired::earlier`]), and until then what it had to tell stands in the pool's
/// directory ([`layout::REPAIR_REPORT`](arck_core_state::layout::REPAIR_REPORT)).
pub fn has_untold_repair(path: &Path) -> bool {
    pool::open_directory(path).is_ok_and(|directory| !repair::report::untold(&directory).is_empty())
}

/// Notes that the user was told all of a repair, as by printing it; the report stays where it is.
///
/// # Errors
/// [`Error::System`].
pub fn repair_was_told(path: &Path) -> Result<()> {
    repair::report::tell(path)
}

/// Every path of a pool, with the inode that it leads to; for a pool that [`check`] found well.
/// The root's is empty, names are joined by `/`.
///
/// # Errors
/// As [`check`].
pub fn paths(path: &Path) -> Result<BTreeMap<Vec<u8>, (InodeNumber, Inode)>> {
    let pool = pool::Pool::open(path, &mut Vec::new())?;
    Ok(paths::all(&pool))
}
