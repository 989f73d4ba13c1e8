//! What the model's operations were promised, noted outside of the model: no access here is a
//! step, so what is asserted holds at the very moment.

use crate::image::Entry;
use crate::memory::Effect;
use arck_core_state::InodeNumber;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One execution's.
#[derive(Default)]
pub struct Ledger {
    notes: Mutex<Notes>,
}

/// See [`Ledger`].
#[derive(Default)]
pub struct Notes {
    /// What operations did that have returned, inode by inode.
    pub acknowledged: BTreeSet<(InodeNumber, Effect)>,
    /// What was folded in, inode by inode.
    pub applied: BTreeSet<(InodeNumber, Effect)>,
    /// Values that somebody is about to remove, or has removed.
    pub claimed: BTreeSet<usize>,
    /// What the journal holds, until it is stored in its places.
    pub journal: Option<Entry>,
}

impl Ledger {
    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn acknowledge(&self, inode: InodeNumber, effect: Effect) {
        for part in effect.parts(inode) {
            let is_new = self.notes().acknowledged.insert(part);
            assert!(is_new, "two operations did {part:?}");
        }
    }

    /// What an operation did is as if it had never been done: nobody sees it any more.
    pub fn retract(&self, inode: InodeNumber, effect: Effect) {
        for part in effect.parts(inode) {
            let was_there = self.notes().acknowledged.remove(&part);
            assert!(was_there, "nobody did {part:?}");
        }
    }

    /// Effects on an inode whose operations have returned.
    pub fn acknowledged(&self, inode: InodeNumber) -> Vec<Effect> {
        let notes = self.notes();
        let own = notes.acknowledged.iter().filter(|(of, _)| *of == inode);
        own.map(|(_, effect)| *effect).collect()
    }

    /// Asserts that a state has all that was promised before it was looked at.
    pub fn check_seen(&self, inode: InodeNumber, promised: &[Effect], values: &[usize]) {
        let claimed = self.notes().claimed.clone();
        for effect in promised {
            match effect {
                Effect::Add(value) => assert!(
                    values.contains(value) || claimed.contains(value),
                    "inode {inode}: the acknowledged {effect:?} is not there: {values:?}"
                ),
                Effect::Remove(value) => assert!(
                    !values.contains(value),
                    "inode {inode}: the acknowledged {effect:?} is undone: {values:?}"
                ),
                Effect::AddToBoth(_) | Effect::Partner(_) | Effect::Gone(_) => {}
            }
        }
    }
}
