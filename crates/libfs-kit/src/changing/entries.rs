//! Entries of deltas, which lead to the pages of files.
//!
//! Invariant: once data is stored nothing may be lacking for its entries: their pages are reserved before.

use super::Changing;
use crate::delta::{self, BegunBranch, Entries, Entry, FreshPages};
use crate::need::{Attempt, Stop};
use crate::views::File;
use arck_core_state::{IndexRoot, index};
use arck_pm::Flushed;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

impl Changing<'_> {
    /// Whether page 0 is a hole of a file that has an index: folding its entry may take index
    /// pages, so it has to be counted, as a page of the arena that it would not need otherwise.
    fn needs_index(&self, file: File, page: u64) -> Attempt<bool> {
        Ok(page == 0
            && file.delta_root().0 == 0
            && file.verified_root().height() != 0
            && self.data_page(file, 0)?.is_null())
    }

    /// Takes the arena pages that the entry of file page `page` needs into `fresh`, before
    /// anything is stored for it. `others`: entries in other places will be set before it. All or
    /// nothing.
    pub fn reserve_entry(
        &self,
        file: File,
        page: u64,
        others: bool,
        fresh: &mut FreshPages,
    ) -> Attempt<()> {
        let root = file.delta_root();
        let height = index::height_for(page + 1).max(root.height());
        let needed = if height > root.height() && (others || root.0 != 0) {
            2 * height as usize
        } else if self.needs_index(file, page)? {
            1
        } else {
            delta::index_pages_needed(self.session, root, page)
        };
        self.take_index_pages(fresh.count() + needed, fresh)
    }

    /// Takes arena pages until `fresh` has `count`; none if that fails.
    fn take_index_pages(&self, count: usize, fresh: &mut FreshPages) -> Attempt<()> {
        let arena = &self.session.state().arena;
        let before = fresh.count();
        while fresh.count() < count {
            let taken = arena.take(self.session, self.slot());
            let added = match taken {
                Ok(page) => fresh.add(page).map_err(|page| {
                    arena.release(self.session, self.slot(), page);
                    Stop::from(Errno::IO)
                }),
                Err(need) => Err(need.of_pages(count - before).into()),
            };
            if let Err(stop) = added {
                self.give_index_pages(fresh, before);
                return Err(stop);
            }
        }
        Ok(())
    }

    /// Gives back all but `keep` of the pages.
    pub fn give_index_pages(&self, fresh: &mut FreshPages, keep: usize) {
        while fresh.count() > keep
            && let Some(page) = fresh.take()
        {
            let arena = &self.session.state().arena;
            arena.release(self.session, self.slot(), page);
        }
    }

    /// Sets an entry of the delta's index, with pages of `fresh` and more if it needs them.
    pub fn set_entry(
        &self,
        file: File,
        branch: &BegunBranch<'_>,
        page: u64,
        entry: Entry<'_>,
        fresh: &mut FreshPages,
    ) -> Attempt<Flushed<Entries>> {
        let mut root = file.delta_root();
        if self.needs_index(file, page)? {
            root = IndexRoot::new(0, 1);
        }
        let needed = delta::index_pages_needed(self.session, root, page);
        self.take_index_pages(needed, fresh)?;
        if !matches!(entry, Entry::Hole) {
            self.fold_file_ahead(file, page);
        }
        file.has_entries_to(page + 1);
        let (root, stored) =
            delta::set_index_entry(self.session, branch, root, page, entry, fresh)?;
        file.part().root.store(root.0, Ordering::Release);
        Ok(stored)
    }
}
