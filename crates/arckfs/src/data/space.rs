//! Space of a file without data: allocating, punching holes, zeroing ranges.
//!
//! # Invariants
//! * A page is given to a hole, or taken from the file, by one entry of the delta's index; the
//!   edges of a range, parts of pages, are zeroed as any write is.
//! * What a hole sets free goes back to the stock only when the hole is certain to stand: a fold
//!   that got in between may have taken the old page along, so the pages are kept until another
//!   attempt has found the inode unmarked.
//! * Space is found before anything is changed ([`Reserve`]): ENOSPC leaves the file as it was.

use super::Data;
use super::write::Position;
use crate::interface::Errno;
use arck_libfs_kit::Session;
use arck_libfs_kit::delta::{self, Beginning, Entry, FreshPages, INDEX_PAGES_MAX};
use arck_libfs_kit::engine::{Attempt, Expected, Need};
use arck_libfs_kit::format::{PAGE_SIZE, PagePtr, index};
use arck_libfs_kit::memory::durable::{self as order, FlushedSet};
use arck_libfs_kit::region::ThreadSlot;
use arck_libfs_kit::views::entries::pages_of;
use arck_libfs_kit::views::times::now;
use arck_libfs_kit::views::{File, flag};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

/// Pages changed in one step.
const STEP: u64 = 512;

/// Data pages, and arena pages for the entries that lead to them, set aside for one call; those
/// that are left go back to the stock. It is forgotten when the auxiliary state is built anew, whose
/// stocks have all that nothing refers to.
pub struct Reserve {
    /// Of the auxiliary state in which the pages were taken.
    build: Cell<u64>,
    session: &'static Session,
    slot: &'static ThreadSlot<'static>,
    pages: RefCell<Vec<PagePtr>>,
    index: RefCell<Vec<u32>>,
}

impl Reserve {
    /// `slot`: of the calling thread.
    pub fn new(session: &'static Session, slot: &'static ThreadSlot<'static>) -> Reserve {
        Reserve {
            build: Cell::new(session.region().build()),
            session,
            slot,
            pages: RefCell::default(),
            index: RefCell::default(),
        }
    }

    /// With what was set aside, inside; `None` while the auxiliary state is to be built anew.
    fn inside<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.slot.inside(|| {
            let build = self.session.region().build();
            if self.build.replace(build) != build {
                self.pages.borrow_mut().clear();
                self.index.borrow_mut().clear();
            }
            work()
        })
    }

    /// Takes arena pages from the stock until there are `count`; what they need that are missing.
    pub fn fill_index(&self, count: usize) -> Result<(), Need> {
        let filled = self.inside(|| self.fill_index_inside(count));
        filled.unwrap_or(Err(Need::ArenaPages(1)))
    }

    fn fill_index_inside(&self, count: usize) -> Result<(), Need> {
        let mut index = self.index.borrow_mut();
        while index.len() < count {
            let lacking = count - index.len();
            let taken = self.session.state().arena.take(self.session, self.slot);
            index.push(taken.map_err(|need| need.of_pages(lacking))?);
        }
        Ok(())
    }

    /// Gives `count` arena pages to the stock.
    pub fn give_back_index(&self, count: usize) {
        self.inside(|| self.give_back_index_inside(count));
    }

    fn give_back_index_inside(&self, count: usize) {
        let mut index = self.index.borrow_mut();
        let kept = index.len().saturating_sub(count);
        for page in index.drain(kept..) {
            self.session
                .state()
                .arena
                .release(self.session, self.slot, page);
        }
    }

    /// Puts as many arena pages into `fresh` as one entry can need, if there are so many.
    fn lend(&self, fresh: &mut FreshPages) {
        self.inside(|| self.lend_inside(fresh));
    }

    fn lend_inside(&self, fresh: &mut FreshPages) {
        let mut index = self.index.borrow_mut();
        while fresh.count() < INDEX_PAGES_MAX
            && let Some(page) = index.pop()
        {
            if let Err(page) = fresh.add(page) {
                index.push(page);
                return;
            }
        }
    }

    fn take_back(&self, fresh: &mut FreshPages) {
        let mut index = self.index.borrow_mut();
        while let Some(page) = fresh.take() {
            index.push(page);
        }
    }

    /// Takes pages from the stock until there are `count`; false if it ran out.
    pub fn fill(&self, count: u64) -> bool {
        self.inside(|| self.fill_inside(count)).unwrap_or(false)
    }

    fn fill_inside(&self, count: u64) -> bool {
        let mut pages = self.pages.borrow_mut();
        while (pages.len() as u64) < count {
            match self.session.state().data.take(self.session, self.slot) {
                Ok(page) => pages.push(page),
                Err(_) => return false,
            }
        }
        true
    }

    /// Gives `count` pages to the stock, for an operation that takes its own.
    pub fn give_back(&self, count: usize) {
        self.inside(|| self.give_back_inside(count));
    }

    fn give_back_inside(&self, count: usize) {
        let mut pages = self.pages.borrow_mut();
        let kept = pages.len().saturating_sub(count);
        for page in pages.drain(kept..) {
            self.session.state().data.release(self.session, page);
        }
    }

    /// Never gives the pages back.
    pub fn forget(&self) {
        self.pages.borrow_mut().clear();
    }

    fn take(&self) -> Result<PagePtr, Need> {
        let reserved = self.inside(|| self.pages.borrow_mut().pop()).flatten();
        let from_stock = || self.session.state().data.take(self.session, self.slot);
        reserved.map_or_else(from_stock, Ok)
    }

    /// Keeps a page that the call set free.
    fn keep(&self, page: PagePtr) {
        self.inside(|| self.pages.borrow_mut().push(page));
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.give_back(usize::MAX);
        self.give_back_index(usize::MAX);
    }
}

impl Data<'_> {
    /// Pages that the holes of `[from, end)` (file pages) lack; with `zeroing`, also those that
    /// another page has to take the place of, since they are not this session's to store to.
    pub fn pages_lacking(&self, file: File, from: u64, end: u64, zeroing: bool) -> Attempt<u64> {
        let _locked = file.lock.read();
        let mut lacking = end - from;
        let mut at = from;
        while let Some(page) = self.next_data(file, at, end)? {
            if !zeroing || self.session.is_own(self.data_page(file, page)?) {
                lacking -= 1;
            }
            at = page + 1;
        }
        self.unmoved(&file)?;
        Ok(lacking)
    }

    /// Arena pages that the entries of the file pages `[from, end)` may need.
    pub fn index_pages_over(&self, file: File, from: u64, end: u64) -> usize {
        if from >= end {
            return 0;
        }
        let root = file.delta_root();
        let verified = file.verified_root().height().min(1);
        let height = index::height_for(end).max(root.height()).max(verified);
        let over = |level| {
            let span = index::capacity(level);
            (end - 1) / span - from / span + 1
        };
        let over: u64 = (1..=height).map(over).sum();
        // New roots lead to what there is, which may lie elsewhere.
        let roots = match root.0 {
            0 => 0,
            _ => height - root.height(),
        };
        over as usize + roots as usize
    }

    /// Stamps the file, makes everything durable, and looks at the header once more.
    fn finish_step(
        &self,
        file: File,
        expected: &Expected,
        branch: &mut Beginning,
        stored: impl FlushedSet,
    ) -> Attempt<()> {
        let stamp = self.stamp(file.inode(), branch, now())?;
        let changed = (stored, stamp.stored);
        let (_, stamped) = self.confirm_repeatable(&file, expected, branch, changed)?;
        file.stamped(stamp.time, stamped);
        Ok(())
    }

    /// Gives the holes among the file pages `[from, end)` pages of zeroes; `zeroing`: all other
    /// pages there become zeroes too. One step at a time, and not beyond the file's end; gives
    /// the page up to which it came.
    pub fn fill_step(
        &self,
        file: File,
        from: u64,
        end: u64,
        zeroing: bool,
        reserve: &Reserve,
    ) -> Attempt<u64> {
        let _locked = self.lock_whole(file.inode());
        self.heed_exclusive(&file)?;
        let expected = self.begin_change(&file)?;
        let size = pages_of(file.size.load(Ordering::Relaxed));
        let last = end.min(size).min(from + STEP).max(from);
        let mut branch = self.branch(file.inode(), &expected)?;
        let mut filled = Vec::new();
        let mut stored = None;
        let fresh = (|| -> Attempt<()> {
            for page in from..last {
                let old = self.data_page(file, page)?;
                if !old.is_null() && !zeroing {
                    continue;
                }
                let is_kept = !old.is_null() && self.session.is_own(old);
                let new = if is_kept {
                    old
                } else {
                    let new = reserve.take()?;
                    filled.push((page, new, old.is_null()));
                    new
                };
                let bytes = self.session.page_bytes(new).ok_or(Errno::IO)?;
                let zeroes = bytes.stream_zeroes(0, PAGE_SIZE as usize);
                let zeroes = zeroes.ok_or(Errno::IO)?.describing();
                stored = Some(zeroes.join_all(stored.take()));
            }
            Ok(())
        })();
        let (begun, zeroed) = branch.begun_with(stored);
        self.publishes();
        let mut published = None;
        let mut count = 0;
        let mut index = FreshPages::default();
        let outcome = fresh.and_then(|()| {
            for &(page, new, was_hole) in &filled {
                let entry = Entry::Page(new.0, zeroed.as_ref().ok_or(Errno::IO)?);
                reserve.lend(&mut index);
                let token = self.set_entry(file, &begun, page, entry, &mut index)?;
                count += 1;
                if was_hole {
                    file.part().has_more_pages(1);
                }
                published = Some(token.join_all(published.take()));
            }
            Ok(())
        });
        for (_, new, _) in filled.drain(count..) {
            reserve.keep(new);
        }
        reserve.take_back(&mut index);
        if let Err(stop) = outcome {
            // The next who has the lock goes on from there.
            order::drain(published);
            return Err(stop);
        }
        if file.has(flag::MAPPED) {
            self.remap(file.inode(), from, last);
        }
        self.finish_step(file, &expected, &mut branch, published)?;
        Ok(if last >= end.min(size) { end } else { last })
    }

    /// Makes holes of the file pages `[from, end)`, one step at a time; gives the page up to
    /// which it came. What that sets free is kept in `freed`.
    pub fn punch_step(&self, file: File, from: u64, end: u64, freed: &Reserve) -> Attempt<u64> {
        let _locked = self.lock_whole(file.inode());
        self.heed_exclusive(&file)?;
        let expected = self.begin_change(&file)?;
        let mut branch = self.branch(file.inode(), &expected)?;
        let begun = branch.durable();
        let size = pages_of(file.size.load(Ordering::Relaxed));
        let end_here = end.min(size);
        let verified_end = file
            .part()
            .limit
            .load(Ordering::Relaxed)
            .min(pages_of(file.base_size.load(Ordering::Relaxed)));
        let (mut zeroed, mut cleared) = (None, None);
        let mut at = from;
        let mut reached = end;
        let mut count = 0;
        while let Some(page) = self.next_data(file, at, end_here)? {
            if count == STEP {
                reached = page;
                break;
            }
            count += 1;
            at = page + 1;
            let old = self.data_page(file, page)?;
            self.expect_reached()?;
            if file.has(flag::MAPPED) && self.session.is_own(old) {
                // It may be mapped to be written: it stays, as zeroes.
                let bytes = self.session.page_bytes(old).ok_or(Errno::IO)?;
                let zeroes = bytes.stream_zeroes(0, PAGE_SIZE as usize);
                zeroed = Some(zeroes.ok_or(Errno::IO)?.join_all(zeroed.take()));
                continue;
            }
            let root = file.delta_root();
            let entry = delta::index_entry(self.session, root, page);
            let is_verified = page < verified_end
                && index::next(self.session, file.verified_root(), page, page + 1)
                    .ok_or_else(|| self.lost(&file))?
                    .is_some();
            let token = if is_verified {
                let mut fresh = FreshPages::default();
                let set = self.set_entry(file, &begun, page, Entry::Hole, &mut fresh);
                self.give_index_pages(&mut fresh, 0);
                if set.is_err() {
                    // The next who has the lock goes on from there.
                    order::drain((zeroed.take(), cleared.take()));
                }
                Some(set?)
            } else {
                let cleared = delta::clear_index_entry(self.session, &begun, root, page)?;
                if root.height() == 0 {
                    file.part().root.store(0, Ordering::Release);
                }
                cleared
            };
            file.part().pages.fetch_sub(1, Ordering::Relaxed);
            if entry != 0 {
                freed.keep(PagePtr(entry));
            }
            if let Some(token) = token {
                cleared = Some(token.join_all(cleared.take()));
            }
        }
        if file.has(flag::MAPPED) {
            self.remap(file.inode(), from, reached);
        }
        self.finish_step(file, &expected, &mut branch, (zeroed, cleared))?;
        Ok(reached)
    }

    /// Zeroes `[from, end)`, which lies in one page, if that page is data and as far as the file
    /// reaches.
    pub fn zero_part(&self, file: File, from: u64, end: u64) -> Attempt<()> {
        let seen = self.seen(&file);
        let size = file.size.load(Ordering::Acquire);
        let end = end.min(size);
        let page = self.data_page(file, from / PAGE_SIZE);
        self.unmoved_since(&file, seen)?;
        if from >= end || page?.is_null() {
            return Ok(());
        }
        let zeroes = [0u8; PAGE_SIZE as usize];
        let length = (end - from).min(PAGE_SIZE) as usize;
        // It makes no file longer.
        let limit = u64::MAX;
        self.write_at(file, &zeroes[..length], Position::At(from), false, limit)
            .map(drop)
    }
}
