//! What a failure of the machine would leave at an instant, and what a recovery would make of it.
//!
//! # Invariants
//! * Taking an image is no step of the model: all of it is of one instant, at which threads may be anywhere.
//! * A recovery stores again what the journal holds, folds what is sealed, and then what is active.

use crate::ledger::{Ledger, Notes};
use crate::memory::{BRANCHES, Effect, Memory, record, tag};
use crate::scenario::Mutation;
use arck_core_state::InodeNumber;
use arck_core_state::primitive::AtomicU64;
use std::collections::BTreeSet;

/// The words of a header that say who has what.
#[derive(Clone, Copy, Debug)]
pub struct HeaderWords {
    pub session: usize,
    pub fold: u64,
    pub slot: usize,
    /// 0: nothing.
    pub sealed: u64,
    pub sealed_slot: usize,
}

/// An entry of the journal: what is stored again.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub headers: Vec<(InodeNumber, HeaderWords)>,
    /// Values of inodes, and whether they are there.
    pub values: Vec<(InodeNumber, usize, bool)>,
}

struct Image {
    headers: Vec<HeaderWords>,
    /// Which values inodes hold.
    verified: BTreeSet<(InodeNumber, usize)>,
    /// Of each session: tags and fields of its branches, and its tails.
    branches: Vec<Vec<(u64, Vec<u64>)>>,
    tails: Vec<Vec<u64>>,
}

/// As it stands, without a step.
fn raw(word: &AtomicU64) -> u64 {
    // SAFETY: nothing but what the checker knows of other threads' order, which is not asked for here.
    unsafe { word.raw_load() }
}

fn high(word: u64) -> usize {
    (word >> 32) as usize
}

impl Image {
    fn take(memory: &Memory, entry: Option<Entry>) -> Image {
        let headers = memory.inodes().map(|inode| {
            let header = memory.header(inode);
            HeaderWords {
                session: high(raw(&header.ownership)),
                fold: raw(&header.fold),
                slot: high(raw(&header.identity)),
                sealed: raw(&header.sealed),
                sealed_slot: high(raw(&header.state)),
            }
        });
        let arenas = || memory.arenas.iter();
        let all = |words: &Vec<AtomicU64>| words.iter().map(raw).collect();
        let present = memory.inodes().flat_map(|inode| {
            let present = memory.verified(inode).present.iter().enumerate();
            present.filter_map(move |(value, word)| (raw(word) == 1).then_some((inode, value)))
        });
        let mut image = Image {
            headers: headers.collect(),
            verified: present.collect(),
            branches: arenas()
                .map(|arena| {
                    let branches = arena.branches.iter();
                    branches.map(|b| (raw(&b.tag), all(&b.fields))).collect()
                })
                .collect(),
            tails: arenas()
                .map(|arena| arena.tails.iter().flat_map(all).collect())
                .collect(),
        };
        let entry = entry.unwrap_or_default();
        for (inode, words) in entry.headers {
            image.headers[inode as usize - 1] = words;
        }
        for (inode, value, is_present) in entry.values {
            match is_present {
                true => image.verified.insert((inode, value)),
                false => image.verified.remove(&(inode, value)),
            };
        }
        image
    }

    fn delta(&self, inode: InodeNumber, session: usize, fold: u64, slot: usize) -> Vec<Effect> {
        let arena = session - 1;
        let mut effects = Vec::new();
        assert!(slot < BRANCHES, "no slot {slot}");
        let (tagged, fields) = &self.branches[arena][slot];
        if *tagged == tag(inode, fold) {
            effects.extend(fields.iter().filter_map(|&word| Effect::of(word)));
        }
        let records = self.tails[arena].iter().filter_map(|&word| {
            let effect = Effect::of(word)?;
            (word == record(effect, inode, fold)).then_some(effect)
        });
        effects.extend(records);
        // What is removed was there before, or stands in another delta.
        effects.sort_by_key(|effect| matches!(effect, Effect::Remove(_)));
        effects
    }

    /// Folds deltas, given with their inodes.
    fn fold(&mut self, deltas: Vec<(InodeNumber, Vec<Effect>)>, notes: &Notes) {
        for (inode, effect) in deltas
            .into_iter()
            .flat_map(|(inode, effects)| effects.into_iter().map(move |effect| (inode, effect)))
        {
            let parts = effect.parts(inode);
            let owner = |of: InodeNumber| self.headers[of as usize - 1].session;
            if parts.iter().any(|&(of, _)| owner(of) != owner(inode)) {
                // Half an operation: of one in flight that is going to take it back, or a mistake.
                let was_promised = parts.iter().any(|part| notes.acknowledged.contains(part));
                assert!(
                    !was_promised,
                    "{effect:?} can never be folded after a failure"
                );
                continue;
            }
            for (of, effect) in parts {
                match effect {
                    Effect::Add(value) => {
                        let is_new = self.verified.insert((of, value));
                        assert!(
                            is_new,
                            "inode {of}: {effect:?} was folded twice, after a failure"
                        );
                    }
                    Effect::Remove(value) => {
                        let was_there = self.verified.remove(&(of, value));
                        assert!(
                            was_there,
                            "inode {of}: {value} is not there after a failure"
                        );
                    }
                    Effect::AddToBoth(_) | Effect::Partner(_) | Effect::Gone(_) => {}
                }
            }
        }
    }

    fn recover(&mut self, mutation: Mutation, notes: &Notes) {
        let numbers = || (1..).zip(self.headers.iter());
        let owned = || numbers().filter(|(_, header)| header.session != 0);
        let sealed = owned().filter(|(_, header)| header.sealed != 0);
        let sealed = sealed.map(|(inode, h)| {
            let delta = self.delta(inode, h.session, h.sealed, h.sealed_slot);
            (inode, delta)
        });
        let active =
            owned().map(|(inode, h)| (inode, self.delta(inode, h.session, h.fold, h.slot)));
        let (sealed, active): (Vec<_>, Vec<_>) = (sealed.collect(), active.collect());
        match mutation {
            Mutation::RecoversActiveFirst => {
                self.fold(active, notes);
                self.fold(sealed, notes);
            }
            Mutation::RecoveryForgetsSealed => self.fold(active, notes),
            _ => {
                self.fold(sealed, notes);
                self.fold(active, notes);
            }
        }
    }
}

/// Asserts that, if the machine failed now, all would be there that was promised.
pub fn check(memory: &Memory, ledger: &Ledger, mutation: Mutation) {
    let notes = ledger.notes();
    let mut image = Image::take(memory, notes.journal.clone());
    image.recover(mutation, &notes);
    for &(inode, effect) in &notes.acknowledged {
        match effect {
            Effect::Add(value) => assert!(
                image.verified.contains(&(inode, value)) || notes.claimed.contains(&value),
                "inode {inode}: the acknowledged {effect:?} is not there after a failure"
            ),
            Effect::Remove(value) => assert!(
                !image.verified.contains(&(inode, value)),
                "inode {inode}: the acknowledged {effect:?} is undone by a failure"
            ),
            Effect::AddToBoth(_) | Effect::Partner(_) | Effect::Gone(_) => {}
        }
    }
}
