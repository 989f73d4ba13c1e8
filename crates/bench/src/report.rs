//! Tables in Markdown, and JSON.

use crate::machine::Machine;
use crate::measure::Measurement;
use crate::output;
use clap::ValueEnum;
use serde::Serialize;
use std::fmt::Write;

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

impl output::Report for Report {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{}.\n\
             Nanoseconds an operation{}, one thread; medians of {} rounds on each side, alternating \
             in one process; factor = tmpfs / ArckFS, median of the pairs, above 1 ArckFS is \
             faster. Warm: every file was written, read and looked up in a round that is not \
             counted, so all of it is recycled (`growth` has fresh names and space beside recycled ones); memory of ArckFS's own segments is populated when they are granted.",
            self.machine,
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
