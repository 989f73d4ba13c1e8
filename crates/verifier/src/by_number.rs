//! What is known of inodes, by their number: entries in the order in which they came, found without a search.
//!
//! The inodes of a fold have numbers that were granted together, and are asked for in about the order in which
//! they were granted. A hash table knows nothing of that: each look at it is one at memory that is not in the cache.
//!
//! # Invariants
//! * Each entry has a place, of one number; a place belongs to one number at most.
//! * Memory is in proportion to the entries, whatever their numbers: a block of places for each run of
//!   [`BLOCK`] numbers of which one is there.

use arck_core_state::{InodeNumber, cast};
use foldhash::HashMap;
use std::cell::Cell;
use std::collections::hash_map::Entry;

/// Numbers that share a block of places.
const BLOCK: InodeNumber = 64;
/// In a block: no entry.
const NOTHING: u32 = u32::MAX;

/// See the module's head.
#[derive(Debug)]
pub struct ByNumber<T> {
    entries: Vec<T>,
    /// Of a run of numbers, where its block is.
    block_of: HashMap<InodeNumber, usize>,
    blocks: Vec<[u32; BLOCK as usize]>,
    /// The run that was asked for last, and its block.
    last: Cell<Option<(InodeNumber, usize)>>,
}

impl<T> Default for ByNumber<T> {
    fn default() -> Self {
        ByNumber {
            entries: Vec::new(),
            block_of: HashMap::default(),
            blocks: Vec::new(),
            last: Cell::new(None),
        }
    }
}

/// The run that a number is in, and its place there.
fn split(number: InodeNumber) -> (InodeNumber, usize) {
    (number / BLOCK, (number % BLOCK) as usize)
}

impl<T> ByNumber<T> {
    fn block(&self, run: InodeNumber) -> Option<usize> {
        match self.last.get() {
            Some((last, block)) if last == run => Some(block),
            _ => {
                let block = *self.block_of.get(&run)?;
                self.last.set(Some((run, block)));
                Some(block)
            }
        }
    }

    /// Where the entry of a number is, if there is one.
    pub fn place(&self, number: InodeNumber) -> Option<usize> {
        let (run, at) = split(number);
        let place = self.blocks[self.block(run)?][at];
        (place != NOTHING).then_some(place as usize)
    }

    pub fn get(&self, number: InodeNumber) -> Option<&T> {
        self.entries.get(self.place(number)?)
    }

    pub fn get_mut(&mut self, number: InodeNumber) -> Option<&mut T> {
        let place = self.place(number)?;
        self.entries.get_mut(place)
    }

    pub fn contains(&self, number: InodeNumber) -> bool {
        self.place(number).is_some()
    }

    /// The entry of a number, which is made if there is none.
    pub fn get_or_insert_with(&mut self, number: InodeNumber, make: impl FnOnce() -> T) -> &mut T {
        let (run, at) = split(number);
        let block = match self.block(run) {
            Some(block) => block,
            None => {
                let new = self.blocks.len();
                if let Entry::Vacant(vacant) = self.block_of.entry(run) {
                    vacant.insert(new);
                    self.blocks.push([NOTHING; BLOCK as usize]);
                }
                self.last.set(Some((run, new)));
                new
            }
        };
        let next = self.entries.len();
        let place = &mut self.blocks[block][at];
        if *place == NOTHING {
            // Each has a number of its own.
            *place = cast::count(next);
            self.entries.push(make());
        }
        let place = *place as usize;
        &mut self.entries[place]
    }

    /// All entries, in the order in which they came.
    pub fn entries(&self) -> &[T] {
        &self.entries
    }

    pub fn entries_mut(&mut self) -> &mut [T] {
        &mut self.entries
    }

    pub fn into_entries(self) -> Vec<T> {
        self.entries
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Room for so many more entries.
    pub fn reserve(&mut self, more: usize) {
        self.entries.reserve(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map(numbers in prop::collection::vec(
            prop_oneof![0u32..200, any::<u32>(), Just(u32::MAX)], 0..300)) {
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let mut order = Vec::new();
            let mut known: ByNumber<(u32, u64)> = ByNumber::default();
            for &number in &numbers {
                if !model.contains_key(&number) {
                    order.push(number);
                }
                *model.entry(number).or_default() += 1;
                known.get_or_insert_with(number, || (number, 0)).1 += 1;
                prop_assert_eq!(known.len(), model.len());
            }
            for number in numbers.iter().flat_map(|number| [*number, number.wrapping_add(1)]) {
                let found = known.get(number).map(|entry| entry.1);
                prop_assert_eq!(found, model.get(&number).copied());
                prop_assert_eq!(known.contains(number), model.contains_key(&number));
                prop_assert_eq!(known.get_mut(number).map(|entry| entry.0).unwrap_or(number), number);
            }
            let came: Vec<u32> = known.entries().iter().map(|entry| entry.0).collect();
            prop_assert_eq!(came, order);
        }
    }
}
