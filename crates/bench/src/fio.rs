//! `arck-bench fio`: what fio's asynchronous engines reach at several depths on the pool, by `arck run`, beside the same on tmpfs and beside
//! its plain calls (psync).
//!
//! # Invariants
//! * Both sides run the same command but for the directory, on a file of the same size that is laid out before, in rounds that alternate, and
//!   so does which side is first. All runs of a round follow each other before the next round.
//! * The figures are fio's own: its start is not in them. Ratios are taken inside a round.
//! * A run with an error counts nothing: the measurement fails. Nothing was refused on the pool.

use crate::apps::{Side, find, said};
use crate::machine::Machine;
use crate::measure::median;
use crate::outcome::Outcome;
use crate::output::{Output, Report};
use crate::pool::{self, Bench};
use crate::progress::Progress;
use arck_pm::PersistOption;
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};

const POOL_SIZE: u64 = 512 << 20;
const FILE_SIZE: u64 = 64 << 20;
const ACCESSES: [&str; 2] = ["randread", "randwrite"];
/// The one with the plain calls, which knows no depth.
const PLAIN: &str = "psync";

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench fio                        psync, io_uring, libaio, posixaio
  arck-bench fio --quick                a look
  arck-bench fio --engines io_uring --depths 16 --rounds 9
  arck-bench fio --engines io_uring --depths 16 --batch 16")]
pub struct FioArguments {
    /// fio's engines, several with commas; psync is measured beside them
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "io_uring,libaio,posixaio"
    )]
    engines: Vec<String>,

    /// Requests in flight, up to 1024, some numbers of them with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4,16,64",
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    depths: Vec<u64>,

    /// Submit and reap so many at a time, or the depth if that is less; fio itself
    /// submits each by itself
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    batch: u64,

    /// Rounds, of all runs on each side
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,

    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// A look: depth 16, one short round
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,
}

/// One kind of run.
#[derive(Clone, Serialize)]
struct Run {
    access: &'static str,
    engine: String,
    depth: u64,
    /// Submitted and reaped at a time.
    batch: u64,
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    run: Run,
    /// Medians of thousands of accesses a second: tmpfs, the pool.
    rates: [f64; 2],
    /// Medians of the ratios of the rounds: above 1, the pool is faster; and this engine is than psync, both on the pool.
    to_tmpfs: f64,
    to_plain: f64,
}

#[derive(Serialize)]
struct Told {
    machine: Machine,
    version: String,
    persist: String,
    flushing: String,
    controller: String,
    rounds: usize,
    milliseconds: u64,
    rows: Vec<Row>,
}

pub fn main(arguments: &FioArguments) -> Outcome<()> {
    let machine = Machine::look();
    let arck = arguments.output.command()?;
    let arck = arck.ok_or("arck is not beside this executable: build arck-cli and arck-preload")?;
    let fio = find("fio", "fio")?;
    let version = said(std::process::Command::new(&fio).arg("--version"))?;
    let (rounds, milliseconds) = match arguments.quick {
        true => (1, 200),
        false => (arguments.rounds, 1000),
    };
    let runs = runs(arguments);
    let mut bench = Bench::start(POOL_SIZE, arguments.persist, Some(&arck))?;
    let sides = [Side::tmpfs(&bench), Side::pool(&bench, &arck)];
    for side in &sides {
        side.make()?;
        let lay_out = Run {
            access: "write",
            engine: PLAIN.to_owned(),
            depth: 1,
            batch: 1,
        };
        rate(&fio, side, &lay_out, None)?;
    }
    let progress = Progress::new("fio", runs.len() * rounds * sides.len());
    // Of each run, of each side, of each round.
    let mut rates: Vec<[Vec<f64>; 2]> = vec![Default::default(); runs.len()];
    for round in 0..rounds {
        for (run, rates) in runs.iter().zip(&mut rates) {
            for turn in 0..sides.len() {
                let place = (round + turn) % sides.len();
                let (engine, depth, side) = (&run.engine, run.depth, sides[place].name);
                progress.next(format!(
                    "{engine} at depth {depth} on {side}, round {}",
                    round + 1
                ));
                rates[place].push(rate(&fio, &sides[place], run, Some(milliseconds))?);
            }
        }
    }
    let told = Told {
        machine,
        version: version.trim().to_owned(),
        persist: arguments.persist.to_string(),
        flushing: pool::policy_name(bench.policy).to_owned(),
        controller: bench.server().to_owned(),
        rounds,
        milliseconds,
        rows: rows(runs, &rates),
    };
    bench.stop()?;
    arguments.output.publish(&told)
}

fn runs(arguments: &FioArguments) -> Vec<Run> {
    let depths: &[u64] = match arguments.quick {
        true => &[16],
        false => &arguments.depths,
    };
    let mut runs = Vec::new();
    for access in ACCESSES {
        let run = |engine: &str, depth| Run {
            access,
            engine: engine.to_owned(),
            depth,
            batch: arguments.batch.min(depth),
        };
        runs.push(run(PLAIN, 1));
        for engine in &arguments.engines {
            runs.extend(depths.iter().map(|&depth| run(engine, depth)));
        }
    }
    runs
}

fn rows(runs: Vec<Run>, rates: &[[Vec<f64>; 2]]) -> Vec<Row> {
    let ratio = |ones: &[f64], others: &[f64]| {
        let pairs = ones.iter().zip(others);
        median(pairs.map(|(one, other)| one / other))
    };
    let mut plain = 0;
    let mut rows = Vec::new();
    for (at, run) in runs.into_iter().enumerate() {
        if run.engine == PLAIN {
            plain = at;
        }
        let [tmpfs, pool] = &rates[at];
        rows.push(Row {
            run,
            rates: [tmpfs, pool].map(|side| median(side.iter().copied())),
            to_tmpfs: ratio(pool, tmpfs),
            to_plain: ratio(pool, &rates[plain][1]),
        });
    }
    rows
}

/// Thousands of accesses a second; or the file is laid out, where no time is given.
fn rate(fio: &Path, side: &Side, run: &Run, milliseconds: Option<u64>) -> Outcome<f64> {
    let Run {
        access,
        engine,
        depth,
        batch,
    } = run;
    let file = PathBuf::from(&side.directory).join("file");
    let mut command = side.command(fio);
    // What it keeps of its own belongs on no side.
    command.current_dir(&side.beside);
    command.args([
        "--name=one",
        "--thread",
        "--output-format=json",
        "--fallocate=none",
    ]);
    command.arg(format!("--filename={}", file.display()));
    command.args([
        format!("--size={FILE_SIZE}"),
        format!("--rw={access}"),
        format!("--ioengine={engine}"),
        format!("--iodepth={depth}"),
        format!("--iodepth_batch_submit={batch}"),
        format!("--iodepth_batch_complete_min={batch}"),
    ]);
    match milliseconds {
        Some(milliseconds) => {
            command.args(["--bs=4k", "--time_based"]);
            command.arg(format!("--runtime={milliseconds}ms"))
        }
        None => command.arg("--bs=1m"),
    };
    let printed = said(&mut command)?;
    rate_of(&printed).ok_or_else(|| format!("{engine} at depth {depth}: fio says {printed}"))
}

/// What fio says of its one job, if that had no error.
fn rate_of(printed: &str) -> Option<f64> {
    // Notes come before it.
    let told: serde_json::Value = serde_json::from_str(&printed[printed.find('{')?..]).ok()?;
    let job = told.get("jobs")?.get(0)?;
    if job.get("error")?.as_i64()? != 0 {
        return None;
    }
    let of = |way: &str| job.get(way)?.get("iops")?.as_f64();
    let rate = of("read")? + of("write")?;
    (rate > 0.0).then_some(rate / 1e3)
}

impl Report for Told {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write;
        writeln!(
            text,
            "{}.\n{}, one job, a file of {} MiB, 4096 bytes at random places: on tmpfs, and on the pool by `arck run`. `--persist {}` ({}); \
             controller: {}. Thousands of accesses a second; medians of {} rounds of {} ms, the sides taking turns; factors are medians of \
             those of the rounds.\n",
            self.machine,
            self.version,
            FILE_SIZE >> 20,
            self.persist,
            self.flushing,
            self.controller,
            self.rounds,
            self.milliseconds
        )?;
        writeln!(
            text,
            "| access | engine | depth | at a time | tmpfs | pool | pool / tmpfs | pool / psync on the pool |"
        )?;
        writeln!(
            text,
            "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
        )?;
        for row in &self.rows {
            let Run {
                access,
                engine,
                depth,
                batch,
            } = &row.run;
            let ([tmpfs, pool], to_tmpfs, to_plain) = (row.rates, row.to_tmpfs, row.to_plain);
            writeln!(
                text,
                "| {access} | {engine} | {depth} | {batch} | {tmpfs:.0} | {pool:.0} | {to_tmpfs:.2} | {to_plain:.2} |"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::rate_of;

    #[test]
    fn a_run_with_an_error_counts_nothing() {
        let told = |error: u32, read: f64, write: f64| {
            format!(
                "fio: a note\n{{\"jobs\": [{{\"error\": {error}, \"read\": {{\"iops\": {read}}}, \"write\": {{\"iops\": {write}}}}}]}}"
            )
        };
        assert_eq!(rate_of(&told(0, 2500.0, 0.0)), Some(2.5));
        assert_eq!(rate_of(&told(0, 0.0, 500.0)), Some(0.5));
        assert_eq!(rate_of(&told(5, 2500.0, 0.0)), None);
        assert_eq!(rate_of(&told(0, 0.0, 0.0)), None);
        assert_eq!(rate_of("fio: cannot"), None);
        assert_eq!(rate_of("{}"), None);
    }
}
