//! Mode and times by message, of what nobody owns for what changes it: mediated files and directories, and files that sessions
//! have mapped together.
//!
//! # Invariants
//! * What a user may set is what a fold of the same would let him set.
//! * Who may write what sessions have mapped together does not change under them: its mode is not set here.

use crate::core::Core;
use crate::fold::reply::Reply;
use crate::fold::tightened::of_mode;
use crate::pool::clock::now;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, Inode, InodeNumber, Mediation};
use arck_protocol::message::which;
use arck_verifier::{Credentials, may_touch};
use rustix::io::Errno;
use std::time::Instant;

/// What gives a new inode its directory's group.
const SET_GROUP_ID: u32 = 0o2000;

/// What is to be set.
#[derive(Clone, Copy)]
pub struct Set {
    mode: Option<u32>,
    /// Nanoseconds since the epoch.
    accessed: Option<i64>,
    modified: Option<i64>,
}

impl Set {
    /// EINVAL: nothing, or what there is not.
    pub fn of(said: u32, mode: u32, accessed: u64, modified: u64) -> Result<Set, Errno> {
        if said == 0 || said & !which::ALL != 0 || said & which::MODE != 0 && mode > 0o7777 {
            return Err(Errno::INVAL);
        }
        let has = |bit| said & bit != 0;
        Ok(Set {
            mode: has(which::MODE).then_some(mode),
            accessed: has(which::ACCESSED).then_some(accessed.cast_signed()),
            modified: has(which::MODIFIED).then_some(modified.cast_signed()),
        })
    }

    /// EPERM, EACCES.
    fn is_let(self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        if let Some(mode) = self.mode {
            if !who.is_root() && who.uid != inode.uid {
                return Err(Errno::PERM);
            }
            let inherits =
                inode.kind() == Some(FileKind::Directory) && inode.mode & SET_GROUP_ID != 0;
            let is_in_group = who.is_root() || who.in_group(inode.gid);
            if mode & SET_GROUP_ID != 0 && !inherits && !is_in_group {
                return Err(Errno::PERM);
            }
        }
        match self.mode.is_some() || may_touch(who, inode) {
            true => Ok(()),
            false => Err(Errno::ACCESS),
        }
    }

    fn apply(self, inode: &mut Inode) {
        if let Some(mode) = self.mode {
            inode.mode = inode.mode & !0o7777 | mode;
        }
        inode.accessed = self.accessed.unwrap_or(inode.accessed);
        inode.modified = self.modified.unwrap_or(inode.modified);
        inode.changed = now();
    }
}

impl Core {
    /// See [`arck_protocol::Request::SetAttributes`].
    pub fn set_attributes(
        &mut self,
        session: SessionNumber,
        what: (InodeNumber, u32),
        set: Result<Set, Errno>,
    ) -> Reply {
        let may = set.and_then(|set| {
            self.expect_settable(session, what, set)?;
            Ok(set)
        });
        let set = match may {
            Ok(set) => set,
            Err(errno) => return errno.into(),
        };
        if let Some(due) = self.put_off(session, what.0) {
            return Reply::Later(due);
        }
        self.try_set_attributes(session, what, set).into()
    }

    fn try_set_attributes(
        &mut self,
        session: SessionNumber,
        what: (InodeNumber, u32),
        set: Set,
    ) -> Result<(), Errno> {
        let inode = self.expect_settable(session, what, set)?;
        let was_owned = self.take_mediated(&inode)?;
        // Its owner may have changed that.
        let old = self.expect_settable(session, what, set)?;
        let mediation = self.stays_mediated(&old, what, session, was_owned);
        let mut new = old;
        // What others have set since then would be set back.
        let keeps_other = self.sessions.has_unanswered(session);
        self.access().change_inode(what.0, |change| {
            new = change.inode(what.0).ok_or(Errno::STALE)?;
            set.apply(&mut new);
            new.set_mediation(mediation);
            change.set_inode(new);
            // Its times change by names, too, of which nobody is told this; and who sets one of them has read it, or changed it.
            let is_told = set.mode.is_some() || set.accessed.is_some() && set.modified.is_some();
            if new.kind() == Some(FileKind::Directory) && is_told {
                change.note_attributes(what.0);
            }
            if !keeps_other {
                change.completes_request();
            }
            Ok(())
        })?;
        if set.mode.is_some() {
            let touched = of_mode(&old, &new);
            self.access().tighten(vec![touched]);
        }
        if mediation == Mediation::Found {
            self.sessions.mediating.served(what, Instant::now());
        }
        Ok(())
    }

    /// That an inode goes by message, and that a session may set that of it. EBUSY, EPERM, EACCES, ESTALE.
    fn expect_settable(
        &self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
        set: Set,
    ) -> Result<Inode, Errno> {
        self.sessions.state.header_of(number, generation)?;
        let who = self.sessions.who(session)?;
        let inode = *self.sessions.state.shadow(number).ok_or(Errno::STALE)?;
        if !self.sessions.state.may_reach(&who, number) {
            return Err(Errno::ACCESS);
        }
        set.is_let(&who, &inode)?;
        match inode.goes_by_message() && !(inode.is_together() && set.mode.is_some()) {
            true => Ok(inode),
            false => Err(Errno::BUSY),
        }
    }
}
