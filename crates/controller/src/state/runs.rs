//! Runs of headers without inodes, granted or freed in one entry of the journal ([`HeaderRun`]).
//!
//! # Invariants
//! * A number is free before it is granted, and granted, uncommitted, before it is freed here: it has no inode
//!   before or after, so that no reader can be in the middle of one, and sequence words stay as they are.
//! * As with a [`Change`](crate::state::change::Change): what fails, fails before anything is stored.

use crate::pool::journal;
use crate::state::tables::State;
use arck_controller_state::header_runs::HeaderRun;
use arck_controller_state::journal::Redo;
use arck_core_state::header::HeaderKind;
use arck_core_state::{HeaderCopy, InodeNumber};
use rustix::io::Errno;

impl State {
    /// Appends the next number to runs. ENOENT beyond the table.
    pub fn append_to_runs(
        &self,
        runs: &mut Vec<HeaderRun>,
        number: InodeNumber,
        words: impl FnOnce(&HeaderCopy) -> HeaderRun,
    ) -> Result<(), Errno> {
        let header = self.header_copy(number).ok_or(Errno::NOENT)?;
        let run = words(&header);
        debug_assert_eq!((run.first, run.count), (number, 1));
        debug_assert!(run.fold > header.fold, "fold numbers of {number} repeat");
        debug_assert_eq!(header.inode, 0, "{number} has an inode");
        debug_assert!(
            matches!(
                (header.kind, run.session),
                (HeaderKind::Free, 1..) | (HeaderKind::Granted, 0)
            ),
            "{number} is {:?}",
            header.kind
        );
        if !runs.last_mut().is_some_and(|last| last.joins(&run)) {
            runs.push(run);
        }
        Ok(())
    }

    /// Frees numbers that are granted and uncommitted, and so has nobody own them. ENOSPC, EIO: nothing has changed.
    pub fn free_granted(&mut self, numbers: &[InodeNumber]) -> Result<(), Errno> {
        let mut runs = Vec::new();
        for &number in numbers {
            let fold = self.numbers.fold();
            self.append_to_runs(&mut runs, number, |header| HeaderRun {
                fold,
                session: 0,
                first: number,
                count: 1,
                // No name of what it was to be leads to what it will be.
                generation: header.generation.wrapping_add(1).max(1),
                slot: 0,
                reserved: 0,
            })?;
        }
        self.store_runs(&runs)?;
        self.granted = self.granted.saturating_sub(numbers.len() as u64);
        for &number in numbers {
            debug_assert!(self.shadow(number).is_none(), "{number} is an inode");
            self.numbers.give_back(number);
        }
        Ok(())
    }

    /// Stores runs in one atomic step, durable when this returns. Only who owns what changes, which a failure of the
    /// machine makes void in `paged` mode. ENOSPC, EIO: nothing has changed.
    pub fn store_runs(&mut self, runs: &[HeaderRun]) -> Result<(), Errno> {
        if runs.is_empty() {
            return Ok(());
        }
        let mut redo = Redo::default();
        redo.put_runs(runs);
        let (pool, journal) = (&self.pool, &mut self.journal);
        pool.with_room(|| journal.reserve(redo.size()))?;
        let prepared = journal.prepare();
        self.crash_point("fresh pages written");
        let standing = self.journal.write(&redo, &self.pool, false, prepared)?;
        self.crash_point("journal written");
        let half = || self.crash_point("half applied");
        journal::store(&redo, &self.pool, &standing, half);
        let applied = journal::flush(&redo, &self.pool, |_| {});
        self.journal.has_applied(standing, applied);
        self.crash_point("applied");
        // No fence: see `Change::apply`.
        Ok(())
    }
}
