//! Why a pool could not be looked at, or not be repaired.

use arck_core_state::superblock::SuperblockError;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

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
    #[error("cannot check {}: {reason}{}", path.display(), advice(*reason, *has_copy))]
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

/// What is to be done about one that is refused.
pub(crate) fn advice(reason: SuperblockError, has_copy: bool) -> &'static str {
    match reason {
        SuperblockError::OtherVersion { .. } => "",
        _ if has_copy => "; --repair puts it back from its copy",
        SuperblockError::Damaged => "; it has no copy: restore the pool from a backup",
        SuperblockError::NotAPool => "",
    }
}
