//! The branch of an inode that is changed: begun at its first change after a fold.
//!
//! Invariant: [`begun`] in the view says no more than is so: who finds a branch that may not be durable
//! makes it so before anything is published in it.

use super::Changing;
use crate::delta::{Beginning, Begun, Branch};
use crate::need::{Attempt, Need};
use crate::views::{CachedInode, begun, flag};
use arck_core_state::branch::StoredBranch;
use arck_pm::Flushed;
use arck_protocol::operation::Expected;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

impl Changing<'_> {
    /// The inode's branch, begun if it has not been. Inside an operation, under the lock.
    ///
    /// Inlined, as what else gives back more than two words on the way of a change: read in other
    /// pieces than it was stored in, such an answer waits for all stores before it.
    #[inline(always)]
    pub fn branch(&self, inode: &'static CachedInode, expected: &Expected) -> Attempt<Beginning> {
        // Asked once, inside the operation: later the header may tell another's slot.
        let slot = expected
            .branch_slot(self.header(inode.number())?)
            .ok_or(Need::Again)?;
        self.session.state().arena.expect_branch(slot)?;
        let branch = Branch::at(self.session, slot)?;
        if inode.has(flag::FRONT) {
            // Whatever comes may have entries elsewhere.
            inode.set(flag::FRONT, false);
        }
        let begin = |branch: &Branch<'static>| self.begin_branch(inode, expected, branch);
        Ok(Beginning::of(branch, &inode.branch, begin)?)
    }

    #[inline(never)]
    fn begin_branch(
        &self,
        inode: &'static CachedInode,
        expected: &Expected,
        branch: &Branch<'_>,
    ) -> Result<Flushed<Begun>, Errno> {
        let mut content = StoredBranch::unchanged(
            inode.number(),
            inode.generation(),
            expected.ownership.epoch(),
            expected.fold,
        );
        if inode.has(flag::UNCOMMITTED) {
            content.parent = inode.holder.load(Ordering::Relaxed);
        }
        let stored = branch.begin(&content)?;
        inode.branch.store(begun::STORED, Ordering::Release);
        self.note_dirty(inode);
        Ok(stored)
    }
}
