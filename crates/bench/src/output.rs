//! Where a report goes: a table in Markdown to standard output, and everything measured to a file as
//! JSON if one is asked for; and the command that serves the pool of a measurement.

use crate::pool;
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What all measurements on a pool are told.
#[derive(Args)]
pub struct Output {
    /// Also write everything measured to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The command that serves the pool [default: the one beside this executable; else a fork]
    #[arg(long, value_name = "PATH")]
    arck: Option<PathBuf>,
}

impl Output {
    /// The command that serves the pool, if there is one. Errors name what is not there.
    pub fn command(&self) -> Result<Option<PathBuf>, String> {
        pool::find_command(self.arck.as_deref())
    }

    /// Tells a report, and keeps it if that is asked for. Errors name the file.
    pub fn publish(&self, report: &impl Report) -> Result<(), String> {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = report.write(&mut text);
        print!("{text}");
        self.save(report)
    }

    /// Keeps `report`, if that is asked for. Errors name the file.
    pub fn save(&self, report: &impl Serialize) -> Result<(), String> {
        save(self.json.as_deref(), report)
    }
}

/// What a measurement has found.
pub trait Report: Serialize {
    /// For people, and for documents.
    fn write(&self, text: &mut String) -> std::fmt::Result;
}

/// Writes `report` to `path` as JSON, if there is a path. Errors name it.
pub fn save(path: Option<&Path>, report: &impl Serialize) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
}
