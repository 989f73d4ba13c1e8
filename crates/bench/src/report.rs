//! Tables in Markdown, and JSON.

use crate::machine::Machine;
use crate::measure::Measurement;
use clap::ValueEnum;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Everything that `micro` found out.
#[derive(Serialize)]
pub struct Report {
    pub machine: Machine,
    pub rounds: usize,
    /// Which one the table tells; everything measured has both.
    pub clock: Clock,
    pub runs: Vec<Run>,
}

/// One setting of `--persist`.
#[derive(Serialize)]
pub struct Run {
    pub persist: String,
    /// Durability mode of the pool.
    pub durability: String,
    pub flushing: String,
    pub controller: String,
    /// Through the Rust API; empty if not measured.
    pub direct: Vec<Measurement>,
    /// Through libc's calls under the preload library; empty if not measured.
    pub preload: Vec<Measurement>,
}

/// Nanoseconds an operation, or bandwidth where an operation moves many bytes.
fn figure(nanoseconds: f64, bytes: u64) -> String {
    if bytes == 0 {
        format!("{nanoseconds:.0}")
    } else {
        format!("{:.1} GB/s", bytes as f64 / nanoseconds)
    }
}

/// Which clock a table tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// What a program waits
    Wall,
    /// The measuring thread's processor time: for machines that do other work meanwhile; waits
    /// for the controller are not in it
    Processor,
}

fn cells(measurement: Option<&Measurement>, clock: Clock) -> [String; 3] {
    let Some(found) = measurement else {
        return ["-".to_owned(), "-".to_owned(), "-".to_owned()];
    };
    let (tmpfs, arckfs, ratio) = match clock {
        Clock::Wall => (found.tmpfs, found.arckfs, found.ratio),
        Clock::Processor => (
            found.tmpfs_processor,
            found.arckfs_processor,
            found.ratio_processor,
        ),
    };
    [
        figure(tmpfs, found.bytes),
        figure(arckfs, found.bytes),
        format!("{ratio:.2}"),
    ]
}

impl Report {
    /// For people, and for documents.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let machine = &self.machine;
        writeln!(
            text,
            "{}, {} processors, Linux {}; {}; load {:.2}.\n\
             Nanoseconds an operation{}, one thread; medians of {} rounds on each side, alternating \
             in one process; factor = tmpfs / ArckFS, median of the pairs, above 1 ArckFS is \
             faster. Warm: every file was written, read and looked up in a round that is not \
             counted; memory of ArckFS's own segments is populated when they are granted.",
            machine.processor,
            machine.processors,
            machine.kernel,
            machine.tmpfs,
            machine.load,
            match self.clock {
                Clock::Wall => "",
                Clock::Processor => " of processor time",
            },
            self.rounds
        )?;
        for run in &self.runs {
            writeln!(
                text,
                "\n`--persist {}`: durability mode {}, {}; controller: {}\n",
                run.persist, run.durability, run.flushing, run.controller
            )?;
            writeln!(
                text,
                "| operation | tmpfs | ArckFS, libc calls (preload) | factor | tmpfs, no preload \
                 | ArckFS, Rust API | factor |"
            )?;
            writeln!(text, "| --- | ---: | ---: | ---: | ---: | ---: | ---: |")?;
            let order = if run.preload.is_empty() {
                &run.direct
            } else {
                &run.preload
            };
            for row in order {
                let find = |list: &[Measurement]| {
                    let found = list.iter().find(|entry| entry.operation == row.operation);
                    cells(found, self.clock)
                };
                let [a, b, c] = find(&run.preload);
                let [d, e, f] = find(&run.direct);
                writeln!(
                    text,
                    "| {} | {a} | {b} | {c} | {d} | {e} | {f} |",
                    row.operation
                )?;
            }
        }
        Ok(())
    }
}

/// Writes `report` to `path` as JSON, if there is a path. Errors name it.
pub fn save(path: Option<&Path>, report: &impl Serialize) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
}
