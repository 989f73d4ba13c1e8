//! What a controller tells of its pool, as text and as JSON.
//!
//! Invariant: whoever answers may tell anything: no number of his makes a sum overflow.

use super::terminal::shown;
use crate::announcing::Peer;
use arck_core_state::PAGE_SIZE;
use arck_core_state::superblock::Durability;
use arck_protocol::Status;
use arck_protocol::status::{Pool, Process};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// What a controller tells.
pub struct Told {
    pub status: Status,
    /// `None`: it is of an earlier release.
    pub pool: Option<Pool>,
    pub processes: Vec<Process>,
    /// Who answers.
    pub peer: Peer,
}

/// Bytes of the pool, and how many are used.
pub fn sizes(told: &Told, pool: &Pool) -> (u64, u64) {
    // Whoever answers may tell anything.
    let bytes = |pages: u64| pages.saturating_mul(PAGE_SIZE);
    let used = pool.pages.saturating_sub(told.status.pages_free);
    (bytes(pool.pages), bytes(used))
}

/// What a machine's failure leaves, by a word.
pub fn durability(pool: &Pool) -> &'static str {
    match Durability::from_u32(pool.durability) {
        Some(Durability::Dax) => "dax",
        Some(Durability::Volatile) => "volatile",
        Some(Durability::Paged) => "paged",
        None => "unknown",
    }
}

impl Told {
    /// One object.
    pub fn json(&self) -> Value {
        let told = self;
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
        object["mediated"] = json!(pool.mediated);
        object["mediated_found"] = json!(pool.found);
        object["mapped_together"] = json!(pool.together);
        object["processes"] = json!(processes);
        object
    }

    /// Lines for people.
    pub fn text(&self, path: &Path) -> String {
        let told = self;
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
        if let Some(line) = told.pool.and_then(|pool| mediated(&pool)) {
            row(
                "mediated",
                format!(
                    "{line}; arck attr --pool {} --below / tells which",
                    shown(path)
                ),
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
}

/// What no session owns for what it changes of it; `None`: nothing.
fn mediated(pool: &Pool) -> Option<String> {
    let counted = [
        (pool.mediated, "as said"),
        (pool.found, "found"),
        (pool.together, "mapped together"),
    ];
    let told = counted.into_iter().filter(|(count, _)| *count > 0);
    let told: Vec<String> = told
        .map(|(count, text)| format!("{count} {text}"))
        .collect();
    (!told.is_empty()).then(|| told.join(", "))
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
