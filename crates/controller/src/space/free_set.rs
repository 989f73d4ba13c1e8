//! Numbers that are free, given in runs: of inodes, and of branch slots.
//!
//! # Invariants
//! * A word of `above` says of each of 64 words of `bits` whether a bit is set in it.
//! * No bit is set in words before `lowest`.

/// See the module's head.
#[derive(Default)]
pub struct FreeSet {
    /// A bit for each number.
    bits: Vec<u64>,
    above: Vec<u64>,
    count: u64,
    /// Where the search begins: a word of `bits`.
    lowest: usize,
}

/// Word and bit of a number.
fn place(number: u32) -> (usize, u64) {
    ((number / 64) as usize, 1 << (number % 64))
}

impl FreeSet {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number is free from now on.
    pub fn insert(&mut self, number: u32) {
        let (word, bit) = place(number);
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
            self.above.resize(word / 64 + 1, 0);
        }
        // On a medium that is damaged, two may have said that it is theirs.
        self.count += u64::from(self.bits[word] & bit == 0);
        self.bits[word] |= bit;
        self.above[word / 64] |= 1 << (word % 64);
        self.lowest = self.lowest.min(word);
    }

    /// The first word from here on in which a bit is set.
    fn first_from(&self, word: usize) -> Option<usize> {
        let of_first = self.above.get(word / 64)? & (!0 << (word % 64));
        let place = |at: usize, bits: u64| at * 64 + bits.trailing_zeros() as usize;
        if of_first != 0 {
            return Some(place(word / 64, of_first));
        }
        let rest = self.above.iter().enumerate().skip(word / 64 + 1);
        let mut set = rest.filter(|(_, bits)| **bits != 0);
        set.next().map(|(at, bits)| place(at, *bits))
    }

    /// The lowest numbers that follow each other, no more than `most`: the first, and how many. Taken.
    pub fn take_run(&mut self, most: u32) -> Option<(u32, u32)> {
        if self.count == 0 || most == 0 {
            return None;
        }
        let first_word = self.first_from(self.lowest)?;
        self.lowest = first_word;
        let mut at = self.bits[first_word].trailing_zeros();
        let first = u32::try_from(first_word).ok()? * 64 + at;
        let (mut word, mut taken) = (first_word, 0);
        loop {
            let free = (self.bits[word] >> at).trailing_ones();
            let run = free.min(most - taken);
            let mask = match run {
                64 => !0,
                run => ((1 << run) - 1) << at,
            };
            self.bits[word] &= !mask;
            if self.bits[word] == 0 {
                self.above[word / 64] &= !(1 << (word % 64));
            }
            taken += run;
            let goes_on = at + run == 64 && taken < most;
            if !goes_on || self.bits.get(word + 1).is_none_or(|next| next & 1 == 0) {
                break;
            }
            (word, at) = (word + 1, 0);
        }
        self.count -= u64::from(taken);
        Some((first, taken))
    }

    /// The lowest one, taken.
    pub fn take(&mut self) -> Option<u32> {
        self.take_run(1).map(|(first, _)| first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn runs_go_over_words_and_end_at_gaps() {
        let mut free = FreeSet::default();
        assert_eq!(free.take_run(5), None);
        for number in (10..200).chain(201..300).chain([100_000]) {
            free.insert(number);
        }
        assert_eq!(free.count(), 290);
        assert_eq!(free.take_run(0), None);
        assert_eq!(free.take_run(54), Some((10, 54)));
        assert_eq!(free.take_run(1000), Some((64, 136)));
        assert_eq!(free.take_run(1000), Some((201, 99)));
        assert_eq!(free.take(), Some(100_000));
        assert_eq!((free.take(), free.count()), (None, 0));
        free.insert(3);
        assert_eq!(free.take_run(9), Some((3, 1)));
    }

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((0u32..700, 0u32..90, any::<bool>()), 0..200)) {
            let (mut free, mut model) = (FreeSet::default(), BTreeSet::new());
            for (number, most, inserts) in steps {
                if inserts {
                    for number in number..number + most {
                        if model.insert(number) {
                            free.insert(number);
                        }
                    }
                } else {
                    let lowest = model.first().copied();
                    let run = lowest.filter(|_| most > 0).map(|first| {
                        let run = (first..first + most).take_while(|n| model.contains(n)).count();
                        (first, run as u32)
                    });
                    if let Some((first, count)) = run {
                        (first..first + count).for_each(|n| assert!(model.remove(&n)));
                    }
                    prop_assert_eq!(free.take_run(most), run);
                }
                prop_assert_eq!(free.count(), model.len() as u64);
            }
        }
    }
}
