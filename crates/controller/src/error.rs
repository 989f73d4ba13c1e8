//! What can go wrong with a pool, each in one line that says what and what to do.

use arck_core_state::superblock::SuperblockError;
use rustix::io::Errno;
use std::path::PathBuf;

/// Result of opening, making and closing pools.
pub type Result<T> = std::result::Result<T, Error>;

/// Errors of [`crate::mkfs`] and [`crate::Controller`]; `Display` is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no pool at {path}: make one with `arck mkfs {path} --size SIZE`")]
    Missing { path: PathBuf },
    #[error("cannot use the pool {path}: {reason}")]
    Superblock {
        path: PathBuf,
        reason: SuperblockError,
    },
    #[error(
        "the pool {path} is damaged: the file {file} is missing or too small; restore the pool from a backup or make it anew"
    )]
    Truncated { path: PathBuf, file: String },
    #[error("the pool {path} is damaged: {what}; restore the pool from a backup or make it anew")]
    Damaged { path: PathBuf, what: String },
    #[error("the pool {path} is already served{by}; stop that controller first")]
    Served { path: PathBuf, by: String },
    #[error("{path} is not empty; choose another directory (--force replaces an Arck pool)")]
    NotEmpty { path: PathBuf },
    #[error(
        "{size} bytes is no size for a pool: it has to be between {} and {} bytes",
        arck_core_state::Geometry::POOL_SIZE_MIN,
        arck_core_state::Geometry::POOL_SIZE_MAX
    )]
    Size { size: u64 },
    #[error(
        "{path} is on a file system that shares blocks between files (reflink); choose tmpfs, a DAX file system or ext4"
    )]
    Reflink { path: PathBuf },
    #[error("{path}: {operation}: {errno}")]
    System {
        path: PathBuf,
        operation: &'static str,
        errno: Errno,
    },
    #[error("{operation}: {errno}")]
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
