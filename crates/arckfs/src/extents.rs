//! Where a file has data and where it has holes.
//!
//! # Invariants
//! * A page is data if [`Context::data_page`] gives one: the delta's entry before the verified
//!   one, [`HOLE`] for none.
//! * Holes are passed over by whole parts of an index, so that a sparse file of terabytes costs
//!   what its data costs.

use crate::engine::{Attempt, Context};
use crate::interface::Errno;
use crate::read::pages_of;
use crate::state::CachedInode;
use arck_core_state::PAGE_SIZE;
use arck_core_state::index::{self, HOLE};
use arck_libfs_kit::delta;
use std::sync::atomic::Ordering;

impl<'a> Context<'a> {
    /// The first file page from `from` on, below `end`, that is data.
    pub fn next_data(&self, inode: &CachedInode, from: u64, end: u64) -> Attempt<Option<u64>> {
        let limit = inode
            .limit
            .load(Ordering::Relaxed)
            .min(pages_of(inode.base_size.load(Ordering::Relaxed)))
            .min(end);
        let mut from = from;
        while from < end {
            let changed = delta::next_entry(self.session, inode.delta_root(), from);
            let verified = index::next(self.session, inode.verified_root(), from, limit)
                .ok_or_else(|| self.lost(inode))?;
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

    /// SEEK_DATA or SEEK_HOLE from byte `from` on: ENXIO beyond the end. There is a hole at the
    /// end of every file.
    pub fn seek_data(&self, inode: &CachedInode, from: u64, data: bool) -> Attempt<u64> {
        let seen = self.seen(inode);
        let owned = inode.expected().ownership.session() == self.session.number();
        let _locked = owned.then(|| inode.lock.read());
        let size = inode.size.load(Ordering::Acquire);
        if from >= size {
            return Err(Errno::NXIO.into());
        }
        let first = from / PAGE_SIZE;
        let found = if data {
            self.next_data(inode, first, pages_of(size))
        } else {
            self.next_hole(inode, first, pages_of(size)).map(Some)
        };
        self.unmoved_since(inode, seen)?;
        let page = found?.ok_or(Errno::NXIO)?;
        Ok((page * PAGE_SIZE).max(from).min(size))
    }

    /// The first file page from `from` on that is no data; `end` at the latest.
    fn next_hole(&self, inode: &CachedInode, from: u64, end: u64) -> Attempt<u64> {
        let mut page = from;
        while page < end && !self.data_page(inode, page)?.is_null() {
            page += 1;
        }
        Ok(page)
    }
}
