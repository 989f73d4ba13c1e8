//! Where a file has data and where it has holes.
//!
//! # Invariants
//! * A page is data if the kit's view gives one (`data_page`).
//! * Holes are passed over by whole parts of an index, so that a sparse file of terabytes costs
//!   what its data costs.

use super::Data;
use crate::interface::Errno;
use arck_libfs_kit::engine::Attempt;
use arck_libfs_kit::format::PAGE_SIZE;
use arck_libfs_kit::views::File;
use arck_libfs_kit::views::entries::pages_of;
use std::sync::atomic::Ordering;

impl Data<'_> {
    /// SEEK_DATA or SEEK_HOLE from byte `from` on: ENXIO beyond the end. There is a hole at the
    /// end of every file.
    pub fn seek_data(&self, file: File, from: u64, data: bool) -> Attempt<u64> {
        let seen = self.seen(&file);
        let owned = self.owns(&file);
        let _locked = owned.then(|| file.lock.read());
        let size = file.size.load(Ordering::Acquire);
        if from >= size {
            return Err(Errno::NXIO.into());
        }
        let first = from / PAGE_SIZE;
        let found = if data {
            self.next_data(file, first, pages_of(size))
        } else {
            self.next_hole(file, first, pages_of(size)).map(Some)
        };
        self.unmoved_since(&file, seen)?;
        let page = found?.ok_or(Errno::NXIO)?;
        Ok((page * PAGE_SIZE).max(from).min(size))
    }

    /// The first file page from `from` on that is no data; `end` at the latest.
    fn next_hole(&self, file: File, from: u64, end: u64) -> Attempt<u64> {
        let mut page = from;
        while page < end && !self.data_page(file, page)?.is_null() {
            page += 1;
        }
        Ok(page)
    }
}
