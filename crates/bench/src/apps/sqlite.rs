//! SQLite's command, in which each statement is a transaction, durable (`synchronous=FULL`) before the next begins:
//! with a rollback journal and with a write-ahead log.
//!
//! The time is from one look at SQLite's own clock to the next, which tells milliseconds. Then it checks the
//! database, and says what is in it.

use super::app::{App, Figure, grouped};
use super::side::{Side, said};
use super::tools;
use crate::outcome::Outcome;
use std::fmt::Write;
use std::fs::File;
use std::path::PathBuf;

/// Inserts, and as many updates of one row each.
const TRANSACTIONS: u64 = 20_000;

/// Of the journal, as SQLite and as a report calls it.
const MODES: [(&str, &str); 2] = [("delete", "journal"), ("wal", "WAL")];
const STEPS: [&str; 2] = ["insert", "update"];

struct Sqlite {
    program: PathBuf,
    transactions: u64,
}

pub fn sqlite(divisor: u64) -> Outcome<impl App> {
    Ok(Sqlite {
        program: tools::find("sqlite3", "sqlite3")?,
        // Fewer, and its clock would see nothing of them.
        transactions: (TRANSACTIONS / divisor).max(1000),
    })
}

/// What the command reads.
fn script(mode: &str, transactions: u64) -> String {
    const CLOCK: &str =
        "SELECT 'at', CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER);\n";
    let mut text = format!(
        "PRAGMA journal_mode={mode};\nPRAGMA synchronous=FULL;\n\
         CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, value INTEGER);\n{CLOCK}"
    );
    for number in 1..=transactions {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "INSERT INTO item VALUES ({number}, 'name {}', {});",
            number * 7919 % transactions,
            number * 31 % 1009
        );
    }
    text.push_str(CLOCK);
    for number in 1..=transactions {
        let id = number * 7919 % transactions + 1;
        let _ = writeln!(text, "UPDATE item SET value = value + 1 WHERE id = {id};");
    }
    text.push_str(CLOCK);
    text + "PRAGMA integrity_check;\nSELECT count(*), sum(value) FROM item;\n"
}

/// What has to be in the table then.
fn content(transactions: u64) -> String {
    let sum: u64 = (1..=transactions)
        .map(|number| number * 31 % 1009 + 1)
        .sum();
    format!("{transactions}|{sum}")
}

impl App for Sqlite {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    fn round(&self, side: &Side) -> Outcome<Vec<Figure>> {
        let mut figures = Vec::new();
        for (mode, name) in MODES {
            let path = side.beside.join(format!("{mode}.sql"));
            std::fs::write(&path, script(mode, self.transactions))
                .and_then(|()| File::open(&path))
                .map_err(|error| format!("{}: {error}", path.display()))
                .and_then(|script| {
                    let database = format!("{}/{mode}.db", side.directory);
                    let mut command = side.command(&self.program);
                    said(command.arg("-batch").arg(database).stdin(script))
                })
                .and_then(|printed| self.figures(mode, name, &printed))
                .map(|found| figures.extend(found))?;
        }
        Ok(figures)
    }
}

impl Sqlite {
    fn figures(&self, mode: &str, name: &str, printed: &str) -> Outcome<Vec<Figure>> {
        let content = content(self.transactions);
        let mut times = Vec::new();
        let mut rest = Vec::new();
        for line in printed.lines() {
            match line.strip_prefix("at|") {
                Some(time) => times.push(time.parse::<f64>().map_err(|error| error.to_string())?),
                None => rest.push(line),
            }
        }
        if rest != [mode, "ok", &content] || times.len() != STEPS.len() + 1 {
            return Err(format!("not {mode}, ok and {content}: {printed}"));
        }
        let figure = |(place, step): (usize, &&str)| Figure {
            what: format!("SQLite {name}, {step}"),
            setting: format!("{} transactions", grouped(self.transactions)),
            // The clock may not have moved.
            each: (times[place + 1] - times[place]).max(0.5) * 1e6 / self.transactions as f64,
            wanted: 1.4,
            result: content.clone(),
        };
        Ok(STEPS.iter().enumerate().map(figure).collect())
    }
}
