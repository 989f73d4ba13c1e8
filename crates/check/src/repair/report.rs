//! What a repair has to tell, kept in the pool's directory, so that it outlives the repair: who is
//! killed before he has printed it, or whose output is lost, has it told by the next one.
//!
//! A text: a line that says how far it is, then a line for each finding and each thing done.
//!
//! # Invariants
//! * What is told of a change, or can be found no more after it, is durable before the change.
//! * The file is replaced as a whole, and whoever comes later believes no byte of it: it is text.
//! * Lines of a report that nobody has been told are carried over into the next one.

use super::plan::Files;
use crate::error::Result;
use crate::finding::Finding;
use crate::{memory, pool};
use arck_core_state::layout;
use foldhash::HashSet;
use rustix::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Actions that are told.
pub const ACTIONS_MAX: usize = 10_000;

/// What the first line begins with; behind it stands one of [`UNTOLD`] and [`TOLD`].
const HEAD: &str = "arck repair report";
/// Nobody has been told it.
const UNTOLD: &str = "not printed yet";
/// It was printed.
const TOLD: &str = "printed";
/// What it is written as, before it takes the place of the last one.
const UNFINISHED: &str = "repair-report.new";
/// Bytes of one that are read.
const BYTES_MAX: u64 = 64 << 20;

/// The lines of a report that nobody was told.
pub(crate) fn untold(directory: &OwnedFd) -> Vec<String> {
    let bytes = memory::open(directory, layout::REPAIR_REPORT)
        .and_then(|file| memory::read(&file, BYTES_MAX))
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    match lines.next() {
        Some(head) if head == format!("{HEAD}: {UNTOLD}") => {
            // What is told goes to a terminal, whoever wrote it.
            lines
                .map(|line| line.replace(char::is_control, "?"))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Notes that somebody was told it.
pub(crate) fn tell(path: &Path) -> Result<()> {
    let directory = pool::open_to_change(path)?;
    let lines = untold(&directory);
    match lines.is_empty() {
        true => Ok(()),
        false => write(&files(path, &directory), TOLD, lines.iter()),
    }
}

fn files<'p>(path: &'p Path, directory: &'p OwnedFd) -> Files<'p> {
    Files {
        path,
        directory,
        // No segment is written.
        segment_size: 0,
    }
}

fn write<'l>(
    files: &Files<'_>,
    state: &str,
    lines: impl Iterator<Item = &'l String>,
) -> Result<()> {
    let mut text = format!("{HEAD}: {state}\n");
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    files.replace(UNFINISHED, layout::REPAIR_REPORT, text.as_bytes())
}

/// What this repair has to tell.
pub(crate) struct Telling {
    path: PathBuf,
    /// Lines of repairs before this one that nobody was told.
    pub earlier: Vec<String>,
    findings: Vec<String>,
    /// A line for each thing that was done, or is about to be.
    pub actions: Vec<String>,
}

impl Telling {
    pub fn new(path: &Path) -> Telling {
        let directory = pool::open_to_change(path);
        Telling {
            path: path.into(),
            earlier: directory.map_or_else(|_| Vec::new(), |directory| untold(&directory)),
            findings: Vec::new(),
            actions: Vec::new(),
        }
    }

    pub fn found<'f>(&mut self, findings: impl IntoIterator<Item = &'f Finding>) {
        let lines = findings.into_iter().map(ToString::to_string);
        self.findings.extend(lines);
    }

    pub fn say(&mut self, what: String) {
        if self.actions.len() < ACTIONS_MAX {
            self.actions.push(what);
        }
    }

    /// Makes durable all that was found and said. To be called before what was said is done.
    pub fn keep(&mut self) -> Result<()> {
        let directory = pool::open_to_change(&self.path)?;
        let actions = self.actions.iter().map(|action| repaired(action));
        let new: Vec<String> = self.findings.iter().cloned().chain(actions).collect();
        // What the last one had found and not changed is found again.
        let again: HashSet<&str> = new.iter().map(String::as_str).collect();
        self.earlier.retain(|line| !again.contains(line.as_str()));
        let lines = self.earlier.iter().chain(&new);
        write(&files(&self.path, &directory), UNTOLD, lines)
    }
}

/// The line of something that was done.
pub(crate) fn repaired(action: &str) -> String {
    format!("repaired: {action}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_told_as_text_and_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path();
        let report = path.join(layout::REPAIR_REPORT);
        let lines = || untold(&pool::open_directory(path).unwrap());
        assert!(lines().is_empty());
        for foreign in [&b"something else\nx\n"[..], b"", b"\xff\xfe", &[0; 100]] {
            std::fs::write(&report, foreign).unwrap();
            assert!(lines().is_empty());
        }
        std::fs::write(&report, format!("{HEAD}: {UNTOLD}\na\x1b[2Jb\r\n\u{9b}c\n")).unwrap();
        assert_eq!(lines(), ["a?[2Jb", "?c"]);
        tell(path).unwrap();
        assert!(lines().is_empty());
        let mut telling = Telling::new(path);
        telling.say("that".to_owned());
        telling.keep().unwrap();
        assert_eq!(lines(), ["repaired: that"]);
        // The next one has it, and does the same again.
        let mut telling = Telling::new(path);
        telling.say("this".to_owned());
        telling.keep().unwrap();
        assert_eq!(lines(), ["repaired: that", "repaired: this"]);
        telling.say("that".to_owned());
        telling.keep().unwrap();
        assert_eq!(lines(), ["repaired: this", "repaired: that"]);
    }
}
