//! The pages of files in this session's view.
//!
//! # Invariants
//! * A page is data if [`Viewing::data_page`] gives one: the delta's entry before the verified
//!   one, [`HOLE`] for none.
//! * Holes are passed over by whole parts of an index, so that a sparse file of terabytes costs
//!   what its data costs.

use crate::delta;
use crate::need::Attempt;
use crate::views::{File, Viewing};
use arck_core_state::index::{self, HOLE};
use arck_core_state::{PAGE_SIZE, PagePtr};
use std::sync::atomic::Ordering;

/// Pages that `size` bytes take.
#[inline]
pub fn pages_of(size: u64) -> u64 {
    size.div_ceil(PAGE_SIZE)
}

impl Viewing<'_> {
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
            let changed = delta::next_entry(self.session, file.delta_root(), from, end);
            let verified = index::next(self.session, file.verified_root(), from, limit)
                .ok_or_else(|| self.lost(&file))?;
            match (changed, verified) {
                // Before the first entry of the delta everything is as verified.
                (Some((page, _)), Some(verified)) if verified < page => {
                    return Ok(Some(verified));
                }
                (Some((page, HOLE)), _) => from = page + 1,
                (Some((page, _)), _) => return Ok(Some(page)),
                (None, verified) => return Ok(verified),
            }
        }
        Ok(None)
    }
}
