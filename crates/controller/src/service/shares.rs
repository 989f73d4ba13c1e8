//! How the thread's time is shared among users.
//!
//! A request may take half a second (see [`crate::ownership::acquiring`]), a session has 32 of them at once, and
//! a user hundreds of sessions. Whoever asks for one thing waits for one request of each other user,
//! not for all of theirs; and whoever asks for one small thing after another does not wait so each time.
//!
//! # Invariants
//! * In one round, a user is served for [`SHARE`] and what is left of one request, at most.
//! * Where others ask too, who has had more than that in a round is not served for as long again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What a user gets of a round, if there are others.
pub const SHARE: Duration = Duration::from_millis(4);

/// Who has asked so shortly ago may be about to ask again.
const RECENTLY: Duration = Duration::from_secs(1);

/// Users of whom is known when they were served.
const USERS_MAX: usize = 4096;

/// What a user has had.
#[derive(Clone, Copy)]
struct User {
    /// In this round.
    had: Duration,
    last: Instant,
    /// Others come first until then.
    steps_back: Instant,
}

/// What users have had.
#[derive(Default)]
pub struct Shares {
    users: HashMap<u32, User>,
}

impl Shares {
    /// A new round.
    pub fn begin(&mut self) {
        self.users
            .values_mut()
            .for_each(|user| user.had = Duration::ZERO);
    }

    /// Whether a user is to be served now.
    pub fn is_left(&self, user: u32) -> bool {
        let Some(its) = self.users.get(&user) else {
            return true;
        };
        let now = Instant::now();
        let others_ask = || {
            let mut others = self.users.iter().filter(|(other, _)| **other != user);
            others.any(|(_, other)| now.saturating_duration_since(other.last) < RECENTLY)
        };
        its.had < SHARE && (its.steps_back <= now || !others_ask())
    }

    /// A user was served since then.
    pub fn served(&mut self, user: u32, since: Instant) {
        let now = Instant::now();
        let took = now.saturating_duration_since(since);
        if self.users.len() >= USERS_MAX {
            self.users
                .retain(|_, user| now.saturating_duration_since(user.last) < RECENTLY);
        }
        let its = self.users.entry(user).or_insert(User {
            had: Duration::ZERO,
            last: now,
            steps_back: now,
        });
        its.had += took;
        its.last = now;
        // However many requests, or steps of one, it took.
        if its.had > SHARE {
            its.steps_back = now + its.had;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_had_much_steps_back_while_others_ask() {
        let mut shares = Shares::default();
        let long = Duration::from_secs(600);
        let now = Instant::now();
        let began = now.checked_sub(long).unwrap();
        shares.served(1, began);
        assert!(!shares.is_left(1), "in this round");
        shares.begin();
        assert!(shares.is_left(1), "there is nobody else");
        shares.served(2, Instant::now());
        assert!(!shares.is_left(1) && shares.is_left(2) && shares.is_left(3));
        // As if the other had been there long ago.
        shares.users.get_mut(&2).unwrap().last = began;
        assert!(shares.is_left(1));
    }

    /// What is done in steps took a user's whole share of each round, and others waited that long for
    /// each small thing they asked.
    #[test]
    fn who_has_had_much_in_steps_steps_back_too() {
        let mut shares = Shares::default();
        shares.served(2, Instant::now());
        for _ in 0..3 {
            assert!(shares.is_left(1));
            let step = Instant::now().checked_sub(SHARE / 2 - SHARE / 10);
            shares.served(1, step.unwrap());
        }
        shares.begin();
        assert!(!shares.is_left(1));
    }
}
