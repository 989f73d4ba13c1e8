//! Sets of inode numbers in ascending order.
//!
//! Numbers are granted in runs, so those of a fold, or those that lose their names together, lie close to each other: a
//! tree of words of bits has a node for hundreds of them, where a tree of numbers has one for ten.
//!
//! # Invariants
//! * No word without a bit is kept: memory is in proportion to the numbers.
//! * What a step takes does not grow with the set but as in a tree, whoever chose the numbers.

use arck_core_state::InodeNumber;
use std::collections::BTreeMap;

/// Numbers in a word.
const WORD: InodeNumber = 64;

/// See the module's head.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct NumberSet {
    words: BTreeMap<InodeNumber, u64>,
    count: usize,
}

/// The word that a number is in, and its bit.
fn split(number: InodeNumber) -> (InodeNumber, u64) {
    (number / WORD, 1 << (number % WORD))
}

/// The numbers of a word, ascending.
fn of_word(word: InodeNumber, mut bits: u64) -> impl Iterator<Item = InodeNumber> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(word * WORD + bit)
    })
}

impl NumberSet {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn contains(&self, number: InodeNumber) -> bool {
        let (word, bit) = split(number);
        self.words.get(&word).is_some_and(|bits| bits & bit != 0)
    }

    /// Whether it is new.
    pub fn insert(&mut self, number: InodeNumber) -> bool {
        let (word, bit) = split(number);
        let bits = self.words.entry(word).or_default();
        let is_new = *bits & bit == 0;
        *bits |= bit;
        self.count += usize::from(is_new);
        is_new
    }

    /// Whether it was there.
    pub fn remove(&mut self, number: InodeNumber) -> bool {
        let (word, bit) = split(number);
        let Some(bits) = self.words.get_mut(&word).filter(|bits| **bits & bit != 0) else {
            return false;
        };
        *bits &= !bit;
        if *bits == 0 {
            self.words.remove(&word);
        }
        self.count -= 1;
        true
    }

    pub fn clear(&mut self) {
        *self = NumberSet::default();
    }

    pub fn iter(&self) -> impl Iterator<Item = InodeNumber> {
        self.iter_from(0)
    }

    /// Those from a number on.
    pub fn iter_from(&self, first: InodeNumber) -> impl Iterator<Item = InodeNumber> {
        let (from, bit) = split(first);
        self.words.range(from..).flat_map(move |(&word, &bits)| {
            let before = if word == from { bit - 1 } else { 0 };
            of_word(word, bits & !before)
        })
    }

    /// Takes out so many of the first.
    pub fn take_first(&mut self, most: usize) -> Vec<InodeNumber> {
        let first: Vec<InodeNumber> = self.iter().take(most).collect();
        for &number in &first {
            self.remove(number);
        }
        first
    }
}

impl Extend<InodeNumber> for NumberSet {
    fn extend<I: IntoIterator<Item = InodeNumber>>(&mut self, numbers: I) {
        // Neighbours come together for the most part: one look at the tree for each word of them.
        let mut numbers = numbers.into_iter().peekable();
        while let Some(number) = numbers.next() {
            let (word, mut bits) = split(number);
            while let Some(next) = numbers.next_if(|&next| next / WORD == word) {
                bits |= split(next).1;
            }
            let known = self.words.entry(word).or_default();
            self.count += (bits & !*known).count_ones() as usize;
            *known |= bits;
        }
    }
}

impl FromIterator<InodeNumber> for NumberSet {
    fn from_iter<I: IntoIterator<Item = InodeNumber>>(numbers: I) -> NumberSet {
        let mut set = NumberSet::default();
        set.extend(numbers);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn numbers() -> impl Strategy<Value = Vec<InodeNumber>> {
        let number = prop_oneof![0u32..200, Just(u32::MAX), Just(u32::MAX - 64), any::<u32>()];
        prop::collection::vec(number, 0..150)
    }

    proptest! {
        #[test]
        fn it_is_a_set_and_keeps_no_empty_words(added in numbers(), removed in numbers(),
            more in numbers(), from: u32, few in 0u32..200, taken in 0usize..100) {
            let mut model: BTreeSet<InodeNumber> = BTreeSet::new();
            let mut set = NumberSet::default();
            for &number in &added {
                prop_assert_eq!(set.insert(number), model.insert(number));
            }
            for &number in &removed {
                prop_assert_eq!(set.remove(number), model.remove(&number));
            }
            set.extend(more.iter().copied());
            model.extend(&more);
            for number in added.iter().chain(&removed).chain(&more).flat_map(|n| [*n, n ^ 1]) {
                prop_assert_eq!(set.contains(number), model.contains(&number));
            }
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
            for from in [from, few] {
                let behind: Vec<_> = model.range(from..).copied().collect();
                prop_assert_eq!(set.iter_from(from).collect::<Vec<_>>(), behind);
            }
            prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
            let words: BTreeSet<u32> = model.iter().map(|number| number / WORD).collect();
            prop_assert_eq!(set.words.len(), words.len());
            prop_assert_eq!(&set, &model.iter().copied().collect::<NumberSet>());
            let first: Vec<_> = model.iter().copied().take(taken).collect();
            prop_assert_eq!(set.take_first(taken), first);
            prop_assert_eq!(set.len(), model.len().saturating_sub(taken));
        }
    }
}
