//! Where in the heap a generation of the auxiliary state lies, and how the memory of earlier ones comes
//! back.
//!
//! ```text
//! 1         permanent                begin     frontier        limit
//! | for good | free, or earlier ones |  this one  |    free      |
//! ```
//!
//! A new generation begins behind the one that it replaces, or before it, where there is more room. So
//! while it is built the old one is there to be read; and it stays there until the next is built, for
//! threads that were outside with a reference to something of it. All else is given back to the system
//! when the new one is whole.
//!
//! # Invariants
//! * What was allocated before the region was ready is never given back: it is found by roots that
//!   every member has followed.
//! * Pages of the generation before are handed out again only where there are no others.
//! * All of this changes under the pool's lock, or where one thread builds alone.

use super::super::Region;
use super::super::mapping::PAGE_SIZE;
use super::pages::PageDescriptor;
use crate::region_shared;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A new generation begins where there is at least one part in so many of the heap, if it can.
const ROOM: u32 = 16;

region_shared! {
    /// Numbers of pages.
    pub(in super::super) struct Generations {
        /// Pages below it are for good; 0 = the region is not ready yet.
        permanent: AtomicU32,
        /// The first page of this generation.
        begin: AtomicU32,
        /// Where the frontier ends.
        pub(super) limit: AtomicU32,
        /// The pages of the generation before; none if they are the same.
        kept_begin: AtomicU32,
        kept_end: AtomicU32,
        /// The first page of the generation that is being built.
        building: AtomicU32,
        /// Pages from here on have never had memory, or were given back.
        high: AtomicU32,
        reserved: AtomicU32,
    }
}

impl Generations {
    fn permanent(&self) -> u32 {
        self.permanent.load(Relaxed).max(1)
    }

    fn kept(&self) -> Range<u32> {
        self.kept_begin.load(Relaxed)..self.kept_end.load(Relaxed)
    }

    fn keep(&self, pages: Range<u32>) {
        self.kept_begin.store(pages.start, Relaxed);
        self.kept_end.store(pages.end, Relaxed);
    }

    fn note_high(&self, page: u32) {
        self.high.fetch_max(page, Relaxed);
    }
}

impl Region {
    pub(in super::super) fn initialise_heap(&self) {
        let pool = &self.auxiliary().pool;
        pool.frontier.store(1, Relaxed);
        pool.generations.begin.store(1, Relaxed);
        let pages = self.layout.heap_pages;
        pool.generations.limit.store(pages, Relaxed);
    }

    /// What is allocated now is for good.
    pub(in super::super) fn keep_for_good(&self) {
        let pool = &self.auxiliary().pool;
        let frontier = pool.frontier.load(Relaxed);
        let first = pool
            .generations
            .permanent
            .compare_exchange(0, frontier, Relaxed, Relaxed);
        if first.is_ok() {
            pool.generations.begin.store(frontier, Relaxed);
        }
    }

    /// Nothing is free of what was used before, and a generation begins elsewhere. `is_again`: whoever
    /// began it before has died over it.
    pub(in super::super) fn reset_pages(&self, is_again: bool) {
        let pool = &self.auxiliary().pool;
        let generations = &pool.generations;
        self.forget_runs();
        let (permanent, pages) = (generations.permanent(), self.layout.heap_pages);
        let begin = generations.begin.load(Relaxed);
        let frontier = pool.frontier.load(Relaxed);
        generations.note_high(frontier);
        // A page in between, which is no neighbour to be merged with.
        let border = if is_again || frontier < begin {
            frontier
        } else {
            generations.keep(begin..frontier);
            let (above, below) = (
                pages.saturating_sub(frontier),
                begin.saturating_sub(permanent),
            );
            let (border, limit) = if above.max(below) < pages / ROOM {
                // Over the old one, of which all that is needed is noted.
                generations.keep(0..0);
                (permanent, pages)
            } else if above >= below {
                (frontier, pages)
            } else {
                (permanent, begin)
            };
            generations.limit.store(limit, Relaxed);
            border
        };
        let limit = generations.limit.load(Relaxed);
        let first = border.saturating_add(1).min(limit);
        if border < limit {
            self.mark_border(border);
        }
        pool.frontier.store(first, Relaxed);
        generations.building.store(first, Relaxed);
    }

    /// The new generation is whole: gives all memory back but its own, and that of the one before.
    pub(in super::super) fn give_back_generations(&self) {
        let pool = &self.auxiliary().pool;
        let generations = &pool.generations;
        let begin = generations.building.load(Relaxed);
        let frontier = pool.frontier.load(Relaxed);
        generations.note_high(frontier);
        let high = generations.high.load(Relaxed);
        let mut used = [generations.kept(), begin..frontier];
        used.sort_by_key(|pages| pages.start);
        let mut at = generations.permanent();
        for pages in used.iter().filter(|pages| !pages.is_empty()) {
            self.discard_pages(at..pages.start);
            at = at.max(pages.end);
        }
        self.discard_pages(at..high);
        generations.begin.store(begin, Relaxed);
        generations.high.store(at, Relaxed);
    }

    /// Lets this generation have what earlier ones have left; false if there is nothing. Needs the
    /// pool's lock.
    pub(super) fn use_what_is_left(&self) -> bool {
        let pool = &self.auxiliary().pool;
        let generations = &pool.generations;
        if self.is_building() {
            // Which reads the old one.
            return false;
        }
        let (permanent, pages) = (generations.permanent(), self.layout.heap_pages);
        let kept = generations.kept();
        generations.keep(0..0);
        if generations.limit.load(Relaxed) < pages {
            // It lies before the others: it may go on over them.
            self.discard_pages(kept);
            generations.limit.store(pages, Relaxed);
            return true;
        }
        let begin = generations.begin.load(Relaxed);
        // Without the border.
        let left = permanent..begin.saturating_sub(1);
        if left.is_empty() {
            return false;
        }
        generations.begin.store(permanent, Relaxed);
        self.discard_pages(left.clone());
        self.mark_border(permanent - 1);
        self.put_run(left.start, left.len() as u32, 0);
        true
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
