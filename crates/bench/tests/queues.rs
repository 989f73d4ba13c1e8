//! `arck-bench queues` runs, and tells of queues beside plain calls. Rates are not compared.

mod common;

use common::{bench, printed};

#[test]
fn readers_and_writers_are_measured() {
    let device = ["--device-cpus", "2", "--device-latency", "100ns"];
    for (more, said) in [
        (&device[..], "a device of 2 processors"),
        (&["--spool"], "a spool"),
    ] {
        let table = printed(bench(
            &[&["queues", "--quick", "--depth", "4"], more].concat(),
        ));
        assert!(table.contains(said), "{table}");
        let rows: Vec<&str> = table
            .lines()
            .filter(|line| line.starts_with("| "))
            .collect();
        // Two lines of a head, and then come 1 and 4 readers.
        assert_eq!(rows.len(), 2 + 2, "{table}");
        for row in &rows[2..] {
            let figures = row.split('|').skip(1).take(11);
            let figures = figures.map(|figure| figure.trim().parse::<f64>().expect("a figure"));
            assert!(figures.into_iter().all(|figure| figure >= 0.0), "{table}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for arguments in [
        ["--readers", "0"],
        ["--depth", "0"],
        ["--writers", "65"],
        ["--device-cpus", "0"],
        ["--device-latency", "900ns"],
    ] {
        let output = bench(&[&["queues"], &arguments[..]].concat());
        assert!(!output.status.success(), "{arguments:?}");
    }
}
