//! What can go wrong with a pool, each in one line that says what and what to do.

use arck_core_state::Geometry;
use arck_core_state::superblock::SuperblockError;
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Result of opening, making and closing pools.
pub type Result<T> = std::result::Result<T, Error>;

/// Errors of [`crate::pool::mkfs`] and [`crate::Controller`]; `Display` is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no pool at {path}: make one with `arck mkfs {path} --size SIZE` (in a directory that is new or empty)"
    )]
    Missing { path: PathBuf },
    #[error(
        "{path} belongs to user {owner} and was another user's, or not there, when this began; root uses a pool as its \
         owner alone: begin again"
    )]
    Replaced { path: PathBuf, owner: u32 },
    #[error("{path} is no pool: a pool is a directory, made by `arck mkfs`")]
    NoDirectory { path: PathBuf },
    #[error("cannot use the pool {path}: {reason}{advice}")]
    Superblock {
        path: PathBuf,
        reason: SuperblockError,
        /// What to do about it.
        advice: String,
    },
    #[error(
        "the pool {path} is damaged: the file {file} is missing or too small; `arck check {path}` tells what is \
         affected, and with --repair mends what can be: what was in the file is lost. Or restore the pool from a backup"
    )]
    Truncated { path: PathBuf, file: String },
    #[error(
        "the pool {path} is damaged: {what}; `arck check {path}` tells what is affected, and with --repair mends \
         what can be. Or restore the pool from a backup"
    )]
    Damaged { path: PathBuf, what: String },
    #[error(
        "the pool {path} is already served{by}; stop that controller first, or, if `arck run` started it, \
         wait for the programs on the pool to end: it ends with the last of them"
    )]
    Served { path: PathBuf, by: String },
    #[error(
        "{path} is not empty: it holds an Arck pool; choose another directory, or replace the pool with --force (its contents are lost)"
    )]
    HoldsPool { path: PathBuf },
    #[error(
        "{path} is not empty, and holds no Arck pool that --force could replace; choose another directory"
    )]
    NotEmpty { path: PathBuf },
    #[error(
        "{} is no size for a pool: it has to be between {} and {}, such as --size 1G",
        size_text(*size),
        size_text(Geometry::POOL_SIZE_MIN),
        size_text(Geometry::POOL_SIZE_MAX)
    )]
    Size { size: u64 },
    #[error(
        "a pool of {} does not fit beneath {path}, where {} are free; {}",
        size_text(*size),
        size_text(*room),
        room_advice(*fitting)
    )]
    Room {
        path: PathBuf,
        size: u64,
        room: u64,
        /// Size of a pool that would fit; 0 if none would.
        fitting: u64,
    },
    #[error(
        "{path} is on a file system that shares blocks between files (reflink); choose tmpfs, a DAX file system or ext4"
    )]
    Reflink { path: PathBuf },
    #[error("{path}: {operation}: {}{}", errno_text(*errno), advice(path, operation, *errno))]
    System {
        path: PathBuf,
        operation: &'static str,
        errno: Errno,
    },
    #[error("{operation}: {}", errno_text(*errno))]
    Memory {
        operation: &'static str,
        errno: Errno,
    },
}

impl Error {
    pub(crate) fn system(
        path: impl Into<PathBuf>,
        operation: &'static str,
    ) -> impl FnOnce(Errno) -> Error {
        let path = path.into();
        move |errno| Error::System {
            path,
            operation,
            errno,
        }
    }

    pub(crate) fn mapping(
        path: impl Into<PathBuf>,
        operation: &'static str,
    ) -> impl FnOnce(arck_pm::Error) -> Error {
        let path = path.into();
        move |error| Error::System {
            path,
            operation,
            errno: error.errno(),
        }
    }
}

/// A number of bytes as people say it: `16 MiB`, `1.5 GiB`, with at most one decimal, rounded
/// down.
pub fn size_text(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut tenths = u128::from(bytes) * 10;
    while tenths >= 10 * 1024 && unit + 1 < units.len() {
        tenths /= 1024;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    match tenths % 10 {
        0 => format!("{} {name}", tenths / 10),
        rest => format!("{}.{rest} {name}", tenths / 10),
    }
}

fn room_advice(fitting: u64) -> String {
    let anyway = "or say --sparse to make it as large anyway: programs get ENOSPC, or fail, when the \
         room beneath it is used up";
    if fitting == 0 {
        format!("make room there, choose another place, {anyway}")
    } else {
        let mebibytes = fitting >> 20;
        format!("choose a smaller --size (at most {mebibytes}M), another place, {anyway}")
    }
}

/// The system's words for an error, without its number.
fn errno_text(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// What to do about an error of the system; empty where nothing is known to help.
fn advice(path: &Path, operation: &str, errno: Errno) -> String {
    match errno {
        Errno::ACCESS | Errno::PERM => {
            let owner = path.metadata().map(|metadata| metadata.uid()).ok();
            match owner.filter(|owner| *owner != rustix::process::geteuid().as_raw()) {
                Some(owner) => format!(
                    "; it belongs to user {owner}: run this as that user, or use a pool of your own"
                ),
                None => "; use a place that you may read and write, such as /dev/shm".to_owned(),
            }
        }
        Errno::ROFS => "; that file system is read-only: choose another".to_owned(),
        // It is there, and takes none: /proc, /sys.
        Errno::NOENT if operation == "mkdir" && path.parent().is_some_and(Path::is_dir) => {
            "; nobody can make directories there: choose another place, such as /dev/shm".to_owned()
        }
        Errno::NOENT if operation == "mkdir" => {
            "; make the directory above it first, or correct the path".to_owned()
        }
        Errno::NOTDIR => "; a file stands where a directory has to be: correct the path".to_owned(),
        Errno::NOSPC | Errno::DQUOT => {
            "; make room on the file system beneath, or choose a smaller --size".to_owned()
        }
        Errno::MFILE | Errno::NFILE => "; allow more open files (ulimit -n)".to_owned(),
        Errno::NOMEM => "; allow more address space (ulimit -v), or free memory".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_units() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1 << 20, "1 MiB"),
            ((3 << 29) - 1, "1.4 GiB"),
            (3 << 29, "1.5 GiB"),
            (1 << 44, "16 TiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }

    #[test]
    fn errors_of_the_system_say_what_to_do() {
        let error = |errno| Error::system("/nonexistent/pool", "mkdir")(errno).to_string();
        assert_eq!(
            error(Errno::NOENT),
            "/nonexistent/pool: mkdir: No such file or directory; make the directory above it \
             first, or correct the path"
        );
        let error = Error::system("/proc/x", "mkdir")(Errno::NOENT).to_string();
        assert!(
            error.ends_with("choose another place, such as /dev/shm"),
            "{error}"
        );
        let error = |errno| Error::system("/nonexistent/pool", "mkdir")(errno).to_string();
        assert!(error(Errno::NOSPC).contains("--size"));
        assert!(error(Errno::ACCESS).contains("/dev/shm"));
        assert!(!error(Errno::IO).contains(';'));
    }
}
