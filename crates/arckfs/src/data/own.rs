//! Pages of the session's own, in the place of holes and of others' pages, so that a map of them can be
//! written.

use super::Data;
use super::step::Step;
use super::write::STEP;
use crate::interface::Errno;
use arck_libfs_kit::engine::{Attempt, Need};
use arck_libfs_kit::format::PagePtr;
use arck_libfs_kit::views::entries::pages_of;
use arck_libfs_kit::views::{CachedInode, File, flag};
use std::ops::Range;
use std::sync::atomic::Ordering;

impl Data<'_> {
    /// EACCES of a file whose length the controller changes: sessions have it mapped together, or it is mediated, where it
    /// `may_mediate`, and this session neither owns it nor has it mapped.
    pub fn expect_cut_here(&self, inode: &CachedInode, may_mediate: bool) -> Attempt<()> {
        let is_mediated = may_mediate
            && inode.has(flag::MEDIATED)
            && !inode.has(flag::MAPPED)
            && !self.owns(inode);
        match is_mediated || inode.has(flag::TOGETHER) {
            true => Err(Errno::ACCESS.into()),
            false => Ok(()),
        }
    }

    /// Gives pages of this session's own to what has none or somebody else's, in file pages from
    /// `first` up to `end` or the end of the file, so that a map of them can be written; one step
    /// of pages at a time. Gives the page up to which it came.
    pub fn own_step(&self, file: File, first: u64, end: u64) -> Attempt<u64> {
        let _locked = self.lock_whole(file.inode());
        let expected = self.begin_change(&file)?;
        let end = end.min(pages_of(file.size.load(Ordering::Relaxed)));
        let mut page = first;
        while page < end && self.session.is_own(self.data_page(file, page)?) {
            page += 1;
        }
        if page >= end {
            return Ok(end);
        }
        let mut branch = self.branch(file.inode(), &expected)?;
        let mut places = [(0, PagePtr::NULL); STEP + 1];
        let mut step = Step::new(self, file, &mut branch, &mut places);
        let last = end.min(page + STEP as u64);
        while page < last {
            let old = self.data_page(file, page)?;
            if !self.session.is_own(old) {
                match step.fresh(page, old, 0, &[]) {
                    // What there is room for now; the rest is asked for again.
                    Err(_) if step.count != 0 => break,
                    other => other?,
                }
            }
            page += 1;
        }
        self.publishes();
        let (begun, data) = step.fence();
        let entries = step.publish_entries(&begun, &data)?;
        if file.has(flag::MAPPED) {
            self.remap(file.inode(), first, page);
        }
        self.confirm_repeatable(&file, &expected, step.branch, entries)?;
        Ok(page)
    }

    /// Steps of [`Data::own_step`], each an attempt of its own; `own` keeps where it is.
    pub fn own_up_to(
        &self,
        inode: &'static CachedInode,
        own: &mut u64,
        pages: &Range<u64>,
    ) -> Attempt<()> {
        let end = pages.end.min(pages_of(inode.size.load(Ordering::Acquire)));
        if *own < end {
            *own = self.own_step(File::of(inode)?, *own, end)?;
            if *own < end {
                return Err(Need::Again.into());
            }
        }
        Ok(())
    }
}
