//! What is being closed: work that a change of permissions has left, done in slices between the
//! requests of all sessions.
//!
//! # Invariants
//! * All that follows from one change is one *closing*. A small one ends with the change, before
//!   anything else is done; of a large one the rest is done slice by slice, those of several
//!   closings in turn, so that none keeps another from ending.
//! * A slice does [`SLICE`] units of work and what is left of one inode, or of a part of one
//!   ([`parts`](super::parts)): a unit is an inode that is looked at, or a page that is moved.
//! * A closing ends when the pages that it has moved are empty where they were, too. It waits for that in
//!   turns (see [`emptying`](super::emptying)), and with [`EMPTYINGS`] on their way before it moves more.
//! * Who asked for the change is answered when the closing has ended (see [`crate::service`]): from
//!   then on nobody is sent anything of it that he may not read.
//! * A pool is not marked as cleanly closed before all has ended; after any other end everything
//!   is looked at before anybody is served.

use super::emptying::Emptying;
use super::{Copier, Touched};
use crate::core::Core;
use arck_core_state::InodeNumber;
use std::collections::{HashSet, VecDeque};

/// Units of work between two looks at the doorbells.
pub const SLICE: u64 = 64;
/// Units of work that are done at once, with the change that makes them necessary.
const AT_ONCE: u64 = 256;

/// Lots of pages of a closing that are being emptied at the same time: each has a worker, of which a user has
/// a few.
const EMPTYINGS: usize = 4;

/// What follows from one change.
#[derive(Default)]
pub(crate) struct Closing {
    number: u64,
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
pub(crate) struct Closings {
    under_way: VecDeque<Closing>,
    /// Number of the latest.
    last: u64,
    /// Somebody is at it: what is touched meanwhile waits for its turn.
    running: bool,
    /// Units of work done, since the controller was started.
    done: u64,
    /// Inodes moved, since then.
    moved: u64,
    /// Most units done between two looks at the doorbells while something was left over.
    longest: u64,
}

impl Closings {
    pub(super) fn note_work(&mut self, units: u64) {
        self.done += units;
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
    /// most units of a slice.
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

impl Core {
    /// Puts what may have got a tighter class where only those in it can read it, directories with
    /// all that is beneath: at once if that is little, else in slices
    /// ([`close_slice`](Self::close_slice)).
    ///
    /// What moves is folded, which may make classes tighter in turn. That waits its turn here: a
    /// session can close thousands of directories within each other, and the stack is finite.
    pub(crate) fn tighten(&mut self, touched: Vec<Touched>) {
        if !self.state.space.shared {
            return;
        }
        self.touched.extend(touched);
        if self.closings.running {
            return;
        }
        let mut units = AT_ONCE;
        while !self.touched.is_empty() {
            let closing = self.new_closing();
            units = self.work(closing, units);
        }
    }

    /// Does a slice of what has been left over; whether there was any.
    pub(crate) fn close_slice(&mut self) -> bool {
        let Some(closing) = self.closings.under_way.pop_front() else {
            return false;
        };
        let before = self.closings.done;
        self.work(closing, SLICE);
        while !self.touched.is_empty() {
            let closing = self.new_closing();
            self.closings.under_way.push_back(closing);
        }
        let done = self.closings.done - before;
        self.closings.longest = self.closings.longest.max(done);
        true
    }

    /// Does all that has been left over.
    pub(crate) fn finish_closing(&mut self) {
        while self.close_slice() {}
    }

    fn new_closing(&mut self) -> Closing {
        self.closings.last += 1;
        Closing {
            number: self.closings.last,
            waiting: std::mem::take(&mut self.touched),
            within: HashSet::new(),
            copier: Copier::default(),
            emptying: Vec::new(),
        }
    }

    /// Works at a closing until it has ended, or so many units are done; what is left is put back.
    /// Gives the units that are left.
    fn work(&mut self, mut closing: Closing, units: u64) -> u64 {
        let end = self.closings.done + units;
        self.closings.running = true;
        while self.closings.done < end && closing.emptying.len() < EMPTYINGS {
            let Some(at) = closing.waiting.pop() else {
                break;
            };
            self.close_one(at, &mut closing);
        }
        self.wait_for_emptying(&mut closing.emptying);
        self.closings.running = false;
        self.keep_rights();
        if !closing.waiting.is_empty() || !closing.emptying.is_empty() {
            self.closings.under_way.push_back(closing);
        }
        self.end_quarantine();
        end.saturating_sub(self.closings.done)
    }
}
