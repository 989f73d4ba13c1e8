//! Removing, renaming and linking names: what POSIX asks of them. What is stored is the kit's
//! ([`arck_libfs_kit::names::changes`]).
//!
//! # Invariants
//! * What a name leads to is looked up before the locks are taken, and again under them: only then it counts.
//! * What is wrong with names counts only if it was so at one time.
//! * Locks of several directories, or parts of them, are taken in the order of
//!   [`locks`](arck_libfs_kit::views::locks).

use super::Context;
use super::by_message::{Changed, Sent};
use crate::attributes::credentials::Capability;
use crate::interface::Errno;
use arck_libfs_kit::engine::{Attempt, Expected, Need, Stop};
use arck_libfs_kit::format::LINKS_MAX;
use arck_libfs_kit::format::directory::Dentry;
use arck_libfs_kit::format::{FileKind, InodeNumber, ROOT_INODE};
use arck_libfs_kit::names::changes::{Name, Replaced};
use arck_libfs_kit::names::directories::may_remove;
use arck_libfs_kit::names::lookup::{Before, Found};
use arck_libfs_kit::views::locks::Want;
use arck_libfs_kit::views::{CachedInode, Directory, flag};
use std::sync::atomic::Ordering;

/// RENAME_NOREPLACE.
pub const NOREPLACE: u32 = 1;
/// RENAME_EXCHANGE.
pub const EXCHANGE: u32 = 2;

/// What rename has to leave to the controller.
pub enum Renamed {
    Done,
    /// Both are names of one inode: nothing is to be done.
    Nothing,
    /// In mediated directories.
    ByMessage {
        from: InodeNumber,
        to: InodeNumber,
        /// Number and generation.
        victim: Option<(InodeNumber, u32)>,
    },
    /// A directory changes its parent, or two names are exchanged.
    ByController {
        from: InodeNumber,
        to: InodeNumber,
    },
}

/// Leaves a rename to the controller, once it knows both directories.
fn by_controller(from: Directory, to: Directory) -> Attempt<Renamed> {
    for directory in [from, to] {
        if directory.has(flag::UNCOMMITTED) {
            let parent = directory.holder.load(Ordering::Relaxed);
            return Err(Need::Commit([parent, 0]).into());
        }
    }
    Ok(Renamed::ByController {
        from: from.number(),
        to: to.number(),
    })
}

/// A name that is to be renamed, or to be its new one.
#[derive(Clone, Copy)]
pub struct End<'n> {
    pub directory: Directory,
    pub name: &'n [u8],
    /// There is a slash behind it.
    pub slash: bool,
}

/// A name as it was found before it was locked.
type Looked = (Before, Found);

impl Context<'_> {
    /// Directory rights for adding and removing names; ENOENT if it was removed itself.
    pub fn may_change_names(&self, directory: Directory) -> Attempt<()> {
        if directory.has(flag::UNLINKED) {
            return Err(Errno::NOENT.into());
        }
        Ok(self.credentials.check(&directory, 3)?)
    }

    /// That the user may remove a name of a directory that may be sticky.
    fn may_remove(&self, directory: Directory, victim: &CachedInode) -> Attempt<()> {
        match may_remove(&directory, victim, self.credentials.uid)
            || self.credentials.may(Capability::Fowner)
        {
            true => Ok(()),
            false => Err(Errno::PERM.into()),
        }
    }

    /// Looks a name up before its directory is locked.
    #[inline(always)]
    fn look(&self, directory: Directory, name: &[u8]) -> Attempt<(Before, Found)> {
        let hash = self.hash(name);
        let before = Before::of(self, directory, hash);
        Ok((before, self.kit.lookup_hashed(directory, name, hash)?))
    }

    /// Under the name's lock: how it stands, which leads to what it led to when it
    /// was looked up, or to nothing as then.
    #[inline(always)]
    fn still_there(
        &self,
        directory: Directory,
        name: &[u8],
        (before, seen): &(Before, Found),
    ) -> Attempt<Found> {
        if *before == Before::of(self, directory, seen.hash) {
            return Ok(*seen);
        }
        let found = self.kit.lookup_hashed(directory, name, seen.hash)?;
        let inode = |found: &Found| found.dentry.map(|dentry| (dentry.inode, dentry.generation));
        if inode(&found) == inode(seen) {
            Ok(found)
        } else {
            Err(Need::Again.into())
        }
    }

    /// unlink: EISDIR for a directory.
    pub fn unlink_name(&self, directory: Directory, name: &[u8]) -> Attempt<Changed<()>> {
        if !self.owns(&directory) {
            // That it is not there comes before that the directory cannot be had.
            let dentry = self.kit.dentry(directory, name)?.ok_or(Errno::NOENT)?;
            if let Some(mut sent) = self.by_message(directory, name) {
                self.may_change_names(directory)?;
                let victim = self.view_of(directory, name, dentry)?;
                sent.victim = Some((dentry.inode, dentry.generation));
                self.may_remove(directory, victim)?;
                if dentry.kind == FileKind::Directory {
                    return Err(Errno::ISDIR.into());
                }
                return Ok(Changed::ByMessage(sent));
            }
        }
        let hash = self.hash(name);
        let locked = self.lock_names(directory, hash);
        let expected = self.begin_change(&directory)?;
        let found = self.kit.lookup_hashed(directory, name, hash)?;
        let dentry = found.dentry.ok_or(Errno::NOENT)?;
        self.may_change_names(directory)?;
        let victim = self.view_of(directory, name, dentry)?;
        if dentry.kind == FileKind::Directory {
            return Err(Errno::ISDIR.into());
        }
        self.may_remove(directory, victim)?;
        let name = Name {
            directory,
            expected,
            bytes: name,
            found,
        };
        self.kit.unlink(&name, victim)?;
        drop(locked);
        self.dispose(victim);
        Ok(Changed::Here(()))
    }

    /// rmdir: ENOTDIR, ENOTEMPTY.
    pub fn remove_directory(&self, directory: Directory, name: &[u8]) -> Attempt<Changed<()>> {
        let looked = self.look(directory, name)?;
        let seen = looked.1.dentry.ok_or(Errno::NOENT)?;
        if seen.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        let victim = self.view_of(directory, name, seen)?;
        if let Some(mut sent) = self.by_message(directory, name) {
            sent.victim = Some((seen.inode, seen.generation));
            self.may_change_names(directory)?;
            self.may_remove(directory, victim)?;
            return Ok(Changed::ByMessage(sent));
        }
        let name_lock = self.want(directory, looked.1.hash);
        let locked = self.lock_all([Some(name_lock), Some(Want::whole(victim))]);
        let expected = self.begin_change(&directory)?;
        let found = self.still_there(directory, name, &looked)?;
        self.may_change_names(directory)?;
        self.may_remove(directory, victim)?;
        if self.entries(Directory::of(victim)?) != 0 {
            // Its emptiness is only certain in the newest state, which `view` has seen to.
            self.unmoved(victim)?;
            return Err(Errno::NOTEMPTY.into());
        }
        let victim_expected = self.begin_change(victim)?;
        let name = Name {
            directory,
            expected,
            bytes: name,
            found,
        };
        self.kit.unlink_directory(&name, victim, victim_expected)?;
        drop(locked);
        self.dispose(victim);
        Ok(Changed::Here(()))
    }

    /// link: EPERM for a directory, EEXIST, EMLINK; ENOENT for what has no name any more.
    pub fn add_link(
        &self,
        target: &'static CachedInode,
        directory: Directory,
        name: &[u8],
    ) -> Attempt<Changed<()>> {
        if target.is_directory() {
            if self.kit.lookup(directory, name)?.dentry.is_some() {
                return Err(Errno::EXIST.into());
            }
            return Err(Errno::PERM.into());
        }
        if !target.has(flag::LINKABLE)
            && let Some(sent) = self.link_by_message(target, directory, name)?
        {
            return Ok(Changed::ByMessage(sent));
        }
        let hash = self.hash(name);
        let name_lock = self.want(directory, hash);
        let _locked = self.lock_all([Some(name_lock), Some(Want::whole(target))]);
        let expected = self.begin_change(&directory)?;
        let found = self.kit.lookup_hashed(directory, name, hash)?;
        if found.dentry.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.may_change_names(directory)?;
        let nameless = target.has(flag::LINKABLE) && target.has(flag::UNCOMMITTED);
        let links = self.links(target)?;
        if !nameless && links == 0 {
            return Err(Errno::NOENT.into());
        }
        if nameless {
            // No directory tells of its creation yet: this one will.
            target.holder.store(directory.number(), Ordering::Relaxed);
        }
        if links >= LINKS_MAX {
            return Err(Errno::MLINK.into());
        }
        let creation_place = target.holder.load(Ordering::Relaxed);
        if target.has(flag::UNCOMMITTED) && creation_place != directory.number() {
            // Two directories would each tell of its creation, and a fold of the one leave the
            // other behind.
            return Err(Need::Commit([creation_place, 0]).into());
        }
        let target_expected = self.begin_change(target)?;
        let name = Name {
            directory,
            expected,
            bytes: name,
            found,
        };
        self.kit.link(&name, target, target_expected)?;
        Ok(Changed::Here(()))
    }

    /// The same in a mediated directory: what is to be sent.
    fn link_by_message(
        &self,
        target: &CachedInode,
        directory: Directory,
        name: &[u8],
    ) -> Attempt<Option<Sent>> {
        let Some(mut sent) = self.by_message(directory, name) else {
            return Ok(None);
        };
        if self.kit.lookup(directory, name)?.dentry.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.may_change_names(directory)?;
        // This session may be the only one that knows.
        if self.links(target)? == 0 {
            return Err(Errno::NOENT.into());
        }
        // Who adds a name by himself has to own it for that.
        if self.credentials.check_owner(target).is_err() {
            self.credentials.check(target, 2)?;
        }
        if target.has(flag::UNCOMMITTED) {
            // The controller is to know what gets the name.
            return Err(Need::Commit([target.holder.load(Ordering::Relaxed), 0]).into());
        }
        sent.victim = Some((target.number(), target.generation()));
        Ok(Some(sent))
    }

    /// Whether the directory `number` is `directory` or holds it, at whatever depth.
    fn is_ancestor(&self, number: InodeNumber, directory: Directory) -> Attempt<bool> {
        let mut at = directory;
        while at.number() != number {
            if at.number() == ROOT_INODE || at.has(flag::UNLINKED) {
                return Ok(false);
            }
            at = self.parent(&at)?;
        }
        Ok(true)
    }

    /// rename, `flags` as renameat2's.
    pub fn rename_name(&self, from: End<'_>, to: End<'_>, flags: u32) -> Attempt<Renamed> {
        let source = self.look(from.directory, from.name)?;
        source.1.dentry.ok_or(Errno::NOENT)?;
        let target = self.look(to.directory, to.name)?;
        let renamed = self.rename_seen(from, to, flags, &source, &target);
        if let Err(Stop::Failure(_)) | Ok(Renamed::Nothing) = renamed {
            // Without locks the two were seen one after the other: what is wrong with them, or
            // that they are one, counts only if they were there at one time.
            let wanted = [
                (from.directory, source.1.hash),
                (to.directory, target.1.hash),
            ];
            let _locked = self.lock_all(wanted.map(|(at, hash)| Some(self.want(at, hash))));
            self.still_there(from.directory, from.name, &source)?;
            self.still_there(to.directory, to.name, &target)?;
        }
        renamed
    }

    fn rename_seen(
        &self,
        from: End<'_>,
        to: End<'_>,
        flags: u32,
        looked_from: &Looked,
        looked_to: &Looked,
    ) -> Attempt<Renamed> {
        let source = looked_from.1.dentry.ok_or(Errno::NOENT)?;
        let target = looked_to.1.dentry;
        self.may_rename(from, to, flags, source, target)?;
        if target.is_some_and(|target| target.inode == source.inode) {
            return Ok(Renamed::Nothing);
        }
        let across = from.directory.number() != to.directory.number();
        let moves_directory = source.kind == FileKind::Directory;
        let is_sent = self.goes_by_message(from.directory) && self.goes_by_message(to.directory);
        let by_message = |victim| {
            Ok(Renamed::ByMessage {
                from: from.directory.number(),
                to: to.directory.number(),
                victim,
            })
        };
        if flags & EXCHANGE != 0 || (moves_directory && across) {
            if is_sent {
                return by_message(None);
            }
            return by_controller(from.directory, to.directory);
        }
        let moved = self.view_of(from.directory, from.name, source)?;
        let victim = match target {
            Some(target) => Some(self.view_of(to.directory, to.name, target)?),
            None => None,
        };
        if is_sent {
            self.may_remove(from.directory, moved)?;
            if let Some(victim) = victim {
                self.may_remove(to.directory, victim)?;
            }
            return by_message(target.map(|target| (target.inode, target.generation)));
        }
        self.rename_locked(from, to, looked_from, looked_to, moved, victim)?;
        if let Some(victim) = victim {
            self.dispose(victim);
        }
        Ok(Renamed::Done)
    }

    /// What is wrong with a rename, in the order in which Linux looks.
    fn may_rename(
        &self,
        from: End<'_>,
        to: End<'_>,
        flags: u32,
        source: Dentry,
        target: Option<Dentry>,
    ) -> Attempt<()> {
        let moves_directory = source.kind == FileKind::Directory;
        let exchange = flags & EXCHANGE != 0;
        if flags & NOREPLACE != 0 && target.is_some() {
            return Err(Errno::EXIST.into());
        }
        if exchange {
            let target = target.ok_or(Errno::NOENT)?;
            if to.slash && target.kind != FileKind::Directory {
                return Err(Errno::NOTDIR.into());
            }
        }
        if !moves_directory && (from.slash || (to.slash && !exchange)) {
            return Err(Errno::NOTDIR.into());
        }
        self.makes_no_circle(from.directory, to.directory, exchange, source, target)?;
        self.may_change_names(from.directory)?;
        self.may_change_names(to.directory)?;
        match target {
            Some(target) if !exchange && target.inode != source.inode => {
                match (moves_directory, target.kind == FileKind::Directory) {
                    (true, false) => Err(Errno::NOTDIR.into()),
                    (false, true) => Err(Errno::ISDIR.into()),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// That no directory gets into what it holds.
    fn makes_no_circle(
        &self,
        from: Directory,
        to: Directory,
        exchange: bool,
        source: Dentry,
        target: Option<Dentry>,
    ) -> Attempt<()> {
        if from.number() == to.number() {
            return Ok(());
        }
        if source.kind == FileKind::Directory && self.is_ancestor(source.inode, to)? {
            return Err(Errno::INVAL.into());
        }
        if let Some(target) = target
            && target.kind == FileKind::Directory
            && self.is_ancestor(target.inode, from)?
        {
            return Err(match exchange {
                true => Errno::INVAL,
                false => Errno::NOTEMPTY,
            }
            .into());
        }
        Ok(())
    }

    /// An end of a rename that is locked.
    fn still_name<'n>(
        &self,
        end: End<'n>,
        expected: Expected,
        looked: &Looked,
    ) -> Attempt<Name<'n>> {
        Ok(Name {
            directory: end.directory,
            expected,
            bytes: end.name,
            found: self.still_there(end.directory, end.name, looked)?,
        })
    }

    /// Locks what a rename is about, and renames if it is still so.
    fn rename_locked(
        &self,
        from: End<'_>,
        to: End<'_>,
        looked_from: &Looked,
        looked_to: &Looked,
        moved: &'static CachedInode,
        victim: Option<&'static CachedInode>,
    ) -> Attempt<()> {
        let locked_victim = victim.filter(|victim| victim.is_directory());
        let _locked = self.lock_all([
            Some(self.want(from.directory, looked_from.1.hash)),
            Some(self.want(to.directory, looked_to.1.hash)),
            locked_victim.map(Want::whole),
        ]);
        let to_expected = self.begin_change(&to.directory)?;
        let from_expected = self.begin_change(&from.directory)?;
        let from_name = self.still_name(from, from_expected, looked_from)?;
        let to_name = self.still_name(to, to_expected, looked_to)?;
        // Either may have been removed before it was locked.
        self.may_change_names(from.directory)?;
        self.may_change_names(to.directory)?;
        self.may_remove(from.directory, moved)?;
        let mut replaced = None;
        if let Some(inode) = victim {
            self.may_remove(to.directory, inode)?;
            let directory = match inode.is_directory() {
                true if self.entries(Directory::of(inode)?) != 0 => {
                    return Err(Errno::NOTEMPTY.into());
                }
                true => Some(self.begin_change(inode)?),
                false => None,
            };
            replaced = Some(Replaced { inode, directory });
        }
        self.kit.move_name(&from_name, &to_name, moved, replaced)
    }
}
