//! `arck bench`: runs `arck-bench`, which measures and is a program of its own, so that the command
//! that everybody has does not bring a benchmark with it.
//!
//! Invariant: its arguments are passed on as they are, and its status is ours.

use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  arck bench sharing   two sessions on one file and in one directory; hand-overs
  arck bench trees     tar, git status, rm -rf, make on trees of files
  arck bench recovery  until a pool with 1,000,000 files is served again
  arck bench micro     single operations beside tmpfs
  arck bench --help    all of them"
)]
pub struct BenchArguments {
    /// What to measure, and its options, as arck-bench takes them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

/// Becomes `arck-bench`: the one beside this executable, else the one that is found.
pub fn main(arguments: &BenchArguments) -> ExitCode {
    let program = std::env::current_exe()
        .map(|executable| executable.with_file_name("arck-bench"))
        .ok()
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from("arck-bench"));
    let error = Command::new(&program).args(&arguments.arguments).exec();
    match error.kind() {
        std::io::ErrorKind::NotFound => eprintln!(
            "arck: arck-bench is not beside this command; in the source tree, `make bench` builds it (or cargo build --release -p arck-bench)"
        ),
        _ => eprintln!("arck: cannot run {}: {error}", program.display()),
    }
    ExitCode::FAILURE
}
