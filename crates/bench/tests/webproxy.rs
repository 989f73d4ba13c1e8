//! `arck-bench webproxy` runs, and tells of KVFS beside ArckFS. Times are not looked at.

use std::process::Command;

#[test]
fn both_sides_are_measured() {
    let output = Command::new(env!("CARGO_BIN_EXE_arck-bench"))
        .args(["webproxy", "--rounds", "1", "--mean", "2K"])
        .output()
        .expect("arck-bench runs");
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .collect();
    assert_eq!(rows.len(), 2 + 4, "{table}");
    for row in &rows[2..] {
        let figures: Vec<f64> = row
            .split('|')
            .skip(2)
            .take(3)
            .map(|figure| figure.trim().parse().expect("a figure"))
            .collect();
        assert!(figures.iter().all(|&figure| figure > 0.0), "{table}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for arguments in [["--mean", "17K"], ["--mean", "0"], ["--threads", "0"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_arck-bench"))
            .arg("webproxy")
            .args(arguments)
            .output()
            .expect("arck-bench runs");
        assert!(!output.status.success(), "{arguments:?}");
        let line = String::from_utf8(output.stderr).expect("text");
        assert!(line.contains("--mean is 1 to 16K"), "{line}");
    }
}
