//! What `recovery` found out: a table in Markdown, and JSON.

use super::check::Check;
use crate::machine::Machine;
use crate::output;
use serde::Serialize;
use std::fmt::Write;

/// Everything.
#[derive(Serialize)]
pub struct Report {
    pub machine: Machine,
    pub files: u64,
    /// In each file.
    pub bytes: usize,
    pub sessions: u64,
    pub shared: bool,
    pub persist: String,
    pub rounds: usize,
    /// Of the files, how many no fold had taken when nothing was meant to be folded.
    pub unfolded: f64,
    pub rows: Vec<Row>,
    /// Seconds that a clean end takes, once no session is there.
    pub stop: f64,
    /// Medians, by what the pool was.
    pub checks: [(&'static str, Check); 2],
}

/// One start of a controller.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Start {
    /// Seconds until it was ready.
    pub ready: f64,
    /// Seconds until a session had its first answer.
    pub answered: f64,
    /// Seconds of processor time that the controller has used by then, all of its threads.
    pub processor: f64,
    /// Bytes that the controller had resident at most.
    pub memory: f64,
}

/// One case.
#[derive(Serialize)]
pub struct Row {
    pub what: &'static str,
    pub median: Start,
    pub starts: Vec<Start>,
}

impl output::Report for Report {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{}. `--persist {}`{}.\n\
             {} files of {} bytes, made by {} sessions, those of one of them in one directory; medians \
             of {} rounds.\n\n\
             | before the start | served after, s | first answer after, s | longest of the rounds, s \
             | controller's processor time, s | its memory, MiB |\n\
             | --- | ---: | ---: | ---: | ---: | ---: |",
            self.machine,
            self.persist,
            if self.shared { ", `--shared`" } else { "" },
            self.files,
            self.bytes,
            self.sessions,
            self.rounds,
        )?;
        for row in &self.rows {
            let longest = row.starts.iter().map(|start| start.answered);
            writeln!(
                text,
                "| {} | {:.3} | {:.3} | {:.3} | {:.2} | {:.0} |",
                row.what,
                row.median.ready,
                row.median.answered,
                longest.fold(0.0, f64::max),
                row.median.processor,
                row.median.memory / f64::from(1 << 20),
            )?;
        }
        writeln!(
            text,
            "\nNot folded when they were killed: {:.0} files. The clean end, all sessions gone: {:.3} s.",
            self.unfolded, self.stop
        )?;
        writeln!(
            text,
            "\n| `arck check` of the pool | s | processor time, s | memory, MiB |\n\
             | --- | ---: | ---: | ---: |"
        )?;
        for (what, check) in &self.checks {
            writeln!(
                text,
                "| {what} | {:.3} | {:.2} | {:.0} |",
                check.seconds,
                check.processor,
                check.memory / f64::from(1 << 20),
            )?;
        }
        Ok(())
    }
}
