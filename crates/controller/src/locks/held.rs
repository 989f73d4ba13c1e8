//! The locks of one inode: by who has them, and of each by place.
//!
//! # Invariant
//! * Locks of one holder do not overlap: what overlaps a range is found without looking at others.

use super::{FLOCK, SHARED, SHARED_FLOCK};
use arck_core_state::geometry::SessionNumber;
use arck_protocol::LockMode;
use arck_protocol::message::{LockHolder, LockRange};
use std::cell::Cell;
use std::collections::BTreeMap;

/// What a lock ends with at the latest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Keeper {
    Session(SessionNumber),
    Description(u64),
}

/// Who has a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Holder {
    pub keeper: Keeper,
    pub family: u8,
    pub owner: u64,
}

impl Holder {
    pub fn of(session: SessionNumber, holder: &LockHolder) -> Holder {
        Holder {
            keeper: match holder.family {
                ..SHARED => Keeper::Session(session),
                _ => Keeper::Description(holder.owner),
            },
            family: holder.family,
            owner: holder.owner,
        }
    }

    fn is_flock(&self) -> bool {
        matches!(self.family, FLOCK | SHARED_FLOCK)
    }
}

/// A lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub range: LockRange,
    /// At whose expense.
    pub user: u32,
}

/// Locks of one holder, by where they begin.
type Own = BTreeMap<u64, Held>;

/// All locks of an inode.
#[derive(Default, Debug)]
pub(super) struct OfInode {
    by_holder: BTreeMap<Holder, Own>,
}

/// What overlaps a range.
fn overlapping(own: &Own, start: u64, end: u64) -> impl Iterator<Item = &Held> {
    let before = own.range(..start).next_back().map(|(_, held)| held);
    let before = before.filter(|held| held.range.end > start);
    let within = own.range(start..end).map(|(_, held)| held);
    before.into_iter().chain(within)
}

fn count(looked: &Cell<u64>) {
    looked.set(looked.get() + 1);
}

impl OfInode {
    pub fn is_empty(&self) -> bool {
        self.by_holder.is_empty()
    }

    pub fn holds(&self, holder: &Holder) -> bool {
        self.by_holder.contains_key(holder)
    }

    pub fn all(&self) -> impl Iterator<Item = (Holder, &Held)> {
        let all = self.by_holder.iter();
        all.flat_map(|(&holder, own)| own.values().map(move |held| (holder, held)))
    }

    /// The holders of a keeper.
    fn holders(keeper: Keeper) -> std::ops::RangeInclusive<Holder> {
        let [first, last] = [(0, 0), (u8::MAX, u64::MAX)].map(|(family, owner)| Holder {
            keeper,
            family,
            owner,
        });
        first..=last
    }

    pub fn of_keeper(&self, keeper: Keeper) -> impl Iterator<Item = (Holder, &Held)> {
        let all = self.by_holder.range(OfInode::holders(keeper));
        all.flat_map(|(&holder, own)| own.values().map(move |held| (holder, held)))
    }

    /// Of each holder but one the first lock that keeps it from having what it wants.
    pub fn in_the_way<'a>(
        &'a self,
        wanting: Holder,
        wanted: &'a LockRange,
        looked: &'a Cell<u64>,
    ) -> impl Iterator<Item = (Holder, &'a Held)> {
        let others = self.by_holder.iter().inspect(|_| count(looked));
        let others = others.filter(move |(holder, _)| {
            **holder != wanting && holder.is_flock() == wanting.is_flock()
        });
        others.filter_map(move |(&holder, own)| {
            let mut overlaps =
                overlapping(own, wanted.start, wanted.end).inspect(|_| count(looked));
            let is_exclusive = |mode| mode == LockMode::Exclusive;
            let first =
                overlaps.find(|held| is_exclusive(held.range.mode) || is_exclusive(wanted.mode));
            first.map(|held| (holder, held))
        })
    }

    /// All locks of a holder, which has none then.
    pub fn take(&mut self, holder: &Holder) -> Vec<Held> {
        let own = self.by_holder.remove(holder).unwrap_or_default();
        own.into_values().collect()
    }

    /// Those locks of a holder, taken out, that overlap a range or lie beside it.
    pub fn take_touching(
        &mut self,
        holder: &Holder,
        range: &LockRange,
        looked: &Cell<u64>,
    ) -> Vec<Held> {
        let Some(own) = self.by_holder.get_mut(holder) else {
            return Vec::new();
        };
        let before = own.range(..range.start).next_back();
        let before = before.filter(|(_, held)| held.range.end >= range.start);
        let within = own.range(range.start..=range.end);
        let starts: Vec<u64> = before
            .into_iter()
            .chain(within)
            .map(|(&at, _)| at)
            .collect();
        let taken = starts.iter().inspect(|_| count(looked));
        let taken = taken.filter_map(|start| own.remove(start)).collect();
        if own.is_empty() {
            self.by_holder.remove(holder);
        }
        taken
    }

    /// Those locks of a keeper, taken out, of which that is said.
    pub fn take_of_keeper(&mut self, keeper: Keeper, drops: impl Fn(&Held) -> bool) -> Vec<Held> {
        let mut taken = Vec::new();
        let mut emptied = Vec::new();
        for (holder, own) in self.by_holder.range_mut(OfInode::holders(keeper)) {
            own.retain(|_, held| {
                let drops = drops(held);
                if drops {
                    taken.push(*held);
                }
                !drops
            });
            if own.is_empty() {
                emptied.push(*holder);
            }
        }
        for holder in emptied {
            self.by_holder.remove(&holder);
        }
        taken
    }

    pub fn put(&mut self, holder: Holder, held: Held) {
        let own = self.by_holder.entry(holder).or_default();
        own.insert(held.range.start, held);
    }
}
