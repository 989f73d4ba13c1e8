//! `arck-bench sharing`: two sessions that do not trust each other, each a process of its own, on
//! one file and in one directory: what they get done beside one that is alone, and what a hand-over
//! takes, in parts.
//!
//! | module | idea |
//! | --- | --- |
//! | `session` | a process with a session, which does what it is told on its standard input |
//! | `alternating` | writes by turns without a pause: by owners, by messages, on tmpfs |
//! | `how` | the three ways to do that |
//! | `fxmark`, `work` | what FxMark has writers do to one directory and one file, beside tmpfs |
//! | `turns` | hand-overs one by one: what each takes, by the clocks of both sides |
//! | `timing` | when what is timed begins and ends |
//! | `report` | tables, and JSON |
//!
//! # Invariants
//! * Sizes, places and names are the same in every run. Rounds of all cases take turns, and of one
//!   case the shared and the private one.
//! * Both sides read CLOCK_MONOTONIC, so parts add up to the whole.
//! * The controller measures only while this runs, and this process takes no part while a session
//!   is timed.

mod alternating;
mod fxmark;
mod how;
mod report;
mod session;
mod subject;
mod timing;
mod turns;
mod work;

use crate::machine::Machine;
use crate::measure::{median, monotonic};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::pool::{self, Bench};
use arck_pm::PersistOption;
use clap::Args;
use report::{Report, Row, Throughput};
use session::{Answer, Order, Process};
use std::time::Duration;
use subject::{PAGE, Subject};

pub use session::{main as session, program};

/// What a filter calls the table of turns without a pause.
const ALTERNATING: &str = "by turns";

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench sharing              files up to 1 GiB, directories up to 1,000,000
  arck-bench sharing --quick      small ones, to see whether it works
  arck-bench sharing --json FILE  figures to keep

Wants a machine with nothing else to do: three processes take turns on its
processors.")]
pub struct SharingArguments {
    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// Rounds of throughput that count, for each case
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,

    /// Milliseconds that a round of throughput takes
    #[arg(long, value_name = "MS", default_value_t = 300)]
    time: u64,

    /// Hand-overs that count, for each case, with the controller awake and as many with it asleep
    #[arg(long, value_name = "N", default_value_t = 101)]
    turns: usize,

    /// Only cases whose name contains this; "by turns" are writes and names without a pause
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// Files of 2 and 64 MiB, directories of 10, 100 and 10,000 names, few rounds
    #[arg(long)]
    quick: bool,

    /// Size of the pool [default: what the cases need]
    #[arg(long, value_name = "SIZE", value_parser = pool::parse_size)]
    pool_size: Option<u64>,

    #[command(flatten)]
    output: Output,
}

pub fn main(arguments: &SharingArguments) -> Outcome<()> {
    let arck = arguments.output.command()?;
    let subjects: Vec<Subject> = Subject::all(arguments.quick)
        .into_iter()
        .filter(|subject| match &arguments.filter {
            Some(text) => subject.name().contains(text.as_str()),
            None => true,
        })
        .collect();
    let size = if arguments.quick { 1 << 30 } else { 6 << 30 };
    let size = arguments.pool_size.unwrap_or(size);
    let bench = Bench::start(size, arguments.persist, arck.as_deref())?;
    let (rounds, turns, time) = match arguments.quick {
        true => (2, 11, 5),
        false => (arguments.rounds, arguments.turns, arguments.time),
    };
    let machine = Machine::look();

    let mut pair = [
        Process::start(&bench, "a", None)?,
        Process::start(&bench, "b", None)?,
    ];
    let mut made: Vec<String> = Vec::new();
    for &subject in &subjects {
        // Files are written in both orders, but made once.
        if made.contains(&subject.path("shared")) {
            continue;
        }
        for owner in ["shared", "private"] {
            if !made.contains(&subject.path(owner)) {
                pair[0].ask(&subject.make(owner))?;
                made.push(subject.path(owner));
            }
        }
        pair[0].ask(&Order::GiveUp)?;
        if let Subject::File { bytes, .. } = subject {
            // Of the shared file each session has half of the pages, as when both have written for a
            // while: the other's are copied where they are written.
            let (path, pages) = (subject.path("shared"), bytes / PAGE);
            pair[1].ask(&Order::Half { path, pages })?;
            pair[1].ask(&Order::GiveUp)?;
        }
    }
    let mut rows: Vec<Row> = subjects.iter().map(|s| Row::new(s.name())).collect();
    let mut meter = turns::Meter::connect(&bench.pool())?;
    for (subject, row) in subjects.iter().zip(&mut rows) {
        if matches!(subject, Subject::File { in_order: true, .. }) {
            // The same as the next.
            continue;
        }
        for awake in [true, false] {
            let found = turns::measure(*subject, &mut pair, &mut meter, turns, awake)?;
            match awake {
                true => row.awake = found,
                false => row.asleep = found,
            }
        }
    }
    meter.stop()?;
    let alternating = match &arguments.filter {
        Some(filter) if !ALTERNATING.contains(&**filter) => Vec::new(),
        _ => {
            let library = pool::find_library().ok_or(
                "there is no libarck_preload.so beside arck-bench: scripts/cargo build --release -p arck-preload",
            )?;
            alternating::measure(&bench, &library, &mut pair[0], 10 * turns)?
        }
    };
    let mut samples: Vec<Vec<Throughput>> = vec![Vec::new(); subjects.len()];
    for round in 0..=rounds {
        for (subject, samples) in subjects.iter().zip(&mut samples) {
            let found = throughput(*subject, &mut pair, round, Duration::from_millis(time))?;
            // The first is to warm up.
            if round > 0 {
                samples.push(found);
            }
        }
    }
    for (row, samples) in rows.iter_mut().zip(&samples) {
        row.throughput = Throughput {
            private: median(samples.iter().map(|sample| sample.private)),
            shared: median(samples.iter().map(|sample| sample.shared)),
            ratio: median(samples.iter().map(|sample| sample.ratio)),
            fairness: median(samples.iter().map(|sample| sample.fairness)),
            found: median(samples.iter().map(|sample| sample.found)),
        };
    }
    let fxmark = match arguments.filter {
        Some(_) => Vec::new(),
        None => fxmark::measure(&bench, &mut pair, rounds, Duration::from_millis(time))?,
    };
    for process in pair {
        process.end()?;
    }
    let report = Report {
        machine,
        persist: arguments.persist.to_string(),
        flushing: pool::policy_name(bench.policy).to_owned(),
        controller: bench.server().to_owned(),
        rounds,
        turns,
        rows,
        alternating,
        fxmark,
    };
    arguments.output.publish(&report)
}

/// One round: both sessions on the shared one, as the controller finds faster and as owners, and one of them alone on its own.
fn throughput(
    subject: Subject,
    pair: &mut [Process; 2],
    round: usize,
    time: Duration,
) -> Outcome<Throughput> {
    let mut private = 0.0;
    let mut shared = [0.0; 2];
    let order = |owner: &str, session: u64, begin: u64| Order::Repeat {
        path: subject.path(owner),
        pages: match subject {
            Subject::File { bytes, .. } => bytes / PAGE,
            Subject::Directory { .. } => 0,
        },
        in_order: matches!(subject, Subject::File { in_order: true, .. }),
        part: session,
        seed: round as u64 * 2 + session,
        begin,
        end: begin + time.as_nanos() as u64,
    };
    let rate = |answer: Answer| match answer {
        Answer::Count {
            operations, time, ..
        } => Ok(operations as f64 * 1e9 / time as f64),
        other => Err(format!("a session answered {other:?}")),
    };
    // Time to get ready: what begins later than it should is measured from when it begins.
    let soon = || monotonic() + 2_000_000;
    let together = |pair: &mut [Process; 2], may: bool| -> Outcome<[f64; 2]> {
        let path = subject.path("shared");
        pair[0].ask(&Order::MayBeMediated { path, may })?;
        let begin = soon();
        for (session, process) in pair.iter_mut().enumerate() {
            process.tell(&order("shared", session as u64, begin))?;
        }
        let mut rates = [0.0; 2];
        for (found, process) in rates.iter_mut().zip(pair.iter_mut()) {
            *found = rate(process.hear()?)?;
        }
        Ok(rates)
    };
    let mut owners = [0.0; 2];
    for turn in 0..3 {
        match (round + turn) % 3 {
            0 => private = rate(pair[0].ask(&order("private", 0, soon()))?)?,
            1 => owners = together(pair, false)?,
            _ => shared = together(pair, true)?,
        }
    }
    let found = (shared[0] + shared[1]) / (owners[0] + owners[1]);
    let both = shared[0] + shared[1];
    Ok(Throughput {
        private,
        shared: both,
        ratio: both / private,
        fairness: shared[0].min(shared[1]) / both,
        found,
    })
}
