//! How long a change by message is attempted that comes back, since something else has changed, or is being changed.
//!
//! Invariant: who is let try again has waited a little, longer with each time, so that others get on; it ends, by time, and not before a
//! number of attempts, since on a busy machine a moment is as long as it likes.

use std::time::{Duration, Instant};

/// So often at least.
const LEAST: u32 = 100;
/// So often at once; then a pause is made before each, longer and longer.
const SOON: u32 = 10;
const PAUSE: Duration = Duration::from_micros(100);
const PAUSES_MOST: u32 = 20;
/// For so long at least.
const LONG: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct Patience {
    turns: u32,
    began: Option<Instant>,
}

impl Patience {
    /// Waits a little; false: it has been long enough. Blocks.
    #[cold]
    pub(crate) fn is_left(&mut self) -> bool {
        self.turns += 1;
        let began = *self.began.get_or_insert_with(Instant::now);
        if self.turns > SOON {
            std::thread::sleep(PAUSE * (self.turns - SOON).min(PAUSES_MOST));
        }
        self.turns < LEAST || began.elapsed() < LONG
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_by_time_and_not_soon() {
        let began = Instant::now();
        let mut patience = Patience::default();
        let mut turns = 1;
        while patience.is_left() {
            turns += 1;
        }
        assert!(turns >= LEAST && began.elapsed() >= LONG, "{turns}");
        // The pauses are not so short that it is nothing but asking.
        assert!(turns < 2000, "{turns}");
    }
}
