//! `arck-bench recovery`: how long it takes until a pool with many files is served: after a clean
//! end, and after controller and sessions were killed, with everything folded and with nothing; and
//! what the check of the whole pool takes.
//!
//! | module | idea |
//! | --- | --- |
//! | `check` | the check's process |
//! | `work` | the processes with sessions: those that make files, and the one that asks first |
//! | `report` | a table in Markdown, and JSON |
//!
//! # Invariants
//! * What is timed begins when the controller's process is started, and ends when a process with a
//!   session of its own, started as soon as the controller is ready, has its first answer: a file
//!   looked up and opened. Both read CLOCK_MONOTONIC.
//! * Each round makes its pool anew, and measures every case on it.
//! * Whoever is killed gets SIGKILL and is waited for before the clock runs.

mod check;
mod report;
mod work;

use crate::machine::Machine;
use crate::measure::{median, monotonic};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::pool::{self, Bench};
use arck_pm::PersistOption;
use check::{Check, check};
use clap::Args;
use report::{Report, Row, Start};
use std::path::Path;
use std::process::Command;
use work::{Maker, Work};

pub use work::{first, make};

/// Files of a small directory.
const SMALL: u64 = 1000;

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench recovery           1,000,000 files
  arck-bench recovery --files 100000 --rounds 5
  arck-bench recovery --shared  of a pool that is served to all users

Takes the storage of the files in /dev/shm (4 KiB each, and 1 GiB) for each run.")]
pub struct RecoveryArguments {
    /// Files: those of one session in one directory, all others in directories of 1,000
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    files: u64,

    /// Bytes in each file
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    bytes: usize,

    /// Sessions that make them, each a process; with more than some 120,000 files each, some are
    /// folded on the way
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=64))]
    sessions: u64,

    /// Rounds; medians are told
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,

    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// Served to all users, so that read classes are looked after
    #[arg(long)]
    shared: bool,

    /// Size of the pool [default: what the files need, four times]
    #[arg(long, value_name = "SIZE", value_parser = pool::parse_size)]
    pool_size: Option<u64>,

    #[command(flatten)]
    output: Output,
}

/// What went before a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    NotFolded,
    Folded,
    Clean,
}

impl Case {
    const ALL: [Case; 3] = [Case::NotFolded, Case::Folded, Case::Clean];

    fn name(self) -> &'static str {
        match self {
            Case::NotFolded => "controller and sessions killed, nothing folded",
            Case::Folded => "controller and sessions killed, everything folded",
            Case::Clean => "stopped",
        }
    }
}

pub fn main(arguments: &RecoveryArguments) -> Outcome<()> {
    let arck = arguments
        .output
        .command()?
        .ok_or("arck is not beside this executable: build arck-cli, or name it with --arck")?;
    let mut starts: [Vec<Start>; 3] = Default::default();
    let mut stops = Vec::new();
    let mut unfolded = Vec::new();
    let mut checks: [Vec<Check>; 2] = Default::default();
    for round in 0..arguments.rounds.max(1) {
        eprintln!("round {} of {}", round + 1, arguments.rounds.max(1));
        let size = arguments.pool_size.unwrap_or_else(|| size_for(arguments));
        let mut bench = Bench::start_as(size, arguments.persist, Some(&arck), arguments.shared)?;
        for (case, starts) in Case::ALL.into_iter().zip(&mut starts) {
            match case {
                Case::NotFolded => {
                    let makers = fill(&bench, arguments)?;
                    bench.kill();
                    makers.into_iter().for_each(Maker::kill);
                    let folded = folded_inodes(&arck, &bench)?;
                    unfolded.push((arguments.files as f64 - folded).max(0.0));
                }
                Case::Folded => {
                    // What was recovered is folded; somebody is there, and changes something.
                    let maker = Maker::start(&bench, &Work::one(), false)?;
                    let maker = maker.done()?;
                    bench.kill();
                    maker.kill();
                }
                Case::Clean => {
                    let begin = monotonic();
                    bench.stop()?;
                    stops.push((monotonic() - begin) as f64 / 1e9);
                }
            }
            starts.push(start(&mut bench, arguments)?);
        }
        let [served, closed] = &mut checks;
        served.push(check(&arck, &bench.pool())?);
        bench.stop()?;
        closed.push(check(&arck, &bench.pool())?);
    }
    let rows = Case::ALL.into_iter().zip(starts).map(|(case, starts)| {
        let of = |value: fn(&Start) -> f64| median(starts.iter().map(value));
        Row {
            what: case.name(),
            median: Start {
                ready: of(|start| start.ready),
                answered: of(|start| start.answered),
                processor: of(|start| start.processor),
                memory: of(|start| start.memory),
            },
            starts: starts.clone(),
        }
    });
    let [served, closed] = checks.map(|checks| {
        let of = |value: fn(&Check) -> f64| median(checks.iter().map(value));
        Check {
            seconds: of(|check| check.seconds),
            processor: of(|check| check.processor),
            memory: of(|check| check.memory),
        }
    });
    let report = Report {
        machine: Machine::look(),
        files: arguments.files,
        bytes: arguments.bytes,
        sessions: arguments.sessions,
        shared: arguments.shared,
        persist: arguments.persist.to_string(),
        rounds: arguments.rounds.max(1),
        unfolded: median(unfolded),
        rows: rows.collect(),
        stop: median(stops),
        checks: [
            ("closed", closed),
            ("served, by a controller that nobody asks", served),
        ],
    };
    arguments.output.publish(&report)
}

/// Bytes of a pool for the files. What sessions have not folded takes forty times its own pages of
/// metadata that are kept free for it.
fn size_for(arguments: &RecoveryArguments) -> u64 {
    let data = (arguments.bytes as u64).next_multiple_of(4096);
    (4 * arguments.files * (data + 1024)).max(256 << 20)
}

/// Has all files made, by sessions that stay.
fn fill(bench: &Bench, arguments: &RecoveryArguments) -> Outcome<Vec<Maker>> {
    // The first has the large directory.
    let share = |session: u64| {
        let more = u64::from(session < arguments.files % arguments.sessions);
        arguments.files / arguments.sessions + more
    };
    let works = (0..arguments.sessions).map(|session| Work {
        name: format!("part-{session}"),
        files: share(session),
        each: if session == 0 { u64::MAX } else { SMALL },
        bytes: arguments.bytes,
    });
    let makers: Vec<Maker> = works
        .map(|work| Maker::start(bench, &work, true))
        .collect::<Outcome<_>>()?;
    makers.into_iter().map(Maker::done).collect()
}

/// Inodes that the verified state of a pool has which nobody serves.
fn folded_inodes(arck: &Path, bench: &Bench) -> Outcome<f64> {
    let output = Command::new(arck)
        .args(["check", "--json"])
        .arg(bench.pool())
        .output()
        .map_err(|error| format!("{}: {error}", arck.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let sums: Option<serde_json::Value> = text
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok());
    let inodes = sums.as_ref().and_then(|sums| sums["inodes"].as_f64());
    match inodes {
        Some(inodes) if output.status.success() => Ok(inodes),
        _ => Err(format!("arck check finds: {text}")),
    }
}

/// Starts a controller and asks it something.
fn start(bench: &mut Bench, arguments: &RecoveryArguments) -> Outcome<Start> {
    let begin = monotonic();
    bench.serve()?;
    let ready = monotonic();
    // In the middle of the large directory.
    let path = match arguments.files / arguments.sessions {
        0 => String::new(),
        files => format!("part-0/0000000/{:07}", files / 2),
    };
    let answered = work::ask_first(bench, &path)?;
    Ok(Start {
        ready: (ready - begin) as f64 / 1e9,
        answered: (answered - begin) as f64 / 1e9,
        processor: bench.server_time(),
        memory: bench.server_memory(),
    })
}
