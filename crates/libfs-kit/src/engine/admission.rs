//! What this session may see and cannot map yet: it is admitted, shown the way by a name, or told of by
//! message.
//!
//! # Invariants
//! * The controller judges an inode by where it lies, unless it is shown the way there, once for a call.
//! * What was told of an inode counts as long as its header's sequence is the one that came with it.
//! * Whoever is inside an operation leaves it to ask, and what he has seen there counts no more: a fold waits
//!   for those that are inside.

use super::call::Admission;
use super::{Attempt, Context, Engine, Need, Stop};
use crate::views::{CachedInode, Directory, flag};
use arck_core_state::directory::Dentry;
use arck_core_state::{FileKind, HeaderCopy, Inode, InodeNumber};
use arck_protocol::{Request, Response};
use rustix::io::Errno;
use zerocopy::FromBytes;

impl Engine<'_> {
    /// That the attributes of an inode can be mapped, or else what they are.
    #[cold]
    pub(super) fn admit(&self, inode: InodeNumber, admission: &Admission) -> Result<(), Errno> {
        let denied = match self.session.ask(&Request::Admit {
            inode,
            contents: false,
        }) {
            Err(errno @ (Errno::ACCESS | Errno::NOSPC)) => errno,
            other => return other,
        };
        let Ok(Response::Bytes(bytes)) = self.session.request(&Request::Inspect { inode }) else {
            return Err(denied);
        };
        let told = bytes.split_first_chunk::<8>().and_then(|(sequence, rest)| {
            let inode = Inode::read_from_bytes(rest).ok()?;
            Some((u64::from_le_bytes(*sequence), inode))
        });
        admission.note_told(told.ok_or(Errno::PROTO)?);
        Ok(())
    }
}

impl Context<'_> {
    /// Notes that an inode is going to be recalled; false if it has been for this call.
    pub(crate) fn may_recall(&self, number: InodeNumber) -> bool {
        self.call.admission.may_recall(number)
    }

    /// As [`Session::verified`], with the need where this session cannot look.
    pub fn verified(&self, number: InodeNumber) -> Attempt<Option<(HeaderCopy, Inode)>> {
        let found = self.verified_or_told(number)?;
        Ok(found.map(|(header, inode, _)| (header, inode)))
    }

    /// The same, and whether the controller has told it.
    pub(crate) fn verified_or_told(
        &self,
        number: InodeNumber,
    ) -> Attempt<Option<(HeaderCopy, Inode, bool)>> {
        match self.session.verified(number) {
            Err(Errno::ACCESS) => {
                let header = self.header(number)?;
                let sequence = header.read_begin().ok_or(Need::Again)?;
                let copy = header.copy();
                let told = self.call.admission.told(number, sequence);
                match told.filter(|_| header.read_end(sequence)) {
                    Some(inode) => Ok(Some((HeaderCopy { sequence, ..copy }, inode, true))),
                    None => Err(Need::Admit(number, false).into()),
                }
            }
            other => Ok(other?.map(|(header, inode)| (header, inode, false))),
        }
    }

    /// The view of what a name leads to, as [`Context::view`]. What lies where this session cannot
    /// look is asked for by the name, which shows the controller that it may.
    #[inline]
    pub fn view_of(
        &self,
        directory: Directory,
        name: &[u8],
        dentry: Dentry,
    ) -> Attempt<&'static CachedInode> {
        if self.call.admission.was_denied() && !self.call.admission.note_shown(dentry.inode) {
            // The controller judges an inode by where it lies, unless it is shown the way.
            self.ask_for_name(directory, name)?;
            return Err(Need::Again.into());
        }
        let viewed = self.view(dentry.inode, dentry.generation);
        let inode = self.or_ask(viewed, directory, name, dentry.inode)?;
        if inode.has(flag::TOLD)
            && !inode.is_directory()
            && !self.call.admission.note_shown(dentry.inode)
        {
            // Who had it open was told of it, and of its contents, until he closed it. Who may not search
            // the way here any more, as from an open directory, knows as much as he did.
            let _ = self.ask_for_name(directory, name);
            return Err(Need::Again.into());
        }
        Ok(inode)
    }

    /// The same, of the view of inode `number`, in whatever way it was `viewed`.
    #[inline]
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
                if denied == number && !self.call.admission.note_shown(number) =>
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
        let (admission, number) = (&self.call.admission, directory.number());
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
        if asked == Err(Errno::ACCESS) && self.call.admission.is_to_be_asked_again() {
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
