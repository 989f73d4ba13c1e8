//! A metadata page as a change leaves it, in private memory.
//!
//! Most changes are of a page that nobody has looked at lately, and of few of its words: copying all of
//! it would fetch 64 cache lines for three or four.
//!
//! # Invariants
//! * A page that is not fresh is its live page with `lines` in place of the live ones, until it is made `whole`; from
//!   then on `whole` alone counts.
//! * A fresh page is whole from the beginning: nobody looks at what stood there.
//! * Whatever is set is noted in `touched`, and nothing else differs from the live page.

use arck_core_state::{EditWords, PageWords, Words, copied_page, zeroed_page};
use arck_pm::copy::prefetch;
use std::cell::{Cell, OnceCell, RefCell};

/// Words in a page.
const WORDS: usize = 512;
/// Words in a line of the processor's cache.
const LINE: usize = 8;
/// Lines for which there is room from the beginning: those of a name that comes or goes.
const LINES_AT_FIRST: usize = 5;

/// See the module's head.
pub struct WorkingPage {
    is_fresh: bool,
    lines: RefCell<Lines>,
    whole: OnceCell<Box<PageWords>>,
    touched: Touched,
}

/// Lines of a page that have been copied.
struct Lines {
    /// Which ones, a bit each.
    present: u64,
    /// Where each of those stands among `copies`.
    places: [u8; WORDS / LINE],
    copies: Vec<[u64; LINE]>,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines {
            present: 0,
            places: [0; WORDS / LINE],
            copies: Vec::new(),
        }
    }
}

impl Lines {
    fn word(&self, index: usize) -> Option<u64> {
        let line = index / LINE;
        let is_here = self.present & 1 << line != 0;
        is_here.then(|| self.copies[usize::from(self.places[line])][index % LINE])
    }

    /// A word whose line is copied first.
    fn word_mut(&mut self, live: &PageWords, index: usize) -> &mut u64 {
        let line = index / LINE;
        if self.present & 1 << line == 0 {
            if self.copies.is_empty() {
                self.copies.reserve(LINES_AT_FIRST);
            }
            // There are 64 at most.
            self.places[line] = u8::try_from(self.copies.len()).unwrap_or(u8::MAX);
            let copy = std::array::from_fn(|at| live.word(line * LINE + at));
            self.copies.push(copy);
            self.present |= 1 << line;
        }
        &mut self.copies[usize::from(self.places[line])][index % LINE]
    }
}

/// Words that may have changed since the page was as it stands live, a bit each.
#[derive(Default)]
struct Touched([Cell<u64>; WORDS / 64]);

impl Touched {
    fn note(&self, word: usize) {
        let bits = &self.0[word / 64];
        bits.set(bits.get() | 1 << (word % 64));
    }

    /// Ascending.
    fn iter(&self) -> impl Iterator<Item = usize> {
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

/// A page as a change leaves it, to be looked at.
#[derive(Clone, Copy)]
pub struct Seen<'p> {
    pub working: Option<&'p WorkingPage>,
    pub live: &'p PageWords,
}

impl Words for Seen<'_> {
    fn word(&self, index: usize) -> u64 {
        match self.working {
            Some(working) => working.word(self.live, index),
            None => self.live.word(index),
        }
    }
}

/// A page that a change edits. What is changed is noted.
#[derive(Clone, Copy)]
pub struct Edited<'p> {
    pub working: &'p WorkingPage,
    pub live: &'p PageWords,
}

impl Words for Edited<'_> {
    fn word(&self, index: usize) -> u64 {
        self.working.word(self.live, index)
    }
}

impl EditWords for Edited<'_> {
    fn set_word(&self, index: usize, value: u64) {
        self.working.set(self.live, index, value);
    }
}

impl WorkingPage {
    fn new(is_fresh: bool, whole: OnceCell<Box<PageWords>>) -> WorkingPage {
        WorkingPage {
            is_fresh,
            lines: RefCell::default(),
            whole,
            touched: Touched::default(),
        }
    }

    /// A new page, zeroed.
    pub fn fresh() -> WorkingPage {
        WorkingPage::new(true, OnceCell::from(zeroed_page()))
    }

    /// A new page with these contents.
    pub fn copy_of(old: &PageWords) -> WorkingPage {
        WorkingPage::new(true, OnceCell::from(copied_page(old)))
    }

    /// The live page, nothing changed yet.
    pub fn of_live() -> WorkingPage {
        WorkingPage::new(false, OnceCell::new())
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
            let lines = self.lines.take();
            for index in self.touched.iter() {
                if let Some(value) = lines.word(index) {
                    words.set_word(index, value);
                }
            }
            words
        })
    }

    /// One word, whose index is below 512.
    pub fn word(&self, live: &PageWords, index: usize) -> u64 {
        if let Some(words) = self.whole.get() {
            return words.word(index);
        }
        let copied = self.lines.borrow().word(index);
        copied.unwrap_or_else(|| live.word(index))
    }

    /// Sets a word, whose index is below 512.
    pub fn set(&self, live: &PageWords, index: usize, value: u64) {
        match self.whole.get() {
            Some(words) => words.set_word(index, value),
            None => *self.lines.borrow_mut().word_mut(live, index) = value,
        }
        self.touched.note(index);
    }

    /// Has fetched what [`for_changed`](WorkingPage::for_changed) looks at first.
    pub fn prefetch(&self) {
        prefetch(self);
    }

    /// The same, of what that refers to.
    pub fn prefetch_lines(&self) {
        self.lines.borrow().copies.iter().for_each(prefetch);
    }

    /// Tells the words that may differ from the live page's, ascending.
    pub fn for_changed(&self, live: &PageWords, mut each: impl FnMut(usize, u64)) {
        let touched = self.touched.iter();
        touched.for_each(|index| each(index, self.word(live, index)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arck_core_state::directory::{Dentry, HashPage, UNITS, find_in_page, hash_name};
    use arck_core_state::{FileKind, PagePtr};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicU64;

    fn changed(working: &WorkingPage, live: &PageWords) -> Vec<(usize, u64)> {
        let mut changed = Vec::new();
        working.for_changed(live, |index, value| changed.push((index, value)));
        assert!(changed.is_sorted());
        changed
    }

    fn page(value: impl Fn(usize) -> u64) -> PageWords {
        std::array::from_fn(|index| AtomicU64::new(value(index)))
    }

    proptest! {
        /// Whatever is set, before and after the page is made whole, is what is read and told, and nothing else is.
        #[test]
        fn a_page_is_the_live_one_with_what_was_set(
            before in prop::collection::vec((0usize..WORDS, 0u64..5), 0..80), is_made_whole: bool,
            after in prop::collection::vec((0usize..WORDS, 0u64..5), 0..20)) {
            let live = page(|index| index as u64);
            let working = WorkingPage::of_live();
            let mut model = BTreeMap::new();
            let mut set = |pairs: Vec<(usize, u64)>| {
                for (index, value) in pairs {
                    working.set(&live, index, value);
                    model.insert(index, value);
                }
            };
            set(before);
            prop_assert!(working.whole().is_none());
            if is_made_whole {
                working.words(&live);
            }
            set(after);
            let expected: Vec<_> = model.clone().into_iter().collect();
            prop_assert_eq!(changed(&working, &live), expected);
            let expected = |index: &usize| model.get(index).copied().unwrap_or(*index as u64);
            for index in 0..WORDS {
                prop_assert_eq!(working.word(&live, index), expected(&index));
            }
            let words = working.words(&live);
            prop_assert!((0..WORDS).all(|index| words.word(index) == expected(&index)));
        }
    }

    proptest! {
        /// A page of names of which only lines are copied is edited as one that is copied whole, and what is told to be
        /// changed is all that is.
        #[test]
        fn names_come_and_go_in_lines_as_in_the_whole(
            names in prop::collection::vec(prop::collection::vec(1u8..=255, 1..=60usize), 0..40),
            steps in prop::collection::vec(
                (0u8..5, 0usize..UNITS, prop::collection::vec(1u8..=255, 1..=255usize)), 1..40)) {
            let dentry = Dentry { inode: 9, generation: 3, kind: FileKind::File };
            let hash = |name: &[u8]| hash_name(7, name);
            let live = zeroed_page();
            HashPage(&live).format(5, 6);
            for name in &names {
                let _ = HashPage(&live).add(hash(name), name, dentry);
            }
            let (working, whole) = (WorkingPage::of_live(), copied_page(&live));
            let (lines, model) = (HashPage(Edited { working: &working, live: &live }), HashPage(&whole));
            for (what, unit, name) in &steps {
                let (unit, hash) = (*unit, hash(name));
                match what {
                    0 => {
                        lines.set_next(PagePtr(unit as u64));
                        model.set_next(PagePtr(unit as u64));
                    }
                    1 => prop_assert_eq!(lines.add(hash, name, dentry), model.add(hash, name, dentry)),
                    2 => prop_assert_eq!(lines.add_at(unit, hash, name, dentry), model.add_at(unit, hash, name, dentry)),
                    _ => prop_assert_eq!(lines.remove(unit), model.remove(unit)),
                }
                prop_assert_eq!(lines.is_empty(), model.is_empty());
                prop_assert_eq!(find_in_page(&lines.0, hash, name), find_in_page(&whole, hash, name));
            }
            prop_assert!(working.whole().is_none());
            let told: BTreeMap<usize, u64> = changed(&working, &live).into_iter().collect();
            for index in 0..WORDS {
                let expected = whole.word(index);
                prop_assert_eq!(working.word(&live, index), expected);
                prop_assert_eq!(told.get(&index).copied().unwrap_or(live.word(index)), expected, "word {}", index);
            }
        }
    }

    #[test]
    fn fresh_pages_are_whole() {
        let live = page(|_| 1);
        assert_eq!(WorkingPage::copy_of(&page(|_| 3)).word(&live, 511), 3);
        let fresh = WorkingPage::fresh();
        assert!(fresh.is_fresh() && fresh.whole().is_some());
        assert_eq!(fresh.word(&live, 0), 0);
        fresh.set(&live, 9, 5);
        assert_eq!(changed(&fresh, &live), [(9, 5)]);
    }
}
