//! Changes of names and attributes by message, of what is mediated: what an [attempt](crate::names::by_message) has found that is to be sent.
//!
//! # Invariants
//! * Nothing is asked inside an operation or under a lock.
//! * What the controller has answered is done, for everybody, and durable.

use crate::attributes::Set;
use crate::engine::Engine;
use crate::interface::Errno;
use crate::names::by_message::{Changed, Sent};
use arck_libfs_kit::format::InodeNumber;
use arck_libfs_kit::messages::{Named, Request, Response, which};
use arck_libfs_kit::names::creations::Creation;
use arck_libfs_kit::views::flag;
use std::time::Duration;

/// How often a change is sent that comes back, since something else has changed.
const TURNS: u32 = 100;
/// So often at once; then a pause is made before each.
const SOON: u32 = 10;
const PAUSE: Duration = Duration::from_micros(100);

impl Engine {
    /// Does something until it is done by an attempt, or by `send` of what an attempt says is to be sent. What the controller
    /// knows better is attempted again: which directory it is, that it is mediated, and that it may be reached, which it may not be for a
    /// moment while it is moved; an attempt that finds it so itself says so.
    pub(crate) fn here_or_by_message<T, S, E: From<Errno>>(
        &self,
        mut attempt: impl FnMut() -> Result<Changed<T, S>, E>,
        mut send: impl FnMut(&S) -> Result<T, Errno>,
    ) -> Result<T, E> {
        let mut last = Errno::AGAIN;
        for turn in 0..TURNS {
            if turn > SOON {
                std::thread::sleep(PAUSE);
            }
            match attempt()? {
                Changed::Here(done) => return Ok(done),
                Changed::ByMessage(sent) => match send(&sent) {
                    Err(errno @ (Errno::STALE | Errno::ACCESS)) => last = errno,
                    Err(Errno::BUSY | Errno::AGAIN) => last = Errno::AGAIN,
                    done => return Ok(done?),
                },
            }
        }
        Err(last.into())
    }

    /// Has the controller make what an attempt has found that a message makes. Gives number and generation. Durable on
    /// return. EEXIST, ENOSPC and so on; ESTALE, EACCES or EBUSY where it is to be looked at again.
    pub(crate) fn make_by_message(
        &self,
        sent: &Sent,
        creation: &Creation<'_>,
    ) -> Result<(InodeNumber, u32), Errno> {
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

    fn send(&self, sent: &Sent, request: &Request) -> Result<Named, Errno> {
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
                Ok(named)
            }
            Ok(_) => Err(Errno::PROTO),
            Err(Errno::BUSY) => {
                is_mediated_no_more();
                Err(Errno::BUSY)
            }
            Err(errno) => Err(errno),
        }
    }
}
