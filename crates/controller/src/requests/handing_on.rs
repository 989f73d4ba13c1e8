//! Handing descriptions on, and presenting them: see [`crate::handed::descriptions`].

use crate::core::Core;
use crate::handed::descriptions::{Description, FLAGS, Known, UNWATCHED, look, make};
use crate::sessions::session::secret;
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_protocol::socket::HandedOn;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use std::time::Instant;

impl Core {
    /// See [`Call::HandOn`](arck_protocol::socket::Call::HandOn).
    pub fn hand_on(
        &mut self,
        session: SessionNumber,
        of: HandedOn,
    ) -> Result<(Description, OwnedFd), Errno> {
        let header = self
            .sessions
            .state
            .header_copy(of.inode)
            .ok_or(Errno::STALE)?;
        if header.generation != of.generation || header.kind == HeaderKind::Free {
            return Err(Errno::STALE);
        }
        let [name, _] = secret()?;
        let description = Description {
            of: HandedOn {
                flags: of.flags & FLAGS,
                ..of
            },
            name: name.max(1),
        };
        let has_right = self
            .sessions
            .may_open(session, of.inode, description.wanted());
        if !has_right {
            self.sessions
                .may_be_told(session, of.inode, description.wanted())?;
        }
        let user = self.sessions.user_of(session).ok_or(Errno::NOENT)?;
        if !self
            .sessions
            .descriptions
            .may_have_more(user, self.sessions.is_trusted(user))
        {
            return Err(Errno::AGAIN);
        }
        let pool = self.sessions.state.pool.superblock().uuid;
        let (descriptor, file) = make(&description, &pool)?;
        self.know(&description, user, has_right, file.as_fd());
        rustix::fs::fchmod(&file, Mode::empty())?;
        Ok((description, descriptor))
    }

    /// See [`Call::Claim`](arck_protocol::socket::Call::Claim).
    pub fn claim(
        &mut self,
        session: SessionNumber,
        descriptor: BorrowedFd<'_>,
    ) -> Result<Description, Errno> {
        let pool = self.sessions.state.pool.superblock().uuid;
        let description = look(descriptor, &pool).ok_or(Errno::BADF)?;
        let user = self.sessions.user_of(session).ok_or(Errno::NOENT)?;
        let of = description.of;
        let header = self
            .sessions
            .state
            .header_copy(of.inode)
            .ok_or(Errno::STALE)?;
        let is_uncommitted = header.kind == HeaderKind::Granted;
        if header.generation != of.generation
            || header.kind == HeaderKind::Free
            || is_uncommitted && header.ownership.session() != session
        {
            return Err(Errno::STALE);
        }
        // What its owner has changed of its mode is to count, unless that was folded a moment ago: then the verified
        // state is what there is, as for readers.
        let _ = self.owners().recall(session, &[of.inode]);
        let wanted = description.wanted();
        let has_right = self.sessions.may_open(session, of.inode, wanted);
        if !has_right {
            self.sessions
                .keep_claimed((of.inode, of.generation), user, wanted)?;
        }
        // Of one that an earlier controller made, or that was not watched.
        if !self.sessions.descriptions.is_known(description.name)
            && self
                .sessions
                .descriptions
                .may_have_more(user, self.sessions.is_trusted(user))
        {
            // Only the file's owner can open it, as long as its mode says so.
            let opened = rustix::fs::fchmod(descriptor, Mode::RUSR);
            self.know(&description, user, has_right, descriptor);
            if opened.is_ok() {
                rustix::fs::fchmod(descriptor, Mode::empty())?;
            }
        }
        Ok(description)
    }

    /// `file` can be opened by this process.
    fn know(
        &mut self,
        description: &Description,
        user: u32,
        has_right: bool,
        file: BorrowedFd<'_>,
    ) {
        let watched = self.sessions.watches.watch(file, description.name);
        let until = watched.is_err().then(|| Instant::now() + UNWATCHED);
        let known = Known {
            inode: description.of.inode,
            generation: description.of.generation,
            user,
            has_right,
            until,
        };
        self.sessions.descriptions.add(description.name, known);
    }

    /// Notices descriptions that were closed for good: their locks are nobody's, and what has no name, and was
    /// held for them, is free.
    pub fn forget_closed(&mut self) {
        let mut names = self.sessions.watches.closed();
        for name in &names {
            if let Some((file, of, user)) = self.kept_locks.remove(*name) {
                self.lock_files.close_one(of, user, file);
            }
        }
        names.extend(self.sessions.descriptions.due(Instant::now()));
        let inodes: Vec<InodeNumber> = names
            .into_iter()
            .filter_map(|name| self.sessions.descriptions.remove(name))
            .filter(|number| self.sessions.state.orphans.contains(*number))
            .collect();
        if !inodes.is_empty() {
            self.access().free_orphans(Some(&inodes));
        }
    }
}
