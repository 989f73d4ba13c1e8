//! Where programs meet in the kernel, for who asks: see [`crate::handed::named_pipes`] and [`crate::handed::sockets`].

use crate::core::Core;
use crate::handed::named_pipes::Opened;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, InodeNumber};
use arck_protocol::socket::Access;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

impl Core {
    /// A named pipe, for a session that may open it in that mode: see
    /// [`Call::OpenPipe`](arck_protocol::socket::Call::OpenPipe).
    pub fn open_pipe(
        &mut self,
        session: SessionNumber,
        key: (InodeNumber, u32),
        (access, waits): (Access, bool),
    ) -> Result<Opened, Errno> {
        let wanted = match access {
            Access::Read => 4,
            Access::Write => 2,
            Access::ReadWrite => 6,
        };
        self.expect_open(session, key, Some(FileKind::Pipe), wanted)?;
        let user = self.sessions.user_of(session).ok_or(Errno::NOENT)?;
        let state = &self.sessions.state;
        let is_there = |(number, generation)| state.header_of(number, generation).is_ok();
        let pipes = &mut self.named_pipes;
        let asked = (access, waits);
        let opened = state
            .pool
            .with_room(|| pipes.open_one(state.pool.directory(), key, asked, user, is_there));
        opened.map_err(|errno| match errno {
            Errno::DQUOT | Errno::MFILE => Errno::NFILE,
            other => other,
        })
    }

    /// Binds a socket to the inode of one, for who owns that: see
    /// [`Call::BindSocket`](arck_protocol::socket::Call::BindSocket).
    pub fn bind_socket(
        &mut self,
        session: SessionNumber,
        key: (InodeNumber, u32),
        (socket, path): (OwnedFd, &[u8]),
    ) -> Result<(), Errno> {
        self.expect_open(session, key, Some(FileKind::Socket), 0)?;
        let who = self.sessions.who(session)?;
        let inode = self.sessions.state.shadow(key.0).ok_or(Errno::STALE)?;
        // Whoever connects relies on it that the socket is its owner's.
        if who.uid != inode.uid && !who.is_root() {
            return Err(Errno::ACCESS);
        }
        let state = &self.sessions.state;
        let is_there = |(number, generation)| state.header_of(number, generation).is_ok();
        let directory = state.pool.directory();
        let bound = self
            .sockets
            .bind(directory, key, (socket, path), who.uid, is_there);
        bound.map_err(|errno| match errno {
            Errno::DQUOT => Errno::NOSPC,
            other => other,
        })
    }

    /// By which one connects to what is bound to an inode, for who may write that: see
    /// [`Call::FindSocket`](arck_protocol::socket::Call::FindSocket).
    pub fn find_socket(
        &mut self,
        session: SessionNumber,
        key: (InodeNumber, u32),
    ) -> Result<OwnedFd, Errno> {
        self.expect_open(session, key, Some(FileKind::Socket), 2)?;
        self.sockets.find(key)
    }

    /// Removes what stands for inodes that are gone, of so many of each kind: to be called now and then, and at the end.
    pub fn tidy_meeting(&mut self, most: usize) {
        let state = &self.sessions.state;
        let is_there = |(number, generation): (InodeNumber, u32)| {
            let header = state.header_of(number, generation);
            header.is_ok_and(|header| header.kind != HeaderKind::Free)
        };
        self.named_pipes.tidy(most, is_there);
        self.sockets.tidy(most, is_there);
    }

    /// Checks that an inode is of a kind, if one is said, and that a session may open it for all of `wanted` (4 = read, 2 = write).
    /// ESTALE, EACCES.
    pub(super) fn expect_open(
        &mut self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
        kind: Option<FileKind>,
        wanted: u32,
    ) -> Result<(), Errno> {
        self.sessions.state.header_of(number, generation)?;
        // What its owner has changed of its mode is to count, unless that was folded a moment ago.
        let _ = self.owners().recall(session, &[number]);
        let inode = self.sessions.state.shadow(number).ok_or(Errno::STALE)?;
        if inode.generation != generation || (kind.is_some() && inode.kind() != kind) {
            return Err(Errno::STALE);
        }
        if !self.sessions.may_open(session, number, wanted) {
            self.sessions.may_be_told(session, number, wanted)?;
        }
        Ok(())
    }
}
