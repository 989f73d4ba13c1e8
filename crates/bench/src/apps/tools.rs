//! Where programs are. What is missing is an error that says how to get it, never left out.

use crate::outcome::Outcome;
use std::path::PathBuf;

/// A program by its name, and Debian's package that has it.
pub fn find(name: &str, package: &str) -> Outcome<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            format!("{name} is not there: apt-get install {package}, or as root scripts/prepare")
        })
}

/// LevelDB's own `db_bench`, which Debian packs for nobody: `scripts/leveldb-bench` builds it from Debian's source of
/// LevelDB, for Debian's library of it, and leaves it in the target directory.
pub fn leveldb_bench() -> Outcome<PathBuf> {
    let executable = std::env::current_exe().map_err(|error| error.to_string())?;
    let places: Vec<PathBuf> = match std::env::var_os("ARCK_LEVELDB_BENCH") {
        Some(path) => vec![path.into()],
        None => executable
            .ancestors()
            .skip(1)
            .take(3)
            .map(|directory| directory.join("apps/leveldb-db_bench"))
            .collect(),
    };
    places
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| {
            "LevelDB's db_bench is not there: scripts/leveldb-bench builds it (apps/leveldb-db_bench in the target \
             directory, or $ARCK_LEVELDB_BENCH)"
                .to_owned()
        })
}
