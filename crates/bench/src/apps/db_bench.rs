//! LevelDB and RocksDB, each by its own `db_bench`, with its own settings: 16-byte keys, 100-byte values, of which
//! half compresses away; but that RocksDB's buffer of what is not yet in tables is LevelDB's 4 MiB, not 64.
//!
//! A run goes through its workloads one after the other on one database, as the tool's own list does: what reads finds
//! what was written before. Seeds are fixed: how many keys are found is the same on both sides.

use super::app::{App, Figure, grouped};
use super::side::{Side, said};
use super::tools;
use crate::outcome::Outcome;
use std::path::PathBuf;

/// One start of the tool.
struct Run {
    /// Workloads, and what is said in a report of those that are there twice.
    workloads: &'static [(&'static str, &'static str)],
    /// `--num`.
    number: u64,
    /// Operations of most of the workloads.
    operations: u64,
    unit: &'static str,
}

struct DbBench {
    name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
    runs: Vec<Run>,
    /// At the end, not measured.
    check: Option<&'static str>,
}

const COMPACTED: &str = ", compacted";

const LEVELDB: &[(&str, &str)] = &[
    ("fillseq", ""),
    ("fillrandom", ""),
    ("overwrite", ""),
    ("readrandom", ""),
    ("readseq", ""),
    ("readreverse", ""),
    ("readmissing", ""),
    ("readhot", ""),
    ("seekrandom", ""),
    ("compact", ""),
    ("readrandom", COMPACTED),
    ("readseq", COMPACTED),
    ("readreverse", COMPACTED),
    ("deleterandom", ""),
    ("deleteseq", ""),
    ("fill100K", ""),
];

const ROCKSDB: &[(&str, &str)] = &[
    ("fillseq", ""),
    ("fillrandom", ""),
    ("overwrite", ""),
    ("readrandom", ""),
    ("readseq", ""),
    ("readreverse", ""),
    ("seekrandom", ""),
    ("compact", ""),
    ("readrandom", COMPACTED),
    ("readseq", COMPACTED),
    ("readreverse", COMPACTED),
    ("deleterandom", ""),
];

const SYNCED: &[(&str, &str)] = &[("fillsync", "")];

/// Keys of a database, and of one in which each is synced.
const KEYS: u64 = 200_000;
const KEYS_SYNCED: u64 = 20_000;

pub fn leveldb(divisor: u64) -> Outcome<impl App> {
    Ok(DbBench {
        name: "LevelDB",
        program: tools::leveldb_bench()?,
        arguments: &[],
        runs: vec![
            Run {
                workloads: LEVELDB,
                number: KEYS / divisor,
                operations: KEYS / divisor,
                unit: "keys",
            },
            Run {
                workloads: SYNCED,
                // It writes a thousandth of them.
                number: KEYS_SYNCED / divisor * 1000,
                operations: KEYS_SYNCED / divisor,
                unit: "keys, each synced",
            },
        ],
        check: None,
    })
}

pub fn rocksdb(divisor: u64) -> Outcome<impl App> {
    Ok(DbBench {
        name: "RocksDB",
        program: tools::find("db_bench", "rocksdb-tools")?,
        // As LevelDB's: what is written leaves memory for files several times.
        arguments: &["--seed=1", "--write_buffer_size=4194304"],
        runs: vec![
            Run {
                workloads: ROCKSDB,
                number: KEYS / divisor,
                operations: KEYS / divisor,
                unit: "keys",
            },
            Run {
                workloads: SYNCED,
                number: KEYS_SYNCED / divisor,
                operations: KEYS_SYNCED / divisor,
                unit: "keys, each synced",
            },
        ],
        check: Some("verifychecksum"),
    })
}

impl App for DbBench {
    fn name(&self) -> &'static str {
        self.name
    }

    fn round(&self, side: &Side) -> Outcome<Vec<Figure>> {
        let mut figures = Vec::new();
        for (place, run) in self.runs.iter().enumerate() {
            figures.extend(self.run(side, place, run)?);
        }
        Ok(figures)
    }
}

impl DbBench {
    fn run(&self, side: &Side, place: usize, run: &Run) -> Outcome<Vec<Figure>> {
        let mut names: Vec<&str> = run.workloads.iter().map(|(name, _)| *name).collect();
        names.extend(self.check);
        let database = format!("{}/database-{place}", side.directory);
        let printed = said(
            side.command(&self.program)
                .args(self.arguments)
                .arg(format!("--db={database}"))
                .arg(format!("--num={}", run.number))
                .arg(format!("--benchmarks={}", names.join(","))),
        )?;
        let mut lines = lines(&printed);
        let mut figures = Vec::new();
        for &(name, which) in run.workloads {
            let line = lines
                .next()
                .filter(|line| line.name == name)
                .ok_or_else(|| format!("no line of {name} in: {printed}"))?;
            figures.push(Figure {
                what: format!("{} {name}{which}", self.name),
                setting: match name {
                    "compact" => format!("all of {} keys", grouped(run.operations)),
                    "fill100K" => {
                        format!("{} values of 100 kB", grouped(run.operations / 1000))
                    }
                    _ => format!("{} {}", grouped(run.operations), run.unit),
                },
                each: line.microseconds * 1e3,
                wanted: 1.0,
                result: line.found,
            });
        }
        if let Some(check) = self.check
            && lines.next().is_none_or(|line| line.name != check)
        {
            return Err(format!("no line of {check} in: {printed}"));
        }
        Ok(figures)
    }
}

/// What the tool says of a workload.
struct Line<'t> {
    name: &'t str,
    microseconds: f64,
    /// What stands in the last parentheses, as in `(172966 of 200000 found)`.
    found: String,
}

fn lines(printed: &str) -> impl Iterator<Item = Line<'_>> {
    printed.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let (figure, rest) = rest.split_once(" micros/op")?;
        let found = rest.rsplit_once('(').map_or("", |(_, found)| found);
        Some(Line {
            name: name.trim(),
            microseconds: figure.trim().parse().ok()?,
            found: found.trim_end_matches(')').to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_of_both_tools() {
        let printed = "Keys:       16 bytes each\n\
            fillseq      :       1.679 micros/op;   65.9 MB/s\n\
            readrandom   :       3.319 micros/op; (172966 of 200000 found)\n\
            readseq      :       0.541 micros/op 1846122 ops/sec 0.094 seconds 172882 operations;  204.2 MB/s\n";
        let found: Vec<(&str, f64, String)> = super::lines(printed)
            .map(|line| (line.name, line.microseconds, line.found))
            .collect();
        let expected = [
            ("fillseq", 1.679, ""),
            ("readrandom", 3.319, "172966 of 200000 found"),
            ("readseq", 0.541, ""),
        ];
        assert_eq!(found.len(), expected.len());
        for (one, other) in found.iter().zip(expected) {
            assert_eq!((one.0, one.1, one.2.as_str()), other);
        }
    }
}
