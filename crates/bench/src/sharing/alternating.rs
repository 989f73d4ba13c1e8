//! Turns, without a pause, of two unmodified programs that have no group: one writes to the beginning of a file, the other reads that, and then it is
//! the other's turn. Or one makes a file in a directory, and the other removes it. By owners, each of which waits for a lease; by messages; as the controller finds; and on tmpfs.
//!
//! # Invariants
//! * Turns of all take turns with each other, but for those of [`How::Auto`]: between two of them there would be more than
//!   a lease, for which nobody would wait then. They come in a row, all of them, from the first.
//! * What is timed begins and ends in one process; whose turn it is goes through this one, in the time between.

use super::how::How;
use super::session::{Answer, Order, Process};
use crate::outcome::Outcome;
use crate::pool::{Bench, MOUNT};
use serde::Serialize;
use std::path::Path;

/// Turns that are not counted.
const WARM: usize = 4;
/// Bytes of a write; 0: a name.
const SIZES: [usize; 4] = [100, 4096, 65_536, 0];

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

/// A file for each.
fn name(how: How, bytes: usize) -> String {
    match how {
        How::Tmpfs => format!("turns-{bytes}"),
        How::Owners => format!("owned-turns-{bytes}"),
        How::Messages => format!("told-turns-{bytes}"),
        How::Auto => format!("found-turns-{bytes}"),
    }
}

/// `session`: who makes the files.
pub fn measure(
    bench: &Bench,
    library: &Path,
    session: &mut Process,
    turns: usize,
) -> Outcome<Vec<Alternating>> {
    let start = |name| Process::start(bench, name, Some(library));
    let mut pair = [start("c")?, start("d")?];
    let tmpfs = bench.tmpfs();
    let (mount, tmpfs) = (MOUNT, tmpfs.to_string_lossy());
    let mut all = Vec::new();
    for bytes in SIZES {
        for how in How::ALL {
            let path = match how {
                How::Tmpfs => format!("{tmpfs}/{}", name(how, bytes)),
                _ => name(how, bytes),
            };
            session.ask(&Order::TurnsFile { path, bytes, how })?;
        }
        session.ask(&Order::GiveUp)?;
        let mut writes = How::ALL.map(|_| Vec::with_capacity(turns));
        let mut reads = How::ALL.map(|_| Vec::with_capacity(turns));
        let mut take = |pair: &mut [Process; 2], at: usize, turn: usize| -> Outcome<()> {
            let how = How::ALL[at];
            let place = if how == How::Tmpfs { &*tmpfs } else { mount };
            let order = |write| Order::Turn {
                path: match bytes {
                    0 => format!("{place}/{}/{turn}", name(how, bytes)),
                    _ => format!("{place}/{}", name(how, bytes)),
                },
                bytes,
                write,
            };
            let time = |answer| match answer {
                Answer::Timed { begin, end } => Ok(end - begin),
                other => Err(format!("a session answered {other:?}")),
            };
            let (writer, reader) = (turn % 2, (turn + 1) % 2);
            let wrote = time(pair[writer].ask(&order(true))?)?;
            let read = time(pair[reader].ask(&order(false))?)?;
            // The first few bring what is used first, where nothing is to be found.
            if turn >= WARM || how == How::Auto {
                writes[at].push(wrote);
                reads[at].push(read);
            }
            Ok(())
        };
        let is_auto = |at: &usize| How::ALL[*at] == How::Auto;
        for turn in 0..turns + WARM {
            for at in (0..How::ALL.len()).filter(|at| !is_auto(at)) {
                take(&mut pair, at, turn)?;
            }
        }
        for at in (0..How::ALL.len()).filter(is_auto) {
            for turn in 0..turns {
                take(&mut pair, at, turn)?;
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
    for program in pair {
        program.end()?;
    }
    Ok(all)
}
