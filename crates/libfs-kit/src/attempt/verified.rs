//! The verified state of an inode: as it lies in the pool, or as the controller has told it where this
//! session cannot map it.

use super::Attempting;
use crate::need::{Attempt, Need};
use arck_core_state::{HeaderCopy, Inode, InodeNumber};
use rustix::io::Errno;

impl Attempting<'_> {
    /// Notes that an inode is going to be recalled; false if it has been for this call.
    pub(crate) fn may_recall(&self, number: InodeNumber) -> bool {
        self.call.admission.may_recall(number)
    }

    /// As [`Session::verified`](crate::Session::verified), with the need where this session cannot look.
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
}
