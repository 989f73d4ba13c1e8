//! Letting a session in to what it may reach and cannot map.

use crate::core::Core;
use crate::fold::reply::Reply;
use crate::state::classes::Class;
use arck_core_state::directory::Dentry;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, InodeNumber, ROOT_INODE};
use arck_protocol::Response;
use arck_verifier::VerifiedState;
use rustix::io::Errno;
use std::time::Instant;

impl Core {
    /// See [`arck_protocol::Request::LookUp`].
    pub fn look_up(
        &mut self,
        session: SessionNumber,
        directory: InodeNumber,
        name: &[u8],
    ) -> Reply {
        match self.try_look_up(session, directory, name) {
            Ok(None) => Reply::Now(Response::Done),
            Ok(Some(dentry)) => Reply::Now(Response::Found {
                inode: dentry.inode,
                generation: dentry.generation,
                kind: dentry.kind as u8,
            }),
            Err(errno) => errno.into(),
        }
    }

    fn try_look_up(
        &mut self,
        session: SessionNumber,
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<Option<Dentry>, Errno> {
        let who = self.sessions.who(session)?;
        let inode = *self.sessions.state.shadow(directory).ok_or(Errno::STALE)?;
        if inode.kind() != Some(FileKind::Directory) {
            return Err(Errno::NOTDIR);
        }
        if !self.sessions.state.may_search(&who, directory) {
            return Err(Errno::ACCESS);
        }
        let found = self.sessions.state.lookup(directory, name);
        if let Some(dentry) = found
            && !self
                .sessions
                .state
                .admits(self.sessions.state.label_of_inode(dentry.inode), &who)
        {
            let class = self.sessions.state.search_class(directory);
            let moved = self.access().move_place(dentry.inode, class.as_ref());
            if !self
                .sessions
                .state
                .admits(self.sessions.state.label_of_inode(dentry.inode), &who)
            {
                // Where there is no class or no room for it, it is told of by message.
                match moved {
                    Ok(()) | Err(Errno::NOSPC) => self.sessions.show(session, dentry.inode),
                    Err(errno) => return Err(errno),
                }
            }
        }
        if who.may(&inode, 4) {
            // Its names one by one will do, if it is full.
            let _ = self.access().admit_contents(&who, directory);
        }
        Ok(found)
    }

    /// See [`arck_protocol::Request::Admit`].
    pub fn admit(&mut self, session: SessionNumber, number: InodeNumber, contents: bool) -> Reply {
        let admitted = self.sessions.who(session).and_then(|who| {
            let inode = *self.sessions.state.shadow(number).ok_or(Errno::STALE)?;
            if !self.sessions.state.may_reach(&who, number) {
                return Err(Errno::ACCESS);
            }
            if !self
                .sessions
                .state
                .admits(self.sessions.state.label_of_inode(number), &who)
            {
                // A directory: of all else the class of its place has just been asked.
                let class = match number {
                    ROOT_INODE => Some(Class::world()),
                    _ => self.sessions.state.search_class(inode.parent),
                };
                self.access().move_place(number, class.as_ref())?;
            }
            match contents {
                true => self.access().admit_contents(&who, number),
                false => Ok(true),
            }
        });
        match admitted {
            Ok(true) => Ok(()).into(),
            // There is more of it than is moved at once.
            Ok(false) => Reply::Later(Instant::now()),
            Err(errno) => errno.into(),
        }
    }
}
