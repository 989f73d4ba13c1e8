//! `arck-bench apps`: real programs, unmodified, on a pool by `arck run` as users run them, beside the same on tmpfs.
//!
//! | module | idea |
//! | --- | --- |
//! | `app` | what a program is here, and what it says |
//! | `side` | how a program is started on a side |
//! | `tools` | where programs are, and how to install what is missing |
//! | `db_bench` | LevelDB and RocksDB, by the `db_bench` of each |
//! | `sqlite` | small transactions, with a journal and with a write-ahead log |
//! | `redis` | a log that is synced before each answer |
//!
//! # Invariants
//! * Both sides run the same command with the same arguments but for the directory, in rounds that alternate, and so
//!   does which is first. Each round begins with an empty directory.
//! * The figures are the program's own: the start of processes is not in them.
//! * What a program says of its result is the same on both sides, and each looks whether what it has written is right.
//!   Nothing was refused on the pool.

mod app;
mod db_bench;
mod redis;
mod side;
mod sqlite;
mod tools;

use crate::chapter::{Chapter, Row};
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::pool::{self, Bench};
use crate::progress::Progress;
use app::{App, Figure};
use arck_pm::PersistOption;
use clap::{Args, ValueEnum};
pub use side::{Side, said};
use std::path::Path;
use std::time::Instant;
pub use tools::find;

/// Bytes of the pool, and of memory that both sides need.
const POOL: u64 = 4 << 30;
const MEMORY: u64 = 3 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    Leveldb,
    Rocksdb,
    Sqlite,
    Redis,
}

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench apps                      all four
  arck-bench apps --quick              a look
  arck-bench apps --only sqlite,redis --rounds 9")]
pub struct AppsArguments {
    /// Which programs: leveldb, rocksdb, sqlite, redis; several with commas
    #[arg(
        long,
        value_enum,
        value_name = "NAME",
        value_delimiter = ',',
        hide_possible_values = true,
        default_value = "leveldb,rocksdb,sqlite,redis"
    )]
    only: Vec<Name>,

    /// Rounds on each side
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,

    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// One round, of a fifth of the operations
    #[arg(long, conflicts_with = "rounds")]
    pub quick: bool,

    /// A hundredth of the operations: for tests
    #[arg(long, hide = true)]
    few: bool,

    #[command(flatten)]
    output: Output,
}

pub fn main(arguments: &AppsArguments) -> Outcome<()> {
    let chapter = measure(arguments)?;
    arguments.output.publish(&chapter)
}

/// The programs that were asked for. What is not installed is told before anything is measured.
fn apps(arguments: &AppsArguments) -> Outcome<Vec<Box<dyn App>>> {
    let divisor = match (arguments.few, arguments.quick) {
        (true, _) => 100,
        (_, true) => 5,
        _ => 1,
    };
    let app = |name: &Name| -> Outcome<Box<dyn App>> {
        Ok(match name {
            Name::Leveldb => Box::new(db_bench::leveldb(divisor)?),
            Name::Rocksdb => Box::new(db_bench::rocksdb(divisor)?),
            Name::Sqlite => Box::new(sqlite::sqlite(divisor)?),
            Name::Redis => Box::new(redis::redis(divisor)?),
        })
    };
    arguments.only.iter().map(app).collect()
}

/// An error, which says how to get it, if a program that is measured is not installed.
pub fn are_there(arguments: &AppsArguments) -> Outcome<()> {
    apps(arguments).map(drop)
}

pub fn measure(arguments: &AppsArguments) -> Outcome<Chapter> {
    let start = Instant::now();
    let machine = Machine::look();
    let arck = arguments.output.command()?;
    let arck = arck.ok_or("arck is not beside this executable: build arck-cli and arck-preload")?;
    let apps = apps(arguments)?;
    pool::need_memory(MEMORY, "programs")?;
    let rounds = match arguments.quick || arguments.few {
        true => 1,
        false => arguments.rounds,
    };
    let progress = Progress::new("apps", apps.len() * rounds * 2);
    let mut chapter = Chapter {
        sides: crate::chapter::tmpfs_and_arck(),
        command: "arck-bench apps".to_owned(),
        told: "Programs, unmodified, by `arck run`; nanoseconds of an operation as the program itself tells them (of \
               SQLite by its clock), its start not included."
            .to_owned(),
        machine,
        persist: arguments.persist.to_string(),
        flushing: String::new(),
        controller: String::new(),
        rounds,
        shortened: None,
        seconds: 0.0,
        rows: Vec::new(),
    };
    for app in apps {
        let mut bench = Bench::start(POOL, arguments.persist, Some(&arck))?;
        pool::policy_name(bench.policy).clone_into(&mut chapter.flushing);
        bench.server().clone_into(&mut chapter.controller);
        let rows = rows(&bench, &arck, app.as_ref(), rounds, &progress)
            .map_err(|error| format!("{}: {error}", app.name()))?;
        chapter.rows.extend(rows);
        // An error if anything was refused.
        bench
            .stop()
            .map_err(|error| format!("{}: {error}", app.name()))?;
    }
    chapter.seconds = start.elapsed().as_secs_f64();
    Ok(chapter)
}

fn rows(
    bench: &Bench,
    arck: &Path,
    app: &dyn App,
    rounds: usize,
    progress: &Progress,
) -> Outcome<Vec<Row>> {
    let sides = [Side::tmpfs(bench), Side::pool(bench, arck)];
    let mut all: Vec<[Vec<Figure>; 2]> = Vec::new();
    for round in 0..rounds {
        let mut figures = [Vec::new(), Vec::new()];
        for turn in 0..2 {
            let place = (round + turn) % 2;
            let side = &sides[place];
            progress.next(format!(
                "{}: {}, round {}",
                app.name(),
                side.name,
                round + 1
            ));
            side.make()?;
            figures[place] = app
                .round(side)
                .map_err(|error| format!("on {}: {error}", side.name))?;
            side.remove()?;
        }
        all.push(figures);
    }
    let first = &all[0][0];
    for figures in all.iter().flatten() {
        let says = |list: &[Figure]| -> Vec<(String, String)> {
            let each = list
                .iter()
                .map(|figure| (figure.what.clone(), figure.result.clone()));
            each.collect()
        };
        if says(figures) != says(first) {
            let (one, other) = (says(first), says(figures));
            return Err(format!("results differ: {one:?} on tmpfs, and {other:?}"));
        }
    }
    let row = |(place, figure): (usize, &Figure)| {
        let pairs: Vec<(f64, f64)> = all
            .iter()
            .map(|[tmpfs, ours]| (tmpfs[place].each, ours[place].each))
            .collect();
        Row::of_pairs(&figure.what, &figure.setting, &pairs, Some(figure.wanted))
    };
    Ok(first.iter().enumerate().map(row).collect())
}
