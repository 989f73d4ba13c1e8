//! `arck-bench fold`: what the controller spends on a name that is created, renamed or removed: while the session
//! works, and when all of it is folded.
//!
//! # Invariants
//! * Each round has a pool of its own, which nobody has used before.
//! * Times are of the processor, not of the clock: other processes are not in them, and the session is not, which
//!   has a process of its own.
//! * A session asks for a fold behind each storm, so a storm pays for its own changes and no others.

use crate::calls::{Calls, DirectCalls};
use crate::conversation::{self, Conversation};
use crate::machine::Machine;
use crate::measure::median;
use crate::outcome::Outcome;
use crate::output::{Output, Report};
use crate::pool::{self, Bench};
use crate::progress::Progress;
use arck_pm::PersistOption;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fmt::Write;

/// Bytes of memory that a name takes at most.
const NAME: u64 = 4096;
/// Bytes of a pool without names.
const POOL: u64 = 512 << 20;

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench fold                            20,000 names in one directory
  arck-bench fold --names 100000 --rounds 9
  arck-bench fold --directories 100 --json FILE")]
pub struct FoldArguments {
    /// Names of a storm
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    names: u64,

    /// In how many directories
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    directories: u64,

    /// Rounds; medians are told
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,

    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    #[command(flatten)]
    output: Output,
}

/// What is done to all names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Storm {
    Create,
    Rename,
    Remove,
}

impl Storm {
    const ALL: [Storm; 3] = [Storm::Create, Storm::Rename, Storm::Remove];

    fn name(self) -> &'static str {
        match self {
            Storm::Create => "created",
            Storm::Rename => "renamed",
            Storm::Remove => "removed",
        }
    }

    /// Nanoseconds of the controller that are asked for.
    fn wanted(self) -> f64 {
        match self {
            Storm::Create => 1000.0,
            Storm::Rename | Storm::Remove => 700.0,
        }
    }
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Order {
    Prepare { names: u64, directories: u64 },
    Run(Storm),
    Fold,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    machine: Machine,
    persist: String,
    controller: String,
    names: u64,
    directories: u64,
    rounds: usize,
    pub rows: Vec<Row>,
}

/// Nanoseconds of the controller's processor time a name, medians of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub what: &'static str,
    /// While the session works.
    pub storm: f64,
    /// When it asks for the fold, until that is done.
    pub fold: f64,
    pub both: f64,
    pub wanted: f64,
}

pub fn main(arguments: &FoldArguments) -> Outcome<()> {
    arguments.output.publish(&measure(arguments)?)
}

/// Measures.
pub fn measure(arguments: &FoldArguments) -> Outcome<Found> {
    let arck = arguments.output.command()?;
    let (names, directories) = (arguments.names, arguments.directories);
    pool::need_memory(names * NAME + POOL / 2, &format!("{names} names"))?;
    let machine = Machine::look();
    let progress = Progress::new("fold", arguments.rounds);
    let mut controller = String::new();
    // Of each storm, the rounds' nanoseconds: of the storm, and of the fold.
    let mut times = [const { Vec::new() }; Storm::ALL.len()];
    for round in 0..arguments.rounds {
        progress.next(format!("round {}", round + 1));
        let mut bench = Bench::start(4 * names * NAME + POOL, arguments.persist, arck.as_deref())?;
        bench.server().clone_into(&mut controller);
        let mut command = bench.worker(None)?;
        command.args(["--task", "fold"]);
        let mut worker = Conversation::start(command)?;
        worker.ask::<()>(&Order::Prepare { names, directories })?;
        for (storm, list) in Storm::ALL.into_iter().zip(&mut times) {
            let mut spent = |order| {
                let before = bench.server_nanoseconds()?;
                worker.ask::<()>(&order)?;
                let spent = bench.server_nanoseconds()? - before;
                Outcome::Ok(spent as f64 / names as f64)
            };
            list.push((spent(Order::Run(storm))?, spent(Order::Fold)?));
        }
        worker.end()?;
        bench.stop()?;
    }
    drop(progress);
    let rows = Storm::ALL
        .into_iter()
        .zip(&times)
        .map(|(storm, times)| Row {
            what: storm.name(),
            storm: median(times.iter().map(|(storm, _)| *storm)),
            fold: median(times.iter().map(|(_, fold)| *fold)),
            both: median(times.iter().map(|(storm, fold)| storm + fold)),
            wanted: storm.wanted(),
        });
    Ok(Found {
        machine,
        persist: arguments.persist.to_string(),
        controller,
        names,
        directories,
        rounds: arguments.rounds,
        rows: rows.collect(),
    })
}

impl Found {
    /// What was measured, in two sentences.
    pub fn told(&self) -> String {
        let directories = match self.directories {
            1 => "one directory".to_owned(),
            many => format!("{many} directories"),
        };
        format!(
            "{} names in {directories}, each created and closed, renamed in its place, removed, by a \
             session that has just begun on a pool that nobody has used; behind each storm all is folded. Nanoseconds of \
             processor time of the controller's process for a name, medians of {} round(s).",
            self.names, self.rounds
        )
    }
}

impl Report for Found {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "`arck-bench fold`: {} `--persist {}`; controller: {}. {}.\n",
            self.told(),
            self.persist,
            self.controller,
            self.machine
        )?;
        writeln!(
            text,
            "| a name that is | while the session works | when it is folded | together | wanted |"
        )?;
        writeln!(text, "| --- | ---: | ---: | ---: | ---: |")?;
        for row in &self.rows {
            writeln!(
                text,
                "| {} | {:.0} | {:.0} | {:.0} | {:.0} |",
                row.what, row.storm, row.fold, row.both, row.wanted
            )?;
        }
        Ok(())
    }
}

/// In a worker: paths made before anything is measured.
#[derive(Default)]
struct Paths {
    before: Vec<CString>,
    after: Vec<CString>,
}

impl Paths {
    fn run(&self, calls: &DirectCalls, storm: Storm) -> Outcome<()> {
        const CREATE: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
        for (before, after) in self.before.iter().zip(&self.after) {
            match storm {
                Storm::Create => calls.close(calls.open(before, CREATE)?),
                Storm::Rename => calls.rename(before, after)?,
                Storm::Remove => calls.unlink(after)?,
            }
        }
        Ok(())
    }
}

/// Obeys orders until there are no more.
pub fn work(calls: &DirectCalls) -> Outcome<()> {
    // What is told about the file system is told when all is folded.
    let fold = || {
        let told = calls.file_system.statistics();
        told.map(drop).map_err(|errno| format!("a fold: {errno}"))
    };
    let mut paths = Paths::default();
    conversation::answer(|order| match order {
        Order::Prepare { names, directories } => {
            let each = names.div_ceil(directories);
            for directory in 0..names.div_ceil(each) {
                calls.make_directory(&calls.path(&format!("fold-{directory}")))?;
            }
            let named = |prefix: &str| {
                let name = |name| calls.path(&format!("fold-{}/{prefix}{name:08}", name / each));
                (0..names).map(name).collect()
            };
            paths = Paths {
                before: named("f"),
                after: named("r"),
            };
            fold()
        }
        Order::Run(storm) => paths.run(calls, storm),
        Order::Fold => fold(),
    })
}
