//! What most commands find: rows that set tmpfs and Arck beside each other, and beside what is wanted.

use crate::latencies::Latencies;
use crate::machine::Machine;
use crate::measure::median;
use crate::output::Report;
use serde::{Deserialize, Serialize};

/// What is wanted of the longest call, and of 99.9 % of a bystander's, in nanoseconds.
pub const LONGEST: f64 = 10e6;
pub const BYSTANDER: f64 = 2e6;

/// What one command has measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Chapter {
    /// The command that prints it.
    pub command: String,
    /// What is measured and how, in sentences.
    pub told: String,
    pub machine: Machine,
    pub persist: String,
    pub flushing: String,
    pub controller: String,
    /// Rounds on each side; medians are told.
    pub rounds: usize,
    /// What the two columns are of: tmpfs and Arck as a rule.
    pub sides: [String; 2],
    /// In a report: what is less than the command does by itself, and how many seconds it took.
    pub shortened: Option<String>,
    pub seconds: f64,
    pub rows: Vec<Row>,
}

/// One kind of operations in one setting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub what: String,
    pub setting: String,
    /// Nanoseconds from one operation to the next, of all threads together.
    pub tmpfs: f64,
    pub arck: f64,
    /// Median of the pairs: above 1, Arck is faster.
    pub ratio: f64,
    /// The ratio that is asked for.
    pub wanted: Option<f64>,
    /// Of the processors, where that is told apart.
    pub processors: Option<Processors>,
    /// Of single calls, where they are timed one by one.
    pub calls: Option<Sides>,
    /// Of another session's calls meanwhile.
    pub bystander: Option<Sides>,
}

/// Nanoseconds of processor time an operation, by all threads of these processes, medians of the rounds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Processors {
    /// By the programs, with the kernel's part, on tmpfs and on Arck.
    pub tmpfs: f64,
    pub arck: f64,
    /// By Arck's controller, until it has nothing to do.
    pub controller: f64,
}

/// Latencies on both sides, medians of the rounds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sides {
    pub tmpfs: Latencies,
    pub arck: Latencies,
}

impl Row {
    /// From the rounds' pairs of nanoseconds: tmpfs, Arck.
    pub fn of_pairs(what: &str, setting: &str, pairs: &[(f64, f64)], wanted: Option<f64>) -> Row {
        Row {
            what: what.to_owned(),
            setting: setting.to_owned(),
            tmpfs: median(pairs.iter().map(|pair| pair.0)),
            arck: median(pairs.iter().map(|pair| pair.1)),
            ratio: median(pairs.iter().map(|(tmpfs, arck)| tmpfs / arck)),
            wanted,
            processors: None,
            calls: None,
            bystander: None,
        }
    }
}

impl Sides {
    pub fn of_pairs(pairs: &[(Latencies, Latencies)]) -> Sides {
        let middle = |list: Vec<Latencies>| {
            let of = |field: fn(&Latencies) -> f64| median(list.iter().map(field));
            Latencies {
                calls: of(|one| one.calls as f64) as u64,
                middle: of(|one| one.middle),
                waiting: of(|one| one.waiting),
                percent_99: of(|one| one.percent_99),
                percent_99_9: of(|one| one.percent_99_9),
                longest: of(|one| one.longest),
            }
        };
        Sides {
            tmpfs: middle(pairs.iter().map(|pair| pair.0).collect()),
            arck: middle(pairs.iter().map(|pair| pair.1).collect()),
        }
    }
}

/// What is wanted, as tables have it.
pub fn wanted(wanted: Option<f64>) -> String {
    let exact = |wanted: f64| match (wanted * 10.0).fract().abs() < 1e-9 {
        true => format!("{wanted:.1}"),
        false => format!("{wanted:.2}"),
    };
    wanted.map_or_else(String::new, exact)
}

impl Report for Chapter {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write;
        let [first, second] = &self.sides;
        writeln!(
            text,
            "`{}`: {} Medians of {} round(s) on each side, in turns; factor = {first} / {second}, median of the pairs, \
             above 1 {second} is faster. `--persist {}` ({}); controller: {}. {}. It took {:.0} s.\n",
            self.command,
            self.told,
            self.rounds,
            self.persist,
            self.flushing,
            self.controller,
            self.machine,
            self.seconds
        )?;
        if let Some(shortened) = &self.shortened {
            writeln!(text, "Shortened: {shortened}\n")?;
        }
        writeln!(
            text,
            "| operation | where | {first} ns | {second} ns | factor | wanted |"
        )?;
        writeln!(text, "| --- | --- | ---: | ---: | ---: | ---: |")?;
        for row in &self.rows {
            writeln!(
                text,
                "| {} | {} | {:.0} | {:.0} | {:.2} | {} |",
                row.what,
                row.setting,
                row.tmpfs,
                row.arck,
                row.ratio,
                wanted(row.wanted)
            )?;
        }
        self.write_processors(text)?;
        self.write_latencies(text)
    }
}

/// What the columns are of, where nothing else is said.
pub fn tmpfs_and_arck() -> [String; 2] {
    ["tmpfs".to_owned(), "Arck".to_owned()]
}

impl Chapter {
    fn write_processors(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write;
        let [first, second] = &self.sides;
        let told = |row: &Row| row.processors.map(|found| (row.clone(), found));
        let rows: Vec<(Row, Processors)> = self.rows.iter().filter_map(told).collect();
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(
            text,
            "\nNanoseconds of processor time an operation: of the programs' threads, and of Arck's controller until it has \
             nothing to do (what nobody has asked it to fold is not in it). What all of them take \
             divided by {} processors is the least from one operation to the next at which the controller keeps up.\n",
            self.machine.processors
        )?;
        writeln!(
            text,
            "| operation | where | {first} | {second} | its controller | {first} / all of {second}'s |"
        )?;
        writeln!(text, "| --- | --- | ---: | ---: | ---: | ---: |")?;
        for (row, found) in rows {
            writeln!(
                text,
                "| {} | {} | {:.0} | {:.0} | {:.0} | {:.2} |",
                row.what,
                row.setting,
                found.tmpfs,
                found.arck,
                found.controller,
                found.tmpfs / (found.arck + found.controller)
            )?;
        }
        Ok(())
    }

    fn write_latencies(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write;
        let timed = |row: &&Row| row.calls.is_some() || row.bystander.is_some();
        if !self.rows.iter().any(|row| timed(&row)) {
            return Ok(());
        }
        writeln!(
            text,
            "\nSingle calls, and a bystander's (another session's, in a directory of its own), microseconds, beside what is \
             wanted. Waiting is the time of calls longer than 100 microseconds, of all the time that the calls took.\n"
        )?;
        writeln!(
            text,
            "| operation | where | side | half | 99 % | 99.9 % | longest (wanted: {:.0}) | waiting | bystander's 99.9 % \
             (wanted: {:.0}) | longest |",
            LONGEST / 1e3,
            BYSTANDER / 1e3
        )?;
        writeln!(
            text,
            "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        )?;
        for row in self.rows.iter().filter(timed) {
            for (side, name) in self.sides.iter().enumerate() {
                let of = |sides: Option<Sides>| sides.map(|both| [both.tmpfs, both.arck][side]);
                let cells = |latencies: Option<Latencies>, fields: &[fn(&Latencies) -> f64]| {
                    let cell = |field: &fn(&Latencies) -> f64| match &latencies {
                        Some(found) => format!("{:.1}", field(found) / 1e3),
                        None => "-".to_owned(),
                    };
                    fields.iter().map(cell).collect::<Vec<_>>().join(" | ")
                };
                let own = cells(
                    of(row.calls),
                    &[
                        |one| one.middle,
                        |one| one.percent_99,
                        |one| one.percent_99_9,
                        |one| one.longest,
                    ],
                );
                let waiting = of(row.calls).map_or_else(
                    || "-".to_owned(),
                    |found| format!("{:.0} %", found.waiting * 100.0),
                );
                let other = cells(
                    of(row.bystander),
                    &[|one| one.percent_99_9, |one| one.longest],
                );
                let (what, setting) = (&row.what, &row.setting);
                writeln!(
                    text,
                    "| {what} | {setting} | {name} | {own} | {waiting} | {other} |"
                )?;
            }
        }
        Ok(())
    }
}
