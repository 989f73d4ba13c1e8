//! The superblock's file, and its copy.
//!
//! # Invariants
//! * Each is replaced whole, durably, in one step.
//! * A copy that is whole and of this pool is never written again.

use crate::error::{Error, Result};
use arck_core_state::layout;
use arck_core_state::superblock::{SUPERBLOCK_SIZE, Superblock, SuperblockError};
use arck_pm::record::{self, FileChange, file_id};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// Reads and checks the superblock.
pub fn read(path: &Path, directory: &OwnedFd) -> Result<Superblock> {
    let file = match rustix::fs::openat(
        directory,
        layout::SUPERBLOCK,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK,
        Mode::empty(),
    ) {
        Ok(file) => file,
        Err(Errno::NOENT) if read_copy(directory).is_none() => {
            return Err(Error::Missing { path: path.into() });
        }
        Err(Errno::NOENT) => {
            let reason = SuperblockError::NotAPool;
            return Err(refused(path, directory, reason));
        }
        Err(errno) => return Err(Error::system(path.join(layout::SUPERBLOCK), "open")(errno)),
    };
    let mut bytes = [0u8; SUPERBLOCK_SIZE];
    let length = rustix::io::pread(&file, &mut bytes[..], 0)
        .map_err(Error::system(path.join(layout::SUPERBLOCK), "read"))?;
    let decoded = Superblock::decode(&bytes[..length]);
    decoded.map_err(|reason| refused(path, directory, reason))
}

fn refused(path: &Path, directory: &OwnedFd, reason: SuperblockError) -> Error {
    let is_other = matches!(reason, SuperblockError::OtherVersion { .. });
    let advice = match read_copy(directory) {
        _ if is_other => String::new(),
        Some(_) => format!(
            "; `arck check {} --repair` puts it back from its copy",
            path.display()
        ),
        None if reason == SuperblockError::Damaged => {
            "; it has no copy: restore the pool from a backup".to_owned()
        }
        None => String::new(),
    };
    let path = path.into();
    Error::Superblock {
        path,
        reason,
        advice,
    }
}

/// The superblock's copy, if it is whole.
fn read_copy(directory: &OwnedFd) -> Option<Superblock> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::openat(directory, layout::SUPERBLOCK_COPY, flags, Mode::empty()).ok()?;
    let mut bytes = [0u8; SUPERBLOCK_SIZE];
    let length = rustix::io::pread(&file, &mut bytes[..], 0).ok()?;
    Superblock::decode(&bytes[..length]).ok()
}

/// Makes sure that the copy of a superblock is there and whole.
pub fn keep_copy(path: &Path, directory: &OwnedFd, superblock: &Superblock) -> Result<()> {
    match read_copy(directory) {
        Some(copy) if superblock.is_copied_by(&copy) => Ok(()),
        _ => replace(
            path,
            directory,
            layout::SUPERBLOCK_COPY,
            &superblock.lasting(),
        ),
    }
}

/// Replaces the superblock's file atomically.
pub fn write(path: &Path, directory: &OwnedFd, superblock: &Superblock) -> Result<()> {
    replace(path, directory, layout::SUPERBLOCK, superblock)
}

fn replace(path: &Path, directory: &OwnedFd, place: &str, superblock: &Superblock) -> Result<()> {
    let temporary = "superblock.new";
    let context = |operation| Error::system(path.join(temporary), operation);
    let file = rustix::fs::openat(
        directory,
        temporary,
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::RUSR | Mode::WUSR,
    )
    .map_err(context("open"))?;
    let id = file_id(&file);
    let named = |name: &str| FileChange::Named {
        file: id,
        name: name.into(),
    };
    record::file(|| named(temporary));
    let bytes = superblock.encode();
    let written = rustix::io::pwrite(&file, &bytes, 0).map_err(context("write"))?;
    if written != bytes.len() {
        return Err(context("write")(Errno::NOSPC));
    }
    record::file(|| FileChange::Written {
        file: id,
        offset: 0,
        bytes: bytes.to_vec(),
    });
    rustix::fs::fsync(&file).map_err(context("fsync"))?;
    record::file(|| FileChange::Synced { file: id });
    rustix::fs::renameat(directory, temporary, directory, place).map_err(context("rename"))?;
    record::file(|| named(place));
    rustix::fs::fsync(directory).map_err(context("fsync"))
}
