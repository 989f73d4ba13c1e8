//! `arck status`: how a served pool is, who is on it, and how far the controller has come with what changes
//! of rights have left it to do; and which pools are served.
//!
//! Invariant: it asks the controllers, changes nothing, and ends in bounded time, whatever they do.

mod asking;
mod served;

use arck_core_state::PAGE_SIZE;
use arck_core_state::superblock::Durability;
use arck_protocol::status::Pool;
use asking::Told;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
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
                true => format!("{}\n", json_of(&told)),
                false => text_of(pool, &told),
            }),
    };
    match told {
        Ok(text) => {
            use std::io::Write as _;
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

/// What would steer a terminal is taken out: others choose it.
fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(plain).collect()
}

fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

/// Bytes of the pool, and how many are used.
fn sizes(told: &Told, pool: &Pool) -> (u64, u64) {
    // Whoever answers may tell anything.
    let bytes = |pages: u64| pages.saturating_mul(PAGE_SIZE);
    let used = pool.pages.saturating_sub(told.status.pages_free);
    (bytes(pool.pages), bytes(used))
}

/// What a machine's failure leaves, by a word.
fn durability(pool: &Pool) -> &'static str {
    match Durability::from_u32(pool.durability) {
        Some(Durability::Dax) => "dax",
        Some(Durability::Volatile) => "volatile",
        Some(Durability::Paged) => "paged",
        None => "unknown",
    }
}

fn json_of(told: &Told) -> Value {
    let status = &told.status;
    let mut object = json!({
        "sessions": status.sessions,
        "bytes_free": status.pages_free.saturating_mul(PAGE_SIZE),
        "inodes_free": status.inodes_free,
        "closings": status.closings,
        "inodes_waiting": status.waiting,
        "work_done": status.work,
        "inodes_moved": status.moved,
        "longest_slice": status.longest,
    });
    let Some(pool) = &told.pool else {
        return object;
    };
    let (bytes, used) = sizes(told, pool);
    let processes: Vec<Value> = told
        .processes
        .iter()
        .map(|process| {
            json!({
                "session": process.session,
                "process": process.process,
                "user": process.user,
                "program": process.program,
            })
        })
        .collect();
    object["bytes"] = json!(bytes);
    object["bytes_used"] = json!(used);
    object["inodes"] = json!(pool.inodes);
    object["durability"] = json!(durability(pool));
    object["flush"] = json!(pool.flush);
    object["shared"] = json!(pool.shared);
    object["user"] = json!(pool.user);
    object["controller"] = json!(pool.process);
    object["violations"] = json!(pool.violations);
    object["processes"] = json!(processes);
    object
}

fn text_of(path: &Path, told: &Told) -> String {
    let status = &told.status;
    let mut text = format!("{}: served\n", shown(path));
    // Writing to memory does not fail.
    let mut row = |name: &str, value: String| _ = writeln!(text, "  {name:13} {value}");
    row("sessions", status.sessions.to_string());
    let free = status.pages_free.saturating_mul(PAGE_SIZE) >> 20;
    row("free", format!("{free} MiB, {} inodes", status.inodes_free));
    if let Some(pool) = &told.pool {
        let (bytes, used) = sizes(told, pool);
        let used_inodes = pool.inodes.saturating_sub(status.inodes_free);
        row(
            "used",
            format!(
                "{} of {} MiB, {used_inodes} of {} inodes",
                used >> 20,
                bytes >> 20,
                pool.inodes
            ),
        );
        row(
            "memory",
            format!("{}: {}", durability(pool), outlives(pool)),
        );
        row(
            "stores",
            match pool.flush {
                true => "flushed and fenced".to_owned(),
                false => "not flushed".to_owned(),
            },
        );
        row(
            "served by",
            format!(
                "process {} of user {}, for {}",
                pool.process,
                pool.user,
                if pool.shared {
                    "all users"
                } else {
                    "that user and root"
                }
            ),
        );
        row(
            "violations",
            match pool.violations {
                0 => "none since it is served".to_owned(),
                count => format!(
                    "{count} since it is served; they are listed by: arck violations {}",
                    shown(path)
                ),
            },
        );
    }
    row(
        "closing",
        match status.closings {
            0 => "nothing".to_owned(),
            count => format!(
                "{count} changes of rights; {} inodes known to wait",
                status.waiting
            ),
        },
    );
    row(
        "closed so far",
        format!(
            "{} inodes and pages looked at, {} inodes moved",
            status.work, status.moved
        ),
    );
    if !told.processes.is_empty() {
        let _ = writeln!(
            text,
            "\n{:>8}  {:>8}  {:>8}  PROGRAM",
            "SESSION", "PROCESS", "USER"
        );
    }
    for process in &told.processes {
        let _ = writeln!(
            text,
            "{:>8}  {:>8}  {:>8}  {}",
            process.session, process.process, process.user, process.program
        );
    }
    text
}

/// What outlives the machine.
fn outlives(pool: &Pool) -> &'static str {
    match Durability::from_u32(pool.durability) {
        Some(Durability::Dax) => "what was done outlives a power cut",
        Some(Durability::Volatile) => "nothing outlives the machine",
        Some(Durability::Paged) => "what was synced (fsync) outlives a power cut",
        None => "not known to this release",
    }
}
