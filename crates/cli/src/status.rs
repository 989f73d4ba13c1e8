//! `arck status`: how a served pool is, who is on it, and how far the controller has come with what changes
//! of rights have left it to do; and which pools are served.
//!
//! Invariant: it asks the controllers, changes nothing, and ends in bounded time, whatever they do.

mod asking;
mod served;
mod terminal;
mod told;

use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A controller that has not answered for so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Options of `arck status`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  arck status                        the pools that are served
  arck status /dev/shm/pool          sessions, free space, what is being closed
  arck status /dev/shm/pool --json   the same, for programs

Without a pool it lists those that are served on this machine, as far as you may
reach them: an object a line with --json.

Free is what a new session could fill: what a session was granted counts as
used. Of processes you see your own; the pool's user and root see all.

\"Mediated\" are files and directories that nobody owns for a change: as
`arck attr` said, as the controller found, or mapped by several sessions.

\"Closing\" is what follows from a chmod, chown or move that takes rights away:
what is beneath moves to where those cannot read it who may not any more.

Exit status: 0, also if no pool is served; 1 if nobody serves the pool that was
named, or its controller does not answer.")]
pub struct StatusArguments {
    /// Directory of the pool [default: list those that are served]
    #[arg(value_name = "POOL")]
    pool: Option<PathBuf>,

    /// JSON: one object, or one for each pool that is served
    #[arg(long)]
    json: bool,
}

/// Asks and prints.
pub fn main(arguments: &StatusArguments) -> ExitCode {
    let told = match &arguments.pool {
        None => served::list(arguments.json),
        Some(pool) => crate::nested::refuse(pool)
            .and_then(|()| asking::ask(pool, PATIENCE))
            .map(|told| match arguments.json {
                true => format!("{}\n", told.json()),
                false => told.text(pool),
            }),
    };
    match told {
        Ok(text) => {
            // Whoever reads it may have seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(line) => {
            eprintln!("arck status: {line}");
            ExitCode::FAILURE
        }
    }
}
