//! A metadata page as a change leaves it, in private memory.
//!
//! Most hand-overs change a word of an index page that nobody has looked at lately: copying all of
//! it, and comparing all of it afterwards, would fetch 64 cache lines for one.
//!
//! # Invariants
//! * A page that is not fresh is its live page with `few` on top, until it is made `whole`; from
//!   then on `whole` alone counts.
//! * A fresh page is whole from the beginning: nobody looks at what stood there.
//! * Of a whole page that is not fresh, words that are not `touched` are as they stand live: a page of which a name has
//!   gone need not be compared word by word with one that is not in the cache any more.

use arck_core_state::{PageWords, copied_page, zeroed_page};
use std::cell::{Cell, OnceCell};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words changed at most before the page is copied.
const FEW_MAX: usize = 16;

/// See the module's head.
pub struct WorkingPage {
    is_fresh: bool,
    /// Changed words by index, each once.
    few: Vec<(u16, u64)>,
    whole: OnceCell<Box<PageWords>>,
    touched: Touched,
}

/// Words of the whole page that may have changed since it was made whole, a bit each.
#[derive(Default)]
pub struct Touched([Cell<u64>; WORDS / 64]);

/// Words in a page.
const WORDS: usize = 512;

impl Touched {
    /// Notes words that somebody changes in [`WorkingPage::words`].
    pub fn note(&self, words: Range<usize>) {
        for (at, bits) in (0..).step_by(64).zip(&self.0) {
            let (first, end) = (words.start.max(at), words.end.min(at + 64));
            if first < end {
                let mask = !0 >> (64 - (end - first)) << (first - at);
                bits.set(bits.get() | mask);
            }
        }
    }

    /// Ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        (0..).zip(&self.0).flat_map(|(at, bits)| {
            let mut bits: u64 = bits.get();
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

impl WorkingPage {
    /// A new page, zeroed.
    pub fn fresh() -> WorkingPage {
        WorkingPage {
            is_fresh: true,
            few: Vec::new(),
            whole: OnceCell::from(zeroed_page()),
            touched: Touched::default(),
        }
    }

    /// A new page with these contents.
    pub fn copy_of(old: &PageWords) -> WorkingPage {
        WorkingPage {
            is_fresh: true,
            few: Vec::new(),
            whole: OnceCell::from(copied_page(old)),
            touched: Touched::default(),
        }
    }

    /// The live page, nothing changed yet.
    pub fn of_live() -> WorkingPage {
        WorkingPage {
            is_fresh: false,
            few: Vec::new(),
            whole: OnceCell::new(),
            touched: Touched::default(),
        }
    }

    pub fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// All of it, if it is whole already.
    pub fn whole(&self) -> Option<&PageWords> {
        self.whole.get().map(|words| &**words)
    }

    /// All of it; `live` is what stands in the pool.
    pub fn words(&self, live: &PageWords) -> &PageWords {
        self.whole.get_or_init(|| {
            let words = copied_page(live);
            for &(index, value) in &self.few {
                words[usize::from(index)].store(value, Ordering::Relaxed);
                self.touched
                    .note(usize::from(index)..usize::from(index) + 1);
            }
            words
        })
    }

    /// One word, whose index is below 512.
    pub fn word(&self, live: &PageWords, index: usize) -> u64 {
        if let Some(words) = self.whole.get() {
            return words[index].load(Ordering::Relaxed);
        }
        let changed = self.few.iter().find(|(at, _)| usize::from(*at) == index);
        changed.map_or_else(|| live[index].load(Ordering::Relaxed), |&(_, value)| value)
    }

    /// Sets a word, whose index is below 512.
    pub fn set(&mut self, live: &PageWords, index: usize, value: u64) {
        if self.whole.get().is_none() {
            if let Some(known) = self
                .few
                .iter_mut()
                .find(|(at, _)| usize::from(*at) == index)
            {
                known.1 = value;
                return;
            }
            if self.few.len() < FEW_MAX
                && let Ok(at) = u16::try_from(index)
            {
                self.few.push((at, value));
                return;
            }
        }
        self.words(live)[index].store(value, Ordering::Relaxed);
        self.touched.note(index..index + 1);
    }

    pub fn touched(&self) -> &Touched {
        &self.touched
    }

    /// Tells the words that may differ from the live page's, ascending.
    pub fn for_changed(&self, live: &PageWords, mut each: impl FnMut(usize, u64)) {
        let Some(words) = self.whole.get() else {
            let mut few = self.few.clone();
            few.sort_unstable();
            let few = few.into_iter();
            return few.for_each(|(index, value)| each(usize::from(index), value));
        };
        let touched = self.touched.iter();
        touched.for_each(|index| each(index, words[index].load(Ordering::Relaxed)));
        debug_assert!(
            self.is_fresh || self.is_as_touched(words, live),
            "a word has changed, and nobody has said so"
        );
    }

    fn is_as_touched(&self, words: &PageWords, live: &PageWords) -> bool {
        let same = |(word, live): (&AtomicU64, &AtomicU64)| {
            word.load(Ordering::Relaxed) == live.load(Ordering::Relaxed)
        };
        let mut touched = self.touched.iter().peekable();
        let mut pairs = words.iter().zip(live).enumerate();
        pairs.all(|(index, pair)| touched.next_if_eq(&index).is_some() || same(pair))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_that_are_noted_are_told_in_order(ranges in prop::collection::vec((0usize..=512, 0usize..=512), 0..20)) {
            let touched = Touched::default();
            let mut model = std::collections::BTreeSet::new();
            for (one, other) in ranges {
                let range = one.min(other)..one.max(other);
                touched.note(range.clone());
                model.extend(range);
            }
            prop_assert!(touched.iter().eq(model));
        }
    }

    fn changed(working: &WorkingPage, live: &PageWords) -> Vec<(usize, u64)> {
        let mut changed = Vec::new();
        working.for_changed(live, |index, value| changed.push((index, value)));
        assert!(changed.is_sorted());
        changed.retain(|&(index, value)| live[index].load(Ordering::Relaxed) != value);
        changed
    }

    fn page(value: impl Fn(usize) -> u64) -> PageWords {
        std::array::from_fn(|index| AtomicU64::new(value(index)))
    }

    #[test]
    fn few_or_many_words_come_to_the_same() {
        for count in [1, 2, FEW_MAX, FEW_MAX + 1, 200] {
            let live = page(|index| index as u64);
            let mut working = WorkingPage::of_live();
            // Downwards, some of them twice, one of them as it was.
            for index in (0..count).rev() {
                working.set(&live, index * 2 + 1, 7);
                working.set(&live, index * 2 + 1, 1_000);
            }
            working.set(&live, 511, 511);
            assert_eq!(working.whole().is_none(), count < FEW_MAX);
            let expected: Vec<(usize, u64)> = (0..count).map(|i| (i * 2 + 1, 1_000)).collect();
            assert_eq!(changed(&working, &live), expected);
            assert_eq!((working.word(&live, 1), working.word(&live, 2)), (1_000, 2));
            let words = working.words(&live);
            assert_eq!(words[1].load(Ordering::Relaxed), 1_000);
            assert_eq!(words[510].load(Ordering::Relaxed), 510);
            // Whole now, and the same.
            working.set(&live, 2, 9);
            let mut more = expected.clone();
            more.insert(1, (2, 9));
            assert_eq!(changed(&working, &live), more);
        }
    }

    #[test]
    fn fresh_pages_are_whole() {
        let live = page(|_| 1);
        assert_eq!(WorkingPage::copy_of(&page(|_| 3)).word(&live, 511), 3);
        let fresh = WorkingPage::fresh();
        assert!(fresh.is_fresh() && fresh.whole().is_some());
        assert_eq!(fresh.word(&live, 0), 0);
        // Changed in place, as a live page that is whole.
        for mut working in [fresh, WorkingPage::of_live()] {
            working.words(&live)[9].store(5, Ordering::Relaxed);
            working.touched().note(9..10);
            assert_eq!(working.word(&live, 9), 5);
            working.set(&live, 10, 6);
            let changed = changed(&working, &live);
            assert!(changed.contains(&(9, 5)) && changed.contains(&(10, 6)));
        }
    }
}
