//! The way to a directory, for what works in one, and who takes names away from it.

use super::Context;
use crate::names::creations::Creation;
use crate::need::{Attempt, Need};
use crate::views::{CachedInode, Directory};
use arck_core_state::{FileKind, ROOT_INODE};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Sticky directories: only the owner of a name's inode, or of the directory, removes the name. A removal that
/// does not heed this is refused, with all that its session has not folded of the directory.
#[inline]
pub fn may_remove(directory: &CachedInode, victim: &CachedInode, user: u32) -> bool {
    let is_of_user = |inode: &CachedInode| inode.uid.load(Ordering::Relaxed) == user;
    directory.mode.load(Ordering::Relaxed) & 0o1000 == 0
        || is_of_user(directory)
        || is_of_user(victim)
}

impl Context<'_> {
    /// The directory that a path from the pool's root leads to; those that there are not are `made`, if
    /// that is said. Neither `.` nor `..` (EINVAL), and no symbolic link (ENOTDIR), is followed.
    pub fn directory_at(&self, path: &[u8], made: Option<Creation<'_>>) -> Attempt<Directory> {
        let root = self.header(ROOT_INODE)?.generation();
        let mut at = Directory::of(self.view(ROOT_INODE, root)?)?;
        for name in path
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
        {
            if name == b"." || name == b".." {
                return Err(Errno::INVAL.into());
            }
            at = match (self.dentry(at, name)?, made) {
                (Some(found), _) if found.kind == FileKind::Directory => {
                    Directory::of(self.view_of(at, name, found)?)?
                }
                (Some(_), _) => return Err(Errno::NOTDIR.into()),
                (None, Some(creation)) => self.make_directory(at, name, creation)?,
                (None, None) => return Err(Errno::NOENT.into()),
            };
        }
        Ok(at)
    }

    fn make_directory(
        &self,
        parent: Directory,
        name: &[u8],
        creation: Creation<'_>,
    ) -> Attempt<Directory> {
        let _locked = self.lock_now(parent.inode())?;
        let expected = self.begin_change(parent.inode())?;
        let found = self.lookup(parent, name)?;
        if found.dentry.is_some() {
            return Err(Need::Again.into());
        }
        let kind = FileKind::Directory;
        let created = self.give_creation(
            parent,
            &expected,
            name,
            &found,
            Creation { kind, ..creation },
        )?;
        Ok(Directory::of(created)?)
    }
}
