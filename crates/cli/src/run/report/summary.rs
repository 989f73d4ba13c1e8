//! What is told of a command: its processes, all together.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A program in a process, all its lines together.
#[derive(Serialize, Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) program: String,
    /// Whether it said that it ends, or executed another program: else it was killed, or runs yet.
    pub(super) ended: bool,
    /// Whether that was to execute another program.
    #[serde(skip)]
    pub(super) replaced: bool,
    pub(super) interception: Interception,
    pub(super) served: BTreeMap<String, u64>,
    pub(super) past: BTreeMap<String, u64>,
}

/// A program that was executed and into which the library was not loaded.
#[derive(Serialize, Debug)]
pub(super) struct Uncovered {
    pub(super) program: String,
    /// How often it was executed.
    pub(super) times: u64,
    /// Why, as a sentence, if that can be seen.
    pub(super) reason: Option<String>,
}

/// How its calls were caught.
#[derive(Deserialize, Serialize, Debug, Clone)]
#[serde(default)]
pub(super) struct Interception {
    /// Calls to libc's functions.
    pub(super) symbols: bool,
    /// The way of dispatch below them for all other calls: `sud-exclusive`, `sud-inclusive`, `none`.
    pub(super) dispatch: String,
    /// Why that way: `best`, `asked` (by `ARCK_DISPATCH`), `fallback` (a better one was refused).
    pub(super) dispatch_choice: String,
    /// Whether sites that trap often are rewritten: `on`, `not-used` (without dispatch), `never` (by
    /// `ARCK_PATCH`), `refused` (by the system).
    pub(super) patching: String,
    /// System call instructions replaced by jumps.
    pub(super) patched_sites: u64,
}

impl Default for Interception {
    fn default() -> Interception {
        Interception {
            symbols: false,
            dispatch: "none".to_string(),
            dispatch_choice: String::new(),
            patching: String::new(),
            patched_sites: 0,
        }
    }
}

/// All processes together; also the JSON of `--report=FILE.json`.
#[derive(Serialize, Debug)]
pub(super) struct Summary {
    pub(super) command: Vec<String>,
    pub(super) pool: String,
    pub(super) mount: String,
    /// What programs find there that the library is not loaded into.
    pub(super) strays: String,
    /// The command's exit status, if it exited.
    pub(super) exit_status: Option<i32>,
    /// The signal that ended it, if one did.
    pub(super) signal: Option<i32>,
    /// Whether the command's own process was intercepted.
    pub(super) interception_on: bool,
    pub(super) served: BTreeMap<String, u64>,
    pub(super) past: BTreeMap<String, u64>,
    /// Lines in the report that could not be read.
    pub(super) unreadable: u64,
    /// Whether processes had lines for which there was no room: they said so by the file's mode.
    pub(super) lines_are_missing: bool,
    pub(super) processes: Vec<Process>,
    /// What the library was not loaded into; what these programs did, and what they started
    /// without it, is not known.
    pub(super) uncovered: Vec<Uncovered>,
}
