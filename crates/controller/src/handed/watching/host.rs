//! What programs watch in place of the pool's inodes: nodes of the host's, and what is done to them for the kernel to tell.
//!
//! A node stands for an inode that somebody watches: a file, or a directory in which there is something of each name. All
//! of it is empty, and lies in a directory of the pool's that nobody but the controller searches.
//!
//! # Invariants
//! * Nobody is sent a descriptor of any of it: so nobody can hold it, and nothing here waits for anybody.
//! * Paths are relative to that directory, and of the controller's making but for one name of a directory of the pool's,
//!   which has no slash in it.

use crate::pool::names::WATCHED;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
};
use rustix::io::Errno;

/// Where something stands that nobody watches.
const ASIDE: &str = "aside";

/// A place beneath the directory.
pub type Path = Vec<u8>;

/// The place of a name in a node.
pub fn within(node: &str, name: &[u8]) -> Path {
    [node.as_bytes(), b"/", name].concat()
}

/// See the module's head.
#[derive(Debug)]
pub struct Host {
    folder: OwnedFd,
    last: u64,
}

impl Host {
    /// An empty one.
    pub fn new(pool: &OwnedFd) -> Result<Host, Errno> {
        remove_all(pool)?;
        rustix::fs::mkdirat(pool, WATCHED, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(pool, WATCHED, flags, Mode::empty())?;
        rustix::fs::mkdirat(&folder, ASIDE, Mode::RWXU)?;
        Ok(Host { folder, last: 0 })
    }

    /// Has an inotify descriptor watch a node; the number of the watch.
    pub fn watch(&self, inotify: BorrowedFd<'_>, node: &str, mask: u32) -> Result<i32, Errno> {
        let path = format!("/proc/self/fd/{}/{node}", self.folder.as_raw_fd());
        inotify::add_watch(inotify, path, WatchFlags::from_bits_retain(mask))
    }

    /// The number of the host's inode.
    pub fn number_of(&self, node: &str) -> Result<u64, Errno> {
        Ok(rustix::fs::statat(&self.folder, node, AtFlags::SYMLINK_NOFOLLOW)?.st_ino)
    }

    /// IN_CREATE. What is there, though it should not be, goes.
    pub fn make(&self, path: &[u8], is_directory: bool) -> Result<(), Errno> {
        match self.make_new(path, is_directory) {
            Err(Errno::EXIST) => {
                match self.remove(path, false) {
                    Err(Errno::ISDIR) => self.remove(path, true),
                    removed => removed,
                }?;
                self.make_new(path, is_directory)
            }
            made => made,
        }
    }

    fn make_new(&self, path: &[u8], is_directory: bool) -> Result<(), Errno> {
        match is_directory {
            true => rustix::fs::mkdirat(&self.folder, path, Mode::RWXU),
            false => {
                let mode = Mode::RUSR | Mode::WUSR;
                rustix::fs::mknodat(&self.folder, path, FileType::RegularFile, mode, 0)
            }
        }
    }

    /// IN_DELETE, and of the node itself IN_DELETE_SELF.
    pub fn remove(&self, path: &[u8], is_directory: bool) -> Result<(), Errno> {
        let flags = match is_directory {
            true => AtFlags::REMOVEDIR,
            false => AtFlags::empty(),
        };
        rustix::fs::unlinkat(&self.folder, path, flags)
    }

    /// IN_MOVED_FROM and IN_MOVED_TO, or IN_MOVE_SELF.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        rustix::fs::renameat(&self.folder, from, &self.folder, to)
    }

    /// The same, both ways.
    pub fn exchange(&self, one: &[u8], other: &[u8]) -> Result<(), Errno> {
        let flags = RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(&self.folder, one, &self.folder, other, flags)
    }

    /// A place that nobody watches, and that is free.
    pub fn aside(&mut self) -> Path {
        self.last += 1;
        format!("{ASIDE}/{}", self.last).into_bytes()
    }

    /// IN_MODIFY: the kernel tells it of a time of modification that is set alone.
    pub fn modify(&self, path: &[u8]) -> Result<(), Errno> {
        let time = |nanoseconds| Timespec {
            tv_sec: 0,
            tv_nsec: nanoseconds,
        };
        let times = Timestamps {
            last_access: time(UTIME_OMIT),
            last_modification: time(UTIME_NOW),
        };
        rustix::fs::utimensat(&self.folder, path, &times, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// IN_ATTRIB. Modes stay as they were made.
    pub fn attribute(&self, path: &[u8], is_directory: bool) -> Result<(), Errno> {
        let mode = match is_directory {
            true => Mode::RWXU,
            false => Mode::RUSR | Mode::WUSR,
        };
        rustix::fs::chmodat(&self.folder, path, mode, AtFlags::empty())
    }

    /// IN_OPEN and IN_CLOSE_WRITE.
    pub fn close_written(&self, path: &[u8]) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.folder, path, flags, Mode::empty()).map(drop)
    }
}

/// Removes whatever is there of a pool's.
pub fn remove_all(pool: &OwnedFd) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}/{WATCHED}", pool.as_raw_fd());
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
        _ => Ok(()),
    }
}
