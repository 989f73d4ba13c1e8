//! Names of mediated directories, which change by message: see [`Request::MakeName`](arck_libfs_kit::messages::Request::MakeName).
//!
//! # Invariants
//! * Nothing is asked inside an operation or under a lock: an attempt ends with what is to be sent.
//! * What an attempt finds wrong with a change is told without a message. What it finds right the controller looks at once more.
//! * A directory that this session owns changes as any other.

use super::Context;
use crate::engine::Engine;
use crate::interface::Errno;
use arck_libfs_kit::format::{FileKind, InodeNumber};
use arck_libfs_kit::messages::{Named, Request, Response};
use arck_libfs_kit::names::creations::Creation;
use arck_libfs_kit::views::{Directory, flag};

/// How often a change is sent that comes back, since something else has changed.
const TURNS: u32 = 100;

/// A name that is to be changed by message.
pub struct Sent {
    directory: (InodeNumber, u32),
    name: Vec<u8>,
}

/// What an attempt to change a name came to.
pub enum Changed<T> {
    Here(T),
    ByMessage(Sent),
}

impl<T> Changed<T> {
    pub fn map<U>(self, what: impl FnOnce(T) -> U) -> Changed<U> {
        match self {
            Changed::Here(done) => Changed::Here(what(done)),
            Changed::ByMessage(sent) => Changed::ByMessage(sent),
        }
    }
}

impl Context<'_> {
    /// What is to be sent for a name of a directory to change; `None`: this session changes it by itself.
    #[inline(always)]
    pub fn by_message(&self, directory: Directory, name: &[u8]) -> Option<Sent> {
        self.goes_by_message(directory).then(|| Sent {
            directory: (directory.number(), directory.generation()),
            name: name.to_vec(),
        })
    }

    /// Whether names of a directory change by message: it is mediated, and this session does not own it.
    #[inline(always)]
    pub fn goes_by_message(&self, directory: Directory) -> bool {
        directory.has(flag::MEDIATED)
            && directory.expected().ownership.session() != self.session.number()
    }
}

/// Whether a new inode is one that a message makes: without contents, which some have from the beginning.
pub fn is_made_by_message(creation: &Creation<'_>) -> bool {
    matches!(
        creation.kind,
        FileKind::File | FileKind::Directory | FileKind::Pipe | FileKind::Socket
    )
}

impl Engine {
    /// Does something until it is done by an attempt, or by `send` of what an attempt says is to be sent. `send` gives
    /// `None` where it is to be attempted again.
    pub(crate) fn here_or_by_message<T, E: From<Errno>>(
        &self,
        mut attempt: impl FnMut() -> Result<Changed<T>, E>,
        mut send: impl FnMut(&Sent) -> Result<Option<T>, Errno>,
    ) -> Result<T, E> {
        for _ in 0..TURNS {
            match attempt()? {
                Changed::Here(done) => return Ok(done),
                Changed::ByMessage(sent) => {
                    if let Some(done) = send(&sent)? {
                        return Ok(done);
                    }
                }
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Has the controller make what an attempt has found that a message makes. Gives number and generation. Durable on
    /// return. EEXIST, EACCES, ENOSPC and so on; `None` where something else has changed: it is to be looked at again.
    pub(crate) fn make_by_message(
        &self,
        sent: &Sent,
        creation: &Creation<'_>,
    ) -> Result<Option<(InodeNumber, u32)>, Errno> {
        let named = self.send(
            sent,
            &Request::MakeName {
                directory: sent.directory.0,
                generation: sent.directory.1,
                name: sent.name.clone(),
                kind: creation.kind as u8,
                mode: creation.mode,
                uid: creation.owner.0,
                gid: creation.owner.1,
            },
        )?;
        Ok(named.map(|named| (named.inode, named.generation)))
    }

    /// The same of a name that is to be taken away.
    pub(crate) fn remove_by_message(
        &self,
        sent: &Sent,
        is_directory: bool,
    ) -> Result<Option<()>, Errno> {
        let named = self.send(
            sent,
            &Request::RemoveName {
                directory: sent.directory.0,
                generation: sent.directory.1,
                name: sent.name.clone(),
                is_directory,
            },
        )?;
        Ok(named.map(|_| ()))
    }

    fn send(&self, sent: &Sent, request: &Request) -> Result<Option<Named>, Errno> {
        let is_mediated_no_more = || {
            if let Some(inode) = self.kit().known(sent.directory.0)
                && inode.generation() == sent.directory.1
                && inode.has(flag::MEDIATED)
            {
                inode.set(flag::MEDIATED, false);
            }
        };
        match self.session.request(request) {
            Ok(Response::Bytes(told)) => {
                let named = Named::decode(&told).ok_or(Errno::PROTO)?;
                if !named.is_mediated {
                    is_mediated_no_more();
                }
                Ok(Some(named))
            }
            Ok(_) => Err(Errno::PROTO),
            Err(Errno::BUSY) => {
                is_mediated_no_more();
                Ok(None)
            }
            Err(Errno::STALE) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}
