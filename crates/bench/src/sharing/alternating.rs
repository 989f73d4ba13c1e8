//! Writes by turns, without a pause: one session writes to the beginning of a file, the other reads that, and then it is
//! the other's turn. By owners, each of which waits for a lease; by messages; and two processes on tmpfs.
//!
//! # Invariants
//! * Turns of all three take turns with each other.
//! * What is timed begins and ends in one process; whose turn it is goes through this one, in the time between.

use super::how::How;
use super::session::{Answer, Order, Process};
use crate::outcome::Outcome;
use serde::Serialize;

/// Bytes of a write.
const SIZES: [usize; 3] = [100, 4096, 65_536];

/// What was found of one size; microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Alternating {
    pub bytes: usize,
    pub how: How,
    pub turns: usize,
    pub write: f64,
    /// Of a hundred, 99 were no longer.
    pub write_99: f64,
    pub write_longest: f64,
    pub read: f64,
    pub read_99: f64,
}

/// Median, 99 of a hundred, the longest.
fn summary(mut nanoseconds: Vec<u64>) -> [f64; 3] {
    nanoseconds.sort_unstable();
    let at = |part: f64| {
        let last = nanoseconds.len().saturating_sub(1);
        let place = (last as f64 * part) as usize;
        nanoseconds
            .get(place)
            .map_or(0.0, |&time| time as f64 / 1000.0)
    };
    [at(0.5), at(0.99), at(1.0)]
}

/// A file for each; `tmpfs`: where that is for the third.
fn file(how: How, bytes: usize, tmpfs: &str) -> String {
    match how {
        How::Tmpfs => format!("{tmpfs}/turns-{bytes}"),
        How::Owners => format!("owned-turns-{bytes}"),
        How::Messages => format!("told-turns-{bytes}"),
    }
}

pub fn measure(pair: &mut [Process; 2], tmpfs: &str, turns: usize) -> Outcome<Vec<Alternating>> {
    let mut all = Vec::new();
    for bytes in SIZES {
        for how in How::ALL {
            pair[0].ask(&Order::TurnsFile {
                path: file(how, bytes, tmpfs),
                bytes,
                how,
            })?;
        }
        pair[0].ask(&Order::GiveUp)?;
        let mut writes = [(); 3].map(|()| Vec::with_capacity(turns));
        let mut reads = [(); 3].map(|()| Vec::with_capacity(turns));
        // The first few bring what is used first.
        let warm = 4;
        for turn in 0..turns + warm {
            for (at, how) in How::ALL.into_iter().enumerate() {
                let order = |write| Order::Turn {
                    path: file(how, bytes, tmpfs),
                    bytes,
                    on_tmpfs: how == How::Tmpfs,
                    write,
                };
                let time = |answer| match answer {
                    Answer::Timed { begin, end } => Ok(end - begin),
                    other => Err(format!("a session answered {other:?}")),
                };
                let (writer, reader) = (turn % 2, (turn + 1) % 2);
                let wrote = time(pair[writer].ask(&order(true))?)?;
                let read = time(pair[reader].ask(&order(false))?)?;
                if turn >= warm {
                    writes[at].push(wrote);
                    reads[at].push(read);
                }
            }
        }
        for (how, (writes, reads)) in How::ALL.into_iter().zip(writes.into_iter().zip(reads)) {
            let [write, write_99, write_longest] = summary(writes);
            let [read, read_99, _] = summary(reads);
            all.push(Alternating {
                bytes,
                how,
                turns,
                write,
                write_99,
                write_longest,
                read,
                read_99,
            });
        }
    }
    Ok(all)
}
