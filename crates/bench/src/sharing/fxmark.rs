//! What two sessions get done that do what FxMark (Min et al., USENIX ATC'16) has all do to one directory and one file: each of
//! both, and each of two processes on tmpfs.
//!
//! # Invariants
//! * Rounds of all cases, and of the pool and tmpfs, take turns.
//! * MWUM removes what MWCM has created in the same round.

use super::how::How;
use super::session::{Answer, Order, Process};
use super::work::{Task, Work};
use crate::measure::{median, monotonic};
use crate::outcome::Outcome;
use crate::pool::Bench;
use serde::Serialize;
use std::time::Duration;

/// Operations a second of each of both, medians of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    pub what: String,
    pub pool: [f64; 2],
    pub tmpfs: [f64; 2],
    /// Operations of the first, for each second that it has had of a processor: what others take from it on few processors
    /// is not in it.
    pub own: f64,
}

/// A round of a shorter time may be over before both processes have come to run.
const TIME_LEAST: Duration = Duration::from_millis(30);

const CASES: [(&str, Work, How); 10] = [
    (
        "MWCM, create files in one directory",
        Work::Create,
        How::Owners,
    ),
    (
        "MWUM, unlink files of one directory",
        Work::Unlink,
        How::Owners,
    ),
    (
        "DWOM, 4 KiB, each its own block, by owners",
        Work::Write { own: true },
        How::Owners,
    ),
    (
        "DWOM, 4 KiB, each its own block, by messages",
        Work::Write { own: true },
        How::Messages,
    ),
    (
        "DWOM, 4 KiB, both one block, by owners",
        Work::Write { own: false },
        How::Owners,
    ),
    (
        "DWOM, 4 KiB, both one block, by messages",
        Work::Write { own: false },
        How::Messages,
    ),
    (
        "4 KiB read by one alone, of a file that is mediated",
        Work::Read { beside: false },
        How::Messages,
    ),
    (
        "4 KiB read by one, its neighbour written by the other, by messages",
        Work::Read { beside: true },
        How::Messages,
    ),
    (
        "4 KiB read by one alone, of a file that is not",
        Work::Read { beside: false },
        How::Owners,
    ),
    (
        "4 KiB read by one, its neighbour written by the other, by owners",
        Work::Read { beside: true },
        How::Owners,
    ),
];

pub fn measure(
    bench: &Bench,
    pair: &mut [Process; 2],
    rounds: usize,
    time: Duration,
) -> Outcome<Vec<Pair>> {
    let time = time.max(TIME_LEAST);
    let tmpfs = bench.tmpfs().to_string_lossy().into_owned();
    let task = |work, how, part: usize, begin| {
        Order::Pair(Task {
            work,
            how,
            tmpfs: tmpfs.clone(),
            part: part as u64,
            begin,
            end: begin + time.as_nanos() as u64,
        })
    };
    for how in [How::Owners, How::Messages, How::Tmpfs] {
        pair[0].ask(&task(Work::Prepare, how, 0, 0))?;
    }
    pair[0].ask(&Order::GiveUp)?;
    // Of each case, on both: what each process has done.
    let mut samples = CASES.map(|_| [(); 2].map(|()| [Vec::new(), Vec::new()]));
    let mut own = CASES.map(|_| Vec::new());
    for round in 0..=rounds {
        let cases = CASES.into_iter().zip(&mut samples).zip(&mut own);
        for (((_, work, how), samples), own) in cases {
            for turn in 0..2 {
                let on_tmpfs = (round + turn) % 2;
                let how = if on_tmpfs == 1 { How::Tmpfs } else { how };
                // Time to get ready.
                let begin = monotonic() + 2_000_000;
                for (part, process) in pair.iter_mut().enumerate() {
                    process.tell(&task(work, how, part, begin))?;
                }
                let processes = samples[on_tmpfs].iter_mut().zip(pair.iter_mut());
                for (part, (found, process)) in processes.enumerate() {
                    match process.hear()? {
                        // The first round is to warm up.
                        Answer::Count { .. } if round == 0 => {}
                        Answer::Count {
                            operations,
                            time,
                            busy,
                        } => {
                            let rate = |time: u64| operations as f64 * 1e9 / time.max(1) as f64;
                            found.push(rate(time));
                            if part == 0 && on_tmpfs == 0 {
                                own.push(rate(busy.unwrap_or(time)));
                            }
                        }
                        other => return Err(format!("a session answered {other:?}")),
                    }
                }
                if work == Work::Unlink {
                    for (part, process) in pair.iter_mut().enumerate() {
                        process.ask(&task(Work::Clear, how, part, 0))?;
                    }
                }
            }
        }
    }
    let medians = |samples: [Vec<f64>; 2]| samples.map(median);
    let all = CASES.into_iter().zip(samples).zip(own);
    let all = all.map(|(((what, ..), [pool, tmpfs]), own)| Pair {
        what: what.to_owned(),
        pool: medians(pool),
        tmpfs: medians(tmpfs),
        own: median(own),
    });
    Ok(all.collect())
}
