//! What a pool's place means for what is on it, where that is not what users expect.
//!
//! Invariant: nothing is said of memory, nor of a DAX file system.

use arck_pm::DurabilityMode;
use std::path::Path;

/// One line on standard error about a pool on an ordinary file system.
pub fn tell(command: &str, pool: &Path) {
    if matches!(DurabilityMode::probe(pool), Ok(DurabilityMode::Paged)) {
        eprintln!(
            "arck {command}: {} is on an ordinary file system, neither DAX nor memory: when the machine \
             fails, only what was synced before (fsync), or folded by an orderly end, is there; see \
             docs/crash-consistency.md",
            pool.display()
        );
    }
}
