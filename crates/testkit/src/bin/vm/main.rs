//! `make test-vm`: a pool on persistent memory whose machine loses power again and again.
//!
//! The machine is emulated, its NVDIMM is a file of the host. The host's side boots it, cuts it off
//! at random instants and boots it again; the guest's side is in the same program, so that both
//! agree on what has to be there.
//!
//! | module | idea |
//! | --- | --- |
//! | `board` | what is acknowledged, in memory that both see |
//! | `host` | rounds: boot, check, work, cut |
//! | `machine` | one virtual machine and its console |
//! | `medium` | what a cut leaves of what was in the processor's cache |
//! | `flushes` | makes a program's flushes visible to the emulator |
//! | `guest` | workers, and the check of what they left |
//! | `storm` | random steps and the model of what they make |
//! | `tree` | what is there, and whether it may be |
//!
//! # Invariant
//! The exit status is 0 only if every round was checked.

mod board;
mod flushes;
mod guest;
mod host;
mod machine;
mod medium;
mod storm;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "usage: vm host OPTION VALUE... | vm observe PROGRAM   (see scripts/test-vm)
       vm work WORKER | vm check | vm final | vm synchronous PROCESS POOL   (in the machine)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["host", ref options @ ..] => host::main(options),
        ["observe", program] => match flushes::observe(program.as_ref()) {
            Ok(0) => Err(format!("{program} has no clwb")),
            other => other.map(drop),
        },
        ["work", worker] => match worker.parse() {
            Ok(worker) => guest::work(worker),
            Err(_) => Err(USAGE.to_owned()),
        },
        ["check"] => guest::check(),
        ["final"] => match board::Board::find() {
            Ok(board) if board.is_final() => Ok(()),
            Ok(_) => return ExitCode::from(3),
            Err(error) => Err(error),
        },
        ["synchronous", process, pool] => guest::synchronous(process, pool),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vm: {error}");
            ExitCode::FAILURE
        }
    }
}
