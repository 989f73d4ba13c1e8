//! `arck-bench step`: what one warm operation does, counted by single steps: instructions and where they are,
//! cache lines, flushes, fences, locked instructions, system calls. No load of the machine changes it.
//!
//! | module | idea |
//! | --- | --- |
//! | `places` | where an operation begins and ends, for who steps |
//! | `instruction` | what one instruction does |
//! | `maps` | what lies at an address |
//! | `looking` | follows the thread through its operations |
//! | `tally` | what is counted |
//! | `known` | code of which it is known what it does |
//!
//! # Invariants
//! * What is between the two places of an operation is counted, and nothing else.
//! * Memory that the kernel touches in a system call is not seen, and neither are other threads and the controller.
//! * An operation's figures are those in the middle of all operations of its loop: what only some do (a stock that is
//!   filled again) is in the mean, which is told of instructions. Three pools are looked at: a pool's seed of hashes is
//!   drawn when it is made, so that some chains are longer in one than in the other. All else is the same in each run.

mod instruction;
pub mod known;
mod looking;
mod maps;
pub mod places;
mod tally;

use crate::loops::{Counting, LOOPS};
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::output::{Output, Report};
use crate::pool::{self, Bench};
use crate::progress::Progress;
use crate::trace;
use arck_pm::PersistOption;
use clap::Args;
use looking::Looking;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use tally::Tally;

/// Pools: each has a seed of hashes of its own, and so chains of its own.
const POOLS: usize = 3;

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench step                        Rust API and preload library
  arck-bench step --filter rename        one of them, in seconds
  arck-bench step --json before.json     to compare with another commit's")]
pub struct StepArguments {
    /// Size of the pool: bytes, or with K, M, G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = pool::parse_size)]
    pool_size: u64,

    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// Only operations whose name contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// On one pool, not on three
    #[arg(long)]
    pub quick: bool,

    /// Count code of which it is known what it does: for tests.
    #[arg(long, hide = true)]
    known: bool,

    #[command(flatten)]
    output: Output,
}

/// One operation, called in one way.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub operation: String,
    pub way: &'static str,
    /// Operations that were looked at.
    pub operations: usize,
    /// Each figure is in the middle of all operations'.
    pub each: Tally,
    pub mean_instructions: f64,
    /// Instructions that are wanted at most: what ArckFS+'s LibFS takes, counted in the same way.
    pub wanted: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Steps {
    pub command: String,
    pub machine: Machine,
    pub persist: String,
    pub flushing: String,
    pub rows: Vec<Row>,
}

/// What ArckFS+'s LibFS takes, its kernel module replaced by function calls that do nothing: it checks no permission
/// and keeps no times.
fn wanted(operation: &str) -> Option<u64> {
    match operation {
        "create+close" => Some(2671),
        "rename" => Some(3189),
        "unlink" => Some(2003),
        "open+close" => Some(1362),
        "stat" => Some(1114),
        "append 4 KiB" => Some(787),
        _ => None,
    }
}

pub fn main(arguments: &StepArguments) -> Outcome<()> {
    let steps = measure(arguments)?;
    arguments.output.publish(&steps)
}

pub fn measure(arguments: &StepArguments) -> Outcome<Steps> {
    let mut steps = Steps {
        command: "arck-bench step".to_owned(),
        machine: Machine::look(),
        persist: arguments.persist.to_string(),
        flushing: String::new(),
        rows: Vec::new(),
    };
    let library = pool::find_library();
    let ways =
        match arguments.known {
            true => vec![Way::Known],
            false => vec![
                Way::Preload(library.ok_or(
                    "libarck_preload.so is not beside this executable: build arck-preload",
                )?),
                Way::Direct,
            ],
        };
    let pools = match arguments.quick || arguments.known {
        true => 1,
        false => POOLS,
    };
    let progress = Progress::new("step", ways.len() * pools);
    for way in &ways {
        let mut found: BTreeMap<u64, Vec<Tally>> = BTreeMap::new();
        for pool in 1..=pools {
            progress.next(format!("{}, pool {pool}", way.name()));
            let arck = arguments.output.command()?;
            let mut bench = Bench::start(arguments.pool_size, arguments.persist, arck.as_deref())?;
            pool::policy_name(bench.policy).clone_into(&mut steps.flushing);
            for (phase, tallies) in way.operations(&bench, arguments.filter.as_deref())? {
                found.entry(phase).or_default().extend(tallies);
            }
            bench.stop()?;
        }
        steps.rows.extend(way.rows(arguments, &found)?);
    }
    Ok(steps)
}

/// How operations are called.
enum Way {
    /// By libc's names, which this library serves.
    Preload(PathBuf),
    Direct,
    Known,
}

impl Way {
    fn name(&self) -> &'static str {
        match self {
            Way::Preload(_) => "preload",
            Way::Direct => "Rust API",
            Way::Known => "known",
        }
    }

    /// What is called, by phase.
    fn loops(&self) -> &'static [&'static str] {
        match self {
            Way::Known => &known::NAMES,
            _ => &LOOPS,
        }
    }

    /// What each operation of a phase did, on one pool.
    fn operations(
        &self,
        bench: &Bench,
        filter: Option<&str>,
    ) -> Outcome<BTreeMap<u64, Vec<Tally>>> {
        let library = match self {
            Way::Preload(library) => Some(library.clone()),
            _ => None,
        };
        let mut command = bench.worker(library.as_deref())?;
        command.stdout(Stdio::null());
        let counting = Counting::Operations.name();
        match self {
            Way::Known => command.args(["--task", "known"]),
            _ => command.args(["--task", "count", "--counting", counting]),
        };
        if let Some(filter) = filter {
            command.args(["--filter", filter]);
        }
        let mut looking = Looking::new(bench.pool(), library);
        trace::run_looking(&mut command, Some(&mut looking))?;
        Ok(looking.operations())
    }

    fn rows(
        &self,
        arguments: &StepArguments,
        found: &BTreeMap<u64, Vec<Tally>>,
    ) -> Outcome<Vec<Row>> {
        let filter = arguments.filter.as_deref();
        let row = |(phase, name): (usize, &&'static str)| {
            let tallies = found
                .get(&(phase as u64))
                .ok_or_else(|| format!("no operation of {name} was seen"))?;
            let all: u64 = tallies.iter().map(|tally| tally.instructions).sum();
            Ok(Row {
                operation: name.to_string(),
                way: self.name(),
                operations: tallies.len(),
                each: Tally::middle(tallies),
                mean_instructions: all as f64 / tallies.len() as f64,
                wanted: match self {
                    Way::Preload(_) => wanted(name),
                    _ => None,
                },
            })
        };
        let all = self.loops().iter().enumerate();
        all.filter(|(_, name)| filter.is_none_or(|filter| name.contains(filter)))
            .map(row)
            .collect()
    }
}

impl Report for Steps {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write;
        writeln!(
            text,
            "`{}`: What a warm operation does, counted by single steps over {} operations; the figure in the middle of \
             each, and the mean of instructions. A string instruction counts once. Lines are of 64 bytes, each counted \
             once an operation; the pool's are those that sessions and controller share. Wanted is what ArckFS+'s LibFS \
             takes, which checks no permission and keeps no times. `--persist {}` ({}). {}.\n",
            self.command,
            self.rows
                .iter()
                .map(|row| row.operations)
                .max()
                .unwrap_or(0),
            self.persist,
            self.flushing,
            self.machine
        )?;
        writeln!(
            text,
            "| operation | way | instructions | wanted | mean | in the preload library | in libc | system calls | lines \
             read | written | in all | of the pool | flushes | streamed stores | fences | locked |"
        )?;
        writeln!(text, "| --- | --- |{}", " ---: |".repeat(14))?;
        for row in &self.rows {
            let wanted = row.wanted.map_or_else(String::new, |most| most.to_string());
            let each = &row.each;
            write!(
                text,
                "| {} | {} | {} | {wanted} | {:.0} |",
                row.operation, row.way, each.instructions, row.mean_instructions
            )?;
            for figure in each.beside() {
                write!(text, " {figure} |")?;
            }
            writeln!(text)?;
        }
        Ok(())
    }
}
