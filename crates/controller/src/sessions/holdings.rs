//! What users hold of what is granted without having used it: inode numbers that are uncommitted, and
//! free pages of data segments.
//!
//! # Invariant
//! * Nobody holds more of either than half of what others leave, or a little; root and the pool's
//!   user may hold all. What is used is limited by nothing but the pool.

use crate::sessions::Sessions;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use std::time::{Duration, Instant};

/// Numbers that anybody may hold.
const NUMBERS_MIN: u64 = 1024;
/// Segments that anybody may hold.
const SEGMENTS_MIN: u64 = 4;
/// A user's numbers are counted for no more than one part in so many of the time.
const SHARE: u32 = 20;

/// Whether who holds `own` may hold `more`, where `free` are left.
fn may_hold(own: u64, more: u64, free: u64, least: u64) -> bool {
    own + more <= ((own + free) / 2).max(least)
}

impl Sessions {
    /// Whether a session's user may hold so many more inode numbers.
    pub(crate) fn may_hold_numbers(&mut self, session: SessionNumber, more: usize) -> bool {
        let Some(user) = self.user_of(session) else {
            return false;
        };
        if self.is_trusted(user) {
            return true;
        }
        let free = self.state.numbers.count_free();
        let may = |sessions: &Sessions| {
            let sessions = sessions.all.values();
            let own = sessions.filter(|session| session.credentials.uid == user);
            let own: usize = own.map(|session| session.uncommitted).sum();
            may_hold(own as u64, more as u64, free, NUMBERS_MIN)
        };
        may(self) || (self.count_numbers(user) && may(self))
    }

    /// Counts again what is uncommitted of a user's numbers; false if that was done a moment ago.
    fn count_numbers(&mut self, user: u32) -> bool {
        let began = Instant::now();
        self.counted.retain(|_, again| *again > began);
        if self.counted.contains_key(&user) {
            return false;
        }
        let Sessions {
            state,
            all: sessions,
            ..
        } = self;
        for session in sessions.values_mut() {
            if session.credentials.uid == user {
                let owned = session.owned.numbers();
                let is_uncommitted = |number| {
                    let header = state.pool.header(number);
                    header.is_some_and(|header| header.kind() == HeaderKind::Granted)
                };
                session.uncommitted = owned.filter(|&number| is_uncommitted(number)).count();
            }
        }
        let pause = (began.elapsed() * SHARE).max(Duration::from_millis(1));
        self.counted.insert(user, Instant::now() + pause);
        true
    }

    /// Whether a session's user may hold another data segment.
    pub(crate) fn may_hold_segment(&self, session: SessionNumber) -> bool {
        let Some(user) = self.user_of(session) else {
            return false;
        };
        if self.is_trusted(user) {
            return true;
        }
        let space = &self.state.space;
        let sessions = self.all.values();
        let own = sessions.filter(|session| session.credentials.uid == user);
        let segments = own.flat_map(|session| &session.segments);
        let unused: u64 = segments.map(|&segment| space.unused_in(segment)).sum();
        let pages = self.state.pool.geometry().pages_per_segment();
        may_hold(unused, pages, space.grantable(), SEGMENTS_MIN * pages)
    }

    pub(crate) fn user_of(&self, session: SessionNumber) -> Option<u32> {
        let session = self.all.get(&session)?;
        Some(session.credentials.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::may_hold;

    #[test]
    fn others_are_left_their_half() {
        let mut free = 1000;
        let mut own = 0;
        while may_hold(own, 1, free, 10) {
            own += 1;
            free -= 1;
        }
        assert_eq!((own, free), (500, 500));
        // The next one has half of that.
        let mut next = 0;
        while may_hold(next, 1, free, 10) {
            next += 1;
            free -= 1;
        }
        assert_eq!(next, 250);
        assert!(may_hold(9, 1, 0, 10) && !may_hold(10, 1, 0, 10));
    }
}
