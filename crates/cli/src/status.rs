//! `arck status`: how a served pool is, and how far the controller has come with what changes of
//! rights have left it to do.
//!
//! Invariant: it asks the controller, and changes nothing.

use arck_core_state::PAGE_SIZE;
use arck_libfs_kit::session::connect_socket;
use arck_protocol::Status;
use arck_protocol::socket::{self, Answer, Call};
use clap::Args;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `arck status`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  arck status /dev/shm/pool          sessions, free space, what is being closed
  arck status /dev/shm/pool --json   the same, for programs

Free is what a new session could fill: what a session was granted counts as
used.

\"Closing\" is what follows from a chmod, chown or move that takes rights away:
what is beneath moves to where those cannot read it who may not any more.

Exit status: 0; 1 if nobody serves the pool.")]
pub struct StatusArguments {
    /// Directory of the pool [default: $ARCK_POOL, else /dev/shm/arck-$USER]
    #[arg(value_name = "POOL")]
    pool: Option<PathBuf>,

    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Asks and prints.
pub fn main(arguments: &StatusArguments) -> ExitCode {
    let pool = crate::run::named_or_default(arguments.pool.as_deref());
    match pool.and_then(|pool| Ok((ask(&pool)?, pool))) {
        Ok((status, pool)) => {
            print(&pool, &status, arguments.json);
            ExitCode::SUCCESS
        }
        Err(line) => {
            eprintln!("arck status: {line}");
            ExitCode::FAILURE
        }
    }
}

fn ask(pool: &Path) -> Result<Status, String> {
    crate::nested::refuse(pool)?;
    let shown = pool.display();
    let socket = connect_socket(pool).map_err(|errno| {
        crate::run::why_none(pool).unwrap_or_else(|| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::CONNREFUSED => {
                format!("nobody serves the pool {shown}; arck serve {shown} does")
            }
            other => format!("cannot ask the controller of {shown}: {other}"),
        })
    })?;
    match socket::call(&socket, &Call::Status) {
        Ok((Answer::Status(status), _)) => Ok(status),
        Ok((Answer::Error(_, text), _)) => Err(format!("the controller of {shown}: {text}")),
        Ok(_) => Err(format!(
            "the controller of {shown} is of another release, and tells nothing"
        )),
        Err(errno) => Err(format!("cannot ask the controller of {shown}: {errno}")),
    }
}

fn print(pool: &Path, status: &Status, json: bool) {
    let bytes_free = status.pages_free * PAGE_SIZE;
    if json {
        let object = serde_json::json!({
            "sessions": status.sessions,
            "bytes_free": bytes_free,
            "inodes_free": status.inodes_free,
            "closings": status.closings,
            "inodes_waiting": status.waiting,
            "work_done": status.work,
            "inodes_moved": status.moved,
            "longest_slice": status.longest,
        });
        println!("{object}");
        return;
    }
    println!("{}: served", pool.display());
    println!("  sessions      {}", status.sessions);
    println!(
        "  free          {} MiB, {} inodes",
        bytes_free >> 20,
        status.inodes_free
    );
    match status.closings {
        0 => println!("  closing       nothing"),
        count => println!(
            "  closing       {count} changes of rights; {} inodes known to wait",
            status.waiting
        ),
    }
    println!(
        "  closed so far {} inodes and pages looked at, {} inodes moved",
        status.work, status.moved
    );
}
