//! A change of the controller's own.

use crate::fold::Folding;
use crate::fold::folding::Failure;
use crate::state::change::{Change, Weight};
use arck_core_state::InodeNumber;
use rustix::io::Errno;

/// So many orphans that come one by one are looked at together.
const TOGETHER: usize = 32;
/// Of no more pages than this each, and nobody's.
const SMALL: u64 = 16;
/// Where fewer pages are left, or numbers, each is looked at as it comes.
const PLENTY: u64 = 4096;

impl Folding<'_> {
    /// A change of the controller's own, of inodes that nobody owns.
    pub fn change_alone(
        &mut self,
        what: impl FnOnce(&mut Change<'_>, &mut Vec<InodeNumber>) -> Result<(), Errno>,
    ) -> Result<(), Failure> {
        let dying = self.change(u64::MAX, what)?;
        self.free_orphans(Some(&dying));
        Ok(())
    }

    /// The same of what loses its last name in one of many such changes: it is freed with others, or when the service looks
    /// at all orphans. What is large is freed at once, and so is all where little is left.
    pub fn change_one_of_many(
        &mut self,
        what: impl FnOnce(&mut Change<'_>, &mut Vec<InodeNumber>) -> Result<(), Errno>,
    ) -> Result<(), Failure> {
        // What is kept for folds is not for splits.
        let dying = self.change(self.sessions.spare_pages(), what)?;
        // Of what somebody owns there may be more than is verified.
        let is_small = |&number: &InodeNumber| {
            let inode = self.sessions.state.shadow(number);
            let header = self.sessions.state.header_copy(number);
            inode.is_some_and(|inode| inode.pages <= SMALL)
                && header.is_some_and(|header| header.ownership.session() == 0)
        };
        let may_wait = dying.iter().all(is_small)
            && self.sessions.spare_pages() >= PLENTY
            && self.sessions.state.numbers.count_free() >= PLENTY;
        self.freed.together.extend(dying);
        if !may_wait || self.freed.together.len() >= TOGETHER {
            let together = std::mem::take(&mut self.freed.together);
            self.free_orphans(Some(&together));
        }
        Ok(())
    }

    /// `splits`: pages that may be taken for splits of directories.
    fn change(
        &mut self,
        splits: u64,
        what: impl FnOnce(&mut Change<'_>, &mut Vec<InodeNumber>) -> Result<(), Errno>,
    ) -> Result<Vec<InodeNumber>, Failure> {
        let mut dying = Vec::new();
        let mut change = Change::new(&mut self.sessions.state);
        change.limit_splits(splits);
        what(&mut change, &mut dying)?;
        change.commit(Weight::Fold)?;
        self.sessions.state.orphans.extend(dying.iter().copied());
        Ok(dying)
    }
}
