//! Greetings that are answered later: see [`super::joining`].

use arck_protocol::control::MEMBERS;
use arck_protocol::socket::Caller;
use std::time::{Duration, Instant};

/// Making a region takes some hundred microseconds.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// So many of one user wait at once, and of all; others are answered now. A session has no more members.
pub const OF_USER: usize = MEMBERS;

pub const OF_ALL: usize = 4 * MEMBERS;

/// A connection whose greeting is answered later.
pub struct Waiting {
    pub token: u64,
    pub user: u32,
    pub caller: Caller,
    /// It is answered then in any case.
    pub due: Instant,
}

/// All who wait.
#[derive(Default)]
pub struct Joining {
    pub waiting: Vec<Waiting>,
    /// They are not looked after before,
    pub again: Option<Instant>,
    /// but then, since something has happened meanwhile, or not all had their turn.
    pub has_missed: bool,
}

impl Joining {
    /// When one of them is to be answered, at the latest.
    pub fn due(&self) -> Option<Instant> {
        let due = self.waiting.iter().map(|waiting| waiting.due).min()?;
        let again = self.again.filter(|_| self.has_missed);
        Some(again.map_or(due, |again| due.min(again)))
    }

    /// A connection is closed.
    pub fn forget(&mut self, token: u64) {
        self.waiting.retain(|waiting| waiting.token != token);
    }

    pub fn has_room_for(&self, user: u32) -> bool {
        let of_user = self.waiting.iter().filter(|waiting| waiting.user == user);
        self.waiting.len() < OF_ALL && of_user.count() < OF_USER
    }
}
