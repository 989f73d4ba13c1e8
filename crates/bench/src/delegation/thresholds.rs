//! `arck-bench delegation --thresholds`: from which size on accesses of many threads are faster where they are delegated, or done by few at
//! once, as the tables that a medium's file has of it.
//!
//! Invariant: a threshold is a size from which on every size that was measured is faster by [`MARGIN`]; where the greatest is not, it is
//! never ([`u32::MAX`]).

use super::rate::{Access, Place, name, rate};
use super::ways::Ways;
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::output::Report;
use arck_libfs_kit::memory::medium::{Delegated, Way};
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// Bytes of accesses, ascending; the first is the least that can be delegated.
const SIZES: [usize; 8] = [
    256,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    2 << 20,
];

/// By how much accesses are faster at least, as a share: what is as fast costs processors for nothing.
const MARGIN: f64 = 0.05;

/// GB/s of accesses of one size.
#[derive(Serialize)]
struct Row {
    operation: &'static str,
    bytes: usize,
    #[serde(flatten)]
    ways: Ways,
}

/// From which size on a way is faster; one of the file's tables.
#[derive(Serialize)]
struct Table {
    name: &'static str,
    writes_from: u32,
    reads_from: u32,
}

#[derive(Serialize)]
pub struct Found {
    machine: Machine,
    medium: String,
    nodes: u32,
    delegates: u32,
    threads: usize,
    tables: [Table; 2],
    rows: Vec<Row>,
}

/// The size from which on all are faster.
fn threshold(rows: &[Row], way: fn(&Ways) -> f64) -> u32 {
    let is_faster = |row: &&Row| way(&row.ways) > row.ways.alone * (1.0 + MARGIN);
    let least = rows.iter().rev().take_while(is_faster).last();
    least.map_or(u32::MAX, |row| row.bytes as u32)
}

/// All ways by so many threads, in rounds that follow each other.
pub fn measure(place: &Place<'_>, threads: usize, rounds: usize, time: Duration) -> Outcome<Found> {
    let all = Delegated {
        threads: place.delegates,
        writes_from: SIZES[0] as u32,
        reads_from: SIZES[0] as u32,
    };
    let mut rows: [Vec<Row>; 2] = [Vec::new(), Vec::new()];
    for (way, rows) in [Way::Write, Way::Read].into_iter().zip(&mut rows) {
        for bytes in SIZES {
            let access = Access {
                way,
                size: bytes,
                is_fresh: false,
            };
            let round = || rate(place.files, access, threads, time);
            let ways = Ways::measure(rounds, |how| {
                how.within(place.files, place.model.nodes, &all, round)
            })?;
            rows.push(Row {
                operation: name(way),
                bytes,
                ways,
            });
        }
    }
    let [writes, reads] = rows;
    let table = |name, way: fn(&Ways) -> f64| Table {
        name,
        writes_from: threshold(&writes, way),
        reads_from: threshold(&reads, way),
    };
    Ok(Found {
        machine: Machine::look(),
        medium: place.medium.clone(),
        nodes: place.model.nodes,
        delegates: place.delegates,
        threads,
        tables: [
            table("delegation", |ways| ways.delegated),
            table("at_once", |ways| ways.at_once),
        ],
        rows: writes.into_iter().chain(reads).collect(),
    })
}

impl Report for Found {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let Found {
            machine,
            medium,
            nodes,
            delegates,
            threads,
            ..
        } = self;
        writeln!(
            text,
            "{machine}\n\nGB/s of {threads} threads together, each in a file of its own; {nodes} nodes.\n"
        )?;
        writeln!(
            text,
            "| operation | bytes | by themselves | by {delegates} threads of each node | {delegates} at once |\n\
             | --- | ---: | ---: | ---: | ---: |"
        )?;
        for row in &self.rows {
            writeln!(
                text,
                "| {} | {} | {:.2} | {:.2} | {:.2} |",
                row.operation, row.bytes, row.ways.alone, row.ways.delegated, row.ways.at_once
            )?;
        }
        let never = |from: u32| match from {
            u32::MAX => " # never",
            _ => "",
        };
        for Table {
            name,
            writes_from,
            reads_from,
        } in &self.tables
        {
            writeln!(
                text,
                "\n[{name}]\nthreads = {delegates}\nwrites_from = {writes_from}{}\nreads_from = {reads_from}{}",
                never(*writes_from),
                never(*reads_from)
            )?;
            writeln!(
                text,
                "source = \"measured: arck-bench --medium {medium} delegation --thresholds; {threads} threads, {} processors; {}\"",
                machine.processors, machine.processor
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_where_all_behind_it_are_faster() {
        let rows = |rates: &[(usize, f64, f64)]| -> Vec<Row> {
            let row = |&(bytes, alone, delegated): &(usize, f64, f64)| Row {
                operation: "write",
                bytes,
                ways: Ways {
                    alone,
                    delegated,
                    at_once: 3.0 - delegated,
                    longest: [0.0; 3],
                },
            };
            rates.iter().map(row).collect()
        };
        for (rates, expected) in [
            (
                &[(256, 1.0, 2.0), (1024, 1.0, 0.5), (4096, 1.0, 2.0)][..],
                4096,
            ),
            (&[(256, 1.0, 2.0), (1024, 1.0, 1.5), (4096, 1.0, 1.1)], 256),
            (
                &[(256, 1.0, 2.0), (1024, 1.0, 1.5), (4096, 1.0, 1.01)],
                u32::MAX,
            ),
            (&[], u32::MAX),
        ] {
            let rows = rows(rates);
            assert_eq!(
                threshold(&rows, |ways| ways.delegated),
                expected,
                "{rates:?}"
            );
            let other = |ways: &Ways| 3.0 - ways.at_once;
            assert_eq!(threshold(&rows, other), expected, "{rates:?}");
        }
    }
}
