//! The superblock and its copy.
//!
//! # Invariant
//! A superblock is put back only from a copy that is whole, and only where there is none that is, so
//! that a pool never gets another pool's.

use crate::error::{Error, Result};
use crate::finding::{Finding, Place, Rule};
use crate::memory;
use arck_core_state::layout;
use arck_core_state::superblock::{SUPERBLOCK_SIZE, Superblock, SuperblockError};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::Path;

/// Reads and checks it.
pub(crate) fn read(path: &Path, directory: &OwnedFd) -> Result<Superblock> {
    let refused = |reason| {
        let has_copy = matches!(copy(directory), Ok(Some(_)));
        let path = path.into();
        Error::Superblock {
            path,
            reason,
            has_copy,
        }
    };
    let file = match memory::open(directory, layout::SUPERBLOCK) {
        Ok(file) => file,
        Err(Errno::NOENT) => {
            return Err(match copy(directory) {
                Ok(Some(_)) => refused(SuperblockError::NotAPool),
                _ => Error::Missing { path: path.into() },
            });
        }
        Err(errno) => return Err(Error::system(&path.join(layout::SUPERBLOCK), "open")(errno)),
    };
    let bytes = memory::read(&file, SUPERBLOCK_SIZE as u64)
        .map_err(Error::system(&path.join(layout::SUPERBLOCK), "read"))?;
    Superblock::decode(&bytes).map_err(refused)
}

/// The copy; `None` if there is none, which pools have that were made before there were any and
/// not served since.
fn copy(directory: &OwnedFd) -> std::result::Result<Option<Superblock>, SuperblockError> {
    let file = match memory::open(directory, layout::SUPERBLOCK_COPY) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(_) => return Err(SuperblockError::NotAPool),
    };
    let bytes = memory::read(&file, SUPERBLOCK_SIZE as u64).unwrap_or_default();
    Superblock::decode(&bytes).map(Some)
}

/// What is wrong with the copy of a superblock that is whole.
pub(crate) fn finding(directory: &OwnedFd, superblock: &Superblock) -> Option<Finding> {
    let detail = match copy(directory) {
        Ok(None) => return None,
        Ok(Some(copy)) if superblock.is_copied_by(&copy) => return None,
        Ok(Some(_)) => "is the copy of another superblock".to_owned(),
        Err(_) => "is damaged".to_owned(),
    };
    Some(told(layout::SUPERBLOCK_COPY, detail))
}

/// What is told of a superblock that is put back.
pub(crate) fn told(name: &str, detail: String) -> Finding {
    Finding {
        rule: Rule::Files,
        inode: None,
        path: None,
        place: Place::Whole(name.into()),
        detail,
    }
}

/// What to put in place of a superblock that is gone or damaged, and why.
pub(crate) fn lost(
    path: &Path,
    directory: &OwnedFd,
) -> Result<Option<(Superblock, SuperblockError)>> {
    match read(path, directory) {
        Err(Error::Superblock {
            reason,
            has_copy: true,
            ..
        }) if !matches!(reason, SuperblockError::OtherVersion { .. }) => {
            Ok(copy(directory).ok().flatten().map(|copy| (copy, reason)))
        }
        Err(error) => Err(error),
        Ok(_) => Ok(None),
    }
}
