//! `arck-bench personalities`: Filebench's varmail, webproxy, webserver and fileserver, written after their
//! published definitions: how many files, how large, in directories how wide, and what a thread does in a loop.
//!
//! | | files | bytes on average | in a directory | there at first |
//! | --- | ---: | ---: | ---: | ---: |
//! | varmail | 1,000 | 16 KiB | all | 80 % |
//! | webproxy | 10,000 | 16 KiB | all | 80 % |
//! | webserver | 1,000 | 16 KiB | 20 | all |
//! | fileserver | 10,000 | 128 KiB | 20 | 80 % |
//!
//! Sizes follow a gamma distribution (shape 1.5); what is appended has 16 KiB at most, 8 in the middle.

mod files;
mod loops;
mod personality;
mod shape;

use crate::chapter::Chapter;
use crate::crew::{self, How, Rounds, Share, Side, Task};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::pool;
use arck_pm::PersistOption;
use arckfs::Resolver;
use clap::Args;
use personality::{Personality, Work};

pub use loops::prepare;

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench personalities                      all four, 1, 2 and 16 threads
  arck-bench personalities --quick              a look
  arck-bench personalities --only varmail --threads 4
  arck-bench personalities --only varmail --depth 20 --fs fpfs --beside arckfs")]
pub struct PersonalitiesArguments {
    /// Which of them: varmail, webproxy, webserver, fileserver; several with commas
    #[arg(
        long,
        value_enum,
        value_name = "NAME",
        value_delimiter = ',',
        hide_possible_values = true,
        default_value = "varmail,webproxy,webserver,fileserver"
    )]
    only: Vec<Personality>,

    /// Threads: one number, or several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,16",
          value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: Vec<u64>,

    /// Directories above each file: as many in each as makes the tree so deep [default: the shape that each is
    /// published with]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    depth: Option<u64>,

    /// Which of Arck's file systems: arckfs, or fpfs
    #[arg(long, value_name = "NAME", default_value = "arckfs")]
    fs: Resolver,

    /// What it is set beside [default: tmpfs]
    #[arg(long, value_name = "NAME")]
    beside: Option<Resolver>,

    /// Rounds that count, on each side
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,

    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// One round, with an eighth of the files and loops
    #[arg(long, conflicts_with = "rounds")]
    pub quick: bool,

    #[command(flatten)]
    output: Output,
}

pub fn main(arguments: &PersonalitiesArguments) -> Outcome<()> {
    let chapter = measure(arguments)?;
    arguments.output.publish(&chapter)
}

pub fn measure(arguments: &PersonalitiesArguments) -> Outcome<Chapter> {
    let arck = arguments.output.command()?;
    let (rounds, divisor) = match arguments.quick {
        true => (1, 8),
        false => (arguments.rounds, 1),
    };
    let is_usual = arguments.depth.is_none() && arguments.beside.is_none();
    let beside = arguments.beside.map_or(Side::Tmpfs, Side::Arck);
    let task = |personality: Personality, threads: u64| Task {
        name: personality.name(),
        setting: {
            let threads = match threads {
                1 => "1 thread".to_owned(),
                many => format!("{many} threads"),
            };
            let deep = arguments.depth.map(|depth| format!(", {depth} deep"));
            threads + &deep.unwrap_or_default()
        },
        share: Share {
            work: Work {
                personality,
                depth: arguments.depth,
            },
            processes: 1,
            process: 0,
            threads,
            divisor,
        },
        rounds: Rounds::GoOn,
        wanted: is_usual.then(|| personality.wanted(threads)),
    };
    let tasks: Vec<Task<_>> = arguments
        .only
        .iter()
        .flat_map(|&one| {
            arguments
                .threads
                .iter()
                .map(move |&threads| task(one, threads))
        })
        .collect();
    let how = How {
        sides: [beside, Side::Arck(arguments.fs)],
        command: "arck-bench personalities",
        task: "personalities",
        told: "Filebench's personalities after their published definitions (Rust API), one process; nanoseconds from \
               one operation (open, read a file, append, ...) of any thread to the next.",
        rounds,
        persist: arguments.persist,
        arck: arck.as_deref(),
        pool: 8 << 30,
        // The file server's files on both sides, and room for what is taken away late.
        memory: (6 << 30) / divisor,
    };
    crew::measure(&how, &tasks)
}
