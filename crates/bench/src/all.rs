//! `arck-bench report`: what users do, in one report: `growth`, `fxmark`, `personalities` and `micro`, beside what
//! is wanted of them; as Markdown, JSON, and a page in HTML.

use crate::chapter::{Chapter, Row};
use crate::fxmark::{self, FxmarkArguments};
use crate::growth::{self, GrowthArguments};
use crate::measure::Measurement;
use crate::micro::{self, MicroArguments};
use crate::outcome::Outcome;
use crate::output::{Output, Report};
use crate::page;
use crate::personalities::{self, PersonalitiesArguments};
use clap::{Args, Parser};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench report                       all of it: a quarter of an hour
  arck-bench report --quick               a look: some minutes
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
}

/// A command's arguments alone.
#[derive(Parser)]
struct Alone<A: Args> {
    #[command(flatten)]
    arguments: A,
}

pub fn main(arguments: &ReportArguments) -> Outcome<()> {
    // What cannot be written is told before all is measured.
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
    let chapters = vec![
        growth::measure(&parsed::<GrowthArguments>(given(&["--quick"], &[]))?)?,
        fxmark::measure(&parsed::<FxmarkArguments>(given(&["--quick"], &[]))?)?,
        personalities::measure(&parsed::<PersonalitiesArguments>(given(&["--quick"], &[]))?)?,
        of_micro(micro::measure(&parsed::<MicroArguments>(given(
            &["--persist", "always", "--rounds", "1"],
            &["--persist", "always"],
        ))?)?),
    ];
    let told = Told { chapters };
    if let Some(html) = &arguments.html {
        let page = page::page(&told.chapters)?;
        std::fs::write(html, page).map_err(|error| format!("{}: {error}", html.display()))?;
    }
    arguments.output.publish(&told)
}

fn parsed<A: Args>(words: Vec<String>) -> Outcome<A> {
    let parsed = Alone::<A>::try_parse_from(words);
    let alone = parsed.map_err(|error| error.to_string())?;
    Ok(alone.arguments)
}

/// The operations of `micro`, by both ways to call Arck.
fn of_micro(report: crate::report::Report) -> Chapter {
    let mut rows = Vec::new();
    let (mut persist, mut flushing, mut controller) = Default::default();
    for run in report.runs {
        let ways = [
            ("libc's calls, preload", run.preload),
            ("Rust API", run.direct),
        ];
        for (way, measurements) in ways {
            let row = |found: Measurement| Row {
                what: found.operation,
                setting: way.to_owned(),
                tmpfs: found.tmpfs,
                arck: found.arckfs,
                ratio: found.ratio,
                wanted: None,
                calls: None,
                bystander: None,
            };
            rows.extend(measurements.into_iter().map(row));
        }
        (persist, flushing, controller) = (run.persist, run.flushing, run.controller);
    }
    Chapter {
        command: "arck-bench micro".to_owned(),
        told: "Single operations, one thread, on files and space that were used before (`growth` has what is fresh)."
            .to_owned(),
        machine: report.machine,
        persist,
        flushing,
        controller,
        rounds: report.rounds,
        shortened: None,
        seconds: 0.0,
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
        Ok(())
    }
}
