//! What an attempt does to open or make what a path leads to.

use super::Context;
use super::by_message::Changed;
use super::walk::{Last, Place};
use crate::interface::{ACCESS_MODE, Errno};
use arck_libfs_kit::engine::{Attempt, Need, Stop};
use arck_libfs_kit::format::{FileKind, InodeNumber};
use arck_libfs_kit::names::creations::Creation;
use arck_libfs_kit::names::lookup::{Before, Found};
use arck_libfs_kit::views::{CachedInode, Directory, flag};
use std::sync::atomic::Ordering;

impl Context<'_> {
    /// Opens, or makes, what a walk ended at. True: it was made. By message it [is made](Context::is_made).
    pub fn open_place(
        &self,
        place: &Place<'_>,
        create: bool,
        exclusive: bool,
        mode: u32,
    ) -> Attempt<Changed<(&'static CachedInode, bool)>> {
        let Last::Name(name) = place.last else {
            if exclusive {
                return Err(Errno::EXIST.into());
            }
            return if create {
                Err(Errno::ISDIR.into())
            } else {
                Ok(Changed::Here((place.directory.inode(), false)))
            };
        };
        if !place.directory.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        self.credentials.check(&place.directory, 1)?;
        if create && place.slash {
            return Err(Errno::ISDIR.into());
        }
        let mut before = place.absent;
        let looked;
        let dentry = match place.known {
            Some(dentry) => Some(dentry),
            None if before.is_some() => None,
            None if create => {
                let hash = self.hash(name);
                let then = Before::of(self, place.directory, hash);
                looked = (then, self.kit.lookup_hashed(place.directory, name, hash)?);
                before = Some(&looked);
                looked.1.dentry
            }
            None => self.kit.dentry(place.directory, name)?,
        };
        match dentry {
            Some(_) if exclusive => Err(Errno::EXIST.into()),
            Some(dentry) => {
                let inode = self.view_of(place.directory, name, dentry)?;
                if place.slash && !inode.is_directory() {
                    return Err(Errno::NOTDIR.into());
                }
                if create && inode.is_directory() {
                    return Err(Errno::ISDIR.into());
                }
                if create {
                    self.may_open_instead(place.directory, inode)?;
                }
                let holder = place.directory.number();
                if !inode.is_directory()
                    && !inode.has(flag::UNCOMMITTED)
                    && inode.holder.load(Ordering::Relaxed) != holder
                {
                    // One of the directories that hold it, so that its path can be told.
                    inode.holder.store(holder, Ordering::Relaxed);
                }
                Ok(Changed::Here((inode, false)))
            }
            None if !create => Err(Errno::NOENT.into()),
            None => {
                let creation = self.credentials.opened_file(mode);
                match self.create_absent(place.directory, name, creation, before) {
                    // Somebody else was faster.
                    Err(Stop::Failure(Errno::EXIST)) if !exclusive => Err(Need::Again.into()),
                    other => Ok(other?.map(|made| (made, true))),
                }
            }
        }
    }

    /// What has a name, if it is what was made there by message.
    pub fn is_made(
        &self,
        directory: Directory,
        name: &[u8],
        made: (InodeNumber, u32),
    ) -> Attempt<Option<&'static CachedInode>> {
        match self.kit.dentry(directory, name)? {
            Some(dentry) if (dentry.inode, dentry.generation) == made => {
                Ok(Some(self.view_of(directory, name, dentry)?))
            }
            _ => Ok(None),
        }
    }

    /// Why `name` with a slash behind it is not made, where it would not be a directory.
    pub fn only_a_directory(&self, directory: Directory, name: &[u8]) -> Stop {
        match self.kit.lookup(directory, name) {
            Ok(found) if found.dentry.is_some() => Errno::EXIST.into(),
            Ok(_) => Errno::NOENT.into(),
            Err(stop) => stop,
        }
    }

    /// Makes a name in a directory. EEXIST.
    pub fn create_name(
        &self,
        directory: Directory,
        name: &[u8],
        creation: Creation<'_>,
    ) -> Attempt<Changed<&'static CachedInode>> {
        let hash = self.hash(name);
        let before = Before::of(self, directory, hash);
        let found = self.kit.lookup_hashed(directory, name, hash)?;
        if found.dentry.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.create_absent(directory, name, creation, Some(&(before, found)))
    }

    /// As [`Context::create_name`], for a name that was not there a moment ago.
    fn create_absent(
        &self,
        directory: Directory,
        name: &[u8],
        creation: Creation<'_>,
        before: Option<&(Before, Found)>,
    ) -> Attempt<Changed<&'static CachedInode>> {
        self.may_change_names(directory)?;
        if let Some(sent) = self.by_message(directory, name) {
            self.credentials.check_device(&creation)?;
            return Ok(Changed::ByMessage(sent));
        }
        let hash = before.map_or_else(|| self.hash(name), |(_, found)| found.hash);
        let _locked = self.lock_names(directory, hash);
        let expected = self.begin_change(&directory)?;
        let again;
        let found = match before {
            Some((before, found)) if *before == Before::of(self, directory, hash) => found,
            _ => {
                again = self.kit.lookup_hashed(directory, name, hash)?;
                &again
            }
        };
        if found.dentry.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.may_change_names(directory)?;
        self.credentials.check_device(&creation)?;
        self.expect_reached()?;
        let made = self
            .kit
            .give_creation(directory, &expected, name, found, creation)?;
        Ok(Changed::Here(made))
    }

    /// Makes a file without a name, as if in a directory, and lists it as open.
    pub fn create_nameless(
        &self,
        directory: Directory,
        creation: Creation<'_>,
        linkable: bool,
    ) -> Attempt<&'static CachedInode> {
        self.kit
            .give_nameless_creation(directory, creation, linkable)
    }

    /// Permission and type checks of open. Of a named pipe, whether it may be opened so: that is done in the kernel.
    #[inline(always)]
    pub fn may_open(&self, inode: &CachedInode, flags: i32) -> Attempt<()> {
        if flags & libc::O_PATH != 0 {
            if flags & libc::O_DIRECTORY != 0 && !inode.is_directory() {
                return Err(Errno::NOTDIR.into());
            }
            return Ok(());
        }
        // Both bits ask for both rights, and the file can then be neither read nor written.
        let write = flags & ACCESS_MODE != libc::O_RDONLY;
        match inode.kind().ok_or(Errno::IO)? {
            FileKind::Link if flags & libc::O_DIRECTORY != 0 => return Err(Errno::NOTDIR.into()),
            FileKind::Link => return Err(Errno::LOOP.into()),
            FileKind::Directory if write || flags & libc::O_TRUNC != 0 => {
                return Err(Errno::ISDIR.into());
            }
            FileKind::Directory => {}
            _ if flags & libc::O_DIRECTORY != 0 => return Err(Errno::NOTDIR.into()),
            FileKind::File | FileKind::Pipe | FileKind::Socket => {}
            FileKind::CharacterDevice | FileKind::BlockDevice => return Err(Errno::NXIO.into()),
        }
        let mut wanted = if write { 2 } else { 0 };
        if flags & ACCESS_MODE != libc::O_WRONLY {
            wanted |= 4;
        }
        if flags & libc::O_TRUNC != 0 {
            wanted |= 2;
        }
        self.credentials.check(inode, wanted)?;
        if flags & libc::O_NOATIME != 0 {
            self.credentials.check_owner(inode)?;
        }
        match inode.kind() {
            Some(FileKind::Socket) => Err(Errno::NXIO.into()),
            _ => Ok(()),
        }
    }
}
