//! Names in directories.

use crate::metadata::{FileType, Metadata};
use crate::paths::inside;
use crate::session::Session;
use arckfs::{At, ListedName};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What [`Files::read_dir`](crate::Files::read_dir) gives: the names that a directory had when it was called, in no order, without `.` and `..`.
pub struct ReadDir {
    session: Arc<Session>,
    directory: PathBuf,
    listed: std::vec::IntoIter<ListedName>,
}

impl ReadDir {
    pub(crate) fn new(session: Arc<Session>, directory: &Path, listed: Vec<ListedName>) -> ReadDir {
        ReadDir {
            session,
            directory: directory.to_owned(),
            listed: listed.into_iter(),
        }
    }
}

impl Iterator for ReadDir {
    type Item = DirEntry;

    fn next(&mut self) -> Option<DirEntry> {
        let listed = self.listed.next()?;
        let name = OsString::from_vec(listed.name);
        Some(DirEntry {
            session: Arc::clone(&self.session),
            path: self.directory.join(&name),
            name,
            kind: FileType::of_dentry(listed.kind),
            inode: listed.inode,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.listed.size_hint()
    }
}

impl ExactSizeIterator for ReadDir {}

/// A name in a directory.
pub struct DirEntry {
    session: Arc<Session>,
    path: PathBuf,
    name: OsString,
    kind: FileType,
    inode: u64,
}

impl DirEntry {
    /// The name alone.
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// The name behind the path that was given to [`Files::read_dir`](crate::Files::read_dir).
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// What it was when the directory was read; a symbolic link is one.
    pub fn file_type(&self) -> FileType {
        self.kind
    }

    /// The inode number.
    pub fn ino(&self) -> u64 {
        self.inode
    }

    /// What it is like by now, of a symbolic link itself. Errors: as [`Files::symlink_metadata`](crate::Files::symlink_metadata).
    pub fn metadata(&self) -> io::Result<Metadata> {
        let path = inside(&self.path)?;
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        let told = self.session.run(|fs| fs.stat(At::Root, path, flags));
        told.map(Metadata)
    }
}

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReadDir").field(&self.directory).finish()
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path).finish()
    }
}
