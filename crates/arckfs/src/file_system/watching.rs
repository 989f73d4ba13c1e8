//! Watching files and directories by the kernel's inotify: see `Call::AddWatch` of the protocol.
//!
//! Invariant: who watches may read the inode, as this session's controller sees it.

use super::*;
use std::os::fd::BorrowedFd;

impl FileSystem {
    /// Has an inotify descriptor watch what a path leads to, for what `mask` says (`IN_*`); the number of the watch.
    /// EACCES for who may not read it, ENOTDIR with IN_ONLYDIR; and what the kernel and the controller tell of it. Blocks.
    pub fn watch(
        &self,
        at: At,
        path: &[u8],
        inotify: BorrowedFd<'_>,
        mask: u32,
    ) -> Result<u32, Failure> {
        let flags = match mask & libc::IN_DONT_FOLLOW {
            0 => 0,
            _ => libc::AT_SYMLINK_NOFOLLOW,
        };
        let found = self.on_path(at, path, flags, |context, inode| {
            if mask & libc::IN_ONLYDIR != 0 && !inode.is_directory() {
                return Err(Errno::NOTDIR.into());
            }
            context.credentials.check(inode, 4)?;
            Ok((inode.number(), inode.generation()))
        })?;
        self.let_be_created(found)?;
        let holder = self.engine.kit().known(found.0);
        let parent = holder.map_or(0, |inode| inode.holder.load(Ordering::Relaxed));
        let session = self.engine.session;
        Ok(session.add_watch(found, inotify, mask, parent)?)
    }
}
