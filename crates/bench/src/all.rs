//! `arck-bench report`: what users do, in one report: `growth`, `fxmark`, `personalities`, `micro` and `apps`, beside
//! what is wanted of them, `fold`, which says what a name costs the controller, and `step`, which says what an operation
//! does; as Markdown, JSON, and a page in HTML.
//!
//! Invariant: what is less than a command does by itself is said beside its figures.

use crate::apps::{self, AppsArguments};
use crate::chapter::{Chapter, Row};
use crate::fold::{self, FoldArguments};
use crate::fxmark::{self, FxmarkArguments};
use crate::growth::{self, GrowthArguments};
use crate::measure::Measurement;
use crate::micro::{self, MicroArguments};
use crate::outcome::Outcome;
use crate::output::{Output, Report};
use crate::page;
use crate::personalities::{self, PersonalitiesArguments};
use crate::step::{self, StepArguments, Steps};
use clap::{Args, Parser};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench report                       all of it: a quarter of an hour
  arck-bench report --quick               a look: a minute
  arck-bench report --html report.html --json report.json > report.md")]
pub struct ReportArguments {
    /// One round of each, and smaller ones
    #[arg(long)]
    quick: bool,

    /// Also write a page with plots, which needs nothing else, to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Told {
    chapters: Vec<Chapter>,
    fold: fold::Found,
    step: Steps,
}

/// A command's arguments alone.
#[derive(Parser)]
struct Alone<A: Args> {
    #[command(flatten)]
    arguments: A,
}

pub fn main(arguments: &ReportArguments) -> Outcome<()> {
    // What cannot be written, or is not installed, is told before all is measured.
    if let Some(html) = &arguments.html {
        std::fs::write(html, "").map_err(|error| format!("{}: {error}", html.display()))?;
    }
    let arck = arguments.output.command()?;
    let given = |quick: &[&str], long: &[&str]| {
        let words = if arguments.quick { quick } else { long };
        let mut words: Vec<String> = words.iter().map(ToString::to_string).collect();
        words.insert(0, "arck-bench".to_owned());
        if let Some(arck) = &arck {
            words.extend(["--arck".to_owned(), arck.display().to_string()]);
        }
        words
    };
    let programs = parsed::<AppsArguments>(given(&["--quick"], &[]))?;
    apps::are_there(&programs)?;
    let mut chapters = vec![growth::measure(&parsed::<GrowthArguments>(given(
        &["--quick"],
        &["--files", FILES],
    ))?)?];
    if !arguments.quick {
        let many = given(&[], &["--files", MANY_FILES, "--rounds", MANY_ROUNDS]);
        let many = growth::measure(&parsed::<GrowthArguments>(many)?)?;
        chapters[0].seconds += many.seconds;
        chapters[0].rows.extend(many.rows);
    }
    chapters.push(fxmark::measure(&parsed::<FxmarkArguments>(given(
        &["--quick"],
        &[],
    ))?)?);
    chapters.push(personalities::measure(&parsed::<PersonalitiesArguments>(
        given(&["--quick"], &[]),
    )?)?);
    let start = Instant::now();
    let micro = micro::measure(&parsed::<MicroArguments>(given(
        &["--persist", "always", "--rounds", "1"],
        &["--persist", "always"],
    ))?)?;
    chapters.push(of_micro(micro, start.elapsed().as_secs_f64()));
    chapters.push(apps::measure(&programs)?);
    for chapter in &mut chapters {
        chapter.shortened = shortened(&chapter.command, arguments.quick).map(str::to_owned);
    }
    let fold = fold::measure(&parsed::<FoldArguments>(given(
        &["--names", "5000", "--rounds", "1"],
        &[],
    ))?)?;
    let step = step::measure(&parsed::<StepArguments>(given(&["--quick"], &[]))?)?;
    let told = Told {
        chapters,
        fold,
        step,
    };
    if let Some(html) = &arguments.html {
        let page = page::page(&told.chapters, &told.fold, &told.step)?;
        std::fs::write(html, page).map_err(|error| format!("{}: {error}", html.display()))?;
    }
    arguments.output.publish(&told)
}

/// Of `growth`: files in three rounds, and many in fewer, each of which takes a minute and a half.
const FILES: &str = "10000,100000";
const MANY_FILES: &str = "1000000";
const MANY_ROUNDS: &str = "2";

/// What a report measures less of than the command does by itself.
fn shortened(command: &str, quick: bool) -> Option<&'static str> {
    match (command, quick) {
        ("arck-bench growth", false) => Some("1,000,000 files have two rounds."),
        ("arck-bench growth", true) => Some("One round, at most 100,000 files."),
        ("arck-bench micro", false) => Some("With every store flushed only (`--persist always`)."),
        ("arck-bench micro", true) => Some("With every store flushed only, one round."),
        ("arck-bench fxmark" | "arck-bench personalities", true) => {
            Some("One round, an eighth of the operations.")
        }
        ("arck-bench apps", true) => Some("One round, a fifth of the operations."),
        _ => None,
    }
}

fn parsed<A: Args>(words: Vec<String>) -> Outcome<A> {
    let parsed = Alone::<A>::try_parse_from(words);
    let alone = parsed.map_err(|error| error.to_string())?;
    Ok(alone.arguments)
}

/// What is asked of an operation of `micro`.
fn wanted(operation: &str) -> Option<f64> {
    Some(match operation {
        "create+close, empty" | "stat, five deep" => 10.0,
        "open+close, five deep" => 12.0,
        "open+close, random" => 4.5,
        "unlink" => 9.0,
        "rename within a directory" => 7.0,
        "mkdir" => 4.0,
        "readdir, per entry" => 8.0,
        "read 4 KiB, random" => 2.2,
        "overwrite 4 KiB, sequential" => 2.9,
        "append 4 KiB" => 6.0,
        "read 2 MiB" => 2.5,
        "overwrite 2 MiB" => 1.6,
        _ => return None,
    })
}

/// The operations of `micro`, by both ways to call Arck.
fn of_micro(report: crate::report::Report, seconds: f64) -> Chapter {
    let mut rows = Vec::new();
    let (mut persist, mut flushing, mut controller) = Default::default();
    for run in report.runs {
        // What is wanted is wanted of programs, which call libc.
        let ways = [
            ("libc's calls, preload", run.preload, true),
            ("Rust API", run.direct, false),
        ];
        for (way, measurements, asked) in ways {
            let row = |found: Measurement| Row {
                wanted: asked.then(|| wanted(&found.operation)).flatten(),
                what: found.operation,
                setting: way.to_owned(),
                tmpfs: found.tmpfs,
                arck: found.arckfs,
                ratio: found.ratio,
                processors: None,
                calls: None,
                bystander: None,
            };
            rows.extend(measurements.into_iter().map(row));
        }
        (persist, flushing, controller) = (run.persist, run.flushing, run.controller);
    }
    Chapter {
        sides: crate::chapter::tmpfs_and_arck(),
        command: "arck-bench micro".to_owned(),
        told: "Single operations, one thread, on files and space that were used before (`growth` has what is fresh)."
            .to_owned(),
        machine: report.machine,
        persist,
        flushing,
        controller,
        rounds: report.rounds,
        shortened: None,
        seconds,
        rows,
    }
}

impl Report for Told {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        for (place, chapter) in self.chapters.iter().enumerate() {
            if place > 0 {
                text.push('\n');
            }
            chapter.write(text)?;
        }
        text.push('\n');
        self.fold.write(text)?;
        text.push('\n');
        self.step.write(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        let all = ["arck-bench"].iter().chain(list);
        all.map(ToString::to_string).collect()
    }

    /// A long report is not run by tests.
    #[test]
    fn words_of_a_long_report_are_understood() {
        for list in [
            &["--files", FILES][..],
            &["--files", MANY_FILES, "--rounds", MANY_ROUNDS],
            &["--quick"],
        ] {
            parsed::<GrowthArguments>(words(list)).expect("words of growth");
        }
        parsed::<MicroArguments>(words(&["--persist", "always"])).expect("words of micro");
        parsed::<AppsArguments>(words(&[])).expect("words of apps");
        parsed::<StepArguments>(words(&[])).expect("words of step");
    }
}
