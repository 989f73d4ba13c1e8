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

use crate::region_shared;
use crate::views::CachedInode;
use arck_core_state::{IndexRoot, Inode};
use rustix::io::Errno;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

region_shared! {
    /// What a directory's view has besides.
    pub struct DirectoryPart {
        /// Names in the verified state.
        pub base_entries: AtomicU32,
        /// 1 once its overlay has had an entry since it was last discarded.
        pub overlaid: AtomicU32,
        /// In the list of directories with a delta: the number of the next, or
        /// [`LAST`](super::LAST); 0 if it is in none.
        pub changed_next: AtomicU32,
    }

    /// What a view of what is no directory has besides.
    pub struct FilePart {
        /// Data pages, the delta's included.
        pub pages: AtomicU64,
        /// Root of the delta's index. Protected by the inode's lock, as is `limit`.
        pub root: AtomicU64,
        /// Verified pages from here on are dropped.
        pub limit: AtomicU64,
    }
}

impl DirectoryPart {
    pub(super) fn new() -> DirectoryPart {
        let half = || AtomicU32::new(0);
        DirectoryPart {
            base_entries: half(),
            overlaid: half(),
            changed_next: half(),
        }
    }

    /// As in a new one, but for the list in which the view may be.
    fn begin_again(&self) {
        self.base_entries.store(0, Ordering::Relaxed);
        self.overlaid.store(0, Ordering::Relaxed);
    }
}

impl FilePart {
    pub(super) fn new() -> FilePart {
        FilePart {
            pages: AtomicU64::new(0),
            root: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
        }
    }

    fn begin_again(&self) {
        self.pages.store(0, Ordering::Relaxed);
        self.root.store(0, Ordering::Relaxed);
        self.limit.store(u64::MAX, Ordering::Relaxed);
    }

    /// No delta says anything of its bytes.
    pub(super) fn is_as_verified(&self) -> bool {
        self.root.load(Ordering::Relaxed) == 0 && self.limit.load(Ordering::Relaxed) == u64::MAX
    }

    /// The delta is over.
    pub(super) fn forget_delta(&self) {
        self.root.store(0, Ordering::Release);
        self.limit.store(u64::MAX, Ordering::Release);
    }
}

impl CachedInode {
    /// Of a number about to be created, both parts are as new. Under its lock; the list of directories
    /// in which an earlier life may have put it stays as it is.
    pub(crate) fn parts_begin_again(&self) {
        self.directory.begin_again();
        self.file.begin_again();
    }

    /// Brings the part of its kind to the verified state. Under its lock.
    pub(super) fn load_part(&self, verified: &Inode) {
        let relaxed = Ordering::Relaxed;
        self.directory.base_entries.store(verified.entries, relaxed);
        self.file.pages.store(verified.pages, relaxed);
    }

    /// The view shows another inode from now on: what was known of the one before is over.
    pub(super) fn forget_the_one_before(&self) {
        self.forget_links();
        self.flags.store(0, Ordering::Release);
        self.directory.overlaid.store(0, Ordering::Release);
    }
}

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
