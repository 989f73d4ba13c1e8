//! A directory's page that a change edits.
//!
//! # Invariant
//! * Each word that is changed is noted: only those are written.

use crate::state::working::Touched;
use arck_core_state::directory::{
    Dentry, HashPage, MovedDentry, WORD_IDENTITY, WORD_MAGIC, WORD_NEXT, units_for, words_of,
};
use arck_core_state::{InodeNumber, PagePtr, PageWords};

/// See the module's head.
#[derive(Clone, Copy)]
pub struct EditedPage<'p> {
    page: HashPage<'p>,
    touched: &'p Touched,
}

impl<'p> EditedPage<'p> {
    pub fn new(words: &'p PageWords, touched: &'p Touched) -> EditedPage<'p> {
        EditedPage {
            page: HashPage(words),
            touched,
        }
    }

    pub fn words(self) -> &'p PageWords {
        self.page.0
    }

    /// A dentry in so many units from one on is put there.
    fn note(self, first: usize, units: usize) {
        let (tags, words) = words_of(first, units);
        self.touched.note(tags);
        self.touched.note(words);
    }

    /// See [`HashPage::format`].
    pub fn format(self, directory: InodeNumber, bucket: u64) {
        self.touched.note(WORD_MAGIC..WORD_MAGIC + 1);
        self.touched.note(WORD_IDENTITY..WORD_IDENTITY + 1);
        self.page.format(directory, bucket);
    }

    /// See [`HashPage::set_next`].
    pub fn set_next(self, next: PagePtr) {
        self.touched.note(WORD_NEXT..WORD_NEXT + 1);
        self.page.set_next(next);
    }

    pub fn is_empty(self) -> bool {
        self.page.is_empty()
    }

    /// See [`HashPage::add`].
    pub fn add(self, hash: u64, name: &[u8], dentry: Dentry) -> Option<usize> {
        self.add_from(0, hash, name, dentry)
    }

    /// See [`HashPage::add_from`].
    pub fn add_from(self, from: usize, hash: u64, name: &[u8], dentry: Dentry) -> Option<usize> {
        let unit = self.page.add_from(from, hash, name, dentry)?;
        self.note(unit, units_for(name.len()));
        Some(unit)
    }

    /// See [`HashPage::add_at`].
    pub fn add_at(self, unit: usize, hash: u64, name: &[u8], dentry: Dentry) -> Option<usize> {
        let units = self.page.add_at(unit, hash, name, dentry)?;
        self.note(unit, units);
        Some(units)
    }

    /// See [`HashPage::put_moved`].
    pub fn put_moved(self, unit: usize, moved: &MovedDentry) -> usize {
        let units = self.page.put_moved(unit, moved);
        self.note(unit, units);
        units
    }

    /// See [`HashPage::remove`].
    pub fn remove(self, unit: usize) -> Option<()> {
        let units = self.page.remove(unit)?;
        // Free is what its tags say.
        self.touched.note(words_of(unit, units).0);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arck_core_state::directory::UNITS;
    use arck_core_state::{FileKind, zeroed_page};
    use proptest::prelude::*;
    use std::sync::atomic::Ordering;

    proptest! {
        /// Whatever is done to a page, words that are not noted are as they were.
        #[test]
        fn what_changes_is_noted(steps in prop::collection::vec(
            (0u8..5, 0usize..UNITS, prop::collection::vec(1u8..=255, 1..=255usize)), 1..60)) {
            let dentry = Dentry { inode: 9, generation: 3, kind: FileKind::File };
            let words = zeroed_page();
            let copy = || -> Vec<u64> { words.iter().map(|word| word.load(Ordering::Relaxed)).collect() };
            for (what, unit, name) in steps {
                let (before, touched) = (copy(), Touched::default());
                let page = EditedPage::new(&words, &touched);
                match what {
                    0 => page.format(5, 6),
                    1 => page.set_next(PagePtr(unit as u64)),
                    2 => _ = page.add(0x1234_5678_9abc_def0, &name, dentry),
                    3 => _ = page.add_at(unit, 0x2234_5678_9abc_def0, &name, dentry),
                    _ => _ = page.remove(unit),
                }
                let after = copy();
                let touched: Vec<usize> = touched.iter().collect();
                prop_assert!(touched.is_sorted());
                for word in (0..512).filter(|word| !touched.contains(word)) {
                    prop_assert_eq!(before[word], after[word], "word {} by {}", word, what);
                }
            }
        }
    }
}
