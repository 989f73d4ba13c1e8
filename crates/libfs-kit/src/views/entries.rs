//! The pages of files in this session's view, and the entries of deltas that lead to them.
//!
//! # Invariants
//! * A page is data if [`Context::data_page`] gives one: the delta's entry before the verified
//!   one, [`HOLE`] for none.
//! * Holes are passed over by whole parts of an index, so that a sparse file of terabytes costs
//!   what its data costs.
//! * Once data is stored nothing may be lacking for its entries: their pages are reserved before.

use crate::delta::{self, BegunBranch, Entries, Entry, FreshPages};
use crate::engine::{Attempt, Context, Stop};
use crate::views::File;
use arck_core_state::index::{self, HOLE};
use arck_core_state::{IndexRoot, PAGE_SIZE, PagePtr};
use arck_pm::Flushed;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Pages that `size` bytes take.
#[inline]
pub fn pages_of(size: u64) -> u64 {
    size.div_ceil(PAGE_SIZE)
}

impl Context<'_> {
    /// The page that holds file page `page` in this session's view; null = hole.
    #[inline]
    pub fn data_page(&self, file: File, page: u64) -> Attempt<PagePtr> {
        match delta::index_entry(self.session, file.delta_root(), page) {
            HOLE => return Ok(PagePtr::NULL),
            0 => {}
            entry => return Ok(PagePtr(entry)),
        }
        if page >= file.part().limit.load(Ordering::Relaxed)
            || page >= pages_of(file.base_size.load(Ordering::Relaxed))
        {
            return Ok(PagePtr::NULL);
        }
        index::lookup(self.session, file.verified_root(), page).ok_or_else(|| self.lost(&file))
    }

    /// The first file page from `from` on, below `end`, that is data.
    pub fn next_data(&self, file: File, from: u64, end: u64) -> Attempt<Option<u64>> {
        let limit = file
            .part()
            .limit
            .load(Ordering::Relaxed)
            .min(pages_of(file.base_size.load(Ordering::Relaxed)))
            .min(end);
        let mut from = from;
        while from < end {
            let changed = delta::next_entry(self.session, file.delta_root(), from);
            let verified = index::next(self.session, file.verified_root(), from, limit)
                .ok_or_else(|| self.lost(&file))?;
            match (changed, verified) {
                // Before the first entry of the delta everything is as verified.
                (Some((page, _)), Some(verified)) if verified < page => {
                    return Ok(Some(verified));
                }
                (Some((page, HOLE)), _) => from = page + 1,
                (Some((page, _)), _) => return Ok(Some(page).filter(|&page| page < end)),
                (None, verified) => return Ok(verified),
            }
        }
        Ok(None)
    }

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
        let (root, stored) =
            delta::set_index_entry(self.session, branch, root, page, entry, fresh)?;
        file.part().root.store(root.0, Ordering::Release);
        Ok(stored)
    }
}
