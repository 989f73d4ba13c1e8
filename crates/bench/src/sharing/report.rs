//! What `sharing` found out: tables in Markdown, and JSON.

use super::alternating::Alternating;
use super::fxmark::Pair;
use crate::machine::Machine;
use crate::output;
use serde::Serialize;
use std::fmt::Write;

/// Everything.
#[derive(Serialize)]
pub struct Report {
    pub machine: Machine,
    pub persist: String,
    pub flushing: String,
    pub controller: String,
    pub rounds: usize,
    pub turns: usize,
    pub rows: Vec<Row>,
    /// Nothing where only some cases were asked for.
    pub alternating: Vec<Alternating>,
    pub fxmark: Vec<Pair>,
}

/// One case.
#[derive(Serialize)]
pub struct Row {
    pub what: String,
    pub throughput: Throughput,
    /// Hand-overs with the controller polling when it is asked.
    pub awake: Turns,
    /// With the controller asleep.
    pub asleep: Turns,
}

impl Row {
    pub fn new(what: String) -> Row {
        Row {
            what,
            throughput: Throughput::default(),
            awake: Turns::default(),
            asleep: Turns::default(),
        }
    }
}

/// Operations a second; medians of the rounds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Throughput {
    /// Of one session alone, on its own file or in its own directory.
    pub private: f64,
    /// Of both together on the shared one.
    pub shared: f64,
    /// Shared / private, inside each round.
    pub ratio: f64,
    /// Part of the session that did less, at most 0.5.
    pub fairness: f64,
    /// Shared, beside the same where nothing is mediated by itself, inside each round.
    pub found: f64,
}

/// Hand-overs: medians, in microseconds and as counts.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Turns {
    pub turns: usize,
    /// The whole call of whoever takes the inode over, its own change included.
    pub total: f64,
    /// Nine of ten were no longer.
    pub total_90: f64,
    /// From the beginning of the call until the controller has the request.
    pub message: f64,
    /// Waiting for the lease.
    pub lease: f64,
    /// Barriers, and operations in flight.
    pub wait: f64,
    pub copy: f64,
    pub verify: f64,
    pub fold: f64,
    /// Storing the new owner.
    pub grant: f64,
    /// From the answer until the end of the call.
    pub answer: f64,
    pub requests: f64,
    pub folds: f64,
    pub bytes_copied: f64,
    pub pages_read: f64,
    pub records: f64,
    pub bytes_journaled: f64,
}

impl Report {
    /// In whichever order a file is written, a hand-over is the same: measured once.
    fn handed_over(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.awake.turns != 0)
    }

    fn write_pairs(&self, text: &mut String) -> std::fmt::Result {
        if self.fxmark.is_empty() {
            return Ok(());
        }
        writeln!(
            text,
            "\nWhat FxMark has two do, at the same time, and a reader beside a writer; operations a second of each, medians of {} rounds.\n\n\
             | operation | one | the other | one, a second of its processor | tmpfs: one | the other |\n| --- | ---: | ---: | ---: | ---: | ---: |",
            self.rounds
        )?;
        for Pair {
            what,
            pool,
            tmpfs,
            own,
        } in &self.fxmark
        {
            let ([one, other], [tmpfs_one, tmpfs_other]) = (pool, tmpfs);
            writeln!(
                text,
                "| {what} | {one:.0} | {other:.0} | {own:.0} | {tmpfs_one:.0} | {tmpfs_other:.0} |"
            )?;
        }
        Ok(())
    }
}

impl output::Report for Report {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{}. `--persist {}`: {}; controller: {}.\n\
             Two sessions, each a process of its own, through the Rust API; default lease.",
            self.machine, self.persist, self.flushing, self.controller,
        )?;
        writeln!(
            text,
            "\nOperations a second, medians of {} rounds. Private: one session alone, on a file or \
             in a directory of its own, as large (of 1,000,000 names: in the same).\n\n\
             | operation | private | shared, both sessions together | shared / private | part of \
             the one that did less | shared / the same by owners |\n| --- | ---: | ---: | ---: | ---: | ---: |",
            self.rounds
        )?;
        for row in &self.rows {
            let found = &row.throughput;
            writeln!(
                text,
                "| {} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} |",
                row.what, found.private, found.shared, found.ratio, found.fairness, found.found
            )?;
        }
        writeln!(
            text,
            "\nA hand-over after one such operation of the other session, lease over; microseconds, \
             medians of {} each. The whole call, and its parts with the controller awake.\n\n\
             | operation | controller awake | 9 of 10 within | controller asleep | message | wait | \
             copy | verify | fold | grant | answer |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            self.turns
        )?;
        for row in self.handed_over() {
            let awake = &row.awake;
            writeln!(
                text,
                "| {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | \
                 {:.1} |",
                row.what,
                awake.total,
                awake.total_90,
                row.asleep.total,
                awake.message,
                awake.wait,
                awake.copy,
                awake.verify,
                awake.fold,
                awake.grant,
                awake.answer,
            )?;
        }
        writeln!(
            text,
            "\nWhat such a hand-over moves and looks at.\n\n\
             | operation | requests | folds | bytes copied | looks at verified pages | records \
             verified | bytes journaled |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
        )?;
        for row in self.handed_over() {
            let awake = &row.awake;
            writeln!(
                text,
                "| {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
                row.what,
                awake.requests,
                awake.folds,
                awake.bytes_copied,
                awake.pages_read,
                awake.records,
                awake.bytes_journaled,
            )?;
        }
        self.write_pairs(text)?;
        let Some(first) = self.alternating.first() else {
            return Ok(());
        };
        writeln!(
            text,
            "\nTwo unmodified programs without a group: writes by turns without a pause, and what the other reads of each; at the end files that one makes in a directory and \
             the other removes; microseconds, of {} turns, which take turns with those of the others, but for what is found: those come in a row, from the first.\n\n\
             | bytes | how | write, make | 99 of 100 within | longest | read, remove | 99 of 100 within |\n\
             | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
            first.turns
        )?;
        for found in &self.alternating {
            writeln!(
                text,
                "| {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
                match found.bytes {
                    0 => "a name".to_owned(),
                    bytes => bytes.to_string(),
                },
                found.how.name(),
                found.write,
                found.write_99,
                found.write_longest,
                found.read,
                found.read_99,
            )?;
        }
        Ok(())
    }
}
