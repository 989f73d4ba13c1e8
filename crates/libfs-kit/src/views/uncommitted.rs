//! The end of inodes that were never committed, and of what has lost its last name.
//!
//! # Invariants
//! * The number of an inode that dies uncommitted is used again only after its branch has durably
//!   ended, so that a new inode never inherits contents.
//! * Only this session knows of what is uncommitted: no fold takes what has no name.

use super::refresh::known_in;
use super::{CachedInode, File, Viewing, begun, flag};
use crate::delta::Branch;
use crate::need::{Attempt, Need};
use arck_core_state::InodeNumber;
use arck_core_state::header::HeaderKind;
use std::sync::atomic::Ordering;

impl Viewing<'_> {
    /// Durably ends the branch of an inode that dies uncommitted.
    pub(crate) fn end_branch(&self, inode: &CachedInode) -> Attempt<()> {
        let slot = inode
            .expected()
            .branch_slot(self.header(inode.number())?)
            .ok_or(Need::Again)?;
        Ok(Branch::at(self.session, slot)?.end()?)
    }

    /// A name of an inode is gone, or it is not open any more: if it has no name left, in this
    /// session's view, it is marked, and what was never committed ends if nobody here has it open.
    #[inline]
    pub fn dispose(&self, inode: &'static CachedInode) {
        let may_end = inode.has(flag::UNCOMMITTED) && !inode.is_open();
        let is_marked = inode.has(flag::UNLINKED);
        let has_none = || !inode.is_directory() && inode.links() == 0;
        if if is_marked { may_end } else { has_none() } {
            self.dispose_of_last(inode, is_marked, may_end);
        }
    }

    /// A name of an inode has been taken away by message: what this session had of it is over if that was the last. The pages are free
    /// from now on, and not when somebody looks at it next; empty segments are given back for it as for what is removed here. By number
    /// and generation: between the look and the message the view may have become another's, or been built anew. Where it is another of
    /// both it is looked at for nothing.
    pub fn dispose_of_sent(&self, (number, generation): (InodeNumber, u32)) -> Attempt<()> {
        let table = self.views.inodes.load(Ordering::Acquire);
        let known = known_in(self.session, table, number);
        let Some(inode) = known.filter(|inode| inode.generation() == generation) else {
            return Ok(());
        };
        if let Ok(file) = File::of(inode) {
            let pages = file.part().pages.load(Ordering::Relaxed);
            self.session.state().data.note_dropped(pages);
        }
        self.refresh_if_folded(inode)
    }

    /// Of what had no name left, and was open to nobody if it `may_end`, when it was looked at.
    fn dispose_of_last(&self, inode: &'static CachedInode, is_marked: bool, may_end: bool) {
        let _locked = self.lock_whole(inode);
        if let Ok(file) = File::of(inode) {
            if inode.links() == 0 {
                if !is_marked {
                    let pages = file.part().pages.load(Ordering::Relaxed);
                    self.session.state().data.note_dropped(pages);
                }
                inode.set(flag::UNLINKED, true);
            } else {
                // A link was made meanwhile.
                if may_end {
                    inode.set(flag::UNLINKED, false);
                }
                return;
            }
        }
        // Decided under the lock: two threads may come here for one inode. Of another generation the number is another
        // inode's: this one was committed and freed.
        let granted = self.header(inode.number()).is_ok_and(|header| {
            header.kind() == HeaderKind::Granted && header.generation() == inode.generation()
        });
        if !inode.has(flag::UNCOMMITTED) || !granted {
            return;
        }
        if self
            .shards(inode)
            .any(|shard| shard.tail_first.load(Ordering::Relaxed) != 0)
        {
            // Its records may have removed names elsewhere: they count until a fold has taken
            // them; then the number comes back (see `refresh_if_folded`).
            return;
        }
        // If it is open, its last close comes here again.
        if !inode.refuse_openings() {
            return;
        }
        if self.is_being_folded(inode) {
            // Nothing that its branch leads to may be used again, nor its number, which a fold may be about to commit:
            // what a sealed delta names is there, whatever has become of the name since. Whoever looks for what is left
            // by folds comes back to it (`refresh_dirty`).
            inode.allow_openings();
            self.note_dirty(inode);
            return;
        }
        self.end_uncommitted(inode);
    }

    /// Whether a fold has an uncommitted inode marked; its branch is durably ended if none has.
    fn is_being_folded(&self, inode: &CachedInode) -> bool {
        match inode.branch.load(Ordering::Relaxed) {
            begun::NOT => !self
                .header(inode.number())
                .is_ok_and(|header| inode.expected().still_holds(header)),
            _ => self.end_branch(inode).is_err(),
        }
    }

    /// Which of the inodes it is that have its number and generation one after the other: what dies uncommitted leaves both to
    /// another. Who finds one by number and generation that he has from before compares this. A view that is made anew may be told
    /// apart from what it was, and never is another one told to be the same. Inside; [`Need::Again`] of what is over.
    pub fn life(&self, inode: &CachedInode) -> Attempt<u64> {
        let life = inode.reuse_epoch.load(Ordering::Acquire);
        // An inode that dies says so before it has the next one's.
        match inode.sequence.load(Ordering::Acquire) {
            u64::MAX => Err(Need::Again.into()),
            _ => Ok(life),
        }
    }

    /// Forgets an inode that died uncommitted, and queues its number. Under its lock, with openings
    /// refused until there is no view that could be opened.
    pub fn end_uncommitted(&self, inode: &'static CachedInode) {
        // First: who reads without its lock looks at this afterwards, and what he has read may be
        // another's by then.
        inode.sequence.store(u64::MAX, Ordering::SeqCst);
        self.discard_delta(inode);
        inode.file.forget_delta();
        inode.flags.store(0, Ordering::Release);
        inode.allow_openings();
        self.queue_reuse(inode);
    }
}
