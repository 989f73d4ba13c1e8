//! What hand-overs take and move, for whoever asks ([`Call::Measure`]).
//!
//! # Invariants
//! * While nobody measures, no clock is read; counting is a few additions a fold.
//! * Nothing depends on what is found.
//!
//! [`Call::Measure`]: arck_protocol::socket::Call::Measure

use arck_protocol::measure::HandOvers;
use arck_verifier::Changes;
use rustix::time::{ClockId, clock_gettime};

/// Names, pages, creations and changes of links.
pub fn records(changes: &Changes) -> u64 {
    let of_inodes = changes
        .inodes
        .iter()
        .map(|inode| inode.pages.len() + inode.names_added.len() + inode.names_removed.len());
    (of_inodes.sum::<usize>() + changes.creations.len() + changes.links.len()) as u64
}

/// See the module's head.
#[derive(Default)]
pub struct Meter {
    on: bool,
    pub totals: HandOvers,
}

/// One of the times in [`HandOvers`].
type Part = fn(&mut HandOvers) -> &mut u64;

impl Meter {
    /// Nanoseconds of CLOCK_MONOTONIC; 0 while nobody measures.
    pub fn now(&self) -> u64 {
        if !self.on {
            return 0;
        }
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
    }

    /// Adds to a part what has passed since an earlier [`now`](Self::now); gives the time, at which
    /// the next part begins.
    pub fn add(&mut self, since: u64, part: Part) -> u64 {
        let now = self.now();
        // Measuring may have begun in between.
        if since != 0 {
            *part(&mut self.totals) += now.saturating_sub(since);
        }
        now
    }

    /// A request is answered that was taken from its slot at `received`.
    pub fn answered(&mut self, received: u64) {
        if received != 0 {
            self.totals.requests += 1;
            self.totals.received = received;
            self.totals.answered = self.now();
        }
    }

    /// What was found since it was asked last; from now on it measures, or not.
    pub fn take(&mut self, on: bool) -> HandOvers {
        self.on = on;
        std::mem::take(&mut self.totals)
    }
}
