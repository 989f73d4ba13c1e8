//! How far sweeps have come, and what those at ends of sessions have cost: see [`crate::ownership::sweep`].

use crate::fold::folding::Failure;
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Users of whom is known what their ends have cost; of more, those whose cost is long past.
const USERS_MAX: usize = 4096;

/// A user whose ends have used that up has it again after so many times as long.
pub const REGAINED: u32 = 16;

/// What refusals have cost at the ends of sessions, of each user.
#[derive(Default)]
pub struct Spent(pub HashMap<u32, (Duration, Instant)>);

impl Spent {
    pub fn of(&self, user: u32) -> Duration {
        self.0.get(&user).map_or(Duration::ZERO, |&(spent, since)| {
            spent.saturating_sub(since.elapsed() / REGAINED)
        })
    }

    pub fn add(&mut self, user: u32, more: Duration) {
        let spent = self.of(user) + more;
        if self.0.len() >= USERS_MAX {
            self.0
                .retain(|_, (spent, since)| since.elapsed() / REGAINED < *spent);
        }
        self.0.insert(user, (spent, Instant::now()));
    }
}

/// Why all of a session's is folded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Commit,
    Release,
    /// Nobody repairs what is refused: it is set aside.
    End,
}

/// How far one has come.
pub struct Sweep {
    pub session: SessionNumber,
    pub purpose: Purpose,
    /// Those that were refused before: each alone, so that they keep nothing else from being folded.
    pub refused: Vec<InodeNumber>,
    /// All others, and the first of them that has not been looked at.
    pub sound: Vec<InodeNumber>,
    pub next: usize,
    /// Parts of what was refused as a whole; the last is next.
    pub parts: Vec<Vec<InodeNumber>>,
    /// What refusals have taken.
    pub wasted: Duration,
    pub first: Option<Failure>,
}
