//! The page pool: runs of free pages, found by size, merged with their neighbours.
//!
//! Every page of the heap has a descriptor. The pool's lock protects the pool and the descriptors
//! of the first and last page of each run. Invariants: these two always say whether the run is
//! free and, if so, where it begins and how long it is; no two free runs touch; pages from the
//! frontier on are not used (see [`super::builds`]). Page 0 of the heap is never handed out, so that 0 means none.
//!
//! Free pages that still have memory behind them are counted as dirty. When there are too many,
//! the longest runs are taken out, given back to the system without holding the lock, and put back
//! clean.

use super::super::holder::Holder;
use super::super::sizes::PAGE_SIZE;
use super::super::structures::{BINS, PageDescriptor, PagePool};
use super::super::{Offset, OutOfMemory, Region};
use std::sync::atomic::Ordering::Relaxed;

/// States of a page, in the low byte; a span's class is in the next.
const FREE: u32 = 1;
pub(super) const SPAN: u32 = 2;
pub(super) const INTERIOR: u32 = 3;
const LARGE: u32 = 4;

/// Dirty free pages always tolerated: 4 MiB. Above, a quarter of the pages in use.
const DIRTY_TOLERATED: u64 = 1024;
/// Shorter dirty runs are not worth a system call.
const DISCARD_AT_LEAST: u32 = 16;

/// Pages for one large object.
pub(super) struct Pages {
    pub(super) offset: u64,
    /// They are as the system gave them: writing zeroes would take memory that may never be needed.
    pub(super) is_zero: bool,
}

impl PagePool {
    pub fn pages_in_use(&self) -> u64 {
        self.in_use.load(Relaxed)
    }

    pub fn large_pages(&self) -> u64 {
        self.large.load(Relaxed)
    }

    pub fn pages_dirty(&self) -> u64 {
        self.dirty.load(Relaxed)
    }

    fn first_occupied(&self, from: usize) -> Option<usize> {
        (from / 64..BINS / 64).find_map(|word| {
            let mut bits = self.occupied[word].load(Relaxed);
            if word == from / 64 {
                bits &= u64::MAX << (from % 64);
            }
            (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
        })
    }
}

/// The bin whose runs have at least the bin's least length, which is at most `pages`.
fn bin_of(pages: u32) -> usize {
    if pages < 8 {
        return pages as usize;
    }
    let log = pages.ilog2();
    8 + (log as usize - 3) * 4 + (pages >> (log - 2) & 3) as usize
}

/// Rounds a request up to the least length of a bin, so that any run of the bin will do.
fn round_up(pages: u32) -> Option<u32> {
    if pages < 8 {
        return Some(pages.max(1));
    }
    pages.checked_next_multiple_of(1 << (pages.ilog2() - 2))
}

impl Region {
    /// Nothing is free of what was used before.
    pub(super) fn forget_runs(&self) {
        let pool = &self.auxiliary().pool;
        pool.lock.reset();
        for bin in &pool.bins {
            bin.store(0, Relaxed);
        }
        for word in &pool.occupied {
            word.store(0, Relaxed);
        }
        for count in [&pool.in_use, &pool.large, &pool.dirty] {
            count.store(0, Relaxed);
        }
    }

    /// Marks a page as one that is no neighbour to be merged with.
    pub(super) fn mark_border(&self, page: u32) {
        self.descriptor(page).state.store(LARGE, Relaxed);
    }

    /// The descriptor of a page. The number is below the heap's page count.
    pub(super) fn descriptor(&self, page: u32) -> &PageDescriptor {
        let place = u64::from(page) * size_of::<PageDescriptor>() as u64;
        self.get(Offset::from_raw(self.layout.descriptors + place))
    }

    pub(super) fn page_offset(&self, page: u32) -> u64 {
        self.layout.heap + u64::from(page) * PAGE_SIZE
    }

    /// The page that holds `offset`, if that lies in the heap.
    pub(super) fn page_of(&self, offset: u64) -> Option<u32> {
        let page = offset.checked_sub(self.layout.heap)? / PAGE_SIZE;
        u32::try_from(page)
            .ok()
            .filter(|&page| page != 0 && page < self.layout.heap_pages)
    }

    /// A run of at least `pages` pages, for one large object.
    pub(super) fn take_pages(&self, holder: Holder, pages: u32) -> Result<Pages, OutOfMemory> {
        let pool = &self.auxiliary().pool;
        let _locked = self.enter(&pool.lock, holder).ok_or(OutOfMemory)?;
        let length = round_up(pages).ok_or(OutOfMemory)?;
        let (page, is_zero) = self.take_run(length)?;
        self.descriptor(page).state.store(LARGE, Relaxed);
        pool.large.fetch_add(u64::from(length), Relaxed);
        Ok(Pages {
            offset: self.page_offset(page),
            is_zero,
        })
    }

    /// A run of exactly `pages` pages for a span.
    pub(super) fn take_span_pages(&self, holder: Holder, pages: u32) -> Result<u64, OutOfMemory> {
        let pool = &self.auxiliary().pool;
        let _locked = self.enter(&pool.lock, holder).ok_or(OutOfMemory)?;
        let (page, _) = self.take_run(pages)?;
        Ok(self.page_offset(page))
    }

    /// Takes back a large object or an empty span.
    pub(super) fn give_pages(&self, holder: Holder, offset: u64) {
        let Some(page) = self.page_of(offset) else {
            debug_assert!(false, "freed {offset:#x}, which is no run of pages");
            return;
        };
        let pool = &self.auxiliary().pool;
        let Some(locked) = self.enter(&pool.lock, holder) else {
            return;
        };
        let descriptor = self.descriptor(page);
        let length = descriptor.length.load(Relaxed);
        match descriptor.state.load(Relaxed) & 0xff {
            LARGE => _ = pool.large.fetch_sub(u64::from(length), Relaxed),
            SPAN => {}
            _ => {
                debug_assert!(false, "page {page} was freed twice");
                return;
            }
        }
        pool.in_use.fetch_sub(u64::from(length), Relaxed);
        self.put_run(page, length, length);
        let too_dirty =
            pool.dirty.load(Relaxed) > DIRTY_TOLERATED.max(pool.in_use.load(Relaxed) / 4);
        drop(locked);
        if too_dirty {
            self.discard_dirty(holder);
        }
    }

    /// Takes a run out of the pool; both its ends are marked as not free. With it: whether all of it is
    /// zero. Needs the pool's lock.
    fn take_run(&self, pages: u32) -> Result<(u32, bool), OutOfMemory> {
        let pool = &self.auxiliary().pool;
        let taken = match pool.first_occupied(bin_of(pages)) {
            Some(bin) => {
                let page = pool.bins[bin].load(Relaxed);
                // Another member may have used it: nothing is changed where this one cannot.
                self.make_reachable(page, pages)?;
                let run = self.descriptor(page);
                let length = run.length.load(Relaxed);
                let dirty = run.used.load(Relaxed);
                self.unlink_run(page, length);
                pool.dirty.fetch_sub(u64::from(dirty), Relaxed);
                if length > pages {
                    // Before the rest looks at its neighbour: inside a run, states are stale.
                    self.descriptor(page + pages - 1)
                        .state
                        .store(LARGE, Relaxed);
                    // Which of its pages are dirty is not known: the taken ones, as far as they go.
                    self.put_run(page + pages, length - pages, dirty.saturating_sub(pages));
                }
                (page, false)
            }
            // Until the first is built anew, nothing behind the frontier has been used.
            None => {
                let page = self.advance_frontier(pages).ok_or(OutOfMemory)?;
                (page, pool.builds.is_first())
            }
        };
        let (page, _) = taken;
        let first = self.descriptor(page);
        first.length.store(pages, Relaxed);
        first.state.store(LARGE, Relaxed);
        self.descriptor(page + pages - 1)
            .state
            .store(LARGE, Relaxed);
        pool.in_use.fetch_add(u64::from(pages), Relaxed);
        Ok(taken)
    }

    /// The first of so many pages that were not used, if there are. Needs the pool's lock.
    fn advance_frontier(&self, pages: u32) -> Option<u32> {
        let pool = &self.auxiliary().pool;
        let page = pool.frontier.load(Relaxed);
        let end = page.checked_add(pages)?;
        if end > pool.builds.limit.load(Relaxed) {
            return None;
        }
        self.make_reachable(page, pages).ok()?;
        pool.frontier.store(end, Relaxed);
        Some(page)
    }

    /// Makes pages reachable for this process, and what is known of them.
    fn make_reachable(&self, page: u32, pages: u32) -> Result<(), OutOfMemory> {
        let size = size_of::<PageDescriptor>() as u64;
        let from = self.layout.descriptors + u64::from(page) * size;
        // One more: the neighbour behind is looked at when they are given back.
        let known = self.mapping.reach(from, (u64::from(pages) + 1) * size);
        let length = u64::from(pages) * PAGE_SIZE;
        let reached = known.and_then(|()| self.mapping.reach(self.page_offset(page), length));
        reached.map_err(|_| OutOfMemory)
    }

    /// Makes all that is used of the heap reachable, as far as this process has not needed it yet.
    pub(in super::super) fn keep_up(&self) -> Result<(), OutOfMemory> {
        let frontier = self.auxiliary().pool.frontier.load(Relaxed);
        let last = frontier.clamp(1, self.layout.heap_pages) - 1;
        self.make_reachable(last, 1)
    }

    /// Puts a run into the pool, merged with free neighbours. Needs the pool's lock.
    pub(super) fn put_run(&self, page: u32, length: u32, dirty: u32) {
        let pool = &self.auxiliary().pool;
        let (mut start, mut pages, mut all_dirty) = (page, length, dirty);
        pool.dirty.fetch_add(u64::from(dirty), Relaxed);
        let before = self.descriptor(page - 1);
        if page > 1 && before.state.load(Relaxed) == FREE {
            start = before.start.load(Relaxed);
            let run = self.descriptor(start);
            let length = run.length.load(Relaxed);
            self.unlink_run(start, length);
            pages += length;
            all_dirty += run.used.load(Relaxed);
        }
        let after = page + length;
        if after < pool.frontier.load(Relaxed) {
            let run = self.descriptor(after);
            if run.state.load(Relaxed) == FREE {
                let length = run.length.load(Relaxed);
                self.unlink_run(after, length);
                pages += length;
                all_dirty += run.used.load(Relaxed);
            }
        }
        let first = self.descriptor(start);
        first.length.store(pages, Relaxed);
        first.used.store(all_dirty, Relaxed);
        first.start.store(start, Relaxed);
        first.state.store(FREE, Relaxed);
        let last = self.descriptor(start + pages - 1);
        last.start.store(start, Relaxed);
        last.state.store(FREE, Relaxed);

        let bin = bin_of(pages);
        let head = pool.bins[bin].load(Relaxed);
        first.next.store(head, Relaxed);
        first.previous.store(0, Relaxed);
        if head != 0 {
            self.descriptor(head).previous.store(start, Relaxed);
        }
        pool.bins[bin].store(start, Relaxed);
        pool.occupied[bin / 64].fetch_or(1 << (bin % 64), Relaxed);
    }

    fn unlink_run(&self, page: u32, length: u32) {
        let pool = &self.auxiliary().pool;
        let bin = bin_of(length);
        let run = self.descriptor(page);
        let (next, previous) = (run.next.load(Relaxed), run.previous.load(Relaxed));
        if next != 0 {
            self.descriptor(next).previous.store(previous, Relaxed);
        }
        if previous != 0 {
            self.descriptor(previous).next.store(next, Relaxed);
        } else {
            pool.bins[bin].store(next, Relaxed);
            if next == 0 {
                pool.occupied[bin / 64].fetch_and(!(1 << (bin % 64)), Relaxed);
            }
        }
    }

    /// Gives the memory of long free runs back to the system until few dirty pages are left.
    #[cold]
    fn discard_dirty(&self, holder: Holder) {
        let pool = &self.auxiliary().pool;
        let Some(mut locked) = self.enter(&pool.lock, holder) else {
            return;
        };
        while pool.dirty.load(Relaxed) > DIRTY_TOLERATED / 2 {
            let Some((page, length)) = self.longest_dirty() else {
                return;
            };
            let dirty = self.descriptor(page).used.load(Relaxed);
            self.unlink_run(page, length);
            pool.dirty.fetch_sub(u64::from(dirty), Relaxed);
            // While it is marked as taken, nobody merges it or hands it out.
            self.descriptor(page).state.store(LARGE, Relaxed);
            self.descriptor(page + length - 1)
                .state
                .store(LARGE, Relaxed);
            drop(locked);
            self.mapping
                .discard(self.page_offset(page), u64::from(length) * PAGE_SIZE);
            locked = match self.enter(&pool.lock, holder) {
                Some(locked) => locked,
                None => return,
            };
            self.put_run(page, length, 0);
        }
    }

    /// A run worth discarding, among the first few of the bins with the longest runs.
    fn longest_dirty(&self) -> Option<(u32, u32)> {
        let pool = &self.auxiliary().pool;
        for bin in (bin_of(DISCARD_AT_LEAST)..BINS).rev() {
            let mut page = pool.bins[bin].load(Relaxed);
            for _ in 0..32 {
                if page == 0 {
                    break;
                }
                let run = self.descriptor(page);
                if run.used.load(Relaxed) >= DISCARD_AT_LEAST {
                    return Some((page, run.length.load(Relaxed)));
                }
                page = run.next.load(Relaxed);
            }
        }
        None
    }
}
