//! `arck`: makes pools, serves them, runs programs on them. One subcommand, one module.
//!
//! Invariant: whatever goes wrong is one line on standard error that says what and what to do,
//! and exit status 1; wrong usage is exit status 2. (`check` tells of a pool by its status: 1 if
//! something is wrong with it, 2 if that could not be found out.)

mod announcing;
mod archive;
mod attr;
mod bar;
mod bench;
mod check;
mod durability;
mod help;
mod manual;
mod mkfs;
mod mount;
mod nested;
mod number;
mod opening;
mod owner;
mod run;
mod serve;
mod session;
mod status;
mod violations;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// Exit status where the command line is wrong, as clap has it.
const WRONG_USAGE: i32 = 2;

/// User-space file systems for byte-addressable memory.
#[derive(Parser)]
#[command(name = "arck", version, about, max_term_width = help::WIDTH)]
#[command(after_help = "Examples:
  arck mkfs /dev/shm/pool --size 1G
  arck run --pool /dev/shm/pool -- sh -c 'cp -a /etc/skel /arck/; ls -lR /arck'

The command sees the pool under /arck. `arck run --help` and so on say more.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a pool
    Mkfs(mkfs::MkfsArguments),
    /// Serve a pool to the programs of this machine
    Serve(serve::ServeArguments),
    /// Run a program on a pool
    Run(run::RunArguments),
    /// Mount a pool at a directory, for every program
    Mount(mount::MountArguments),
    /// Tell how a served pool is, and what is being closed
    Status(status::StatusArguments),
    /// List what was refused on a pool, and show what was set aside
    Violations(violations::ViolationsArguments),
    /// Check a pool as a whole
    Check(check::CheckArguments),
    /// Write a pool to a tar archive, also while it is in use
    Export(archive::ExportArguments),
    /// Read a tar archive into a pool
    Import(archive::ImportArguments),
    /// Tell or say how sessions write a file
    Attr(attr::AttrArguments),
    /// Measure: what operations, sharing, threads and programs' starts take
    Bench(bench::BenchArguments),
}

/// Where this has rights that whoever started it has not (it is set-user-ID, or has capabilities), its
/// settings are not believed: they name files.
fn forget_settings_of_others() {
    // SAFETY: no pointers; and there is one thread, so nobody else looks at the environment.
    unsafe {
        if libc::getauxval(libc::AT_SECURE) == 0 {
            return;
        }
        let of_arck = |name: &OsString| name.as_bytes().starts_with(b"ARCK_");
        let names: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
        for name in names.into_iter().filter(of_arck) {
            std::env::remove_var(name);
        }
    }
}

/// What the command line says. Wrong usage ends the process.
fn arguments() -> Arguments {
    Arguments::try_parse().unwrap_or_else(|error| {
        if error.kind() != ErrorKind::InvalidSubcommand {
            error.exit();
        }
        // Clap would propose one of a similar name, which does something else.
        let word = match error.get(ContextKind::InvalidSubcommand) {
            Some(ContextValue::String(word)) => word.as_str(),
            _ => "",
        };
        let word = word.escape_debug();
        eprintln!("arck: there is no command '{word}'; arck --help lists those that there are");
        std::process::exit(WRONG_USAGE)
    })
}

fn main() -> ExitCode {
    forget_settings_of_others();
    // What is started again by way of /proc would be told of as "exe".
    let _ = rustix::thread::set_name(c"arck");
    if let Some(directory) = manual::asked() {
        return manual::main(&directory, Arguments::command());
    }
    let arguments = match mount::is_helper(std::env::args_os().next().as_deref()) {
        false => arguments(),
        true => match mount::arguments_of(std::env::args_os().skip(1)) {
            Ok(words) => Arguments::parse_from(words),
            Err(line) => {
                eprintln!("mount.arck: {line}");
                return ExitCode::FAILURE;
            }
        },
    };
    match arguments.command {
        Command::Mkfs(arguments) => mkfs::main(&arguments),
        Command::Serve(arguments) => serve::main(&arguments),
        Command::Run(arguments) => run::main(arguments),
        Command::Mount(arguments) => mount::main(&arguments),
        Command::Status(arguments) => status::main(&arguments),
        Command::Violations(arguments) => violations::main(&arguments),
        Command::Check(arguments) => check::main(&arguments),
        Command::Export(arguments) => archive::export(&arguments),
        Command::Import(arguments) => archive::import(&arguments),
        Command::Attr(arguments) => attr::main(&arguments),
        Command::Bench(arguments) => bench::main(&arguments),
    }
}
