//! `arck-bench delegation`: what many threads get done on files of an emulated medium by themselves, with large accesses delegated to a
//! few threads of each of its nodes (OdinFS, OSDI'22; Trio, section 4.5), and with as many at once at each node as do it themselves.
//!
//! # Invariants
//! * Rounds of all ways follow each other, in one process, on the same files.

mod across;
mod bystander;
mod processes;
mod rate;
mod thresholds;
mod ways;

pub use processes::work;

use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::output::{Output, Report};
use crate::pool::{self, Bench};
use arck_libfs_kit::memory::medium::Way;
use arck_pm::PersistOption;
use arckfs::{ConnectOptions, FileSystem};
use clap::Args;
use rate::{Access, FILE, Place, SIZES, delegated_all, fill, model_of, name, open, peak, rate};
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;
use ways::{COLUMNS, RULES, Ways};

/// Writes and reads of many threads: by themselves, delegated to a few of each memory node, and
/// few at once
///
/// EXAMPLES
///   arck-bench delegation                        Optane
///   arck-bench --medium cxl delegation --quick
///   arck-bench delegation --delegates 2 --json delegation.json
///   arck-bench --medium mine.toml delegation --thresholds
///   arck-bench delegation --processes 1,4,16 --threads 64
///   arck-bench delegation --fresh                each file is cut off, and grows
///   arck-bench delegation --bystander
///   arck-bench delegation --across
///
/// Without --medium the medium is optane: on plain memory there is nothing to
/// gain, and nothing is delegated unless a program says so. --thresholds looks
/// at many sizes by the most --threads, and ends with the table [delegation]
/// for the medium's file: from which size on delegated accesses are faster.
/// --processes has so many write, which are one trust group and have the most
/// --threads together; each delegates to threads of its own, and few at once
/// are few of all. --bystander has the most --threads write, and another one make
/// names and write little meanwhile. --fresh is of writes alone. --across is of this machine's memory: what it costs to move bytes from and
/// to another process, which nothing does yet.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct DelegationArguments {
    /// Threads of each node [default: what the medium's file says, else as many
    /// as write most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    delegates: Option<u32>,
    /// From which size on it is faster
    #[arg(long)]
    thresholds: bool,
    /// What the memory of another process costs
    #[arg(long, conflicts_with = "thresholds")]
    across: bool,
    /// Processes that write
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with_all = ["thresholds", "across"])]
    processes: Vec<usize>,
    /// What another thread waits for that does small things meanwhile
    #[arg(long, conflicts_with_all = ["thresholds", "across", "processes"])]
    bystander: bool,
    /// Writes are of new pages: each file is cut off, and grows again
    #[arg(long, conflicts_with_all = ["across", "thresholds"])]
    fresh: bool,
    /// Threads that write and read
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,4,16,64"
    )]
    threads: Vec<usize>,
    /// Rounds that count
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Few threads, and little time
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

/// GB/s of one number of threads.
#[derive(Serialize)]
struct Row {
    operation: String,
    threads: usize,
    /// What the medium does at best, all its nodes together, in accesses of this size.
    peak: f64,
    #[serde(flatten)]
    ways: Ways,
}

#[derive(Serialize)]
struct Found {
    machine: Machine,
    nodes: u32,
    delegates: u32,
    /// Writes were of new pages.
    is_fresh: bool,
    rows: Vec<Row>,
}

pub fn main(arguments: &DelegationArguments) -> Outcome<()> {
    if arguments.across {
        return arguments
            .output
            .publish(&across::measure(arguments.rounds)?);
    }
    let named = || std::env::var(arck_medium::VARIABLE);
    match named() {
        Ok(name) if name == "none" => {
            return Err("without a medium there is nothing to see; --medium names one".to_owned());
        }
        Ok(name) if !name.is_empty() => {}
        _ => pool::choose_medium(Some("optane"), None)?,
    }
    let arck = arguments.output.command()?;
    let (counts, rounds, time) = match arguments.quick {
        true => (vec![1, 16], 1, Duration::from_millis(40)),
        false => (
            arguments.threads.clone(),
            arguments.rounds,
            Duration::from_millis(300),
        ),
    };
    if arguments.processes.contains(&0) {
        return Err("--processes: there has to be one".to_owned());
    }
    let most = counts.iter().copied().max().ok_or("no threads")?;
    // What is cut off is not free at once, and a pool without room is another thing to measure.
    let room = if arguments.fresh { 16 } else { 2 };
    let size = (most as u64 * FILE * room).max(256 << 20);
    let mut bench = Bench::start(size, PersistOption::Always, arck.as_deref())?;
    if !arguments.processes.is_empty() {
        let asked = processes::Asked {
            processes: &arguments.processes,
            threads: most,
            rounds,
            time,
            delegates: arguments.delegates,
            is_fresh: arguments.fresh,
        };
        let found = processes::measure(&bench, &asked)?;
        bench.stop()?;
        return arguments.output.publish(&found);
    }
    let files = FileSystem::connect(&ConnectOptions {
        pool: bench.pool(),
        mount: pool::MOUNT.into(),
        group: Vec::new(),
        resolver: arckfs::Resolver::default(),
    })
    .map_err(|error| error.to_string())?;
    let model = model_of()?;
    let place = Place {
        files: &files,
        medium: named().unwrap_or_default(),
        model,
        delegates: arguments.delegates.unwrap_or(model.delegated.threads),
        is_fresh: arguments.fresh,
    };
    for thread in 0..most {
        fill(&files, open(&files, thread)?, thread)?;
    }
    if arguments.thresholds {
        let found = thresholds::measure(&place, most, rounds, time)?;
        drop(files);
        bench.stop()?;
        return arguments.output.publish(&found);
    }
    if arguments.bystander {
        let found = bystander::measure(&place, most, rounds, time)?;
        drop(files);
        bench.stop()?;
        return arguments.output.publish(&found);
    }
    let found = beside_each_other(&place, &counts, rounds, time)?;
    drop(files);
    bench.stop()?;
    arguments.output.publish(&found)
}

/// Large and small accesses by each number of threads, all ways.
fn beside_each_other(
    place: &Place<'_>,
    counts: &[usize],
    rounds: usize,
    time: Duration,
) -> Outcome<Found> {
    let model = &place.model;
    let delegated = delegated_all(model, place.delegates);
    let mut rows = Vec::new();
    // Files that are cut off have nothing to be read.
    let all = [Way::Write, Way::Read];
    let ways = if place.is_fresh { &all[..1] } else { &all };
    for &way in ways {
        for (size, size_name) in SIZES {
            if size < delegated.from(way) as usize {
                continue;
            }
            for &threads in counts {
                let access = Access {
                    way,
                    size,
                    is_fresh: place.is_fresh,
                };
                let round = || rate(place.files, access, threads, time);
                let ways = Ways::measure(rounds, |how| {
                    how.within(place.files, model.nodes, &delegated, round)
                })?;
                rows.push(Row {
                    operation: format!("{} {size_name}", name(way)),
                    threads,
                    peak: peak(model, way, size),
                    ways,
                });
            }
        }
    }
    Ok(Found {
        machine: Machine::look(),
        nodes: model.nodes,
        delegates: place.delegates,
        is_fresh: place.is_fresh,
        rows,
    })
}

impl Report for Found {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}\n", self.machine)?;
        writeln!(
            text,
            "GB/s of all threads together, each in a file of its own{}; {} nodes, {} threads of each to which is delegated what is \
             256 bytes and more (reads: 32 KiB).\n",
            match self.is_fresh {
                true => ", of which writes are of new pages",
                false => "",
            },
            self.nodes,
            self.delegates
        )?;
        writeln!(text, "| operation | threads | {COLUMNS}")?;
        writeln!(text, "| --- | ---: | {RULES}")?;
        for row in &self.rows {
            let (operation, threads) = (&row.operation, row.threads);
            writeln!(
                text,
                "| {operation} | {threads} | {}",
                row.ways.beside(row.peak)
            )?;
        }
        Ok(())
    }
}
