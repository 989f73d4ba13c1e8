//! `arck-bench micro`: starts a pool and workers, and reports.

use crate::machine::Machine;
use crate::measure::Measurement;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::pool::{self, Bench};
use crate::report::{Clock, Report, Run};
use arck_pm::PersistOption;
use clap::{Args, ValueEnum};
use std::io::IsTerminal;
use std::path::Path;
use std::process::Stdio;

/// How ArckFS is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Through libc's calls, under the preload library
    Preload,
    /// Through the Rust API
    Direct,
}

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench micro                 everything, without and with flushing
  arck-bench micro --persist auto --filter create    one operation
  arck-bench micro --long --rounds 15 --json FILE    100,000 files, 256 MiB")]
pub struct MicroArguments {
    /// Which stores are flushed: auto, always, never, or several of them
    #[arg(long, value_name = "WHEN", value_delimiter = ',', default_value = "auto,always",
          value_parser = pool::parse_persist)]
    persist: Vec<PersistOption>,

    /// Rounds that count, on each side
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,

    /// Size of the pool: bytes, or with K, M, G
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = pool::parse_size)]
    pool_size: u64,

    /// Only operations whose name contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// 100,000 files and 256 MiB instead of 20,000 and 64
    #[arg(long)]
    long: bool,

    /// How ArckFS is called: preload, direct, or both
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "preload,direct"
    )]
    way: Vec<Way>,

    /// Which clock the table tells: wall or processor (JSON has both)
    #[arg(long, value_enum, hide_possible_values = true, default_value = "wall")]
    clock: Clock,

    #[command(flatten)]
    output: Output,
}

pub fn main(arguments: &MicroArguments) -> Outcome<()> {
    let report = measure(arguments)?;
    arguments.output.publish(&report)
}

pub fn measure(arguments: &MicroArguments) -> Outcome<Report> {
    let arck = arguments.output.command()?;
    let library = pool::find_library();
    if library.is_none() && arguments.way.contains(&Way::Preload) {
        let line = "libarck_preload.so is not beside this executable: build arck-preload";
        if arguments.way == [Way::Preload] {
            return Err(line.to_owned());
        }
        eprintln!("arck-bench: {line}; measuring the Rust API only");
    }
    let mut report = Report {
        machine: Machine::look(),
        rounds: arguments.rounds,
        clock: arguments.clock,
        runs: Vec::new(),
    };
    for &persist in &arguments.persist {
        let bench = Bench::start(arguments.pool_size, persist, arck.as_deref())?;
        let mut run = Run {
            persist: persist.to_string(),
            durability: bench.mode.to_string(),
            flushing: pool::policy_name(bench.policy).to_owned(),
            controller: bench.server().to_owned(),
            direct: Vec::new(),
            preload: Vec::new(),
        };
        if arguments.way.contains(&Way::Direct) {
            run.direct = run_worker(&bench, arguments, None)?;
        }
        if arguments.way.contains(&Way::Preload)
            && let Some(library) = &library
        {
            run.preload = run_worker(&bench, arguments, Some(library))?;
        }
        report.runs.push(run);
    }
    Ok(report)
}

fn run_worker(
    bench: &Bench,
    arguments: &MicroArguments,
    library: Option<&Path>,
) -> Outcome<Vec<Measurement>> {
    let mut command = bench.worker(library)?;
    command
        .args(["--task", "micro"])
        .args(["--rounds", &arguments.rounds.to_string()]);
    if arguments.long {
        command.arg("--long");
    }
    if let Some(filter) = &arguments.filter {
        command.args(["--filter", filter]);
    }
    if std::io::stderr().is_terminal() {
        command.arg("--progress");
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("starting a worker: {error}"))?;
    if !output.status.success() {
        return Err(format!("a worker failed: {}", output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("a worker's answer makes no sense: {error}"))
}
