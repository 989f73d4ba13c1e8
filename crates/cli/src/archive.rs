//! `arck export` and `arck import`: a pool as a tar archive, by a session on it.
//!
//! A session, not the controller: it gets what it may read and nothing else, reading recalls what
//! others have not had folded yet, and nobody waits for it longer than for any other reader.
//!
//! # Invariants
//! * Everything goes through in a stream; of a file that is being exported its contents are held,
//!   beyond 64 MiB in a temporary file, so that they are those of one moment.
//! * What could not be carried over is told, a line each, and makes the status 1.

mod export;
mod import;
mod interrupt;
mod members;
mod names;
mod sparse;
mod told;

use crate::session;
use arckfs::FileSystem;
use clap::Args;
pub use names::names;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use told::Told;
pub use told::plain;

/// Options of `arck export`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  arck export /dev/shm/pool > pool.tar
  arck export /dev/shm/pool --path home/me | zstd > me.tar.zst

The pool may be in use: each file is as it was at one moment, and others may be
as they were at another. Names, modes, owners, times to the nanosecond, user.*
attributes, hard and symbolic links, named pipes and devices are kept (PAX
format, which GNU tar and others read); sockets are not. Files with holes are
written as GNU tar writes sparse files (PAX 1.0).

Ctrl-C ends it in order; the archive is not whole then.

Exit status: 0 all is in the archive; 1 something is not, which was told.")]
pub struct ExportArguments {
    /// Directory of the pool [default: $ARCK_POOL, else /dev/shm/arck-$USER]
    #[arg(value_name = "POOL")]
    pool: Option<PathBuf>,

    /// Only what is at this path in the pool, and beneath
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
}

/// Options of `arck import`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  arck import /dev/shm/pool < pool.tar
  zstd -d < me.tar.zst | arck import /dev/shm/pool

Files that are there are replaced, directories stay and get what is new. Owners
are kept if root imports. Pages of zeroes become holes, and holes stay holes
(GNU tar's sparse files). Devices are root's to make. Of an archive that is cut
off everything before the cut is in the pool, and it is said where that is; one
that is compressed has to come through what undoes that.

Ctrl-C ends it in order: what has come is in the pool, and nothing half.

Exit status: 0 all is in the pool; 1 something is not, which was told.")]
pub struct ImportArguments {
    /// Directory of the pool [default: $ARCK_POOL, else /dev/shm/arck-$USER]
    #[arg(value_name = "POOL")]
    pool: Option<PathBuf>,

    /// Files belong to whoever imports them, even if that is root
    #[arg(long)]
    no_same_owner: bool,
}

/// Runs `work` with a session on the pool.
fn with_session(
    command: &'static str,
    pool: Option<&Path>,
    work: impl FnOnce(&FileSystem, &mut Told) -> Result<(), String>,
) -> ExitCode {
    let mut told = Told::new(command);
    interrupt::watch();
    let done = session::with_session(pool, |fs| work(fs, &mut told));
    told.bar.finish_and_clear();
    match done {
        Ok(()) if told.wrong == 0 => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(line) => {
            eprintln!("arck {command}: {line}");
            ExitCode::FAILURE
        }
    }
}

/// Exports.
pub fn export(arguments: &ExportArguments) -> ExitCode {
    if io::stdout().is_terminal() {
        eprintln!(
            "arck export: an archive is nothing for a terminal; send it to a file or program"
        );
        return ExitCode::FAILURE;
    }
    with_session("export", arguments.pool.as_deref(), |fs, told| {
        let path = arguments.path.as_deref().unwrap_or(Path::new(""));
        export::export(fs, path, told)
    })
}

/// Imports.
pub fn import(arguments: &ImportArguments) -> ExitCode {
    if io::stdin().is_terminal() {
        eprintln!(
            "arck import: an archive does not come from a terminal; let it come from a file or program"
        );
        return ExitCode::FAILURE;
    }
    let keeps_owners = rustix::process::geteuid().is_root() && !arguments.no_same_owner;
    with_session("import", arguments.pool.as_deref(), |fs, told| {
        let named = arguments
            .pool
            .clone()
            .unwrap_or_else(crate::run::default_pool);
        import::import(fs, &named, keeps_owners, told)
    })
}
