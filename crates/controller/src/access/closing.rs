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

use crate::access::Access;
use crate::access::closings::Closing;
use crate::fold::pages::Copier;
use crate::fold::touched::Touched;
use std::collections::HashSet;

/// Units of work between two looks at the doorbells.
pub const SLICE: u64 = 64;
/// Units of work that are done at once, with the change that makes them necessary.
const AT_ONCE: u64 = 256;

/// Lots of pages of a closing that are being emptied at the same time: each has a worker, of which a user has
/// a few.
const EMPTYINGS: usize = 4;

impl Access<'_> {
    /// Puts what may have got a tighter class where only those in it can read it, directories with
    /// all that is beneath: at once if that is little, else in slices
    /// ([`close_slice`](Self::close_slice)).
    ///
    /// What moves is folded, which may make classes tighter in turn. That waits its turn here: a
    /// session can close thousands of directories within each other, and the stack is finite.
    pub(crate) fn tighten(&mut self, touched: Vec<Touched>) {
        if !self.sessions.state.space.shared {
            return;
        }
        self.folds.touched.extend(touched);
        if self.places.closings.running {
            return;
        }
        let before = self.places.closings.done;
        let mut units = AT_ONCE;
        while !self.folds.touched.is_empty() {
            let closing = self.new_closing();
            units = self.work(closing, units);
        }
        self.places.closings.note_step(before);
    }

    /// Does a slice of what has been left over; whether there was any.
    pub(crate) fn close_slice(&mut self) -> bool {
        let Some(closing) = self.places.closings.under_way.pop_front() else {
            return false;
        };
        let before = self.places.closings.done;
        self.work(closing, SLICE);
        while !self.folds.touched.is_empty() {
            let closing = self.new_closing();
            self.places.closings.under_way.push_back(closing);
        }
        self.places.closings.note_step(before);
        true
    }

    /// Does all that has been left over.
    pub(crate) fn finish_closing(&mut self) {
        while self.close_slice() {}
    }

    fn new_closing(&mut self) -> Closing {
        self.places.closings.last += 1;
        Closing {
            number: self.places.closings.last,
            waiting: std::mem::take(&mut self.folds.touched),
            within: HashSet::new(),
            copier: Copier::default(),
            emptying: Vec::new(),
        }
    }

    /// Works at a closing until it has ended, or so many units are done; what is left is put back.
    /// Gives the units that are left.
    fn work(&mut self, mut closing: Closing, units: u64) -> u64 {
        let end = self.places.closings.done + units;
        self.places.closings.running = true;
        while self.places.closings.done < end && closing.emptying.len() < EMPTYINGS {
            let Some(at) = closing.waiting.pop() else {
                break;
            };
            self.close_one(at, &mut closing);
        }
        self.wait_for_emptying(&mut closing.emptying);
        self.places.closings.running = false;
        self.sessions.keep_rights();
        if !closing.waiting.is_empty() || !closing.emptying.is_empty() {
            self.places.closings.under_way.push_back(closing);
        }
        self.end_quarantine();
        end.saturating_sub(self.places.closings.done)
    }
}
