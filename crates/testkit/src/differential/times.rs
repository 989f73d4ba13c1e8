//! When what was stamped. Two file systems do each step one after the other, so a time that either
//! stamps for it lies between its beginning, by the coarse clock that it may be stamped with, and its end,
//! by the fine one: tmpfs uses that where somebody has looked at the file since its last change.
//!
//! Some steps are stamped by tmpfs alone, on purpose (docs/differences.md): a chown to the ids that a file has,
//! a truncation to the size that it has. What they leave behind is [excused](Spans::excuse).

use super::outcome::NOW_SECONDS;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
/// Steps between two pauses, each a little longer than a tick of the coarse clock: what is stamped within one
/// tick cannot be told apart.
const STEPS_BETWEEN_PAUSES: usize = 20;
const PAUSE: Duration = Duration::from_millis(5);

fn now(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * SECOND + time.tv_nsec
}

/// When a step was done.
struct Span {
    from: i64,
    to: i64,
}

impl Span {
    fn holds(&self, time: i64) -> bool {
        (self.from..=self.to).contains(&time)
    }
}

/// The spans of the steps so far; the first is of all that came before.
pub struct Spans {
    spans: Vec<Span>,
    /// Times of ArckFS's and tmpfs's that may stand beside each other.
    excused: HashSet<(i64, i64)>,
}

impl Spans {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Spans {
        Spans {
            spans: vec![Span {
                from: NOW_SECONDS * SECOND,
                to: now(ClockId::Realtime),
            }],
            excused: HashSet::new(),
        }
    }

    /// Takes a step.
    pub fn during<R>(&mut self, step: impl FnOnce() -> R) -> R {
        if self.spans.len().is_multiple_of(STEPS_BETWEEN_PAUSES) {
            std::thread::sleep(PAUSE);
        }
        let from = now(ClockId::RealtimeCoarse);
        let result = step();
        self.spans.push(Span {
            from,
            to: now(ClockId::Realtime),
        });
        result
    }

    /// The step just done has left something with these times, and need not have stamped it on ArckFS.
    pub fn excuse(&mut self, ours: [i64; 2], theirs: [i64; 2]) {
        for pair in std::iter::zip(ours, theirs) {
            let is_new = self.spans.last().is_some_and(|span| span.holds(pair.1));
            if pair.0 < pair.1 && is_new {
                self.excused.insert(pair);
            }
        }
    }

    /// Whether two times may be of one step. Times that a test has set are not looked at.
    pub fn may_be_one(&self, ours: i64, theirs: i64) -> bool {
        let is_set = |time: i64| time < NOW_SECONDS * SECOND;
        if ours == theirs || self.excused.contains(&(ours, theirs)) {
            return true;
        }
        let mut spans = self.spans.iter();
        !is_set(ours) && !is_set(theirs) && spans.any(|span| span.holds(ours) && span.holds(theirs))
    }

    /// The first and the last step that may have stamped something, to be told.
    pub fn of(&self, time: i64) -> Option<(usize, usize)> {
        let holds = |span: &Span| span.holds(time);
        let first = self.spans.iter().position(holds)?;
        Some((first, self.spans.iter().rposition(holds)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_one_step_are_told_from_those_of_two() {
        let from = (NOW_SECONDS + 1) * SECOND;
        let mut spans = Spans::new();
        spans.spans = [(0, 5), (7, 9), (9, 12)]
            .map(|(a, b)| Span {
                from: from + a,
                to: from + b,
            })
            .into();
        for (one, other, expected) in [
            (0, 5, true),
            (5, 7, false),
            (7, 9, true),
            (9, 12, true),
            (8, 10, false),
            (6, 6, true),
        ] {
            let (one, other) = (from + one, from + other);
            assert_eq!(spans.may_be_one(one, other), expected, "{one} {other}");
            assert_eq!(spans.may_be_one(other, one), expected, "{other} {one}");
        }
        assert_eq!(spans.of(from + 9), Some((1, 2)));
        assert!(spans.may_be_one(7, 7) && !spans.may_be_one(7, 8) && !spans.may_be_one(7, from));
        // The last step has stamped the second of the two.
        spans.excuse([from + 1, from + 2], [from + 8, from + 10]);
        assert!(!spans.may_be_one(from + 1, from + 8) && spans.may_be_one(from + 2, from + 10));
        assert!(!spans.may_be_one(from + 10, from + 2));
    }
}
