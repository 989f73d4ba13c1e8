//! Lock files for who asks: see [`crate::handed::lock_files`] and [`crate::handed::kept_locks`].

use crate::core::Core;
use crate::handed::descriptions::{Description, look};
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::socket::Access;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;

impl Core {
    /// See [`Call::KeepLock`](arck_protocol::socket::Call::KeepLock).
    pub fn keep_lock(
        &mut self,
        session: SessionNumber,
        descriptor: BorrowedFd<'_>,
        file: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let pool = self.sessions.state.pool.superblock().uuid;
        let description = look(descriptor, &pool).ok_or(Errno::BADF)?;
        let of = description.of;
        // Not by its size, which the kernel tells when whoever writes to the pipe lets it: a lock file is known by
        // its number, and of nothing else is more asked.
        let mode = rustix::fs::fcntl_getfl(file)? & OFlags::RWMODE;
        if mode != OFlags::from_bits_retain(of.flags) & OFlags::RWMODE
            || !self.lock_files.is_of((of.inode, of.generation), file)
        {
            return Err(Errno::INVAL);
        }
        // Nobody would say when it is closed for good.
        if !self.sessions.is_watched(descriptor, description.name) {
            return Err(Errno::NOLCK);
        }
        let user = self.sessions.user_of(session).ok_or(Errno::NOENT)?;
        let is_trusted = self.sessions.is_trusted(user);
        if !self
            .kept_locks
            .may_have_more(description.name, user, is_trusted)
        {
            return Err(Errno::NOLCK);
        }
        let of = (of.inode, of.generation);
        self.kept_locks.keep(description.name, of, file, user)
    }

    /// Closes what came with [`keep_lock`](Self::keep_lock) that was answered with success.
    pub fn close_kept(&mut self, user: u32, mut received: Vec<OwnedFd>) {
        let pool = self.sessions.state.pool.superblock().uuid;
        let file = received.pop();
        let description = received.first().and_then(|of| look(of.as_fd(), &pool));
        if let (Some(file), Some(Description { of, .. })) = (file, description) {
            let of = (of.inode, of.generation);
            self.lock_files.close_one(of, user, file);
        }
    }

    /// The lock file of an inode, for a session that may open it in that mode, or has it open and could when
    /// it did. ESTALE, EACCES, ENOLCK.
    pub fn lock_file(
        &mut self,
        session: SessionNumber,
        key: (InodeNumber, u32),
        access: Access,
    ) -> Result<OwnedFd, Errno> {
        let (number, generation) = key;
        self.sessions.state.header_of(number, generation)?;
        let wanted = match access {
            Access::Read => 4,
            Access::Write => 2,
            Access::ReadWrite => 6,
        };
        if !self.sessions.may_open(session, number, wanted) {
            self.sessions.may_be_told(session, number, wanted)?;
        }
        let user = self.sessions.all.get(&session).ok_or(Errno::NOENT)?;
        let user = user.credentials.uid;
        let state = &self.sessions.state;
        let is_there = |(number, generation): (InodeNumber, u32)| {
            let header = state.header_copy(number);
            header.is_some_and(|header| header.generation == generation)
        };
        let pool = &self.sessions.state.pool;
        let files = &mut self.lock_files;
        let given = pool.with_room(|| files.give(pool.directory(), key, access, user, is_there));
        given.map_err(|errno| match errno {
            Errno::NOSPC | Errno::DQUOT => Errno::NOLCK,
            other => other,
        })
    }
}
