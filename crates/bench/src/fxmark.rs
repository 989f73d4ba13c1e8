//! `arck-bench fxmark`: the 19 cases of FxMark ("Understanding Manycore Scalability of File Systems", USENIX ATC
//! 2016), each of which stresses one part of a file system. Written after what that paper says of them.
//!
//! A name's first letter says whether data or metadata is meant, its second whether it is read or written, its
//! third what is done, its last how much is shared: low, medium or high. See [`case`].

mod case;
mod cases;

use crate::chapter::Chapter;
use crate::crew::{self, How, Rounds, Share, Side, Task};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::pool;
use arck_pm::PersistOption;
use arckfs::Resolver;
use case::Case;
use clap::{Args, ValueEnum};

pub use cases::prepare;

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench fxmark                      all cases
  arck-bench fxmark --quick              a look
  arck-bench fxmark --cases mwcl,dwal --rounds 9")]
pub struct FxmarkArguments {
    /// Which cases: all, or some with commas
    #[arg(
        long,
        value_enum,
        value_name = "CASE",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    cases: Vec<Case>,

    /// Rounds that count, on each side
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,

    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// One round, of an eighth of the operations
    #[arg(long, conflicts_with = "rounds")]
    pub quick: bool,

    #[command(flatten)]
    output: Output,
}

pub fn main(arguments: &FxmarkArguments) -> Outcome<()> {
    let chapter = measure(arguments)?;
    arguments.output.publish(&chapter)
}

pub fn measure(arguments: &FxmarkArguments) -> Outcome<Chapter> {
    let arck = arguments.output.command()?;
    let cases = match &arguments.cases[..] {
        [] => Case::value_variants(),
        some => some,
    };
    let (rounds, divisor) = match arguments.quick {
        true => (1, 8),
        false => (arguments.rounds, 1),
    };
    let task = |case: Case, processes, threads| Task {
        name: case.name(),
        setting: format!("{}; {}", case.meaning().1, who(processes, threads)),
        share: Share {
            work: case,
            processes,
            process: 0,
            threads,
            divisor,
        },
        rounds: Rounds::Anew,
        wanted: Some(case.wanted()),
    };
    let tasks: Vec<Task<_>> = cases
        .iter()
        .flat_map(|&case| [(1, 1), (1, 2), (2, 1)].map(|(p, t)| task(case, p, t)))
        .collect();
    let how = How {
        sides: [Side::Tmpfs, Side::Arck(Resolver::Tree)],
        command: "arck-bench fxmark",
        task: "fxmark",
        told: "FxMark's cases (Rust API), each process a session, of one trust group; nanoseconds from one operation \
               of any thread to the next.",
        rounds,
        persist: arguments.persist,
        arck: arck.as_deref(),
        pool: 2 << 30,
        memory: 1 << 30,
    };
    crew::measure(&how, &tasks)
}

fn who(processes: u64, threads: u64) -> String {
    match (processes, threads) {
        (1, 1) => "1 thread".to_owned(),
        (1, threads) => format!("{threads} threads"),
        (processes, _) => format!("{processes} processes"),
    }
}
