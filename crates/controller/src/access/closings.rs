//! What is being closed, and how far that is: see [`crate::access::closing`].

use crate::access::emptyings::Emptying;
use crate::fold::pages::Copier;
use crate::fold::touched::Touched;
use arck_core_state::InodeNumber;
use std::collections::{HashSet, VecDeque};

/// What follows from one change.
#[derive(Default)]
pub struct Closing {
    pub number: u64,
    /// To be looked at; the last is next.
    pub(super) waiting: Vec<Touched>,
    /// Directories all of whose names are looked at for this closing already (`true`: whether their
    /// places are right or not).
    pub(super) within: HashSet<(InodeNumber, bool)>,
    /// Where whatever there is is looked at.
    pub(super) copier: Copier,
    /// Pages that have moved, and are not empty yet.
    pub(super) emptying: Vec<Emptying>,
}

/// All closings, and how far they have come.
#[derive(Default)]
pub struct Closings {
    pub under_way: VecDeque<Closing>,
    /// Number of the latest.
    pub last: u64,
    /// Somebody is at it: what is touched meanwhile waits for its turn.
    pub running: bool,
    /// Units of work done, since the controller was started.
    pub done: u64,
    /// Inodes moved, since then.
    moved: u64,
    /// Most units done at once: with a change, or in a slice between two looks at the doorbells.
    longest: u64,
}

impl Closings {
    pub(super) fn note_work(&mut self, units: u64) {
        self.done += units;
    }

    /// A step has ended, which began when `before` units were done.
    pub(super) fn note_step(&mut self, before: u64) {
        self.longest = self.longest.max(self.done - before);
    }

    pub(super) fn note_move(&mut self) {
        self.moved += 1;
    }

    /// What is being emptied where something moved.
    pub(super) fn emptyings(&self) -> impl Iterator<Item = &Emptying> {
        self.under_way.iter().flat_map(|closing| &closing.emptying)
    }

    /// Number of the latest closing that has begun.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether one is under way whose number is above `after`, and `to` at most.
    pub fn any_under_way(&self, after: u64, to: u64) -> bool {
        let mut numbers = self.under_way.iter().map(|closing| closing.number);
        numbers.any(|number| after < number && number <= to)
    }

    /// How many are under way, inodes that are known to wait, units of work done, inodes moved, and
    /// most units of a step.
    pub fn progress(&self) -> [u64; 5] {
        let waiting: usize = self.under_way.iter().map(|c| c.waiting.len()).sum();
        [
            self.under_way.len() as u64,
            waiting as u64,
            self.done,
            self.moved,
            self.longest,
        ]
    }
}
