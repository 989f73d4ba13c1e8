//! `arck-bench log` runs, and tells of the log beside ArckFS and tmpfs, and of followers. Times are not looked at.

use std::process::Command;

#[test]
fn writers_and_followers_are_measured() {
    let output = Command::new(env!("CARGO_BIN_EXE_arck-bench"))
        .args(["log", "--rounds", "1", "--records", "2000"])
        .output()
        .expect("arck-bench runs");
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .collect();
    // Two tables with two lines of a head each.
    assert_eq!(rows.len(), 2 + 12 + 2 + 6, "{table}");
    for row in &rows[2..14] {
        let figures = row.split('|').skip(1).take(8);
        let figures = figures.map(|figure| figure.trim().parse::<f64>().expect("a figure"));
        assert!(figures.into_iter().all(|figure| figure > 0.0), "{table}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for arguments in [["--writers", "0"], ["--writers", "65"], ["--records", "10"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_arck-bench"))
            .arg("log")
            .args(arguments)
            .output()
            .expect("arck-bench runs");
        assert!(!output.status.success(), "{arguments:?}");
    }
}
