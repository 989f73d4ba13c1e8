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
mod error;
mod finding;
mod inode;
mod leads;
mod lost;
mod memory;
mod paths;
mod pool;
mod repair;
mod report;
mod served;
mod shared;
mod sums;
mod superblock;
mod survey;
mod tally;

pub use error::{Error, Result};
pub use finding::{Finding, Place, Rule, quoted};
pub use repair::Repaired;
pub use report::{Options, Report};

use arck_core_state::{Inode, InodeNumber};
use std::collections::BTreeMap;
use std::path::Path;

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
