//! What stands at each page of a map.
//!
//! # Invariants
//! * Kept by runs: of one thing that is no page of the pool, or of pages of the pool one after the
//!   other. So a map costs memory by how its file is scattered, not by how long it is.
//! * Every page is in a run, and no run goes on where the one before it ends.

use std::collections::BTreeMap;
use std::ops::Range;

/// Zeroes that cannot be written.
pub const HOLE: u64 = 0;
/// SIGBUS.
pub const NOTHING: u64 = u64::MAX;
/// A copy of the file's last page, which others wrote and did not clean behind the end.
pub const COPY: u64 = u64::MAX - 1;
/// Reserved, and nothing of it placed yet.
pub const NEW: u64 = u64::MAX - 2;

pub fn is_page(value: u64) -> bool {
    value != HOLE && value < NEW
}

/// What stands `pages` behind a page where `value` stands, in the same run.
pub fn further(value: u64, pages: u64) -> u64 {
    match is_page(value) {
        true => value + pages,
        false => value,
    }
}

/// What stands where, by page of the map.
pub struct Places {
    length: u64,
    /// By their first pages: what stands there.
    runs: BTreeMap<u64, u64>,
}

impl Places {
    /// Nothing of so many pages is placed yet.
    pub fn new(length: u64) -> Places {
        let first = (length != 0).then_some((0, NEW));
        Places {
            length,
            runs: first.into_iter().collect(),
        }
    }

    /// In pages.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// What stands at a page, and how many pages of its run there are from it on.
    pub fn run(&self, page: u64) -> (u64, u64) {
        let end = self.runs.range(page + 1..).next();
        let end = end.map_or(self.length, |(&first, _)| first);
        match self.runs.range(..=page).next_back() {
            Some((&first, &value)) => (further(value, page - first), end - page),
            None => (NEW, end - page),
        }
    }

    /// The runs: first page, what stands there, how many pages.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let firsts = self.runs.keys().skip(1).copied();
        let ends = firsts.chain(std::iter::once(self.length));
        let runs = self.runs.iter().zip(ends);
        runs.map(|((&first, &value), end)| (first, value, end - first))
    }

    /// In `range`, which is not empty, stands a run that begins with `value`.
    pub fn set(&mut self, range: Range<u64>, value: u64) {
        if range.end < self.length {
            let (behind, _) = self.run(range.end);
            self.runs.insert(range.end, behind);
        }
        while let Some((&first, _)) = self.runs.range(range.clone()).next() {
            self.runs.remove(&first);
        }
        self.runs.insert(range.start, value);
        self.join(range.start);
        self.join(range.end);
        debug_assert!(self.is_sound_at(range.start) && self.is_sound_at(range.end));
    }

    /// Whether pages around this one are in runs, and none goes on where the one before it ends.
    fn is_sound_at(&self, page: u64) -> bool {
        let before = self.runs.range(..page).next_back();
        let joins = |(&first, &value): (&u64, &u64)| {
            let here = self.runs.get(&page);
            here.is_some_and(|&here| {
                further(value, page - first) == here && is_page(value) == is_page(here)
            })
        };
        (self.length == 0 || self.runs.contains_key(&0)) && !before.is_some_and(joins)
    }

    /// Makes one of the run that begins at a page and the one before it, if it goes on from that.
    fn join(&mut self, page: u64) {
        let before = self.runs.range(..page).next_back();
        if let (Some((&first, &value)), Some(&here)) = (before, self.runs.get(&page))
            && further(value, page - first) == here
            && is_page(value) == is_page(here)
        {
            self.runs.remove(&page);
        }
    }

    /// Keeps the pages before `page`, which is inside, and gives the rest.
    pub fn split_off(&mut self, page: u64) -> Places {
        let (value, _) = self.run(page);
        let rest = self.runs.split_off(&page);
        let mut runs: BTreeMap<u64, u64> = rest
            .into_iter()
            .map(|(first, value)| (first - page, value))
            .collect();
        runs.insert(0, value);
        debug_assert!(page < self.length, "page {page} of {}", self.length);
        let length = self.length - page;
        self.length = page;
        Places { length, runs }
    }

    /// Puts the pages of `other` behind these.
    pub fn extend(&mut self, other: Places) {
        let at = self.length;
        self.length += other.length;
        let runs = other.runs.into_iter();
        self.runs
            .extend(runs.map(|(first, value)| (at + first, value)));
        self.join(at);
        debug_assert!(self.is_sound_at(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a list of all pages, one by one.
    fn list(places: &Places) -> Vec<u64> {
        let mut list = Vec::new();
        for (first, value, count) in places.runs() {
            assert_eq!(first, list.len() as u64);
            list.extend((0..count).map(|page| further(value, page)));
        }
        assert_eq!(list.len(), places.len());
        list
    }

    #[test]
    fn runs_are_as_a_list_of_pages() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut places = Places::new(50);
        let mut expected = vec![NEW; 50];
        for _ in 0..20_000 {
            let start = random(50);
            let end = start + 1 + random(50 - start);
            // Near each other, so that runs meet.
            let value = [HOLE, NOTHING, COPY, NEW, 100 + start, 101 + start, 1][random(7) as usize];
            places.set(start..end, value);
            for page in start..end {
                expected[page as usize] = further(value, page - start);
            }
            assert_eq!(list(&places), expected);
            let page = random(50);
            let (value, count) = places.run(page);
            let (here, behind) = (page as usize, (page + count) as usize);
            assert_eq!(value, expected[here]);
            assert_eq!(further(value, count - 1), expected[behind - 1]);
            assert!(behind == 50 || expected[behind] != further(value, count));
            if page != 0 {
                let rest = places.split_off(page);
                assert_eq!(list(&places), expected[..here]);
                assert_eq!(list(&rest), expected[here..]);
                places.extend(rest);
                assert_eq!(list(&places), expected);
            }
        }
    }

    #[test]
    fn what_is_long_costs_no_more_than_what_is_short() {
        let mut places = Places::new(1 << 40);
        places.set(0..1 << 40, HOLE);
        places.set(1 << 30..(1 << 30) + 5, 77);
        assert_eq!(places.runs().count(), 3);
        assert_eq!(places.run((1 << 30) + 3), (80, 2));
    }
}
