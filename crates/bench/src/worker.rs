//! The process that measures: tmpfs by libc's calls, and ArckFS by the Rust API or, where the
//! preload library is loaded, by the same calls of libc below `/arck`.
//!
//! Invariant: nothing but the report is printed to standard output.

use crate::calls::{Calls, DirectCalls, LibcCalls};
use crate::groups::{Group, Prepared, Scale};
use crate::loops::{self, Counting};
use crate::measure::{Measurement, Samples, compare};
use crate::outcome::Outcome;
use crate::pool::MOUNT;
use crate::threads;
use arckfs::{ConnectOptions, FileSystem, Resolver};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Task {
    Micro,
    Growth,
    Fold,
    Fxmark,
    Personalities,
    Count,
    Known,
    Beside,
    Memory,
    Room,
    Small,
    Threads,
    Sharing,
    Trees,
    Webproxy,
    Faces,
    Log,
    Queues,
    Delegation,
    Make,
    First,
}

#[derive(Args)]
pub struct WorkerArguments {
    #[arg(long)]
    pool: PathBuf,
    #[arg(long)]
    tmpfs: PathBuf,
    /// ArckFS through libc's calls.
    #[arg(long)]
    preloaded: bool,
    /// tmpfs instead of ArckFS.
    #[arg(long)]
    kernel: bool,
    #[arg(long, value_enum)]
    task: Task,
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    #[arg(long, default_value_t = 2)]
    threads: u64,
    #[arg(long, default_value_t = 1)]
    mean: u64,
    #[arg(long, default_value_t = 1_000)]
    records: u64,
    /// The trust group to be one of.
    #[arg(long, default_value = "")]
    group: String,
    /// Which file system Arck's is.
    #[arg(long, default_value = "arckfs")]
    fs: Resolver,
    #[arg(long)]
    long: bool,
    #[arg(long)]
    filter: Option<String>,
    /// Measure ArckFS alone, for profilers.
    #[arg(long)]
    alone: bool,
    #[arg(long)]
    progress: bool,
    /// What is counted of the loops.
    #[arg(long, value_enum, default_value = "calls")]
    counting: Counting,
}

pub fn main(arguments: &WorkerArguments) -> Outcome<()> {
    if arguments.task == Task::Beside {
        return crate::beside::rounds(&arguments.tmpfs, arguments.preloaded);
    }
    if arguments.task == Task::Known {
        crate::step::known::all();
        return Ok(());
    }
    if arguments.task == Task::Sharing && arguments.preloaded {
        return crate::sharing::program();
    }
    if arguments.task == Task::Sharing {
        return crate::sharing::session(&arguments.pool);
    }
    if arguments.task == Task::Webproxy {
        let (threads, mean) = (arguments.threads, arguments.mean);
        let rows = crate::webproxy::measure(&arguments.pool, threads, mean, arguments.rounds)?;
        return print(&rows);
    }
    if arguments.task == Task::Faces {
        let library = arguments.filter.as_deref().unwrap_or_default();
        let rows = crate::faces::measure(&arguments.pool, library.as_ref(), arguments.rounds)?;
        return print(&rows);
    }
    if arguments.task == Task::Log {
        let writers = arguments.filter.as_deref().unwrap_or_default();
        let places = (&*arguments.pool, &*arguments.tmpfs);
        let (records, rounds) = (arguments.records, arguments.rounds);
        let measured = crate::log::measure(places, writers, records, rounds)?;
        return print(&measured);
    }
    if arguments.task == Task::Queues {
        let asked = arguments.filter.as_deref().unwrap_or_default();
        let places = (&*arguments.pool, &*arguments.tmpfs);
        return print(&crate::queues::measure(places, asked)?);
    }
    if arguments.task == Task::Delegation {
        return crate::delegation::work(&arguments.pool);
    }
    if arguments.task == Task::Make {
        return crate::recovery::make(&arguments.pool);
    }
    if arguments.task == Task::First {
        let path = arguments.filter.as_deref().unwrap_or_default();
        return crate::recovery::first(&arguments.pool, path);
    }
    let base = if arguments.preloaded {
        MOUNT.to_owned()
    } else {
        arguments.tmpfs.to_string_lossy().into_owned()
    };
    if arguments.task == Task::Trees {
        return crate::trees::commands(&base);
    }
    let answer = match arguments.task {
        Task::Memory => serde_json::to_string(&crate::start::memory(&base, arguments.preloaded)?),
        Task::Room => serde_json::to_string(&crate::start::free_room(&base, false)?),
        Task::Small => serde_json::to_string(&crate::start::free_room(&base, true)?),
        _ => Ok(String::new()),
    };
    let answer = answer.map_err(|error| error.to_string())?;
    if !answer.is_empty() {
        println!("{answer}");
        return Ok(());
    }
    let tmpfs = || arguments.tmpfs.to_string_lossy().into_owned();
    if arguments.preloaded || arguments.kernel {
        let base = if arguments.kernel {
            tmpfs()
        } else {
            MOUNT.to_owned()
        };
        run(arguments, &LibcCalls { base })
    } else {
        let options = ConnectOptions {
            pool: arguments.pool.clone(),
            mount: MOUNT.into(),
            group: arguments.group.clone().into_bytes(),
            resolver: arguments.fs,
        };
        let file_system = FileSystem::connect(&options).map_err(|error| error.to_string())?;
        let calls = DirectCalls { file_system };
        match arguments.task {
            Task::Fold => crate::fold::work(&calls)?,
            _ => run(arguments, &calls)?,
        }
        calls
            .file_system
            .disconnect()
            .map_err(|errno| format!("ending the session: {errno}"))
    }
}

fn run<C: Calls + Sync>(arguments: &WorkerArguments, calls: &C) -> Outcome<()>
where
    C::File: Send,
{
    if arguments.task == Task::Threads {
        let tmpfs = LibcCalls {
            base: arguments.tmpfs.to_string_lossy().into_owned(),
        };
        return print(&threads::measure(calls, &tmpfs, arguments.rounds)?);
    }
    if arguments.task == Task::Growth {
        return crate::growth::work(calls);
    }
    if arguments.task == Task::Fxmark {
        return crate::crew::work(calls, crate::fxmark::prepare);
    }
    if arguments.task == Task::Personalities {
        return crate::crew::work(calls, crate::personalities::prepare);
    }
    if arguments.task == Task::Count {
        return loops::loops(calls, arguments.counting, arguments.filter.as_deref());
    }
    print(&micro(arguments, calls)?)
}

fn print(report: &impl serde::Serialize) -> Outcome<()> {
    let text = serde_json::to_string(report).map_err(|error| error.to_string())?;
    println!("{text}");
    Ok(())
}

fn micro<C: Calls>(arguments: &WorkerArguments, calls: &C) -> Outcome<Vec<Measurement>> {
    let tmpfs = LibcCalls {
        base: arguments.tmpfs.to_string_lossy().into_owned(),
    };
    let scale = if arguments.long {
        Scale::LONG
    } else {
        Scale::SHORT
    };
    let wanted = |name: &str| match &arguments.filter {
        Some(filter) => name.contains(filter.as_str()),
        None => true,
    };
    let mut measurements = Vec::new();
    for (place, group) in Group::ALL.into_iter().enumerate() {
        let operations = group.operations();
        if !operations.iter().any(|name| wanted(name)) {
            continue;
        }
        let mut ours = Prepared::new(calls, group, scale)?;
        let mut theirs = Prepared::new(&tmpfs, group, scale)?;
        let (mut our_samples, mut their_samples) = (Samples::default(), Samples::default());
        for round in 0..=arguments.rounds {
            if arguments.progress {
                eprint!(
                    "\r{}/{} {}: round {round} of {}          ",
                    place + 1,
                    Group::ALL.len(),
                    operations[0],
                    arguments.rounds
                );
                let _ = std::io::stderr().flush();
            }
            if arguments.alone {
                ours.round(&mut our_samples)?;
            } else if round % 2 == 0 {
                theirs.round(&mut their_samples)?;
                ours.round(&mut our_samples)?;
            } else {
                ours.round(&mut our_samples)?;
                theirs.round(&mut their_samples)?;
            }
            if round == 0 {
                // To warm up.
                our_samples = Samples::default();
                their_samples = Samples::default();
            }
        }
        ours.finish()?;
        theirs.finish()?;
        for name in operations.iter().copied().filter(|name| wanted(name)) {
            let ours = our_samples.lists.get(name).map_or(&[][..], Vec::as_slice);
            let theirs = their_samples.lists.get(name).map_or(ours, Vec::as_slice);
            measurements.push(compare(name, Group::bytes(name), theirs, ours));
        }
    }
    if arguments.progress {
        eprint!("\r{:60}\r", "");
    }
    Ok(measurements)
}
