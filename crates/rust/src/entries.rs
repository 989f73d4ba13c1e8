//! Names in directories.

use crate::files::Files;
use crate::metadata::{FileType, Metadata};
use arckfs::ListedName;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// What [`Files::read_dir`] gives: the names that a directory had when it was called, in no order, without `.` and `..`.
#[derive(Debug)]
pub struct ReadDir {
    files: Files,
    directory: PathBuf,
    listed: std::vec::IntoIter<ListedName>,
}

impl ReadDir {
    pub(crate) fn new(files: Files, directory: &Path, listed: Vec<ListedName>) -> ReadDir {
        ReadDir {
            files,
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
            files: self.files.clone(),
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
#[derive(Debug)]
pub struct DirEntry {
    files: Files,
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

    /// The name behind the path that was given to [`Files::read_dir`].
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

    /// What it is like by now, of a symbolic link itself. Errors: as [`Files::symlink_metadata`].
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.files.symlink_metadata(&self.path)
    }
}
