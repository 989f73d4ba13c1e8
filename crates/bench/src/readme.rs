//! `arck-bench readme`: the table of README, out of what a report has kept as JSON: a few of its rows.
//!
//! # Invariants
//! * Each of [`ROWS`] is in every report, a quick one too; one that is not is an error.
//! * In a document the table stands between two marks, of which each is there once. Nothing else is changed.

use crate::chapter::{Chapter, Row, wanted};
use crate::outcome::Outcome;
use clap::Args;
use serde::Deserialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const BEGINS: &str = "<!-- arck-bench readme begins -->";
const ENDS: &str = "<!-- arck-bench readme ends -->";

/// Rows of a report: the command, the operation, what its setting begins with, and what README says.
const ROWS: &[(&str, &str, &str, &str)] = &[
    (
        "growth",
        "create+close, fresh",
        "100000 files, 1 ",
        "100,000 files created in one directory",
    ),
    (
        "growth",
        "rename within a directory",
        "100000 files, 1 ",
        "100,000 files renamed",
    ),
    (
        "growth",
        "unlink",
        "100000 files, 1 ",
        "100,000 files removed",
    ),
    (
        "growth",
        "append 4 KiB, fresh",
        "100000 files, 1 ",
        "4 KiB appended, in new space",
    ),
    (
        "micro",
        "stat, five deep",
        "libc's calls",
        "stat, five directories deep",
    ),
    (
        "micro",
        "open+close, random",
        "libc's calls",
        "open and close, at random of 20,000",
    ),
    (
        "micro",
        "read 4 KiB, random",
        "libc's calls",
        "4 KiB read at random",
    ),
    (
        "micro",
        "overwrite 4 KiB, random",
        "libc's calls",
        "4 KiB overwritten at random",
    ),
    (
        "personalities",
        "varmail",
        "1 thread",
        "Filebench varmail, 1 thread",
    ),
    (
        "personalities",
        "webproxy",
        "1 thread",
        "Filebench webproxy, 1 thread",
    ),
    (
        "personalities",
        "webserver",
        "1 thread",
        "Filebench webserver, 1 thread",
    ),
    (
        "personalities",
        "fileserver",
        "1 thread",
        "Filebench fileserver, 1 thread",
    ),
    ("apps", "LevelDB fillseq", "", "LevelDB, keys in order"),
    ("apps", "LevelDB fillrandom", "", "LevelDB, keys at random"),
    ("apps", "LevelDB fillsync", "", "LevelDB, each key synced"),
    ("apps", "LevelDB readrandom", "", "LevelDB, read at random"),
    ("apps", "LevelDB readseq", "", "LevelDB, read in order"),
    ("apps", "RocksDB fillrandom", "", "RocksDB, keys at random"),
    ("apps", "RocksDB readrandom", "", "RocksDB, read at random"),
    (
        "apps",
        "SQLite journal, insert",
        "",
        "SQLite with a journal, an insert a transaction",
    ),
    (
        "apps",
        "SQLite WAL, insert",
        "",
        "SQLite with a write-ahead log, the same",
    ),
    (
        "apps",
        "redis SET, log synced always, 1 client",
        "",
        "redis, log synced always, 1 client",
    ),
    (
        "apps",
        "redis SET, log synced always, 50 clients",
        "",
        "redis, 50 clients",
    ),
];

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench report --json report.json > report.md
  arck-bench readme report.json
  arck-bench readme report.json --write README.md")]
pub struct ReadmeArguments {
    /// What `arck-bench report --json` has kept; without it the rows' names alone
    #[arg(value_name = "FILE")]
    report: Option<PathBuf>,

    /// Put it between its marks in this document, instead of printing it
    #[arg(long, value_name = "FILE", requires = "report")]
    write: Option<PathBuf>,
}

/// What is needed of a report.
#[derive(Deserialize)]
struct Told {
    chapters: Vec<Chapter>,
}

pub fn main(arguments: &ReadmeArguments) -> Outcome<()> {
    let Some(report) = &arguments.report else {
        ROWS.iter().for_each(|row| println!("{}", row.3));
        return Ok(());
    };
    let told: Told = serde_json::from_str(&read(report)?)
        .map_err(|error| format!("{}: {error}", report.display()))?;
    let table = table(&told.chapters)?;
    match &arguments.write {
        None => print!("{table}"),
        Some(path) => {
            let text = put(&read(path)?, &table)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn find<'c>(chapters: &'c [Chapter], command: &str) -> Outcome<&'c Chapter> {
    let name = format!("arck-bench {command}");
    let found = chapters.iter().find(|chapter| chapter.command == name);
    found.ok_or_else(|| format!("no {name} in this report"))
}

/// Nanoseconds, or what is easier to read.
fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        small if small < 10_000.0 => format!("{small:.0} ns"),
        large => format!("{:.1} µs", large / 1e3),
    }
}

fn table(chapters: &[Chapter]) -> Outcome<String> {
    let mut text = "| an operation of | tmpfs | Arck | tmpfs / Arck | wanted |\n\
                    | --- | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for (command, what, setting, says) in ROWS {
        let rows = &find(chapters, command)?.rows;
        let row: &Row = rows
            .iter()
            .find(|row| row.what == *what && row.setting.starts_with(setting))
            .ok_or_else(|| format!("no {what} of {command} in this report"))?;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {says} | {} | {} | {:.2} | {} |",
            time(row.tmpfs),
            time(row.arck),
            row.ratio,
            wanted(row.wanted)
        );
    }
    let apps = find(chapters, "apps")?;
    let _ = writeln!(
        text,
        "\nMedians of {} round(s) on each side; `--persist {}`: {}. {}.",
        apps.rounds, apps.persist, apps.flushing, apps.machine
    );
    // What was only a look is not taken for more.
    let shortened = chapters.iter().filter_map(|chapter| {
        let shortened = chapter.shortened.as_ref()?;
        Some(format!("`{}`: {shortened}", chapter.command))
    });
    let shortened: Vec<String> = shortened.collect();
    if !shortened.is_empty() {
        let _ = writeln!(text, "Shortened: {}", shortened.join(" "));
    }
    Ok(text)
}

/// The document with the table between its marks.
fn put(document: &str, table: &str) -> Outcome<String> {
    let once = |mark: &str| match document.matches(mark).count() {
        1 => Ok(document.find(mark).unwrap_or(0)),
        many => Err(format!("{mark} is there {many} times, not once")),
    };
    let (begins, ends) = (once(BEGINS)? + BEGINS.len(), once(ENDS)?);
    match begins <= ends {
        true => Ok(format!(
            "{}\n\n{table}\n{}",
            &document[..begins],
            &document[ends..]
        )),
        false => Err("the marks are the wrong way round".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_put_between_its_marks() {
        let document = format!("before\n{BEGINS}\nold\n{ENDS}\nbehind\n");
        let first = put(&document, "| new |\n").expect("marks");
        assert_eq!(
            first,
            format!("before\n{BEGINS}\n\n| new |\n\n{ENDS}\nbehind\n")
        );
        assert_eq!(put(&first, "| new |\n").as_deref(), Ok(&first[..]));
        assert!(put("no marks", "").is_err());
        assert!(put(&format!("{ENDS}{BEGINS}"), "").is_err());
        assert!(put(&format!("{BEGINS}{BEGINS}{ENDS}"), "").is_err());
    }

    #[test]
    fn rows_have_names_of_their_own() {
        let mut names: Vec<&str> = ROWS.iter().map(|row| row.3).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }
}
