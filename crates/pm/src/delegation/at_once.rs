//! Large copies by who asks for them, so many at once: at a [`Gates`] before each node.
//!
//! # Invariants
//! * A thread is at one node at a time, and has fenced what it has written there when it leaves.
//! * In a forked child nobody is anywhere, and an access that had begun fails: what it has there of the gate is memory of its own.

use super::gate::{FORKS, Gates, LONGEST, Place};
use super::pieces::{Joined, cut};
use super::ring::Piece;
use super::rules::Rules;
use crate::copy::{self, Stores};
use crate::medium::Way;
use crate::order::Flushed;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes after which who copies lets others go before it, if some wait.
const TURN: usize = 4 << 20;

/// Bytes that are put together at most, and after which who copies shows that it is there.
const PIECE: usize = 256 << 10;

/// See [`Batch::wait`](super::Batch::wait).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// The access of one thread.
pub(super) struct AtOnce {
    gates: &'static Gates,
    most: u32,
    /// Where it is.
    at: Option<(u32, Place)>,
    /// What is not copied yet.
    open: Joined,
    has_written: bool,
    has_failed: bool,
    /// Bytes since it has shown that it is there, and since it has come there.
    copied: usize,
    copied_there: usize,
    /// How long it still waits at a gate.
    patience: Duration,
    forks: u32,
}

impl AtOnce {
    /// `forks`: as it was before the gates were looked at.
    pub(super) fn new(gates: &'static Gates, most: u32, forks: u32) -> AtOnce {
        AtOnce {
            gates,
            most,
            at: None,
            open: Joined::default(),
            has_written: false,
            has_failed: false,
            copied: 0,
            copied_there: 0,
            patience: LONGEST,
            forks,
        }
    }

    /// Copies, sooner or later, where the node's gate lets it. `shared`: which of both sides is on the medium.
    ///
    /// # Safety
    /// Both sides are the caller's until this [is over](Self::finish); memory that is not there is noticed.
    pub(super) unsafe fn add(&mut self, whole: Piece, shared: *mut u8) {
        for (node, piece) in cut(whole, shared, PIECE) {
            if let Some((node, piece)) = self.open.put(node, piece, PIECE) {
                self.copy(node, &piece);
            }
        }
    }

    fn copy(&mut self, node: u32, piece: &Piece) {
        if self.has_failed || !self.is_of_this_process() {
            self.has_failed = true;
            return;
        }
        self.be_at(node);
        if !self.is_of_this_process() {
            self.has_failed = true;
            return;
        }
        let &Piece {
            way,
            to,
            from,
            length,
        } = piece;
        // SAFETY: what `add` was given, whose caller has said that both sides are his until this is over; what is not there is a fault
        // that is guarded.
        let copied = unsafe {
            match way {
                Way::Write => copy::guarded_store(to, from, length, Stores::Streaming),
                Way::Read => copy::guarded_copy_out(to, from, length),
            }
        };
        self.has_written |= way == Way::Write;
        self.has_failed |= copied.is_err();
        self.copied += length;
        self.copied_there += length;
        self.shows_itself();
        let others = self.at.as_ref().filter(|_| self.copied_there >= TURN);
        if others.is_some_and(|(node, _)| self.gates.of(*node).is_waited_for()) {
            // It is another's turn.
            self.leave();
        }
    }

    fn be_at(&mut self, node: u32) {
        if self.at.as_ref().is_some_and(|(at, _)| *at == node) {
            return;
        }
        self.leave();
        let gate = self.gates.of(node);
        let place = gate.enter(self.most, self.patience, self.forks, Rules::default());
        if place.is_none() {
            self.patience = Duration::ZERO;
        }
        self.copied_there = 0;
        self.at = Some((node, place));
    }

    fn shows_itself(&mut self) {
        if self.copied >= PIECE
            && self.is_of_this_process()
            && let Some((node, place)) = &mut self.at
        {
            self.copied = 0;
            // Otherwise one more than there should be is at the node, until it leaves.
            let _ = self.gates.of(*node).is_still_there(place);
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// All of it is copied, what was written is durable, and it is nowhere.
    pub(super) fn end(&mut self) {
        if let Some((node, piece)) = self.open.take() {
            self.copy(node, &piece);
        }
        self.leave();
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.has_written) {
            crate::fence();
        }
        let is_of_this_process = self.is_of_this_process();
        if let Some((node, place)) = self.at.take()
            && is_of_this_process
        {
            self.gates.of(node).leave(&place, Rules::default());
        }
    }

    pub(super) fn finish(&mut self) -> Result<Flushed, Failed> {
        self.end();
        match self.has_failed || !self.is_of_this_process() {
            true => Err(Failed),
            false => Ok(Flushed::by_others()),
        }
    }
}
