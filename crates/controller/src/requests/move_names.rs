//! Renames that the controller does itself: a directory to another parent, exchanges, and all of mediated directories.
//!
//! # Invariants
//! * There is one thread, so there is one such move at a time: no two can close a cycle.
//! * Everything is checked inside the change that does it, against the parents as just folded. What is wrong
//!   with a move is told of a state that has been committed: a change that fails is dropped, and with it what it
//!   had folded of operations of which their session shows nothing yet.
//! * Errors are those of renameat2(2).

use crate::core::Core;
use crate::fold::folding::{After, Failure};
use crate::fold::reply::Reply;
use crate::fold::touched::Touched;
use crate::pool::clock::now;
use crate::sessions::credits::PAGES_PER_DELTA_PAGE;
use crate::state::apply::{self, directory};
use crate::state::change::Change;
use arck_core_state::directory::Dentry;
use arck_core_state::geometry::{LINKS_MAX, SessionNumber};
use arck_core_state::{FileKind, Inode, InodeNumber, Mediation, NAME_MAX, ROOT_INODE};
use arck_protocol::Response;
use arck_verifier::{Credentials, VerifiedState};
use rustix::io::Errno;
use std::cell::Cell;

/// RENAME_NOREPLACE.
const NO_REPLACE: u32 = 1;
/// RENAME_EXCHANGE.
const EXCHANGE: u32 = 2;
/// The sticky bit.
const STICKY: u32 = 0o1000;

/// One end of the move.
#[derive(Clone, Copy)]
struct End<'a> {
    directory: InodeNumber,
    name: &'a [u8],
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() {
        return Err(Errno::NOENT);
    }
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    if name == b"." || name == b".." {
        return Err(Errno::BUSY);
    }
    if name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(Errno::INVAL);
    }
    Ok(())
}

impl Core {
    /// See [`arck_protocol::Request::MoveDirectory`]. Takes ownership of the parents if the
    /// session does not have it (any more).
    pub fn move_names(
        &mut self,
        session: SessionNumber,
        from: InodeNumber,
        from_name: &[u8],
        to: InodeNumber,
        to_name: &[u8],
        flags: u32,
    ) -> Reply {
        if flags & !(NO_REPLACE | EXCHANGE) != 0 || flags == NO_REPLACE | EXCHANGE {
            return Errno::INVAL.into();
        }
        if let Err(errno) = check_name(from_name).and_then(|()| check_name(to_name)) {
            return errno.into();
        }
        let (from, to) = (
            End {
                directory: from,
                name: from_name,
            },
            End {
                directory: to,
                name: to_name,
            },
        );
        let ends = [from.directory, to.directory];
        let is_mediated = ends.iter().all(|&number| {
            let inode = self.sessions.state.shadow(number);
            inode.is_some_and(|inode| {
                inode.kind() == Some(FileKind::Directory) && inode.mediation().is_mediated()
            })
        });
        let removed = self.sessions.state.lookup(to.directory, to_name);
        let removed = removed.filter(|_| flags & EXCHANGE == 0);
        if is_mediated {
            // Whoever may not is not let take them from their owners.
            let target = removed.map(|_| (to.directory, to_name));
            let names = [(from.directory, from_name)].into_iter().chain(target);
            let may = self.sessions.who(session).and_then(|who| {
                ends.iter()
                    .try_for_each(|&number| self.may_change_names(&who, number).map(|_| ()))
                    .and_then(|()| {
                        names
                            .clone()
                            .try_for_each(|(at, name)| self.may_remove(&who, at, name))
                    })
            });
            if let Err(errno) = may {
                return errno.into();
            }
            let due = ends.map(|number| self.put_off(session, number));
            let of_removed = removed.and_then(|removed| self.lease_of(session, removed));
            if let Some(due) = due.into_iter().flatten().max().max(of_removed) {
                return Reply::Later(due);
            }
        } else {
            match self.owners().acquire(session, &ends) {
                Reply::Now(Response::Done) => {}
                other => return other,
            }
        }
        let left = Cell::new(None);
        let moved = match is_mediated {
            true => self.move_mediated(session, from, to, flags, &left),
            false => self.try_move(session, from, to, flags, &left),
        };
        match moved {
            Ok(()) => {
                let mut touched = Vec::new();
                for end in [from, to] {
                    let dentry = self.sessions.state.lookup(end.directory, end.name);
                    touched.extend(
                        dentry.map(|dentry| Touched::moved(dentry, end.directory, end.name)),
                    );
                }
                touched.extend(left.take().map(Touched::unlinked));
                self.access().tighten(touched);
                Reply::Now(Response::Done)
            }
            Err(failure) => failure.into(),
        }
    }

    /// A move in directories that are nobody's, but for what no message does; what their owners have changed is folded first.
    fn move_mediated(
        &mut self,
        session: SessionNumber,
        from: End<'_>,
        to: End<'_>,
        flags: u32,
        left: &Cell<Option<InodeNumber>>,
    ) -> Result<(), Failure> {
        let who = self.sessions.who(session)?;
        let mut turns = Vec::new();
        for number in [from.directory, to.directory] {
            let inode = *self.sessions.state.shadow(number).ok_or(Errno::STALE)?;
            turns.push(((number, inode.generation), self.take_mediated(&inode)?));
        }
        if flags & EXCHANGE == 0 {
            self.take_directory(session, to.directory, to.name)?;
        }
        for number in [from.directory, to.directory] {
            // Their owners may have changed that.
            self.may_change_names(&who, number)?;
        }
        // A name, or one at each end; before it, since this folds.
        if !self.owners().make_spare(2 * PAGES_PER_DELTA_PAGE) {
            return Err(Errno::NOSPC.into());
        }
        let target = self.sessions.state.lookup(to.directory, to.name);
        // Of another one, that was done and is not answered yet, no controller would know any more.
        let keeps_other = self.sessions.has_unanswered(session);
        self.folding().change_one_of_many(|change, dying| {
            if !keeps_other {
                change.completes_request();
            }
            Move {
                change,
                who: &who,
                from,
                to,
                target,
                left,
            }
            .run(flags, dying)
        })?;
        for (turn, was_owned) in turns {
            let inode = self.sessions.state.shadow(turn.0);
            let is_found = inode.is_some_and(|inode| inode.mediation() == Mediation::Found);
            if is_found && !self.takes_turns(turn, session, was_owned) {
                // What was to be done is done.
                let _ = self.access().set_mediation(turn.0, Mediation::Auto);
            }
        }
        Ok(())
    }

    fn try_move(
        &mut self,
        session: SessionNumber,
        from: End<'_>,
        to: End<'_>,
        flags: u32,
        left: &Cell<Option<InodeNumber>>,
    ) -> Result<(), Failure> {
        let parents = [from.directory, to.directory];
        let mut wrong = None;
        for _ in 0..8 {
            self.access().fold(session, &parents, After::Keep)?;
            if flags & EXCHANGE == 0 {
                self.take_directory(session, to.directory, to.name)?;
            }
            let target = self.sessions.state.lookup(to.directory, to.name);
            let who = self.sessions.who(session)?;
            let move_in = |change: &mut Change<'_>, dying: &mut Vec<InodeNumber>| {
                Move {
                    change,
                    who: &who,
                    from,
                    to,
                    target,
                    left,
                }
                .run(flags, dying)
            };
            if wrong.is_some() {
                // The change is dropped: nothing is moved by it.
                move_in(&mut Change::new(&mut self.sessions.state), &mut Vec::new())?;
            }
            // A name, or one at each end, beside what is folded; before it, since this folds.
            if !self.owners().make_spare(PAGES_PER_DELTA_PAGE) {
                return Err(Errno::NOSPC.into());
            }
            let moved = self
                .access()
                .fold_and(session, &parents, After::Renew, |change, dying| {
                    let to_inode = parent(change, to.directory)?;
                    if directory::find(change, &to_inode, to.name)? != target {
                        // The session goes on working: look again.
                        return Err(Errno::AGAIN);
                    }
                    change.completes_request();
                    let moved = move_in(change, dying);
                    wrong = moved.err();
                    moved
                });
            match moved {
                Err(Failure::Errno(Errno::AGAIN)) => {}
                // Whether it is, shows what is folded.
                Err(Failure::Errno(errno)) if wrong == Some(errno) => {}
                other => return other,
            }
        }
        Err(wrong.unwrap_or(Errno::BUSY).into())
    }
}

fn parent(change: &Change<'_>, number: InodeNumber) -> Result<Inode, Errno> {
    let inode = change.inode(number).ok_or(Errno::STALE)?;
    if inode.kind() != Some(FileKind::Directory) {
        return Err(Errno::NOTDIR);
    }
    if inode.links == 0 {
        return Err(Errno::NOENT);
    }
    Ok(inode)
}

/// Whether `inner` is `outer` or below it.
fn is_within(change: &Change<'_>, inner: InodeNumber, outer: InodeNumber) -> Result<bool, Errno> {
    let mut at = inner;
    // No path is longer than there are inodes; a cycle would be damage.
    for _ in 0..change.state.pool.geometry().inode_count {
        if at == outer {
            return Ok(true);
        }
        if at == ROOT_INODE {
            return Ok(false);
        }
        at = change.inode(at).ok_or(Errno::IO)?.parent;
    }
    Err(Errno::IO)
}

struct Move<'a, 'b, 'c> {
    change: &'a mut Change<'b>,
    who: &'c Credentials,
    from: End<'c>,
    to: End<'c>,
    target: Option<Dentry>,
    /// What has lost a name by the move, and has others.
    left: &'c Cell<Option<InodeNumber>>,
}

impl Move<'_, '_, '_> {
    fn run(mut self, flags: u32, dying: &mut Vec<InodeNumber>) -> Result<(), Errno> {
        let from = parent(self.change, self.from.directory)?;
        let source = directory::find(self.change, &from, self.from.name)?.ok_or(Errno::NOENT)?;
        let exchange = flags & EXCHANGE != 0;
        match self.target {
            Some(_) if flags & NO_REPLACE != 0 => return Err(Errno::EXIST),
            None if exchange => return Err(Errno::NOENT),
            _ => {}
        }
        self.check_permission(source)?;
        if let Some(target) = self.target {
            if target.inode == source.inode {
                return Ok(());
            }
            if exchange
                && target.kind == FileKind::Directory
                && is_within(self.change, self.from.directory, target.inode)?
            {
                return Err(Errno::INVAL);
            }
        }
        if source.kind == FileKind::Directory
            && is_within(self.change, self.to.directory, source.inode)?
        {
            return Err(Errno::INVAL);
        }
        match self.target {
            Some(target) if exchange => self.exchange(source, target),
            Some(target) => {
                self.remove_target(source, target, dying)?;
                self.move_source(source)
            }
            None => self.move_source(source),
        }
    }

    fn check_permission(&self, source: Dentry) -> Result<(), Errno> {
        let ends = [
            (self.from.directory, Some(source)),
            (self.to.directory, self.target),
        ];
        for (number, dentry) in ends {
            let directory = parent(self.change, number)?;
            if !self.who.may(&directory, 0o3) {
                return Err(Errno::ACCESS);
            }
            let Some(dentry) = dentry else { continue };
            let inode = self.change.inode(dentry.inode).ok_or(Errno::IO)?;
            if directory.mode & STICKY != 0
                && !self.who.is_root()
                && self.who.uid != directory.uid
                && self.who.uid != inode.uid
            {
                return Err(Errno::PERM);
            }
            // Its entry `..` changes, so it has to be writable.
            if dentry.kind == FileKind::Directory
                && self.from.directory != self.to.directory
                && !self.who.may(&inode, 0o2)
                && (number == self.from.directory || self.target.is_none())
            {
                return Err(Errno::ACCESS);
            }
        }
        Ok(())
    }

    fn remove_target(
        &mut self,
        source: Dentry,
        target: Dentry,
        dying: &mut Vec<InodeNumber>,
    ) -> Result<(), Errno> {
        let is_directory = |dentry: Dentry| dentry.kind == FileKind::Directory;
        match (is_directory(source), is_directory(target)) {
            (true, false) => return Err(Errno::NOTDIR),
            (false, true) => return Err(Errno::ISDIR),
            _ => {}
        }
        let mut inode = self.change.inode(target.inode).ok_or(Errno::IO)?;
        if is_directory(target) && inode.entries != 0 {
            return Err(Errno::NOTEMPTY);
        }
        inode.changed = now();
        let has_others = !is_directory(target) && inode.links > 1;
        self.left.set(has_others.then_some(target.inode));
        self.change.set_inode(inode);
        let mut to = parent(self.change, self.to.directory)?;
        directory::remove(self.change, &mut to, self.to.name)?;
        let end = (self.to.directory, self.to.name);
        self.change.note_name(end, Some(target), None);
        if is_directory(target) {
            to.links = to.links.saturating_sub(1);
        }
        self.change.set_inode(to);
        if is_directory(target) {
            apply::orphan(self.change, target.inode)?;
            dying.push(target.inode);
            Ok(())
        } else {
            apply::change_links(self.change, target.inode, -1, dying)
        }
    }

    fn move_source(&mut self, source: Dentry) -> Result<(), Errno> {
        let time = now();
        let mut from = parent(self.change, self.from.directory)?;
        directory::remove(self.change, &mut from, self.from.name)?;
        let end = (self.from.directory, self.from.name);
        self.change.note_name(end, Some(source), None);
        if source.kind == FileKind::Directory {
            from.links = from.links.saturating_sub(1);
        }
        (from.modified, from.changed) = (time, time);
        self.change.set_inode(from);
        let mut to = parent(self.change, self.to.directory)?;
        directory::add(self.change, &mut to, self.to.name, source)?;
        let end = (self.to.directory, self.to.name);
        self.change.note_name(end, None, Some(source));
        if source.kind == FileKind::Directory {
            to.links += 1;
            if to.links > LINKS_MAX {
                return Err(Errno::MLINK);
            }
        }
        (to.modified, to.changed) = (time, time);
        self.change.set_inode(to);
        self.arrive(source, self.to.directory, time)
    }

    fn arrive(&mut self, dentry: Dentry, at: InodeNumber, time: i64) -> Result<(), Errno> {
        let mut inode = self.change.inode(dentry.inode).ok_or(Errno::IO)?;
        if dentry.kind == FileKind::Directory {
            inode.parent = at;
        }
        inode.changed = time;
        self.change.set_inode(inode);
        Ok(())
    }

    fn exchange(&mut self, source: Dentry, target: Dentry) -> Result<(), Errno> {
        let time = now();
        for (end, leaves, comes) in [(self.from, source, target), (self.to, target, source)] {
            let mut inode = parent(self.change, end.directory)?;
            directory::replace(self.change, &mut inode, end.name, comes)?;
            let place = (end.directory, end.name);
            self.change.note_name(place, Some(leaves), Some(comes));
            inode.links = inode
                .links
                .saturating_sub(u32::from(leaves.kind == FileKind::Directory))
                + u32::from(comes.kind == FileKind::Directory);
            (inode.modified, inode.changed) = (time, time);
            self.change.set_inode(inode);
            self.arrive(comes, end.directory, time)?;
        }
        Ok(())
    }
}
