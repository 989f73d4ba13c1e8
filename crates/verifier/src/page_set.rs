//! Pages that have been seen, in whatever order they come: a bit each, as those of a file mostly lie side by side.

use arck_core_state::PagePtr;
use foldhash::HashMap;

/// See the module's head.
#[derive(Default)]
pub(crate) struct PageSet {
    /// Bits of 64 pages each, but those at hand.
    words: HashMap<u64, u64>,
    /// Which of them are at hand, and what they are.
    at: u64,
    bits: u64,
}

impl PageSet {
    /// False if the page was in it.
    pub(crate) fn insert(&mut self, page: PagePtr) -> bool {
        let (word, bit) = (page.0 / 64, 1 << (page.0 % 64));
        if word != self.at {
            self.words.insert(self.at, self.bits);
            self.at = word;
            self.bits = self.words.get(&word).copied().unwrap_or(0);
        }
        let is_new = self.bits & bit == 0;
        self.bits |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn each_is_new_once(pages in proptest::collection::vec(0u64..400, 0..300)) {
            let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
            for page in pages {
                prop_assert_eq!(set.insert(PagePtr(page)), model.insert(page));
            }
        }
    }
}
