//! Hand-overs one by one: a session has made a small change, its lease is over, and the other
//! session makes one.
//!
//! # Invariants
//! * Before each there is a pause longer than a lease, in which the controller falls asleep. Where
//!   it is to be awake, the session that is timed wakes it directly before, by a message of its own.
//! * Each write is to a page that the other session has written: it goes to another page, and
//!   the file's index changes.
//! * A directory is brought back to its size every few turns.

use super::report::Turns;
use super::session::{Answer, Order, Process};
use super::subject::{PAGE, Subject};
use crate::measure::{Random, median};
use crate::outcome::Outcome;
use arck_libfs_kit::session::connect_socket;
use arck_protocol::measure::HandOvers;
use arck_protocol::socket::{self, Call};
use rustix::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// Longer than a lease, and than the controller polls for nothing.
const PAUSE: Duration = Duration::from_millis(1);
/// Pages that are written in turn; an odd number, so that the sessions take turns on each of them.
const PAGES: u64 = 31;
/// Names by which a directory grows at most.
const NAMES: u64 = 8;

/// The connection over which the controller tells what it has measured.
pub struct Meter(OwnedFd);

impl Meter {
    pub fn connect(pool: &Path) -> Outcome<Meter> {
        let socket = connect_socket(pool).map_err(|errno| format!("the controller: {errno}"))?;
        let mut meter = Meter(socket);
        meter.take(true)?;
        Ok(meter)
    }

    fn take(&mut self, on: bool) -> Outcome<HandOvers> {
        match socket::call(&self.0, &Call::Measure { on }) {
            Ok((socket::Answer::Measured(measured), _)) => Ok(measured),
            other => Err(format!("the controller does not measure: {other:?}")),
        }
    }

    pub fn stop(mut self) -> Outcome<()> {
        self.take(false).map(|_| ())
    }
}

/// One hand-over: when it began and ended for whoever asked, and what the controller says.
struct Turn {
    begin: u64,
    end: u64,
    measured: HandOvers,
}

pub fn measure(
    subject: Subject,
    pair: &mut [Process; 2],
    meter: &mut Meter,
    turns: usize,
    awake: bool,
) -> Outcome<Turns> {
    let path = subject.path("shared");
    let pages = match subject {
        Subject::File { bytes, .. } => Random(1).below(bytes / PAGE, PAGES),
        Subject::Directory { .. } => vec![0],
    };
    // What is handed over here would not be otherwise.
    pair[0].ask(&Order::MayBeMediated {
        path: path.clone(),
        may: false,
    })?;
    // Once all pages, until each is the one's or the other's in turn; and the first two bring each
    // session its first pages and numbers.
    let warm = 2 * pages.len();
    let mut made: u64 = 0;
    let mut left = Vec::new();
    let mut all = Vec::with_capacity(turns);
    for turn in 0..turns + warm {
        let process = &mut pair[turn % 2];
        let order = match subject {
            Subject::File { .. } => Order::Write {
                path: path.clone(),
                page: pages[turn % pages.len()],
                awake,
            },
            Subject::Directory { .. } => {
                made += 1;
                let path = format!("{path}/turn-{made}");
                left.push(path.clone());
                Order::Create { path, awake }
            }
        };
        meter.take(true)?;
        if turn + 2 >= warm {
            std::thread::sleep(PAUSE);
        }
        let answer = process.ask(&order)?;
        let measured = meter.take(true)?;
        let Answer::Timed { begin, end } = answer else {
            return Err(format!("a session answered {answer:?}"));
        };
        if turn >= warm {
            all.push(Turn {
                begin,
                end,
                measured,
            });
        }
        if left.len() as u64 == NAMES {
            for path in left.drain(..) {
                process.ask(&Order::Remove { path })?;
            }
            process.ask(&Order::GiveUp)?;
            // So that the next turn takes something from somebody.
            made += 1;
            let path = format!("{path}/turn-{made}");
            left.push(path.clone());
            process.ask(&Order::Create { path, awake })?;
        }
    }
    for path in left {
        pair[0].ask(&Order::Remove { path })?;
    }
    pair[0].ask(&Order::MayBeMediated { path, may: true })?;
    pair[0].ask(&Order::GiveUp)?;
    Ok(summary(&all))
}

/// Medians, in microseconds.
fn summary(all: &[Turn]) -> Turns {
    let time = |nanoseconds: &dyn Fn(&Turn) -> u64| {
        median(all.iter().map(|turn| nanoseconds(turn) as f64 / 1000.0))
    };
    let count = |number: &dyn Fn(&HandOvers) -> u64| {
        median(all.iter().map(|turn| number(&turn.measured) as f64))
    };
    let mut sorted: Vec<u64> = all.iter().map(|turn| turn.end - turn.begin).collect();
    sorted.sort_unstable();
    let within = sorted.get(sorted.len() * 9 / 10).copied().unwrap_or(0);
    Turns {
        turns: all.len(),
        total: time(&|turn| turn.end - turn.begin),
        total_90: within as f64 / 1000.0,
        message: time(&|turn| turn.measured.received.saturating_sub(turn.begin)),
        lease: time(&|turn| turn.measured.deferred),
        wait: time(&|turn| turn.measured.wait),
        copy: time(&|turn| turn.measured.copy),
        verify: time(&|turn| turn.measured.verify),
        fold: time(&|turn| turn.measured.fold),
        grant: time(&|turn| turn.measured.grant),
        answer: time(&|turn| turn.end.saturating_sub(turn.measured.answered)),
        requests: count(&|measured| measured.requests),
        folds: count(&|measured| measured.folds),
        bytes_copied: count(&|measured| measured.bytes_copied),
        pages_read: count(&|measured| measured.pages_read),
        records: count(&|measured| measured.records),
        bytes_journaled: count(&|measured| measured.bytes_journaled),
    }
}
