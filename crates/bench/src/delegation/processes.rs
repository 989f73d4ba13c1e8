//! `arck-bench delegation --processes`: what many threads of several processes of one trust group write together, by themselves, by delegates
//! of each process, and with so many at once, of all processes.
//!
//! # Invariants
//! * What counts begins in all processes at a moment that they were told before. Rounds of all ways follow each other, in the same processes, on the same
//!   files.

use super::rate::{
    Access, Done, SIZES, delegated_all, fill, model_of, name, open, peak, rate_from,
};
use super::ways::{COLUMNS, How, RULES, Ways};
use crate::conversation::{self, Conversation};
use crate::machine::Machine;
use crate::measure::monotonic;
use crate::outcome::Outcome;
use crate::output::Report;
use crate::pool::{self, Bench};
use arck_libfs_kit::memory::medium::{Model, Way};
use arckfs::{ConnectOptions, FileSystem};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Nanoseconds in which processes hear what they are to do, and all threads come to run, before it counts.
const START: u64 = 600_000_000;

/// The trust group of all.
const GROUP: &str = "delegation";

#[derive(Serialize, Deserialize)]
enum Order {
    /// Fills so many files, from one on.
    Fill {
        first: usize,
        count: usize,
    },
    Run(Run),
}

/// What one process does in a round: so many threads, on files from the first on.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Run {
    how: How,
    few: u32,
    size: usize,
    is_fresh: bool,
    first: usize,
    threads: usize,
    at: u64,
    milliseconds: u64,
}

/// GB/s of all processes.
#[derive(Serialize)]
struct Row {
    operation: String,
    processes: usize,
    threads: usize,
    peak: f64,
    #[serde(flatten)]
    ways: Ways,
}

#[derive(Serialize)]
pub struct Found {
    machine: Machine,
    nodes: u32,
    delegates: u32,
    rows: Vec<Row>,
}

/// What is to be measured.
pub struct Asked<'a> {
    /// Numbers of processes; all threads together; rounds that count, and how long each is.
    pub processes: &'a [usize],
    pub threads: usize,
    pub rounds: usize,
    pub time: Duration,
    /// Of each node, if that is said.
    pub delegates: Option<u32>,
    /// Writes are of new pages.
    pub is_fresh: bool,
}

pub fn measure(bench: &Bench, asked: &Asked<'_>) -> Outcome<Found> {
    let mut rows = Vec::new();
    let mut medium = None;
    for &count in asked.processes {
        let each = (asked.threads / count).max(1);
        let start = |_| {
            let mut command = bench.worker(None)?;
            command.args(["--task", "delegation"]);
            Conversation::start(command)
        };
        let mut crew: Vec<Conversation> = (0..count).map(start).collect::<Outcome<_>>()?;
        for (process, worker) in crew.iter_mut().enumerate() {
            let first = process * each;
            let told: Told = worker.ask(&Order::Fill { first, count: each })?;
            medium = Some((
                told.nodes,
                asked.delegates.unwrap_or(told.threads),
                told.peaks,
            ));
        }
        let (_, few, peaks) = medium.ok_or("there are no processes")?;
        for ((size, size_name), peak) in SIZES.into_iter().zip(peaks) {
            let ways = Ways::measure(asked.rounds, |how| {
                let run = Run {
                    how,
                    few,
                    size,
                    is_fresh: asked.is_fresh,
                    first: 0,
                    threads: each,
                    at: monotonic() + START,
                    milliseconds: asked.time.as_millis() as u64,
                };
                together(&mut crew, run)
            })?;
            rows.push(Row {
                operation: format!("{} {size_name}", name(Way::Write)),
                processes: count,
                threads: each,
                peak,
                ways,
            });
        }
        crew.into_iter().try_for_each(Conversation::end)?;
    }
    let (nodes, delegates, _) = medium.ok_or("there are no processes")?;
    Ok(Found {
        machine: Machine::look(),
        nodes,
        delegates,
        rows,
    })
}

/// One round of all processes.
fn together(crew: &mut [Conversation], run: Run) -> Outcome<Done> {
    for (process, worker) in crew.iter_mut().enumerate() {
        worker.tell(&Order::Run(Run {
            first: process * run.threads,
            ..run
        }))?;
    }
    let mut all = Done {
        rate: 0.0,
        longest: 0.0,
    };
    for worker in crew {
        let told: Told = worker.hear()?;
        let done = told.done.ok_or("a worker measured nothing")?;
        all.rate += done.rate;
        all.longest = all.longest.max(done.longest);
    }
    Ok(all)
}

/// What a worker answers: the medium, what it does at best, and what was done.
#[derive(Serialize, Deserialize)]
struct Told {
    nodes: u32,
    threads: u32,
    peaks: [f64; SIZES.len()],
    done: Option<Done>,
}

impl Told {
    fn of(model: &Model, done: Option<Done>) -> Told {
        Told {
            nodes: model.nodes,
            threads: model.delegated.threads,
            peaks: SIZES.map(|(size, _)| peak(model, Way::Write, size)),
            done,
        }
    }
}

/// In a worker.
pub fn work(pool: &Path) -> Outcome<()> {
    let options = ConnectOptions {
        pool: pool.to_owned(),
        mount: pool::MOUNT.into(),
        group: GROUP.into(),
        resolver: arckfs::Resolver::default(),
    };
    let files = FileSystem::connect(&options).map_err(|error| error.to_string())?;
    let model = model_of()?;
    conversation::answer(|order: Order| {
        let done = match order {
            Order::Fill { first, count } => {
                for thread in first..first + count {
                    fill(&files, open(&files, thread)?, thread)?;
                }
                None
            }
            Order::Run(run) => Some(one(&files, &model, run)?),
        };
        Ok(Told::of(&model, done))
    })?;
    let ended = files.disconnect();
    ended.map_err(|errno| format!("ending the session: {errno}"))
}

fn one(files: &FileSystem, model: &Model, run: Run) -> Outcome<Done> {
    let few = delegated_all(model, run.few);
    let from = || Instant::now() + Duration::from_nanos(run.at.saturating_sub(monotonic()));
    let time = Duration::from_millis(run.milliseconds);
    let threads = run.first..run.first + run.threads;
    let access = Access {
        way: Way::Write,
        size: run.size,
        is_fresh: run.is_fresh,
    };
    run.how.within(files, model.nodes, &few, || {
        rate_from(files, access, threads, from, time)
    })
}

impl Report for Found {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}\n", self.machine)?;
        writeln!(
            text,
            "GB/s of all threads of all processes together, which are one group, each thread in a file of its own; {} nodes, {} threads of \
             each node to which each process delegates what is 256 bytes and more, or so many at once of all processes.\n",
            self.nodes, self.delegates
        )?;
        writeln!(
            text,
            "| operation | processes | threads of each | {COLUMNS}"
        )?;
        writeln!(text, "| --- | ---: | ---: | {RULES}")?;
        for row in &self.rows {
            let ways = row.ways.beside(row.peak);
            writeln!(
                text,
                "| {} | {} | {} | {ways}",
                row.operation, row.processes, row.threads
            )?;
        }
        Ok(())
    }
}
