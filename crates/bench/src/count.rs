//! `arck-bench count`: how many system calls ArckFS makes for an operation in the steady state, or how many
//! instructions.
//!
//! Invariant: what is counted is the steady state ([`crate::loops`]), and of a worker's whole loop.

use crate::loops::{Counting, LOOPS};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::pool::{self, Bench};
use crate::trace::{self, Counted};
use arck_pm::PersistOption;
use clap::Args;
use serde::Serialize;
use std::path::Path;
use std::process::Stdio;

#[derive(Args)]
pub struct CountArguments {
    /// Size of the pool: bytes, or with K, M, G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = pool::parse_size)]
    pool_size: u64,

    /// Count instructions instead, of the thread that calls the Rust API, by single steps: about a minute
    #[arg(long)]
    instructions: bool,

    #[command(flatten)]
    output: Output,
}

/// What is called. tmpfs shows that the counting counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    Direct,
    Preload,
    Tmpfs,
}

/// Calls of one loop.
#[derive(Serialize)]
struct Line {
    operation: &'static str,
    way: Way,
    operations: u64,
    system_calls: u64,
    /// Caught by the preload library's net.
    caught: u64,
    instructions: u64,
    /// By name.
    calls: Vec<(String, u64)>,
}

pub fn main(arguments: &CountArguments) -> Outcome<()> {
    let arck = arguments.output.command()?;
    let library = pool::find_library();
    let bench = Bench::start(arguments.pool_size, PersistOption::Auto, arck.as_deref())?;
    if arguments.instructions {
        let lines = count(&bench, Way::Direct, None, Counting::Steps)?;
        println!(
            "Instructions of an operation in the steady state, Rust API, counted by single steps over \
             {} operations\n",
            Counting::Steps.turns()
        );
        println!("| operation | instructions |");
        println!("| --- | ---: |");
        for line in &lines {
            let each = line.instructions as f64 / line.operations as f64;
            println!("| {} | {each:.0} |", line.operation);
        }
        return arguments.output.save(&lines);
    }
    let mut lines = count(&bench, Way::Direct, None, Counting::Calls)?;
    match &library {
        Some(library) => lines.extend(count(&bench, Way::Preload, Some(library), Counting::Calls)?),
        None => {
            eprintln!("arck-bench: libarck_preload.so is not there: counting the Rust API only");
        }
    }
    lines.extend(count(&bench, Way::Tmpfs, None, Counting::Calls)?);
    println!(
        "System calls for each 1,000 operations in the steady state, counted by ptrace over \
         {} operations, all threads of the process\n",
        Counting::Calls.turns()
    );
    println!("| operation | tmpfs | ArckFS, libc calls (preload) | ArckFS, Rust API | which |");
    println!("| --- | ---: | ---: | ---: | --- |");
    for operation in LOOPS {
        let find = |way: Way| {
            let found = |line: &&Line| line.operation == operation && line.way == way;
            lines.iter().find(found)
        };
        let rate = |line: Option<&Line>| {
            line.map_or_else(
                || "-".to_owned(),
                |line| {
                    format!(
                        "{:.1}",
                        line.system_calls as f64 * 1e3 / line.operations as f64
                    )
                },
            )
        };
        let mut which: Vec<String> = Vec::new();
        let ours = |line: &&Line| line.operation == operation && line.way != Way::Tmpfs;
        for line in lines.iter().filter(ours) {
            for (name, _) in &line.calls {
                if !which.contains(name) {
                    which.push(name.clone());
                }
            }
        }
        println!(
            "| {operation} | {} | {} | {} | {} |",
            rate(find(Way::Tmpfs)),
            rate(find(Way::Preload)),
            rate(find(Way::Direct)),
            which.join(", ")
        );
    }
    arguments.output.save(&lines)
}

fn count(
    bench: &Bench,
    way: Way,
    library: Option<&Path>,
    counting: Counting,
) -> Outcome<Vec<Line>> {
    let mut command = bench.worker(library)?;
    command.args(["--task", "count"]).stdout(Stdio::null());
    if way == Way::Tmpfs {
        command.arg("--kernel");
    }
    command.args(["--counting", counting.name()]);
    let phases = trace::run(&mut command)?;
    LOOPS
        .iter()
        .enumerate()
        .map(|(phase, operation)| {
            let counted: &Counted = phases
                .get(&(phase as u64))
                .ok_or_else(|| format!("no count of {operation}"))?;
            Ok(Line {
                operation,
                way,
                operations: counting.turns(),
                system_calls: counted.all(),
                caught: counted.caught,
                instructions: counted.steps,
                calls: counted
                    .calls
                    .iter()
                    .map(|(number, count)| (trace::name(*number), *count))
                    .collect(),
            })
        })
        .collect()
}
