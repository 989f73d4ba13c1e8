//! Directories and files: a view, looked at as what it is.
//!
//! A [`CachedInode`] has what every inode has. What a directory has besides is reached through a [`Directory`];
//! what is none (a file, a symbolic link with its target, a device) is a [`File`]. Who has one of them has
//! asked what the inode is, or has made it.
//!
//! # Invariant
//! * What one kind has is reached through its type alone, but where a view begins or ends, which has both
//!   parts as in a new one. What a view shows may become another inode, of another kind: who finds that it has
//!   moved since (see [`verified`](super::verified) and the second check) drops what he read.

use crate::state::inodes::CachedInode;
use crate::state::kinds::{DirectoryPart, FilePart};
use arck_core_state::IndexRoot;
use rustix::io::Errno;
use std::ops::Deref;
use std::sync::atomic::Ordering;

/// A view of a directory.
#[derive(Clone, Copy)]
pub struct Directory(&'static CachedInode);

impl Directory {
    /// ENOTDIR for what is none.
    #[inline]
    pub fn of(inode: &'static CachedInode) -> Result<Directory, Errno> {
        match inode.is_directory() {
            true => Ok(Directory(inode)),
            false => Err(Errno::NOTDIR),
        }
    }

    /// What every inode has.
    #[inline]
    pub fn inode(self) -> &'static CachedInode {
        self.0
    }

    /// What directories have.
    #[inline]
    pub fn part(self) -> &'static DirectoryPart {
        &self.0.directory
    }
}

/// A view of what is no directory.
#[derive(Clone, Copy)]
pub struct File(&'static CachedInode);

impl File {
    /// EISDIR for a directory.
    #[inline]
    pub fn of(inode: &'static CachedInode) -> Result<File, Errno> {
        match inode.is_directory() {
            true => Err(Errno::ISDIR),
            false => Ok(File(inode)),
        }
    }

    /// What every inode has.
    #[inline]
    pub fn inode(self) -> &'static CachedInode {
        self.0
    }

    /// What it has that directories have not.
    #[inline]
    pub fn part(self) -> &'static FilePart {
        &self.0.file
    }

    /// Root of the delta's index.
    #[inline]
    pub fn delta_root(self) -> IndexRoot {
        IndexRoot(self.part().root.load(Ordering::Acquire))
    }

    /// The delta has this index, with entries before page `end`; `u64::MAX`: nobody knows where they end.
    pub fn set_delta_root(self, root: IndexRoot, end: u64) {
        self.has_entries_to(end);
        self.part().root.store(root.0, Ordering::Release);
    }

    /// Before an entry is stored: the delta's index may have some before page `end`. Under the lock of the whole
    /// inode, as all that changes an index, so that no locked instruction is needed.
    #[inline]
    pub fn has_entries_to(self, end: u64) {
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        if self.reach.load(Ordering::Relaxed) < end {
            self.reach.store(end, Ordering::Relaxed);
        }
    }

    /// The page from which on the delta's index has no entry.
    #[inline]
    pub fn entries_end(self) -> u64 {
        match self.reach.load(Ordering::Relaxed) {
            u32::MAX => u64::MAX,
            end => u64::from(end),
        }
    }

    /// The delta's index has no entry from page `end` on. Under the lock of the whole inode.
    pub fn has_no_entries_from(self, end: u64) {
        if let Ok(end) = u32::try_from(end) {
            self.reach.fetch_min(end, Ordering::Relaxed);
        }
    }
}

impl Deref for Directory {
    type Target = CachedInode;
    #[inline]
    fn deref(&self) -> &CachedInode {
        self.0
    }
}

impl Deref for File {
    type Target = CachedInode;
    #[inline]
    fn deref(&self) -> &CachedInode {
        self.0
    }
}
