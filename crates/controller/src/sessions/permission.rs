//! What a session may open, own and look at.

use crate::handed::descriptions::look;
use crate::sessions::Sessions;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, HeaderCopy, Inode, InodeNumber};
use arck_verifier::{Credentials, VerifiedState};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// Whether a session may become the owner of an inode.
fn may_own(who: &Credentials, inode: &Inode) -> bool {
    if who.is_root() || who.uid == inode.uid {
        return true;
    }
    match inode.kind() {
        Some(FileKind::Directory) => who.may(inode, 0o3),
        // A symbolic link's mode says nothing; only its owner changes it.
        Some(FileKind::Link) | None => false,
        Some(_) => who.may(inode, 0o2),
    }
}

impl Sessions {
    /// Whether a session's user can reach an inode, and may open it for all of `wanted` (4 = read,
    /// 2 = write) or owns the file; what is not committed yet, its session may.
    pub(crate) fn may_open(
        &self,
        session: SessionNumber,
        number: InodeNumber,
        wanted: u32,
    ) -> bool {
        let Some(who) = self.all.get(&session).map(|s| &s.credentials) else {
            return false;
        };
        match self.state.inode(number) {
            Some(inode) => {
                (who.uid == inode.uid || who.may(&inode, wanted))
                    && self.state.may_reach(who, number)
            }
            None => {
                let header = self.state.header_copy(number);
                header.is_some_and(|header| header.ownership.session() == session)
            }
        }
    }

    /// Checks that a session may become the owner of an inode. ESTALE, EACCES.
    pub(crate) fn check_own(
        &self,
        session: SessionNumber,
        number: InodeNumber,
    ) -> Result<HeaderCopy, Errno> {
        let header = self.state.header_copy(number).ok_or(Errno::STALE)?;
        let who = &self.all.get(&session).ok_or(Errno::NOENT)?.credentials;
        match header.kind {
            HeaderKind::Alive | HeaderKind::Orphan => {
                let inode = self.state.inode(number).ok_or(Errno::STALE)?;
                let may = may_own(who, &inode) || self.may_remove_empty(who, &inode);
                if may && self.state.may_reach(who, number) {
                    Ok(header)
                } else {
                    Err(Errno::ACCESS)
                }
            }
            HeaderKind::Granted if header.ownership.session() == session => Ok(header),
            _ => Err(Errno::STALE),
        }
    }

    /// Whether an inode is an empty directory that a user may take away, whosever it is: whom its
    /// parent lets do that. He may put nothing into it, which the verifier sees to.
    fn may_remove_empty(&self, who: &Credentials, inode: &Inode) -> bool {
        inode.kind() == Some(FileKind::Directory)
            && inode.entries == 0
            && inode.number != arck_core_state::ROOT_INODE
            && self
                .state
                .directory(inode.parent)
                .is_some_and(|parent| who.may(parent, 0o3))
    }

    /// ETXTBSY if another session has a writable map of one of the inodes.
    ///
    /// Needs no barrier of its own: such a map is listed and fenced by who owns the inode then and
    /// finds it unmarked afterwards. It has been taken from its owner, which marked it and was
    /// followed by a barrier; so the map is seen here, or its session saw the mark. A map that is
    /// listed later is not placed before its session owns the inode.
    pub fn refuse_mapped(
        &self,
        session: SessionNumber,
        inodes: &[InodeNumber],
    ) -> Result<(), Errno> {
        if self.all.len() < 2 {
            return Ok(());
        }
        let is_own = |number| {
            let header = self.state.header_copy(number);
            header.is_some_and(|header| header.ownership.session() == session)
        };
        match inodes
            .iter()
            .any(|&number| !is_own(number) && self.is_mapped_writable(session, number))
        {
            true => Err(Errno::TXTBSY),
            false => Ok(()),
        }
    }

    pub fn who(&self, session: SessionNumber) -> Result<Credentials, Errno> {
        let session = self.all.get(&session).ok_or(Errno::NOENT)?;
        Ok(session.credentials.clone())
    }

    /// Whether a descriptor is of a description of that name, which is watched.
    pub(crate) fn is_watched(&self, descriptor: BorrowedFd<'_>, name: u64) -> bool {
        let pool = self.state.pool.superblock().uuid;
        let known = self.descriptions.known.get(&name);
        known.is_some_and(|known| known.until.is_none())
            && look(descriptor, &pool).is_some_and(|description| description.name == name)
    }

    /// Whether anybody has been handed an inode, and has not closed it.
    pub(crate) fn is_handed_on(&self, number: InodeNumber) -> bool {
        let generation = || Some(self.state.header_copy(number)?.generation);
        generation().is_some_and(|generation| self.descriptions.hold(number, generation))
    }
}
