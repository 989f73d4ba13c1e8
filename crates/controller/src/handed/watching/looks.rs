//! When it is looked whether owners have changed anything that is watched.
//!
//! # Invariants
//! * Nobody looks while nothing is watched, or nobody owns anything of it: whoever is to change it asks for that first.
//! * However much is watched, no more than a [part](PART) of the time is spent on it.

use arck_core_state::InodeNumber;
use std::time::{Duration, Instant};

/// While something changes.
const OFTEN: Duration = Duration::from_millis(10);
/// Where nothing has for a while.
const SELDOM: Duration = Duration::from_millis(30);
/// One look takes one of so many parts of the time between two.
const PART: u32 = 20;
/// An owner that has changed nothing for so long is to own it no longer.
const QUIET: Duration = Duration::from_secs(1);

/// See the module's head.
#[derive(Debug)]
pub struct Looks {
    /// `None`: nobody owns anything that is watched, until something moves.
    next: Option<Instant>,
    every: Duration,
    changed: Instant,
    is_quiet: bool,
    /// What has been begun, and goes on at the next turn.
    look: Option<Look>,
    /// Owners of what has a number from this on are to be asked to let go.
    lets_go: Option<InodeNumber>,
}

/// A look at everything, which takes as many turns as it needs.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// What has a number from this on is left.
    pub from: InodeNumber,
    pub found: Found,
    /// Whether it is looked once more, since by what was found there are others to be looked at.
    pub is_again: bool,
    /// What it took.
    pub spent: Duration,
}

impl Default for Looks {
    fn default() -> Looks {
        Looks {
            next: None,
            every: OFTEN,
            changed: Instant::now(),
            is_quiet: false,
            look: None,
            lets_go: None,
        }
    }
}

/// What a look has found: the more, the later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Found {
    /// Nobody owns anything that is watched.
    Nobody,
    /// Owners have done nothing.
    Nothing,
    Something,
}

impl Looks {
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Somebody may own something that is watched.
    pub fn wake(&mut self) {
        if self.next.is_none() {
            self.every = OFTEN;
            self.next = Some(Instant::now() + OFTEN);
        }
    }

    pub fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// What was begun, or is to begin now.
    pub fn take_look(&mut self) -> Look {
        self.look.take().unwrap_or(Look {
            from: 0,
            found: Found::Nobody,
            is_again: false,
            spent: Duration::ZERO,
        })
    }

    /// The rest waits for the next turn.
    pub fn go_on(&mut self, look: Look) {
        self.look = Some(look);
    }

    /// It was looked at everything, in so much time.
    pub fn looked(&mut self, spent: Duration, found: Found) {
        let now = Instant::now();
        match found {
            Found::Nobody => {
                self.next = None;
                return;
            }
            Found::Something => {
                (self.changed, self.is_quiet) = (now, false);
                self.every = OFTEN;
            }
            Found::Nothing => self.every = (self.every + OFTEN / 4).min(SELDOM),
        }
        self.next = Some(now + self.every.max(spent * PART));
    }

    /// From where on owners are to be asked to let go at this turn.
    pub fn take_letting_go(&mut self) -> Option<InodeNumber> {
        self.lets_go.take()
    }

    /// They are to be from there on at the next turn.
    pub fn lets_go_from(&mut self, number: InodeNumber) {
        self.lets_go = Some(number);
    }

    /// Whether owners are to be asked to let go, once after nothing has changed for a while.
    pub fn becomes_quiet(&mut self) -> bool {
        let is_quiet = self.changed.elapsed() > QUIET;
        is_quiet && !std::mem::replace(&mut self.is_quiet, is_quiet)
    }
}
