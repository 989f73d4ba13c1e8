//! Where in the heap a build of the auxiliary state lies, and how the memory of earlier ones comes
//! back.
//!
//! ```text
//! 1         permanent                   middle                     pages
//! | for good | one half                  | the other half           |
//! ```
//!
//! Each build lies in one half, and the next in the other. So while that is built, the old one is
//! there to be read, also for the next one if whoever builds dies over it; and it stays there until the
//! one after is built, for threads that were outside with a reference to something of it. All else is
//! given back to the system when the new one is whole. (A region is a file with holes: what it does not
//! use costs addresses.)
//!
//! # Invariants
//! * What was allocated before the region was ready is never given back: it is found by roots that
//!   every member has followed.
//! * Nothing of a build is handed out again before the next is whole; what a builder has made who
//!   died over it, not before that either: what is noted of the old one may be there by now.
//! * All of this changes under the pool's lock, or where one thread builds alone.

use super::super::Region;
use super::super::sizes::PAGE_SIZE;
use super::super::structures::{Builds, PageDescriptor};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

impl Builds {
    fn permanent(&self) -> u32 {
        self.permanent.load(Relaxed).max(1)
    }

    /// Whether nothing was ever built anew in the region.
    pub(super) fn is_first(&self) -> bool {
        self.building.load(Relaxed) == 0
    }

    /// The page between the halves: the heap's `middle`, or behind what is for good.
    fn between(&self, middle: u32) -> u32 {
        middle.max(self.permanent())
    }

    /// Pages that a build of a heap of so many `pages` can have.
    pub(super) fn most(&self, middle: u32, pages: u32) -> u32 {
        match self.permanent.load(Relaxed) {
            0 => pages,
            permanent => middle.saturating_sub(permanent),
        }
    }

    fn kept(&self) -> Range<u32> {
        self.kept_begin.load(Relaxed)..self.kept_end.load(Relaxed)
    }

    fn keep(&self, pages: Range<u32>) {
        self.kept_begin.store(pages.start, Relaxed);
        self.kept_end.store(pages.end, Relaxed);
    }

    /// Pages below this one, behind `middle` or not, may have memory.
    fn note_high(&self, page: u32, middle: u32) {
        self.high[usize::from(page > middle)].fetch_max(page, Relaxed);
    }
}

impl Region {
    pub(in super::super) fn initialise_heap(&self) {
        let pool = &self.auxiliary().pool;
        pool.frontier.store(1, Relaxed);
        pool.builds.begin.store(1, Relaxed);
        let pages = self.layout.heap_pages;
        pool.builds.limit.store(pages, Relaxed);
    }

    /// What is allocated now is for good.
    pub(in super::super) fn keep_for_good(&self) {
        let pool = &self.auxiliary().pool;
        let frontier = pool.frontier.load(Relaxed);
        let first = pool
            .builds
            .permanent
            .compare_exchange(0, frontier, Relaxed, Relaxed);
        if first.is_ok() {
            let builds = &pool.builds;
            builds.begin.store(frontier, Relaxed);
            let middle = builds.between(self.layout.middle);
            builds.limit.store(middle, Relaxed);
        }
    }

    /// Nothing is free of what was used before, and a build begins in the other half; behind what
    /// is there already, if whoever began it before has died over it.
    pub(in super::super) fn reset_pages(&self) {
        let pool = &self.auxiliary().pool;
        let builds = &pool.builds;
        self.forget_runs();
        let (permanent, pages) = (builds.permanent(), self.layout.heap_pages);
        let middle = builds.between(self.layout.middle);
        let begin = builds.begin.load(Relaxed);
        let frontier = pool.frontier.load(Relaxed);
        builds.note_high(frontier, middle);
        let (half, limit) = match begin > middle {
            true => (permanent, middle),
            false => (middle, pages),
        };
        let is_begun = (frontier > middle) != (begin > middle);
        // A page in between, which is no neighbour to be merged with.
        let border = if is_begun {
            frontier
        } else {
            builds.keep(begin..frontier);
            half
        };
        builds.limit.store(limit, Relaxed);
        let first = border.saturating_add(1).min(limit);
        if border < limit {
            self.mark_border(border);
        }
        pool.frontier.store(first, Relaxed);
        builds.building.store(first, Relaxed);
    }

    /// The new build is whole: gives all memory back but its own, and that of the one before.
    pub(in super::super) fn give_back_builds(&self) {
        let pool = &self.auxiliary().pool;
        let builds = &pool.builds;
        let begin = builds.building.load(Relaxed);
        let frontier = pool.frontier.load(Relaxed);
        let middle = builds.between(self.layout.middle);
        builds.note_high(frontier, middle);
        let mut used = [builds.kept(), begin..frontier];
        used.sort_by_key(|pages| pages.start);
        // Half by half: what lies between what is used of the two has never been used.
        for (high, first) in builds.high.iter().zip([builds.permanent(), middle]) {
            let end = high.load(Relaxed);
            let mut at = first;
            for pages in &used {
                let is_here = (pages.start > middle) == (first == middle);
                if !pages.is_empty() && is_here {
                    self.discard_pages(at..pages.start.min(end));
                    at = at.max(pages.end);
                }
            }
            self.discard_pages(at..end);
            high.store(at.min(end), Relaxed);
        }
        builds.begin.store(begin, Relaxed);
    }

    /// Gives the memory of pages back, and of what is known of them.
    fn discard_pages(&self, pages: Range<u32>) {
        if pages.is_empty() {
            return;
        }
        let offset = self.page_offset(pages.start);
        let length = u64::from(pages.end - pages.start) * PAGE_SIZE;
        self.mapping.discard(offset, length);
        let size = size_of::<PageDescriptor>() as u64;
        let place = |page: u32| self.layout.descriptors + u64::from(page) * size;
        let from = place(pages.start).next_multiple_of(PAGE_SIZE);
        // The last page may be a border.
        let to = place(pages.end - 1) / PAGE_SIZE * PAGE_SIZE;
        if from < to {
            self.mapping.discard(from, to - from);
        }
    }
}
