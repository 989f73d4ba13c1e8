//! `arck-bench`: ArckFS beside tmpfs, and the system calls that ArckFS makes.
//!
//! | module | idea |
//! | --- | --- |
//! | `all`, `page` | one report of what users do; as a page with plots |
//! | `readme` | the table of README, out of a report |
//! | `calls` | one trait for the calls that are measured, served by libc or by the Rust API |
//! | `groups` | what is measured: operations that share a preparation |
//! | `measure` | interleaved rounds, clocks, medians |
//! | `pool` | a pool in memory with a controller in a process of its own |
//! | `worker` | the process that measures, started anew for each way to call ArckFS |
//! | `micro` | the command that starts workers and reports |
//! | `mount` | `arck mount` beside a passthrough of tmpfs by the same FUSE library |
//! | `fold` | what the controller spends on a name |
//! | `growth` | calls as directories grow, in a fresh session, with a bystander |
//! | `fxmark` | FxMark's cases |
//! | `personalities` | Filebench's varmail, webproxy, webserver, fileserver |
//! | `crew` | threads and processes that do the same together, which both of them are |
//! | `threads` | two threads beside one |
//! | `sharing` | two sessions on one file and in one directory; hand-overs |
//! | `webproxy` | small files as values: KVFS beside ArckFS |
//! | `faces` | `libarck.so` beside the Rust API |
//! | `log` | records appended and followed: the log beside ArckFS |
//! | `queues` | many requests in flight on one file, beside plain calls |
//! | `trees` | whole programs on trees of files |
//! | `recovery` | until a pool with many files is served again |
//! | `apps` | LevelDB, RocksDB, SQLite and redis, unmodified, by `arck run` |
//! | `fio` | fio's asynchronous engines by `arck run`, beside its plain calls |
//! | `loops`, `count` | a loop for each operation; its system calls, counted from outside |
//! | `step` | what one operation does: instructions, cache lines, flushes, fences |
//! | `trace` | looks at a child from outside, by ptrace |
//! | `beside` | what the preload library costs calls that are not on the pool |
//! | `start` | starting a program, memory and storage for each file |
//! | `delegation` | large accesses delegated to a few threads of each node of an emulated medium |
//! | `medium` | an emulated medium beside its description |
//! | `floor` | what the machine itself asks for: a system call, a fence, a copied page |
//! | `conversation` | orders to a worker, and its answers |
//! | `latencies`, `progress` | how long single calls take; how far a measurement is |
//! | `report`, `chapter`, `machine` | tables, and the facts beside them |
//!
//! # Invariants
//! * Both sides of a comparison run in one process and (but for `threads`) one thread, in alternating rounds, on the
//!   same clock, with paths and buffers made before.
//! * The controller is never in the process that measures.

mod all;
mod apps;
mod beside;
mod calls;
mod chapter;
mod conversation;
mod count;
mod crew;
mod delegation;
mod faces;
mod fio;
mod floor;
mod fold;
mod fxmark;
mod groups;
mod growth;
mod latencies;
mod log;
mod loops;
mod machine;
mod measure;
mod medium;
mod micro;
mod mount;
mod outcome;
mod output;
mod page;
mod personalities;
mod pool;
mod progress;
mod queues;
mod readme;
mod recovery;
mod report;
mod sharing;
mod start;
mod step;
mod threads;
mod trace;
mod trees;
mod webproxy;
mod worker;

use crate::outcome::Outcome;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures ArckFS beside tmpfs. Without a command: report, count, beside, start and floor, one after the
/// other.
#[derive(Parser)]
#[command(name = "arck-bench", version, max_term_width = 80)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Emulate this medium on every pool that is measured: optane, cxl, dram, or a
    /// file that describes one (docs/medium.md) [default: $ARCK_MEDIUM, else none]
    #[arg(long, global = true, value_name = "NAME|FILE")]
    medium: Option<String>,
    /// The emulated medium has so many memory nodes, and not as many as its
    /// description says: 1 to 16 [default: $ARCK_NODES]
    #[arg(long, global = true, value_name = "N")]
    nodes: Option<u32>,
}

#[derive(Subcommand)]
enum Command {
    /// growth, fxmark, personalities, micro, apps and step as one report, with plots
    Report(all::ReportArguments),
    /// The table of README, out of a report
    Readme(readme::ReadmeArguments),
    /// LevelDB, RocksDB, SQLite and redis, unmodified, by `arck run`
    Apps(apps::AppsArguments),
    /// Times of single operations beside tmpfs, in interleaved rounds
    Micro(micro::MicroArguments),
    /// `arck mount` beside tmpfs passed through by the same FUSE library
    Mount(mount::MountArguments),
    /// Calls as directories grow to a million files, and what a bystander waits meanwhile
    Growth(growth::GrowthArguments),
    /// What the controller spends on a name that is created, renamed or removed
    Fold(fold::FoldArguments),
    /// FxMark's 19 cases, by 1 and 2 threads and by 2 processes
    Fxmark(fxmark::FxmarkArguments),
    /// Filebench's varmail, webproxy, webserver and fileserver
    Personalities(personalities::PersonalitiesArguments),
    /// What one operation does: instructions, cache lines, flushes, fences
    Step(step::StepArguments),
    /// System calls for each operation in the steady state
    Count(count::CountArguments),
    /// What the preload library costs calls that are not on the pool
    Beside(beside::BesideArguments),
    /// What starting a program, a session, and each file cost in time, memory and storage
    Start(start::StartArguments),
    Floor(floor::FloorArguments),
    /// Large accesses delegated to a few threads of each node of an emulated medium
    Delegation(delegation::DelegationArguments),
    /// Whether an emulated medium is as its file says: streamed writes and reads by 1 to 64 threads
    Medium(medium::MediumArguments),
    /// What two threads get done beside one
    Threads(threads::ThreadsArguments),
    /// What two sessions get done that share a file or a directory, and what a hand-over takes
    Sharing(sharing::SharingArguments),
    /// Small files as values: KVFS beside ArckFS, by two threads
    Webproxy(webproxy::WebproxyArguments),
    /// Calls through libarck.so beside the same calls of the Rust API
    Faces(faces::FacesArguments),
    /// Records appended by some writers, and followed: the log beside ArckFS
    Log(log::LogArguments),
    /// Readers beside writers of one file, through queues of requests
    Queues(queues::QueuesArguments),
    /// fio's asynchronous engines at some depths, by `arck run`, beside psync
    Fio(fio::FioArguments),
    /// Whole programs on trees of files: tar, git status, rm -rf, make
    Trees(trees::TreesArguments),
    /// How long it takes until a pool with many files is served: after a clean end, and after kills
    Recovery(recovery::RecoveryArguments),
    /// What the other commands start
    #[command(hide = true)]
    Worker(worker::WorkerArguments),
}

fn run(arguments: Arguments) -> Outcome<()> {
    pool::choose_medium(arguments.medium.as_deref(), arguments.nodes)?;
    match arguments.command {
        Some(Command::Report(arguments)) => all::main(&arguments),
        Some(Command::Readme(arguments)) => readme::main(&arguments),
        Some(Command::Apps(arguments)) => apps::main(&arguments),
        Some(Command::Step(arguments)) => step::main(&arguments),
        Some(Command::Micro(arguments)) => micro::main(&arguments),
        Some(Command::Mount(arguments)) => mount::main(&arguments),
        Some(Command::Growth(arguments)) => growth::main(&arguments),
        Some(Command::Fold(arguments)) => fold::main(&arguments),
        Some(Command::Fxmark(arguments)) => fxmark::main(&arguments),
        Some(Command::Personalities(arguments)) => personalities::main(&arguments),
        Some(Command::Count(arguments)) => count::main(&arguments),
        Some(Command::Beside(arguments)) => beside::main(&arguments),
        Some(Command::Start(arguments)) => start::main(&arguments),
        Some(Command::Floor(arguments)) => floor::main(&arguments),
        Some(Command::Delegation(arguments)) => delegation::main(&arguments),
        Some(Command::Medium(arguments)) => medium::main(&arguments),
        Some(Command::Threads(arguments)) => threads::main(&arguments),
        Some(Command::Sharing(arguments)) => sharing::main(&arguments),
        Some(Command::Webproxy(arguments)) => webproxy::main(&arguments),
        Some(Command::Faces(arguments)) => faces::main(&arguments),
        Some(Command::Log(arguments)) => log::main(&arguments),
        Some(Command::Queues(arguments)) => queues::main(&arguments),
        Some(Command::Fio(arguments)) => fio::main(&arguments),
        Some(Command::Trees(arguments)) => trees::main(&arguments),
        Some(Command::Recovery(arguments)) => recovery::main(&arguments),
        Some(Command::Worker(arguments)) => worker::main(&arguments),
        None => {
            run(Arguments::parse_from(["arck-bench", "report"]))?;
            println!();
            run(Arguments::parse_from(["arck-bench", "count"]))?;
            println!();
            run(Arguments::parse_from(["arck-bench", "beside"]))?;
            println!();
            run(Arguments::parse_from(["arck-bench", "start"]))?;
            println!();
            run(Arguments::parse_from(["arck-bench", "floor"]))
        }
    }
}

/// A signal from the terminal ends the children, and then this process, which cleans up, in its
/// own time.
fn outlive_children() {
    extern "C" fn nothing(_: libc::c_int) {}
    for signal in [libc::SIGINT, libc::SIGHUP] {
        // SAFETY: the handler does nothing; executed programs do not inherit it.
        unsafe { libc::signal(signal, nothing as *const () as libc::sighandler_t) };
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !matches!(arguments.command, Some(Command::Worker(_))) {
        outlive_children();
    }
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("arck-bench: {line}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn all_help_fits_a_terminal() {
        let mut command = super::Arguments::command();
        command.build();
        let mut commands: Vec<_> = command.get_subcommands().cloned().collect();
        commands.push(command);
        for mut command in commands {
            let by_hand = command.get_after_help().map(ToString::to_string);
            let wrapped = command.render_long_help().to_string();
            for line in by_hand
                .iter()
                .chain([&wrapped])
                .flat_map(|text| text.lines())
            {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
        }
    }
}
