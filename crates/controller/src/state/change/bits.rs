//! Which pages are in use after a change, where it says something of them: a file has thousands that lie side by
//! side, so what is said is kept for 64 of them at once.

use crate::space::used::Said;
use foldhash::HashMap;

/// See the module's head. No word says nothing.
#[derive(Default)]
pub struct Bits(HashMap<u64, Said>);

fn place(page: u64) -> (u64, u64) {
    (page / 64, 1 << (page % 64))
}

impl Bits {
    /// The page is in use from now on, or not any more.
    pub fn insert(&mut self, page: u64, is_used: bool) {
        let (word, bit) = place(page);
        let said = self.0.entry(word).or_default();
        said.of |= bit;
        match is_used {
            true => said.used |= bit,
            false => said.used &= !bit,
        }
    }

    /// What is said of the page.
    pub fn get(&self, page: u64) -> Option<bool> {
        let (word, bit) = place(page);
        let said = self.0.get(&word).filter(|said| said.of & bit != 0)?;
        Some(said.used & bit != 0)
    }

    /// Nothing is said of the page any more.
    pub fn remove(&mut self, page: u64) {
        let (word, bit) = place(page);
        if let Some(said) = self.0.get_mut(&word) {
            said.of &= !bit;
            said.used &= !bit;
            if said.of == 0 {
                self.0.remove(&word);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Words of the bitmap, by their index, ascending.
    pub fn in_order(&self) -> Vec<(u64, Said)> {
        let mut words: Vec<_> = self.0.iter().map(|(&word, &said)| (word, said)).collect();
        words.sort_unstable_by_key(|(word, _)| *word);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// As a map of pages.
        #[test]
        fn what_is_said_is_what_was_said_last(
            steps in proptest::collection::vec((0u64..300, proptest::option::of(any::<bool>())), 0..200)
        ) {
            let (mut bits, mut model) = (Bits::default(), BTreeMap::new());
            for (page, said) in steps {
                match said {
                    Some(is) => {
                        bits.insert(page, is);
                        model.insert(page, is);
                    }
                    None => {
                        bits.remove(page);
                        model.remove(&page);
                    }
                }
                prop_assert_eq!(bits.get(page), model.get(&page).copied());
            }
            prop_assert_eq!(bits.is_empty(), model.is_empty());
            let mut told = BTreeMap::new();
            for (word, said) in bits.in_order() {
                prop_assert!(said.of != 0 && said.used & !said.of == 0);
                let pages = (0..64).filter(|bit| said.of & 1 << bit != 0);
                told.extend(pages.map(|bit| (word * 64 + bit, said.used & 1 << bit != 0)));
            }
            prop_assert_eq!(told, model);
        }
    }
}
