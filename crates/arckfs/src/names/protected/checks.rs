//! Where an attempt asks what the machine keeps programs from.

use super::Holder;
use crate::interface::Errno;
use crate::names::Context;
use arck_libfs_kit::engine::Attempt;
use arck_libfs_kit::views::{CachedInode, Directory};
use std::sync::atomic::Ordering;

impl Context<'_> {
    /// Before the last link of a path, or of what such a link leads to, is followed. EACCES.
    pub fn may_follow(&self, directory: Directory, link: &CachedInode) -> Attempt<()> {
        let owner = link.uid.load(Ordering::Relaxed);
        let (user, directory) = (self.credentials.uid, Holder::of(&directory));
        match self
            .resolution
            .protected
            .lets_follow(user, directory, owner)
        {
            true => Ok(()),
            false => Err(Errno::ACCESS.into()),
        }
    }

    /// Before what is in a directory is opened with O_CREAT. EACCES.
    pub fn may_open_instead(&self, directory: Directory, inode: &CachedInode) -> Attempt<()> {
        let owner = inode.uid.load(Ordering::Relaxed);
        let kind = inode.kind().ok_or(Errno::IO)?;
        let (user, directory) = (self.credentials.uid, Holder::of(&directory));
        match self
            .resolution
            .protected
            .lets_open(user, directory, kind, owner)
        {
            true => Ok(()),
            false => Err(Errno::ACCESS.into()),
        }
    }
}
