//! Names of mediated directories, which sessions that do not trust each other make and take away by turns: by messages,
//! where ownership would go back and forth for nearly nothing (KucoFS, section 3.2). Nobody has to own the directory for that.
//!
//! # Invariants
//! * A name, what it leads to and the directory's own fields change in one step: whole or not at all, also after a crash.
//! * Everything is checked inside the change that does it, against what has been folded; what the directory's owner has
//!   changed of it is folded before, when his lease is over, and he has it no longer then.
//! * What is made is what a fold lets the user make: of his own, of a group that is his or the directory's.
//! * Errors are those of open(2), mkdir(2), link(2), unlink(2) and rmdir(2).

use crate::core::Core;
use crate::fold::folding::{After, Failure};
use crate::fold::reply::Reply;
use crate::fold::touched::Touched;
use crate::pool::clock::now;
use crate::requests::write_by_message::Pages;
use crate::sessions::credits::PAGES_PER_DELTA_PAGE;
use crate::state::apply::{self, directory};
use crate::state::change::Change;
use arck_core_state::directory::Dentry;
use arck_core_state::geometry::{LINKS_MAX, PATH_MAX, SessionNumber};
use arck_core_state::{FileKind, Inode, InodeNumber, Mediation, NAME_MAX};
use arck_protocol::Response;
use arck_protocol::message::Named;
use arck_verifier::{Creation, Credentials, VerifiedState};
use rustix::io::Errno;
use std::time::Instant;

/// The sticky bit.
const STICKY: u32 = 0o1000;
/// What a directory hands its group down by.
const SET_GROUP_ID: u32 = 0o2000;
/// With this and [`SET_GROUP_ID`] a program gets rights.
const GROUP_EXECUTE: u32 = 0o0010;

/// Whether a sticky directory keeps a user from taking away what is another's.
fn keeps(who: &Credentials, directory: &Inode, victim: &Inode) -> bool {
    directory.mode & STICKY != 0
        && !who.is_root()
        && who.uid != directory.uid
        && who.uid != victim.uid
}

/// A new inode.
#[derive(Clone, Copy)]
pub struct New<'a> {
    kind: FileKind,
    mode: u32,
    /// User and group.
    owner: (u32, u32),
    /// Of a device.
    number: u32,
    /// Of a symbolic link.
    target: &'a [u8],
    /// Where its maker has it listed as open, and by which mark.
    open: (u32, u32),
}

impl<'a> New<'a> {
    /// EINVAL: there is no such inode.
    pub fn of(
        kind: u8,
        mode: u32,
        owner: (u32, u32),
        size: u32,
        target: &'a [u8],
        open: (u32, u32),
    ) -> Result<New<'a>, Errno> {
        let kind = FileKind::from_u8(kind).ok_or(Errno::INVAL)?;
        let is_link = kind == FileKind::Link;
        let is_sound = match is_link {
            true => {
                (1..=PATH_MAX).contains(&target.len())
                    && target.len() == size as usize
                    && !target.contains(&0)
            }
            false => size == 0 || kind.is_device(),
        };
        match is_sound {
            true => Ok(New {
                kind,
                mode,
                owner,
                number: if is_link { 0 } else { size },
                target,
                open,
            }),
            false => Err(Errno::INVAL),
        }
    }

    /// A device stands for something, but for the character device 0.
    fn is_real_device(&self) -> bool {
        let is_nothing = self.kind == FileKind::CharacterDevice && self.number == 0;
        self.kind.is_device() && !is_nothing
    }
}

/// What becomes of a name.
#[derive(Clone, Copy)]
pub enum Wish<'a> {
    Make(New<'a>),
    /// Of a directory, or of anything else.
    Remove {
        directory: bool,
    },
    /// Of what is there already: number and generation.
    Link {
        inode: (InodeNumber, u32),
    },
}

fn check_name(name: &[u8], wish: Wish<'_>) -> Result<(), Errno> {
    let is_made = !matches!(wish, Wish::Remove { .. });
    match name {
        b"" => Err(Errno::NOENT),
        b"." | b".." if is_made => Err(Errno::EXIST),
        b"." | b".." => Err(Errno::INVAL),
        name if name.len() > NAME_MAX => Err(Errno::NAMETOOLONG),
        name if name.iter().any(|&byte| byte == b'/' || byte == 0) => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

impl Core {
    /// See [`arck_protocol::Request::MakeName`], [`arck_protocol::Request::RemoveName`] and
    /// [`arck_protocol::Request::LinkName`].
    pub fn change_name(
        &mut self,
        session: SessionNumber,
        directory: (InodeNumber, u32),
        name: &[u8],
        wish: Wish<'_>,
    ) -> Reply {
        if let Err(errno) = check_name(name, wish) {
            return errno.into();
        }
        // Whoever may not is not let take anything from its owner.
        let may = self
            .sessions
            .who(session)
            .and_then(|who| self.expect_mediated(&who, directory, name, wish));
        if let Err(errno) = may {
            return errno.into();
        }
        let victim = match wish {
            Wish::Remove { directory: true } => self.sessions.state.lookup(directory.0, name),
            _ => None,
        };
        let of_victim = victim.and_then(|victim| self.lease_of(session, victim));
        if let Some(due) = self.put_off(session, directory.0).max(of_victim) {
            return Reply::Later(due);
        }
        match self.try_change_name(session, directory, name, wish) {
            Ok(named) => Reply::Now(Response::Bytes(named.encode())),
            Err(failure) => failure.into(),
        }
    }

    fn try_change_name(
        &mut self,
        session: SessionNumber,
        directory: (InodeNumber, u32),
        name: &[u8],
        wish: Wish<'_>,
    ) -> Result<Named, Failure> {
        let number = directory.0;
        let who = self.sessions.who(session)?;
        let inode = *self.sessions.state.shadow(number).ok_or(Errno::STALE)?;
        let was_owned = self.take_mediated(&inode)?;
        if let Wish::Remove { directory: true } = wish {
            self.take_directory(session, number, name)?;
        }
        // Its owner may have changed that.
        let inode = self.expect_mediated(&who, directory, name, wish)?;
        let mediation = self.stays_mediated(&inode, directory, session, was_owned);
        // A name, and what a directory grows by for it; before the change, since this folds.
        if !self.owners().make_spare(PAGES_PER_DELTA_PAGE) {
            return Err(Errno::NOSPC.into());
        }
        // Of another one, that was done and is not answered yet, no controller would know any more.
        let keeps_other = self.sessions.has_unanswered(session);
        let mut made = None;
        let mut touched = None;
        let changed = self.folding().change_one_of_many(|change, dying| {
            let place = Place {
                change,
                who: &who,
                directory: number,
                name,
                mediation,
            };
            match wish {
                Wish::Make(new) => made = Some(place.make(new)?),
                Wish::Remove { directory } => {
                    touched = place.remove(directory, dying)?.map(Touched::unlinked);
                }
                Wish::Link { inode } => {
                    let dentry = place.link(inode, dying)?;
                    touched = Some(Touched::moved(dentry, number, name));
                }
            }
            if !keeps_other {
                change.completes_request();
            }
            Ok(())
        });
        changed?;
        self.access().tighten(touched.into_iter().collect());
        if mediation == Mediation::Found {
            self.sessions.mediating.served(directory, Instant::now());
        }
        let (inode, generation) = made.unwrap_or_default();
        if let Wish::Make(new) = wish {
            self.sessions
                .list_made(session, new.open, inode, generation);
        }
        Ok(Named {
            inode,
            generation,
            is_mediated: mediation.is_mediated(),
        })
    }

    /// That a user may change a name of a directory, as far as that is verified, and that it is mediated. ENOTDIR, EACCES, EPERM; EBUSY
    /// where it is not; ESTALE.
    fn expect_mediated(
        &self,
        who: &Credentials,
        (number, generation): (InodeNumber, u32),
        name: &[u8],
        wish: Wish<'_>,
    ) -> Result<Inode, Errno> {
        self.sessions.state.header_of(number, generation)?;
        let inode = self.may_change_names(who, number)?;
        match wish {
            Wish::Make(_) => {}
            Wish::Remove { .. } => self.may_remove(who, number, name)?,
            Wish::Link {
                inode: (linked, generation),
            } => {
                self.sessions.state.header_of(linked, generation)?;
                // As who adds a name by himself has to own it for that.
                self.sessions.check_own(who.session, linked)?;
            }
        }
        match inode.mediation().is_mediated() {
            true => Ok(inode),
            false => Err(Errno::BUSY),
        }
    }

    /// That a user may change names of a directory, as far as that is verified. ENOTDIR, EACCES, ESTALE.
    pub(super) fn may_change_names(
        &self,
        who: &Credentials,
        number: InodeNumber,
    ) -> Result<Inode, Errno> {
        let inode = *self.sessions.state.shadow(number).ok_or(Errno::STALE)?;
        if inode.kind() != Some(FileKind::Directory) {
            return Err(Errno::NOTDIR);
        }
        match who.may(&inode, 0o3) && self.sessions.state.may_reach(who, number) {
            true => Ok(inode),
            false => Err(Errno::ACCESS),
        }
    }

    /// That a sticky directory lets a user take a name away, as far as that is verified. EPERM.
    pub(super) fn may_remove(
        &self,
        who: &Credentials,
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<(), Errno> {
        let state = &self.sessions.state;
        let victim = state.lookup(directory, name);
        let victim = victim.and_then(|found| state.shadow(found.inode));
        match (state.shadow(directory), victim) {
            (Some(directory), Some(victim)) if keeps(who, directory, victim) => Err(Errno::PERM),
            _ => Ok(()),
        }
    }

    /// Until when an inode is another session's, which has not had it for as long as it may.
    pub(super) fn lease_of(&mut self, session: SessionNumber, found: Dentry) -> Option<Instant> {
        let owner = self
            .sessions
            .state
            .header_copy(found.inode)?
            .ownership
            .session();
        match owner != session && owner != 0 {
            true => self.lease_of_owner(owner, found.inode),
            false => None,
        }
    }

    /// A session changes what was found to be better mediated; `was_owned`: somebody had to give it up for that. Whether it
    /// stays so.
    pub(super) fn takes_turns(
        &mut self,
        what: (InodeNumber, u32),
        session: SessionNumber,
        was_owned: bool,
    ) -> bool {
        let mediating = &mut self.sessions.mediating;
        let began = mediating.began();
        mediating.writes(what, session, was_owned, began)
    }

    /// How what a session changes by message is shared from then on.
    pub(super) fn stays_mediated(
        &mut self,
        inode: &Inode,
        what: (InodeNumber, u32),
        session: SessionNumber,
        was_owned: bool,
    ) -> Mediation {
        match inode.mediation() {
            Mediation::Found if !self.takes_turns(what, session, was_owned) => Mediation::Auto,
            as_it_is => as_it_is,
        }
    }

    /// A directory that is removed is empty, or not, by what its owner last did: whatever is to be removed, if it is one.
    pub(super) fn take_directory(
        &mut self,
        session: SessionNumber,
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<(), Failure> {
        let victim = self.sessions.state.lookup(directory, name);
        let Some(victim) = victim.filter(|found| found.kind == FileKind::Directory) else {
            return Ok(());
        };
        let header = self.sessions.state.header_copy(victim.inode);
        let owner = header.map_or(0, |header| header.ownership.session());
        if owner == session {
            self.access().fold(owner, &[victim.inode], After::Release)?;
        } else if owner != 0 {
            // Whatever is wrong with what another session has made of it.
            self.owners().reclaim(owner, &[victim.inode])?;
        }
        Ok(())
    }
}

/// A name of a directory, in the change that makes it or takes it away.
struct Place<'a, 'b, 'c> {
    change: &'a mut Change<'b>,
    who: &'c Credentials,
    directory: InodeNumber,
    name: &'c [u8],
    mediation: Mediation,
}

impl Place<'_, '_, '_> {
    fn parent(&self) -> Result<Inode, Errno> {
        let inode = self.change.inode(self.directory).ok_or(Errno::STALE)?;
        match inode.links {
            0 => Err(Errno::NOENT),
            _ if !self.who.may(&inode, 0o3) => Err(Errno::ACCESS),
            _ => Ok(inode),
        }
    }

    /// Stores the directory, of which names have changed.
    fn store(&mut self, mut parent: Inode) {
        let time = now();
        (parent.modified, parent.changed) = (time, time);
        parent.mediation = self.mediation as u32;
        self.change.set_inode(parent);
    }

    /// Gives number and generation.
    fn make(mut self, new: New<'_>) -> Result<(InodeNumber, u32), Errno> {
        let New { kind, mode, .. } = new;
        let (uid, gid) = new.owner;
        let is_own = self.who.uid == uid && self.who.in_group(gid) && !new.is_real_device();
        if !is_own && !self.who.is_root() {
            return Err(Errno::PERM);
        }
        let parent = self.parent()?;
        if directory::find(self.change, &parent, self.name)?.is_some() {
            return Err(Errno::EXIST);
        }
        let is_directory = kind == FileKind::Directory;
        if is_directory && parent.links >= LINKS_MAX {
            return Err(Errno::MLINK);
        }
        let hands_down = parent.mode & SET_GROUP_ID != 0;
        let gid = if hands_down { parent.gid } else { gid };
        let mut mode = mode & 0o7777;
        if is_directory {
            mode |= parent.mode & SET_GROUP_ID;
        } else if mode & SET_GROUP_ID != 0
            && mode & GROUP_EXECUTE != 0
            && !self.who.is_root()
            && !self.who.in_group(gid)
        {
            mode &= !SET_GROUP_ID;
        }
        let number = self.change.take_number()?;
        self.change.state.pool.allocate_headers(number)?;
        let fold = self.change.state.numbers.fold();
        let header = self.change.header(number)?;
        header.generation = header.generation.max(1);
        header.ownership = arck_core_state::header::Ownership::SHARED;
        header.branch_slot = 0;
        header.fold = fold;
        let generation = header.generation;
        apply::created(
            self.change,
            &Creation {
                inode: number,
                generation,
                parent: self.directory,
                kind,
                mode,
                uid,
                gid,
                created: now(),
                names: 1,
            },
        )?;
        if !new.target.is_empty() || new.number != 0 {
            self.fill(number, new)?;
        }
        let dentry = Dentry {
            inode: number,
            generation,
            kind,
        };
        // As making it has left it.
        let mut parent = self.parent()?;
        directory::add(self.change, &mut parent, self.name, dentry)?;
        self.change
            .note_name((self.directory, self.name), None, Some(dentry));
        parent.links += u32::from(is_directory);
        self.store(parent);
        Ok((number, generation))
    }

    /// What a new inode has in it from the beginning: durable before anything leads to it, by the first fence of the change.
    fn fill(&mut self, number: InodeNumber, new: New<'_>) -> Result<(), Errno> {
        let mut inode = self.change.inode(number).ok_or(Errno::IO)?;
        inode.size = u64::from(new.number);
        if !new.target.is_empty() {
            self.change.allocate_for_readers(&inode);
            let mut pages = Pages::new(&inode);
            pages.replace(self.change, &mut inode, 0, |content| {
                content[..new.target.len()].copy_from_slice(new.target);
            })?;
            inode.root = pages.root();
            inode.size = new.target.len() as u64;
        }
        self.change.set_inode(inode);
        Ok(())
    }

    /// Gives what has another name now.
    fn link(
        mut self,
        (number, generation): (InodeNumber, u32),
        dying: &mut Vec<InodeNumber>,
    ) -> Result<Dentry, Errno> {
        let mut parent = self.parent()?;
        if directory::find(self.change, &parent, self.name)?.is_some() {
            return Err(Errno::EXIST);
        }
        let mut inode = self.change.inode(number).ok_or(Errno::STALE)?;
        let kind = inode.kind().ok_or(Errno::IO)?;
        match kind {
            FileKind::Directory => return Err(Errno::PERM),
            _ if inode.links == 0 => return Err(Errno::NOENT),
            _ if inode.links >= LINKS_MAX => return Err(Errno::MLINK),
            _ => {}
        }
        inode.changed = now();
        self.change.set_inode(inode);
        apply::change_links(self.change, number, 1, dying)?;
        let dentry = Dentry {
            inode: number,
            generation,
            kind,
        };
        directory::add(self.change, &mut parent, self.name, dentry)?;
        self.change
            .note_name((self.directory, self.name), None, Some(dentry));
        self.store(parent);
        Ok(dentry)
    }

    /// Gives what has other names.
    fn remove(
        mut self,
        is_directory: bool,
        dying: &mut Vec<InodeNumber>,
    ) -> Result<Option<InodeNumber>, Errno> {
        let mut parent = self.parent()?;
        let found = directory::find(self.change, &parent, self.name)?.ok_or(Errno::NOENT)?;
        let mut victim = self.change.inode(found.inode).ok_or(Errno::IO)?;
        if keeps(self.who, &parent, &victim) {
            return Err(Errno::PERM);
        }
        match (is_directory, found.kind == FileKind::Directory) {
            (true, false) => return Err(Errno::NOTDIR),
            (false, true) => return Err(Errno::ISDIR),
            _ => {}
        }
        if is_directory && victim.entries != 0 {
            return Err(Errno::NOTEMPTY);
        }
        victim.changed = now();
        let has_others = !is_directory && victim.links > 1;
        self.change.set_inode(victim);
        directory::remove(self.change, &mut parent, self.name)?;
        self.change
            .note_name((self.directory, self.name), Some(found), None);
        parent.links = parent.links.saturating_sub(u32::from(is_directory));
        self.store(parent);
        if is_directory {
            apply::orphan(self.change, found.inode)?;
            dying.push(found.inode);
        } else {
            apply::change_links(self.change, found.inode, -1, dying)?;
        }
        Ok(has_others.then_some(found.inode))
    }
}
