//! Whether some order of operations explains what they told: linearizability, by a search that
//! remembers what led nowhere (Wing and Gong; Lowe).
//!
//! # Invariant
//! An order puts no operation before one that had ended when it began.

use super::{Event, Explained, History};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Whether some order explains the history.
pub fn explained<A: Explained>(history: &[Vec<Event<A>>]) -> bool {
    unexplained(history).is_none()
}

/// How many operations of each thread can be explained, at the most, if not all can be.
pub fn unexplained<A: Explained>(history: &[Vec<Event<A>>]) -> Option<Vec<usize>> {
    let mut furthest = vec![0; history.len()];
    let mut seen = HashSet::new();
    let mut waiting = vec![(vec![0usize; history.len()], A::Model::default())];
    while let Some((places, model)) = waiting.pop() {
        let next = || {
            (0..)
                .zip(history)
                .filter_map(|(thread, list)| Some((thread, list.get(*places.get(thread)?)?)))
        };
        // None: everything has been explained.
        let limit = next().map(|(_, event)| event.ended).min()?;
        if places.iter().sum::<usize>() > furthest.iter().sum() {
            furthest.clone_from(&places);
        }
        for (thread, event) in next().filter(|(_, event)| event.begun < limit) {
            let mut after = model.clone();
            if event.action.apply(&mut after) == event.told {
                let mut further = places.clone();
                further[thread] += 1;
                if seen.insert((further.clone(), after.clone())) {
                    waiting.push((further, after));
                }
            }
        }
    }
    Some(furthest)
}

/// Leaves out operations as long as one of `tries` runs of the rest is still not explained.
pub fn shorten<A: Explained>(
    mut threads: Vec<Vec<A>>,
    tries: usize,
    patience: Duration,
    mut fails: impl FnMut(&[Vec<A>]) -> Option<History<A>>,
) -> (Vec<Vec<A>>, Option<History<A>>) {
    let begun = Instant::now();
    let mut last = None;
    let mut piece = threads.iter().map(Vec::len).max().unwrap_or(0).div_ceil(2);
    while piece > 0 {
        for thread in 0..threads.len() {
            let mut at = 0;
            while at < threads[thread].len() {
                if begun.elapsed() > patience {
                    return (threads, last);
                }
                let mut fewer = threads.clone();
                let end = (at + piece).min(fewer[thread].len());
                fewer[thread].drain(at..end);
                match (0..tries).find_map(|_| fails(&fewer)) {
                    Some(history) => {
                        threads = fewer;
                        last = Some(history);
                    }
                    None => at = end,
                }
            }
        }
        piece /= 2;
    }
    (threads, last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Action, HostSubject, Told, actions, run};

    fn event(thread: usize, action: Action, told: Told, begun: u64, ended: u64) -> Event {
        Event {
            thread,
            action,
            told,
            begun,
            ended,
        }
    }

    /// What overlaps may be ordered either way; what does not, not.
    #[test]
    fn orders_are_found_and_refused() {
        let exists = || Told::Error(libc::EEXIST);
        let make = Action::Create((0, 0));
        let late = |begun| {
            vec![
                vec![event(0, make, exists(), 0, 3)],
                vec![event(1, make, Told::Done, begun, begun + 1)],
            ]
        };
        assert!(explained(&late(1)));
        assert!(!explained(&late(4)), "the second had not begun");
        let both = vec![
            vec![event(0, make, Told::Done, 0, 3)],
            vec![event(1, make, Told::Done, 1, 2)],
        ];
        assert!(!explained(&both), "two winners");
        let torn = vec![
            vec![event(0, Action::Write(0, 7, 100), Told::Done, 0, 3)],
            vec![event(
                1,
                Action::Read(0),
                Told::Content(vec![(7, 50)]),
                1,
                2,
            )],
        ];
        assert!(!explained(&torn), "a part of a write");
    }

    /// The model tells what tmpfs tells.
    #[test]
    fn the_model_is_as_tmpfs() {
        for seed in 0..50 {
            let history = run(&HostSubject::new(), &[actions(seed, 0, 150)]);
            assert!(explained(&history), "seed {seed}: {history:#?}");
        }
    }
}
