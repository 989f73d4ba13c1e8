//! Changes of names and attributes by message, of what is mediated: what an [attempt](crate::names::by_message) has found that is to be sent.
//!
//! # Invariants
//! * Nothing is asked inside an operation or under a lock.
//! * What the controller has answered is done, for everybody, and durable.

use crate::attributes::Set;
use crate::engine::Engine;
use crate::engine::patience::Patience;
use crate::interface::Errno;
use crate::names::by_message::{Changed, Sent};
use arck_libfs_kit::format::{FileKind, InodeNumber};
use arck_libfs_kit::messages::{Named, Request, Response, which};
use arck_libfs_kit::names::creations::Creation;
use arck_libfs_kit::views::flag;

impl Engine {
    /// Does something until it is done by an attempt, or by `send` of what an attempt says is to be sent. What the controller
    /// knows better is attempted again: which directory it is, that it is mediated, and that it may be reached, which it may not be for a
    /// moment while it is moved; an attempt that finds it so itself says so.
    pub(crate) fn here_or_by_message<T, S, E: From<Errno>>(
        &self,
        mut attempt: impl FnMut() -> Result<Changed<T, S>, E>,
        mut send: impl FnMut(&S) -> Result<T, Errno>,
    ) -> Result<T, E> {
        let mut patience = Patience::default();
        loop {
            let last = match attempt()? {
                Changed::Here(done) => return Ok(done),
                Changed::ByMessage(sent) => match send(&sent) {
                    Err(errno @ (Errno::STALE | Errno::ACCESS)) => errno,
                    Err(Errno::BUSY | Errno::AGAIN) => Errno::AGAIN,
                    done => return Ok(done?),
                },
            };
            if !patience.is_left() {
                return Err(last.into());
            }
        }
    }

    /// Has the controller make what an attempt has found that a message makes. It is listed at the place `open` of the open table. Gives
    /// number and generation. Durable on return. EEXIST, ENOSPC and so on; ESTALE, EACCES or EBUSY where it is to be looked at again.
    pub(crate) fn make_by_message(
        &self,
        sent: &Sent,
        creation: &Creation<'_>,
        (open, mark): (u32, u32),
    ) -> Result<(InodeNumber, u32), Errno> {
        let size = match creation.kind {
            FileKind::Link => u32::try_from(creation.target.len()).map_err(|_| Errno::INVAL)?,
            kind if kind.is_device() => creation.device,
            _ => 0,
        };
        let request = Request::MakeName {
            directory: sent.directory.0,
            generation: sent.directory.1,
            name: sent.name.clone(),
            kind: creation.kind as u8,
            mode: creation.mode,
            uid: creation.owner.0,
            gid: creation.owner.1,
            size,
            open,
            mark,
        };
        let named = self.send_with(sent, &request, creation.target)?;
        Ok((named.inode, named.generation))
    }

    /// The same of a name that is to be taken away.
    pub(crate) fn remove_by_message(&self, sent: &Sent, is_directory: bool) -> Result<(), Errno> {
        self.send(
            sent,
            &Request::RemoveName {
                directory: sent.directory.0,
                generation: sent.directory.1,
                name: sent.name.clone(),
                is_directory,
            },
        )?;
        self.has_lost_its_name(sent.victim);
        Ok(())
    }

    /// The same of another name for what an attempt has found.
    pub(crate) fn link_by_message(&self, sent: &Sent) -> Result<(), Errno> {
        let (inode, inode_generation) = sent.victim.ok_or(Errno::INVAL)?;
        self.send(
            sent,
            &Request::LinkName {
                directory: sent.directory.0,
                generation: sent.directory.1,
                name: sent.name.clone(),
                inode,
                inode_generation,
            },
        )?;
        Ok(())
    }

    /// Has the controller set attributes of a file or a directory. EBUSY, and it is known from then on: its owner sets them.
    pub(crate) fn set_by_message(
        &self,
        (inode, generation): (InodeNumber, u32),
        set: Set,
    ) -> Result<(), Errno> {
        let has = |is_set, bit| if is_set { bit } else { 0 };
        let request = Request::SetAttributes {
            inode,
            generation,
            which: has(set.mode.is_some(), which::MODE)
                | has(set.accessed.is_some(), which::ACCESSED)
                | has(set.modified.is_some(), which::MODIFIED),
            mode: set.mode.unwrap_or(0),
            accessed: set.accessed.unwrap_or(0).cast_unsigned(),
            modified: set.modified.unwrap_or(0).cast_unsigned(),
        };
        let done = self.session.ask(&request);
        if done == Err(Errno::BUSY)
            && let Some(known) = self.kit().known(inode)
            && known.generation() == generation
        {
            // Whether it is together a view says, which may be a newer one.
            known.set(flag::MEDIATED, false);
        }
        done
    }

    /// What this session had of an inode that has lost a name by message is over, if that was the last: its pages are free from now
    /// on, and not when somebody looks at it next.
    pub(crate) fn has_lost_its_name(&self, victim: Option<(InodeNumber, u32)>) {
        if let Some(victim) = victim {
            // What cannot be done now is done then.
            let _ = self.run_local(|context| context.dispose_of_sent(victim));
        }
    }

    /// What changes an inode is done by its owner, until a newer view of it says otherwise.
    pub(crate) fn is_mediated_no_more(&self, (number, generation): (InodeNumber, u32)) {
        if let Some(inode) = self.kit().known(number)
            && inode.generation() == generation
            && inode.has(flag::MEDIATED)
        {
            inode.set(flag::MEDIATED, false);
        }
    }

    fn send(&self, sent: &Sent, request: &Request) -> Result<Named, Errno> {
        self.send_with(sent, request, &[])
    }

    /// The same with something attached.
    fn send_with(&self, sent: &Sent, request: &Request, attached: &[u8]) -> Result<Named, Errno> {
        match self.session.request_with(request, attached) {
            Ok(Response::Bytes(told)) => {
                let named = Named::decode(&told).ok_or(Errno::PROTO)?;
                if !named.is_mediated {
                    self.is_mediated_no_more(sent.directory);
                }
                Ok(named)
            }
            Ok(_) => Err(Errno::PROTO),
            Err(Errno::BUSY) => {
                self.is_mediated_no_more(sent.directory);
                Err(Errno::BUSY)
            }
            Err(errno) => Err(errno),
        }
    }
}
