//! Notices that a pool's files are deleted while it is served.
//!
//! Invariant: a pool without its superblock is no pool any more. A pool whose directory is moved is
//! still one: the controller holds the directory, not its path.

use arck_core_state::layout;
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// A look at a pool's directory.
pub struct Deletion {
    directory: OwnedFd,
    /// Readable when something was taken out of the directory.
    events: OwnedFd,
}

impl Deletion {
    /// Watches a pool's directory. EMFILE: this user watches too much already.
    pub fn watch(pool: &Path) -> Result<Deletion, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(pool, flags, Mode::empty())?;
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let taken = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::ONLYDIR;
        inotify::add_watch(&events, pool, taken)?;
        Ok(Deletion { directory, events })
    }

    /// Becomes readable when it is time to look.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Whether the pool is gone.
    pub fn happened(&self) -> bool {
        let mut events: Vec<u8> = Vec::with_capacity(4096);
        // What has happened does not matter, only that it is not told again.
        while rustix::io::read(&self.events, spare_capacity(&mut events)).is_ok_and(|n| n > 0) {
            events.clear();
        }
        let superblock = rustix::fs::statat(
            &self.directory,
            layout::SUPERBLOCK,
            AtFlags::SYMLINK_NOFOLLOW,
        );
        superblock.err() == Some(Errno::NOENT)
    }
}
