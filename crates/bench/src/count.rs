//! `arck-bench count`: how many system calls ArckFS makes for an operation in the steady state, or how many
//! instructions.
//!
//! Invariant: each loop runs once before it is counted, with as many operations, so that what
//! is counted is the steady state: stocks of numbers and pages are refilled in it as they always
//! will be.

use crate::calls::Calls;
use crate::groups::PAGE;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::pool::{self, Bench};
use crate::trace::{self, Counted};
use arck_pm::PersistOption;
use clap::Args;
use serde::Serialize;
use std::ffi::CString;
use std::path::Path;
use std::process::Stdio;

/// Operations of each loop.
const TURNS: u64 = 10_000;
/// Where each instruction is a stop.
const STEPPED_TURNS: u64 = 100;

/// Loops, by phase.
pub const LOOPS: [&str; 10] = [
    "create+close",
    "open+close",
    "stat",
    "rename",
    "unlink",
    "append 4 KiB",
    "overwrite 4 KiB",
    "read 4 KiB",
    "open+close, five deep",
    "stat, five deep",
];

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
        let lines = count(&bench, Way::Direct, None, true)?;
        println!(
            "Instructions of an operation in the steady state, Rust API, counted by single steps over \
             {STEPPED_TURNS} operations\n"
        );
        println!("| operation | instructions |");
        println!("| --- | ---: |");
        for line in &lines {
            let each = line.instructions as f64 / line.operations as f64;
            println!("| {} | {each:.0} |", line.operation);
        }
        return arguments.output.save(&lines);
    }
    let mut lines = count(&bench, Way::Direct, None, false)?;
    match &library {
        Some(library) => lines.extend(count(&bench, Way::Preload, Some(library), false)?),
        None => {
            eprintln!("arck-bench: libarck_preload.so is not there: counting the Rust API only");
        }
    }
    lines.extend(count(&bench, Way::Tmpfs, None, false)?);
    println!(
        "System calls for each 1,000 operations in the steady state, counted by ptrace over \
         {TURNS} operations, all threads of the process\n"
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

fn count(bench: &Bench, way: Way, library: Option<&Path>, stepped: bool) -> Outcome<Vec<Line>> {
    let mut command = bench.worker(library)?;
    command.args(["--task", "count"]).stdout(Stdio::null());
    if way == Way::Tmpfs {
        command.arg("--kernel");
    }
    if stepped {
        command.arg("--stepped");
    }
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
                operations: turns(stepped),
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

fn turns(stepped: bool) -> u64 {
    match stepped {
        true => STEPPED_TURNS,
        false => TURNS,
    }
}

/// In the worker: all loops twice, the second time in phases.
pub fn loops<C: Calls>(calls: &C, stepped: bool) -> Outcome<()> {
    let turns = turns(stepped);
    let (begin, end): (fn(u64), fn()) = match stepped {
        true => (trace::begin_steps, trace::end_steps),
        false => (trace::begin, trace::end),
    };
    let mut deep = "count".to_owned();
    let mut directories = vec![calls.path(&deep)];
    for level in 1..5 {
        deep = format!("{deep}/{level}");
        directories.push(calls.path(&deep));
    }
    for directory in &directories {
        calls.make_directory(directory)?;
    }
    let deep = calls.path(&format!("{deep}/file"));
    let names = |prefix: &str| -> Vec<CString> {
        (0..turns)
            .map(|number| calls.path(&format!("count/{prefix}{number}")))
            .collect()
    };
    let (paths, others) = (names("f"), names("r"));
    let data_path = calls.path("count/data");
    let mut page = vec![1u8; PAGE as usize];
    let create = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    calls.close(calls.open(&deep, create)?);
    for counted in [false, true] {
        let phase = |number: usize, body: &mut dyn FnMut() -> Outcome<()>| {
            if counted {
                begin(number as u64);
            }
            let result = body();
            if counted {
                end();
            }
            result
        };
        phase(0, &mut || {
            paths.iter().try_for_each(|path| {
                calls.close(calls.open(path, create)?);
                Ok(())
            })
        })?;
        phase(1, &mut || {
            paths.iter().try_for_each(|path| {
                calls.close(calls.open(path, libc::O_RDWR)?);
                Ok(())
            })
        })?;
        phase(2, &mut || {
            paths.iter().try_for_each(|path| calls.stat(path))
        })?;
        phase(3, &mut || {
            let mut pairs = paths.iter().zip(&others);
            pairs.try_for_each(|(from, to)| calls.rename(from, to))
        })?;
        phase(4, &mut || {
            others.iter().try_for_each(|path| calls.unlink(path))
        })?;
        let file = calls.open(&data_path, create)?;
        phase(5, &mut || {
            (0..turns).try_for_each(|_| calls.append(file, &page))
        })?;
        phase(6, &mut || {
            (0..turns).try_for_each(|at| calls.write(file, &page, at * PAGE))
        })?;
        phase(7, &mut || {
            (0..turns).try_for_each(|at| calls.read(file, &mut page, at * PAGE))
        })?;
        calls.close(file);
        calls.unlink(&data_path)?;
        phase(8, &mut || {
            (0..turns).try_for_each(|_| {
                calls.close(calls.open(&deep, libc::O_RDONLY)?);
                Ok(())
            })
        })?;
        phase(9, &mut || (0..turns).try_for_each(|_| calls.stat(&deep)))?;
    }
    calls.unlink(&deep)?;
    let mut directories = directories.iter().rev();
    directories.try_for_each(|directory| calls.remove_directory(directory))
}
