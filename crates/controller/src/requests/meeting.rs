//! Where programs meet in the kernel, for who asks: see [`crate::handed::named_pipes`].

use crate::core::Core;
use crate::handed::named_pipes::Opened;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, InodeNumber};
use arck_protocol::socket::Access;
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
        self.expect_open(session, key, FileKind::Pipe, wanted)?;
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

    /// Checks that an inode is of a kind, and that a session may open it for all of `wanted` (4 = read, 2 = write).
    /// ESTALE, EACCES.
    fn expect_open(
        &mut self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
        kind: FileKind,
        wanted: u32,
    ) -> Result<(), Errno> {
        self.sessions.state.header_of(number, generation)?;
        // What its owner has changed of its mode is to count, unless that was folded a moment ago.
        let _ = self.owners().recall(session, &[number]);
        let inode = self.sessions.state.shadow(number).ok_or(Errno::STALE)?;
        if inode.generation != generation || inode.kind() != Some(kind) {
            return Err(Errno::STALE);
        }
        if !self.sessions.may_open(session, number, wanted) {
            self.sessions.may_be_told(session, number, wanted)?;
        }
        Ok(())
    }
}
