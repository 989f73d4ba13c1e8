//! `arck-bench growth`: what calls cost as a directory, or a hundred of them, grow: in a session that has just
//! begun, as programs that unpack, index or clean up have it.
//!
//! # Invariants
//! * Each round has a pool of its own, which nobody has used before; and so has tmpfs a directory. Which side is
//!   first alternates.
//! * A side's calls are made by a worker of its own; a bystander, another worker, makes calls in a directory of
//!   its own meanwhile, one each fifth of a millisecond.
//! * Each call is timed by one look at the clock, which is in the times of both sides.

mod work;

use crate::chapter::{Chapter, Row, Sides};
use crate::conversation::Conversation;
use crate::latencies::Latencies;
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::pool::{self, Bench};
use crate::progress::Progress;
use arck_pm::PersistOption;
use clap::Args;
use std::time::Instant;
use work::{Order, Phase, Took};

pub use work::work;

/// Bytes of memory that a file takes at most, of a pool or as a kernel object.
const FILE: u64 = 4096;
/// Bytes of a pool without files.
const POOL: u64 = 1 << 30;

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench growth                          10,000 to 1,000,000 files
  arck-bench growth --quick                  a look, in seconds
  arck-bench growth --files 300000 --directories 1 --rounds 5
  arck-bench growth --json FILE              percentiles of all calls, too")]
pub struct GrowthArguments {
    /// How many files there are: one number, or several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10000,100000,1000000",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    files: Vec<u64>,

    /// In how many directories
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,100,3000",
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    directories: Vec<u64>,

    /// Rounds on each side
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,

    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// One round, of 10,000 and 100,000 files
    #[arg(long, conflicts_with_all = ["files", "rounds"])]
    pub quick: bool,

    #[command(flatten)]
    output: Output,
}

/// What a side has to tell of a phase.
#[derive(Clone, Copy)]
struct Found {
    took: Took,
    bystander: Latencies,
}

pub fn main(arguments: &GrowthArguments) -> Outcome<()> {
    let chapter = measure(arguments)?;
    arguments.output.publish(&chapter)
}

pub fn measure(arguments: &GrowthArguments) -> Outcome<Chapter> {
    let start = Instant::now();
    let machine = Machine::look();
    let arck = arguments.output.command()?;
    let (files, rounds) = match arguments.quick {
        true => (&[10_000, 100_000][..], 1),
        false => (&arguments.files[..], arguments.rounds),
    };
    let most = files.iter().copied().max().unwrap_or(0);
    // Of both sides: what one has removed the other may not have given back yet.
    pool::need_memory(2 * most * FILE + POOL / 2, &format!("{most} files"))?;
    let progress = Progress::new(
        "growth",
        files.len() * arguments.directories.len() * rounds * 2,
    );
    let mut rows = Vec::new();
    let mut told = (String::new(), String::new());
    for &files in files {
        for &directories in &arguments.directories {
            let setting = setting(files, directories);
            // Of each phase, the rounds' pairs.
            let mut pairs = [const { Vec::new() }; Phase::ALL.len()];
            for round in 0..rounds {
                let size = 4 * files * FILE + POOL;
                let mut bench = Bench::start(size, arguments.persist, arck.as_deref())?;
                told = (
                    pool::policy_name(bench.policy).to_owned(),
                    bench.server().to_owned(),
                );
                let side = |kernel: bool| {
                    let name = if kernel { "tmpfs" } else { "Arck" };
                    progress.next(format!("{setting}: {name}, round {}", round + 1));
                    one_side(&bench, kernel, files, directories)
                };
                let (tmpfs, ours) = if round % 2 == 0 {
                    let tmpfs = side(true)?;
                    (tmpfs, side(false)?)
                } else {
                    let ours = side(false)?;
                    (side(true)?, ours)
                };
                for (list, pair) in pairs.iter_mut().zip(tmpfs.into_iter().zip(ours)) {
                    list.push(pair);
                }
                bench.stop()?;
            }
            let phases = Phase::ALL.into_iter().zip(&pairs);
            rows.extend(phases.map(|(phase, pairs)| row(phase, files, &setting, pairs)));
        }
    }
    drop(progress);
    Ok(Chapter {
        sides: crate::chapter::tmpfs_and_arck(),
        command: "arck-bench growth".to_owned(),
        told: "A session that has just begun, on a pool that nobody has used (Rust API), one thread; names looked up at \
               random, all else in order. Fresh is what nobody has used yet, recycled what was removed before: names, \
               inodes, space. Another session, in a directory of its own, looks on."
            .to_owned(),
        machine,
        persist: arguments.persist.to_string(),
        flushing: told.0,
        controller: told.1,
        rounds,
        shortened: None,
        seconds: start.elapsed().as_secs_f64(),
        rows,
    })
}

fn setting(files: u64, directories: u64) -> String {
    let directories = match directories {
        1 => "1 directory".to_owned(),
        many => format!("{many} directories"),
    };
    format!("{files} files, {directories}")
}

/// What is asked for, with so many files.
fn wanted(phase: Phase, files: u64) -> Option<f64> {
    match phase {
        Phase::Append => Some(3.0),
        Phase::Write => Some(1.5),
        Phase::Create | Phase::CreateAgain => Some(5.0),
        Phase::Rename if files <= 100_000 => Some(4.5),
        Phase::Rename => Some(4.0),
        Phase::Unlink if files <= 100_000 => Some(7.0),
        Phase::Unlink => Some(5.0),
        _ => None,
    }
}

fn row(phase: Phase, files: u64, setting: &str, pairs: &[(Found, Found)]) -> Row {
    let each = |found: &Found| found.took.each;
    let times: Vec<(f64, f64)> = pairs
        .iter()
        .map(|(tmpfs, ours)| (each(tmpfs), each(ours)))
        .collect();
    let latencies = |of: fn(&Found) -> Option<Latencies>| {
        let pairs = pairs
            .iter()
            .map(|(tmpfs, ours)| Some((of(tmpfs)?, of(ours)?)));
        let pairs: Option<Vec<_>> = pairs.collect();
        pairs.map(|pairs| Sides::of_pairs(&pairs))
    };
    Row {
        calls: latencies(|found| found.took.calls),
        bystander: latencies(|found| Some(found.bystander)),
        ..Row::of_pairs(phase.name(), setting, &times, wanted(phase, files))
    }
}

/// All phases on one side, each watched by a bystander.
fn one_side(bench: &Bench, kernel: bool, files: u64, directories: u64) -> Outcome<Vec<Found>> {
    let start = || {
        let mut command = bench.worker(None)?;
        command.args(["--task", "growth"]);
        if kernel {
            command.arg("--kernel");
        }
        Conversation::start(command)
    };
    let mut bystander = start()?;
    let mut worker = start()?;
    let _: Option<Took> = worker.ask(&Order::Prepare { files, directories })?;
    let mut all = Vec::new();
    for phase in Phase::ALL {
        let _: Option<Took> = bystander.ask(&Order::Watch)?;
        let took: Option<Took> = worker.ask(&Order::Run(phase))?;
        let watched: Option<Took> = bystander.ask(&Order::Rest)?;
        let watched = watched.and_then(|watched| watched.calls);
        match (took, watched) {
            (Some(took), Some(bystander)) => all.push(Found { took, bystander }),
            _ => return Err("a worker measured nothing".to_owned()),
        }
    }
    worker.end()?;
    bystander.end()?;
    Ok(all)
}
