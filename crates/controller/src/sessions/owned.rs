//! What a session owns, by inode number.
//!
//! Numbers are granted thousands at once, in runs, and are asked for in about that order. A hash table of them all is
//! copied whenever it has grown, and each look at it is one at memory that is not in the cache.
//!
//! # Invariants
//! * Memory is in proportion to what is owned, whatever its numbers: a block for each run of [`BLOCK`] numbers of
//!   which one is owned, and none without.
//! * What most inodes never have ([`Owned::rest`]) stands elsewhere: a number that is granted takes 32 bytes.

use arck_core_state::InodeNumber;
use arck_verifier::Rule;
use foldhash::HashMap;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Numbers that share a block.
const BLOCK: InodeNumber = 16;

/// How an inode is owned.
#[derive(Clone, Debug)]
pub struct Owned {
    /// Since when; the lease counts from here.
    pub since: Instant,
    /// Place in the arena's branch table.
    pub slot: u32,
    rest: Option<Box<Rest>>,
}
const _: () = assert!(size_of::<Option<Owned>>() == 32);

/// What has happened to an inode since it is owned.
#[derive(Clone, Default, Debug)]
pub struct Rest {
    /// The least that the lease is: a multiple of what it took to take the inode over, so that two
    /// writers whose changes are costly to fold get something done between two folds.
    pub earned: Duration,
    /// Where its sealed delta was last: for the next active one.
    pub spare: Option<u32>,
    /// Somebody has waited for its lease.
    pub wanted: bool,
    /// Operations that its owner's threads had begun when it was taken from another.
    pub operations: Option<u64>,
    /// When it was last folded for a reader.
    pub folded: Option<Instant>,
    /// Its delta was refused, and has been neither accepted nor set aside since.
    pub refusal: Option<Refusal>,
}

/// A delta that was refused, and may yet be repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// When the grace period ends.
    pub due: Instant,
    /// What was refused last: rule and place.
    pub rule: Rule,
    pub offset: u64,
}

impl Owned {
    pub fn new(since: Instant, slot: u32) -> Owned {
        Owned {
            since,
            slot,
            rest: None,
        }
    }

    /// What has happened to it, if anything has.
    pub fn rest(&self) -> Option<&Rest> {
        self.rest.as_deref()
    }

    pub fn rest_mut(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    pub fn refusal(&self) -> Option<Refusal> {
        self.rest.as_ref()?.refusal
    }

    /// It is not refused from now on; whether it was.
    pub fn take_refusal(&mut self) -> Option<Refusal> {
        self.rest.as_mut()?.refusal.take()
    }

    pub fn take_spare(&mut self) -> Option<u32> {
        self.rest.as_mut()?.spare.take()
    }
}

/// See the module's head.
#[derive(Default)]
pub struct OwnedInodes {
    /// Of a run of numbers, where its block is.
    block_of: HashMap<InodeNumber, usize>,
    blocks: Vec<Block>,
    count: usize,
    /// The run that was asked for last, and its block.
    last: Cell<Option<(InodeNumber, usize)>>,
}

struct Block {
    run: InodeNumber,
    count: usize,
    owned: Box<[Option<Owned>; BLOCK as usize]>,
}

/// The run that a number is in, and its place there.
fn split(number: InodeNumber) -> (InodeNumber, usize) {
    (number / BLOCK, (number % BLOCK) as usize)
}

impl OwnedInodes {
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

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn get(&self, number: InodeNumber) -> Option<&Owned> {
        let (run, at) = split(number);
        self.blocks[self.block(run)?].owned[at].as_ref()
    }

    pub fn get_mut(&mut self, number: InodeNumber) -> Option<&mut Owned> {
        let (run, at) = split(number);
        let block = self.block(run)?;
        self.blocks[block].owned[at].as_mut()
    }

    pub fn contains(&self, number: InodeNumber) -> bool {
        self.get(number).is_some()
    }

    /// Gives how it was owned before.
    pub fn insert(&mut self, number: InodeNumber, owned: Owned) -> Option<Owned> {
        let (run, at) = split(number);
        let block = match self.block(run) {
            Some(block) => block,
            None => {
                let new = self.blocks.len();
                self.block_of.insert(run, new);
                self.blocks.push(Block {
                    run,
                    count: 0,
                    owned: Box::new([const { None }; BLOCK as usize]),
                });
                self.last.set(Some((run, new)));
                new
            }
        };
        let block = &mut self.blocks[block];
        let before = block.owned[at].replace(owned);
        let is_new = usize::from(before.is_none());
        block.count += is_new;
        self.count += is_new;
        before
    }

    pub fn remove(&mut self, number: InodeNumber) -> Option<Owned> {
        let (run, at) = split(number);
        let place = self.block(run)?;
        let block = &mut self.blocks[place];
        let owned = block.owned[at].take()?;
        block.count -= 1;
        self.count -= 1;
        if block.count == 0 {
            self.blocks.swap_remove(place);
            self.block_of.remove(&run);
            if let Some(moved) = self.blocks.get(place) {
                self.block_of.insert(moved.run, place);
            }
            self.last.set(None);
        }
        Some(owned)
    }

    /// All numbers with how they are owned, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (InodeNumber, &Owned)> {
        self.blocks.iter().flat_map(|block| {
            let first = block.run * BLOCK;
            let owned = (first..=first + (BLOCK - 1)).zip(block.owned.iter());
            owned.filter_map(|(number, owned)| Some((number, owned.as_ref()?)))
        })
    }

    /// All numbers, in no order.
    pub fn numbers(&self) -> impl Iterator<Item = InodeNumber> {
        self.iter().map(|(number, _)| number)
    }
}

impl FromIterator<(InodeNumber, Owned)> for OwnedInodes {
    fn from_iter<I: IntoIterator<Item = (InodeNumber, Owned)>>(all: I) -> OwnedInodes {
        let mut inodes = OwnedInodes::default();
        for (number, owned) in all {
            inodes.insert(number, owned);
        }
        inodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map_and_keeps_no_empty_blocks(steps in prop::collection::vec(
            (any::<bool>(), prop_oneof![0u32..80, Just(u32::MAX), Just(u32::MAX - 20)]), 0..400)) {
            let since = Instant::now();
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            let mut owned = OwnedInodes::default();
            for (slot, (is_added, number)) in (0..).zip(steps) {
                let before = match is_added {
                    true => (owned.insert(number, Owned::new(since, slot)), model.insert(number, slot)),
                    false => (owned.remove(number), model.remove(&number)),
                };
                prop_assert_eq!(before.0.map(|owned| owned.slot), before.1);
                for number in (0..100).chain([u32::MAX - 20, u32::MAX]) {
                    let slot = model.get(&number).copied();
                    prop_assert_eq!(owned.get(number).map(|owned| owned.slot), slot);
                    prop_assert_eq!(owned.get_mut(number).map(|owned| owned.slot), slot);
                    prop_assert_eq!(owned.contains(number), slot.is_some());
                }
                let mut all: Vec<_> = owned.iter().map(|(number, owned)| (number, owned.slot)).collect();
                all.sort_unstable();
                prop_assert_eq!(all, model.clone().into_iter().collect::<Vec<_>>());
                prop_assert_eq!(owned.len(), model.len());
                let runs: std::collections::BTreeSet<u32> = model.keys().map(|number| number / BLOCK).collect();
                prop_assert_eq!((owned.blocks.len(), owned.block_of.len()), (runs.len(), runs.len()));
            }
        }
    }

    #[test]
    fn what_seldom_happens_is_remembered() {
        let mut owned = Owned::new(Instant::now(), 3);
        assert_eq!((owned.take_spare(), owned.refusal()), (None, None));
        assert!(owned.rest().is_none());
        owned.rest_mut().spare = Some(7);
        assert_eq!((owned.take_spare(), owned.take_spare()), (Some(7), None));
    }
}
