//! What each request does (the requests are documented in [`arck_protocol::message`]).
//!
//! # Invariant
//! * A request is a private copy when it comes here; every number in it is checked before use.

use crate::access::moving::note_user;
use crate::core::Core;
use crate::fold::folding::{After, Failure};
use crate::fold::reply::Reply;
use crate::fold::touched::Touched;
use crate::pool::clock::now;
use crate::requests::change_names::{New, Wish};
use crate::requests::extended::Setting;
use crate::requests::set_attributes::Set;
use crate::sessions::arena::Grown;
use crate::sessions::fold_copies::FoldCopy;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, InodeNumber};
use arck_protocol::message::{ASKED_FOR_MAX, FOLD_COPY_MAX};
use arck_protocol::{Request, Response};
use arck_verifier::Credentials;
use rustix::io::Errno;

impl Core {
    /// Answers a request of a session; `attached` is a copy of what is attached to it.
    pub fn request(&mut self, session: SessionNumber, request: &Request, attached: &[u8]) -> Reply {
        match request {
            Request::GrantInodes { count } => self.grant_inodes(session, *count),
            Request::Acquire { inodes } | Request::Recall { inodes }
                if inodes.as_slice().len() > ASKED_FOR_MAX =>
            {
                Errno::INVAL.into()
            }
            Request::Acquire { inodes } => self.owners().acquire(session, inodes.as_slice()),
            Request::Commit { inodes, release } => {
                self.owners().commit(session, inodes.as_slice(), *release)
            }
            Request::CommitAll { release } => self.owners().commit_all_in_steps(session, *release),
            Request::Recall { inodes } => self.owners().recall(session, inodes.as_slice()),
            Request::MoveDirectory {
                from,
                from_name,
                to,
                to_name,
                flags,
            } => self.move_names(session, *from, from_name, *to, to_name, *flags),
            Request::SetOwner { inode, uid, gid } => self.set_owner(session, *inode, *uid, *gid),
            Request::GrowArena {
                branch_pages,
                delta_pages,
            } => self.grow_arena(session, *branch_pages, *delta_pages),
            Request::MoreCredits { pages, pressing } => {
                self.owners().more_credits(session, *pages, *pressing)
            }
            Request::FoldCopy {
                inode,
                fold,
                offset,
                length,
            } => self.fold_copy(session, *inode, *fold, *offset, *length),
            Request::Forget { inode } => {
                self.access().free_orphans(Some(&[*inode]));
                Reply::Now(Response::Done)
            }
            Request::Sync { inodes } => self.sync(session, inodes.as_slice()),
            Request::LookUp { directory, name } => self.look_up(session, *directory, name),
            Request::Admit { inode, contents } => self.admit(session, *inode, *contents),
            Request::Inspect { inode } => self.inspect(session, *inode),
            Request::Read {
                inode,
                generation,
                position,
                length,
            } => self.read(session, *inode, *generation, *position, *length),
            Request::Write {
                inode,
                generation,
                position,
                append,
                bytes,
            } => {
                let place = (!append).then_some(*position);
                self.write(session, (*inode, *generation), place, bytes)
            }
            Request::WriteAttached {
                inode,
                generation,
                position,
                append,
                length,
            } => {
                let place = (!append).then_some(*position);
                match *length as usize == attached.len() {
                    true => self.write(session, (*inode, *generation), place, attached),
                    false => Errno::INVAL.into(),
                }
            }
            Request::MapTogether {
                inode,
                generation,
                first,
                count,
            } => self.map_together(session, (*inode, *generation), *first, *count),
            Request::SetMediation {
                inode,
                generation,
                mediation,
            } => self.set_mediation(session, (*inode, *generation), *mediation),
            Request::MakeName {
                directory,
                generation,
                name,
                kind,
                mode,
                uid,
                gid,
                size,
                open,
                mark,
            } => match New::of(*kind, *mode, (*uid, *gid), *size, attached, (*open, *mark)) {
                Ok(new) => {
                    let wish = Wish::Make(new);
                    self.change_name(session, (*directory, *generation), name, wish)
                }
                Err(errno) => errno.into(),
            },
            Request::RemoveName {
                directory,
                generation,
                name,
                is_directory,
            } => {
                let wish = Wish::Remove {
                    directory: *is_directory,
                };
                self.change_name(session, (*directory, *generation), name, wish)
            }
            Request::LinkName {
                directory,
                generation,
                name,
                inode,
                inode_generation,
            } => {
                let wish = Wish::Link {
                    inode: (*inode, *inode_generation),
                };
                self.change_name(session, (*directory, *generation), name, wish)
            }
            Request::SetAttributes {
                inode,
                generation,
                which,
                mode,
                accessed,
                modified,
            } => {
                let set = Set::of(*which, *mode, *accessed, *modified);
                self.set_attributes(session, (*inode, *generation), set)
            }
            Request::SetExtended {
                inode,
                generation,
                name,
                how,
                length,
            } => {
                let setting = Setting::of(name, *how, *length, attached);
                self.set_extended(session, (*inode, *generation), setting)
            }
            Request::Extended {
                inode,
                generation,
                position,
                names,
            } => self.extended(session, (*inode, *generation), *position, *names),
            Request::Allocate {
                inode,
                generation,
                position,
                length,
                how,
            } => {
                let range = (*position, *length);
                self.allocate(session, (*inode, *generation), range, *how)
            }
            Request::Resize {
                inode,
                generation,
                size,
            } => self.resize(session, (*inode, *generation), *size),
            Request::List {
                inode,
                generation,
                bucket,
                skip,
            } => self.list(session, (*inode, *generation), *bucket, *skip),
            Request::DropSetId { inode } => self.drop_set_id(session, *inode),
            Request::GiveBack { segments } => self.take_segments_back(session, segments),
            Request::Ping => Reply::Now(Response::Done),
        }
    }

    /// After a change of rights: an owner that may not write the inode any more owns it no longer.
    fn give_up_unwritable(&mut self, owner: SessionNumber, number: InodeNumber) {
        if owner != 0 && self.sessions.check_own(owner, number) == Err(Errno::ACCESS) {
            // What is refused of it now is set aside when its grace is over.
            let _ = self.access().fold(owner, &[number], After::Release);
        }
    }

    fn grow_arena(&mut self, session: SessionNumber, branch_pages: u32, delta_pages: u32) -> Reply {
        if delta_pages > self.sessions.options.arena_pages {
            return Errno::NOSPC.into();
        }
        let grown = self.sessions.grow_to(session, branch_pages, delta_pages);
        match grown {
            Ok(Grown::Now) => Ok(()).into(),
            Ok(Grown::Later) => Reply::growing(),
            Err(errno) => errno.into(),
        }
    }

    fn fold_copy(
        &self,
        session: SessionNumber,
        inode: InodeNumber,
        fold: u64,
        offset: u64,
        length: u32,
    ) -> Reply {
        let length = length as usize;
        if length > FOLD_COPY_MAX {
            return Errno::INVAL.into();
        }
        let Some(session) = self.sessions.all.get(&session) else {
            return Errno::NOENT.into();
        };
        let fold_copy = session.fold_copies.find(inode, fold);
        match fold_copy {
            FoldCopy::Whole => Reply::Now(Response::Done),
            FoldCopy::Copy(_) | FoldCopy::Pieces(_) => {
                match fold_copy.arena_bytes(offset, length) {
                    Some(bytes) => Reply::Now(Response::Bytes(bytes.to_vec())),
                    None => Errno::NODATA.into(),
                }
            }
            FoldCopy::Nothing => Errno::NODATA.into(),
            FoldCopy::Lost => Errno::STALE.into(),
        }
    }

    /// fsync where the kernel's write-back is what makes durable: the session's data, then what
    /// it changed. Elsewhere everything is durable already.
    fn sync(&mut self, session: SessionNumber, inodes: &[InodeNumber]) -> Reply {
        if self.sessions.state.pool.is_paged() {
            let segments = self
                .sessions
                .all
                .get(&session)
                .map(|session| session.segments.clone())
                .unwrap_or_default();
            for segment in segments {
                let synced = self
                    .sessions
                    .state
                    .pool
                    .open_segment(segment, rustix::fs::OFlags::RDONLY)
                    .and_then(rustix::fs::fdatasync);
                if let Err(errno) = synced {
                    return errno.into();
                }
            }
            return self.owners().commit(session, inodes, false);
        }
        Reply::Now(Response::Done)
    }

    /// chown, by the rules of chown(2).
    fn set_owner(
        &mut self,
        session: SessionNumber,
        number: InodeNumber,
        uid: u32,
        gid: u32,
    ) -> Reply {
        let Some(who) = self
            .sessions
            .all
            .get(&session)
            .map(|s| s.credentials.clone())
        else {
            return Errno::NOENT.into();
        };
        let Some(header) = self.sessions.state.header_copy(number) else {
            return Errno::STALE.into();
        };
        let old = self.sessions.state.shadow(number).copied();
        // A new inode has to be created first: with the directory in which it is.
        let mut owner = header.ownership.session();
        if owner == session
            && let Err(failure) = self.access().fold(session, &[number], After::Keep)
        {
            return failure.into();
        }
        if !self.sessions.state.is_alive(number) && !self.sessions.state.orphans.contains(number) {
            return Errno::STALE.into();
        }
        if let Err(errno) = self.may_chown(&who, number, uid, gid) {
            return errno.into();
        }
        // Who may write what is mapped together does not change under those who have it mapped.
        let is_together = old.is_some_and(|inode| inode.is_together());
        if is_together && owner != 0 {
            if let Err(errno) = self.owners().reclaim(owner, &[number]) {
                return errno.into();
            }
            owner = 0;
        }
        match self.access().end_together(number, None) {
            Ok(None) => {}
            Ok(Some(due)) => return Reply::Later(due),
            Err(errno) => return errno.into(),
        }
        let is_new = self.sessions.state.shadow(number).is_none_or(|inode| {
            (uid != u32::MAX && uid != inode.uid) || (gid != u32::MAX && gid != inode.gid)
        });
        let asker = who.clone();
        let change_owner = move |change: &mut crate::state::change::Change<'_>,
                                 _: &mut Vec<InodeNumber>| {
            let mut inode = change.inode(number).ok_or(Errno::STALE)?;
            let set_id = arck_verifier::set_id_bits(&asker, &inode);
            if uid != u32::MAX {
                inode.uid = uid;
            }
            if gid != u32::MAX {
                inode.gid = gid;
            }
            if inode.kind() != Some(FileKind::Directory) {
                inode.mode &= !set_id;
            }
            inode.changed = now();
            change.set_inode(inode);
            match is_new {
                true => note_user(change, &inode),
                false => Ok(()),
            }
        };
        let mut folded =
            self.access()
                .fold_and(owner, &[number], After::Keep, change_owner.clone());
        if owner == 0 || matches!(folded, Err(Failure::Violation(_) | Failure::Quiescing(_))) {
            // Nobody's, or its owner's delta is refused: the verified state changes alone.
            folded = self.folding().change_alone(change_owner);
        }
        match folded {
            Ok(()) => {
                if !is_new {
                    return Reply::Now(Response::Done);
                }
                self.give_up_unwritable(owner, number);
                self.access()
                    .tighten(vec![Touched::attributes(number, old, true)]);
                Reply::Now(Response::Done)
            }
            Err(failure) => failure.into(),
        }
    }

    /// See [`Request::DropSetId`].
    fn drop_set_id(&mut self, session: SessionNumber, number: InodeNumber) -> Reply {
        let Some(who) = self
            .sessions
            .all
            .get(&session)
            .map(|s| s.credentials.clone())
        else {
            return Errno::NOENT.into();
        };
        let Some(header) = self.sessions.state.header_copy(number) else {
            return Errno::STALE.into();
        };
        let owner = header.ownership.session();
        // A new inode has to be created first, and the mode to be what its owner last made it.
        if owner != 0
            && let Err(failure) = self.access().fold(owner, &[number], After::Keep)
            && owner == session
        {
            return failure.into();
        }
        // Who owns it may have had it open when he lost the right.
        if owner != session && !self.sessions.may_open(session, number, 0o2) {
            return Errno::ACCESS.into();
        }
        let drop_bits = move |change: &mut crate::state::change::Change<'_>,
                              _: &mut Vec<InodeNumber>| {
            let mut inode = change.inode(number).ok_or(Errno::STALE)?;
            if inode.kind() == Some(FileKind::File)
                && let Some(mode) = arck_verifier::mode_after_write(&who, &inode)
            {
                inode.mode = (inode.mode & !0o7777) | mode;
                inode.changed = now();
                change.set_inode(inode);
            }
            Ok(())
        };
        let mut dropped = self
            .access()
            .fold_and(owner, &[number], After::Keep, drop_bits.clone());
        if owner == 0 || matches!(dropped, Err(Failure::Violation(_) | Failure::Quiescing(_))) {
            dropped = self.folding().change_alone(drop_bits);
        }
        match dropped {
            Ok(()) => Reply::Now(Response::Done),
            Err(failure) => failure.into(),
        }
    }

    fn may_chown(
        &self,
        who: &Credentials,
        number: InodeNumber,
        uid: u32,
        gid: u32,
    ) -> Result<(), Errno> {
        let inode = self.sessions.state.shadow(number).ok_or(Errno::STALE)?;
        if !self.sessions.state.may_reach(who, number) {
            return Err(Errno::ACCESS);
        }
        if who.is_root() {
            return Ok(());
        }
        if uid == u32::MAX && gid == u32::MAX && who.uid != inode.uid {
            // Anybody may, as on Linux, as long as no set-id bits would go: it moves the time of
            // change.
            let is_directory = inode.kind() == Some(FileKind::Directory);
            return match arck_verifier::set_id_bits(who, inode) != 0 && !is_directory {
                true => Err(Errno::PERM),
                false => Ok(()),
            };
        }
        let keeps_user = uid == u32::MAX || uid == inode.uid;
        let may_group = gid == u32::MAX || gid == inode.gid || who.in_group(gid);
        if who.uid == inode.uid && keeps_user && may_group {
            Ok(())
        } else {
            Err(Errno::PERM)
        }
    }
}
