//! What this session may see and cannot map yet: it is shown the way by a name, or told of by message.
//!
//! # Invariants
//! * The controller judges an inode by where it lies, unless it is shown the way there, once for a call.
//! * Whoever is inside an operation leaves it to ask, and what he has seen there counts no more: a fold waits
//!   for those that are inside.

use super::{CachedInode, Directory, Viewing, flag};
use crate::need::{Attempt, Need, Stop};
use arck_core_state::directory::Dentry;
use arck_core_state::{FileKind, InodeNumber};
use arck_protocol::{Request, Response};
use rustix::io::Errno;

impl Viewing<'_> {
    /// The view of what a name leads to, as [`Viewing::view`]. What lies where this session cannot
    /// look is asked for by the name, which shows the controller that it may.
    #[inline(always)]
    pub fn view_of(
        &self,
        directory: Directory,
        name: &[u8],
        dentry: Dentry,
    ) -> Attempt<&'static CachedInode> {
        if self.admission().was_denied() && !self.admission().note_shown(dentry.inode) {
            // The controller judges an inode by where it lies, unless it is shown the way.
            self.ask_for_name(directory, name)?;
            return Err(Need::Again.into());
        }
        let viewed = self.view(dentry.inode, dentry.generation);
        let inode = self.or_ask(viewed, directory, name, dentry.inode)?;
        if inode.has(flag::TOLD)
            && !inode.is_directory()
            && !self.admission().note_shown(dentry.inode)
        {
            // Who had it open was told of it, and of its contents, until he closed it. Who may not search
            // the way here any more, as from an open directory, knows as much as he did.
            let _ = self.ask_for_name(directory, name);
            return Err(Need::Again.into());
        }
        Ok(inode)
    }

    /// The same, of the view of inode `number`, in whatever way it was `viewed`.
    #[inline(always)]
    pub fn or_ask(
        &self,
        viewed: Attempt<&'static CachedInode>,
        directory: Directory,
        name: &[u8],
        number: InodeNumber,
    ) -> Attempt<&'static CachedInode> {
        match viewed {
            // Once: where it cannot be mapped all the same, it is told of by message.
            Err(Stop::Need(Need::Admit(denied, false)))
                if denied == number && !self.admission().note_shown(number) =>
            {
                self.ask_for_name(directory, name)?;
                Err(Need::Again.into())
            }
            other => other,
        }
    }

    /// What the verified directory of which the view had this `sequence` says of a name, where it cannot be
    /// mapped.
    #[cold]
    pub(crate) fn told_dentry(
        &self,
        directory: Directory,
        sequence: u64,
        name: &[u8],
    ) -> Attempt<Option<Dentry>> {
        let (admission, number) = (&self.admission(), directory.number());
        if let Some(told) = admission.told_name(number, sequence, name) {
            return Ok(told);
        }
        let is_inside = self.is_inside();
        let told = self.ask_for_name(directory, name)?;
        if is_inside {
            admission.note_told_name(number, sequence, name, told);
            return Err(Need::Again.into());
        }
        Ok(told)
    }

    /// What the verified directory says of a name, by message; afterwards this session can map the
    /// inode that it leads to, and the directory if it may read that. EACCES.
    #[cold]
    pub fn ask_for_name(&self, directory: Directory, name: &[u8]) -> Attempt<Option<Dentry>> {
        self.leave();
        let asked = self.session.request(&Request::LookUp {
            directory: directory.number(),
            name: name.to_vec(),
        });
        if asked == Err(Errno::ACCESS) && self.admission().is_to_be_asked_again() {
            // The directory may have moved since it was walked to.
            return Err(Need::Again.into());
        }
        match asked? {
            Response::Found {
                inode,
                generation,
                kind,
            } => Ok(Some(Dentry {
                inode,
                generation,
                kind: FileKind::from_u8(kind).ok_or(Errno::PROTO)?,
            })),
            Response::Done => Ok(None),
            _ => Err(Errno::PROTO.into()),
        }
    }
}
