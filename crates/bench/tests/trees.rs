//! `arck-bench trees`, with a hundredth of the files: every command is run on both sides, and what fails
//! there is told. Times are not looked at.

use std::path::Path;
use std::process::{Command, Output};

fn trees(arguments: &[&str], answer: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_arck-bench"))
        .args(["trees", "--few", "--rounds", "1", "--json"])
        .arg(answer)
        .args(arguments)
        .output()
        .expect("arck-bench runs")
}

#[test]
fn whole_programs_run_on_both_sides() {
    let answer = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trees.json");
    let output = trees(&[], &answer);
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&answer).expect("the answer");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let rows = report["trees"].as_array().expect("rows");
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["what"].as_str().expect("a name"))
        .collect();
    for part in ["untar", "rm -rf", "git status", "rm -rf", "make"] {
        assert!(names.iter().any(|name| name.contains(part)), "{names:?}");
    }
    assert_eq!(names.len(), 5);
    for row in rows {
        for field in [
            "tmpfs",
            "arck",
            "times",
            "tmpfs_processor",
            "arck_processor",
        ] {
            let value = row[field].as_f64().expect("a number");
            assert!(value > 0.0 && value.is_finite(), "{row}");
        }
    }
}

#[test]
fn one_of_them_alone() {
    let answer = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trees-one.json");
    let output = trees(&["--filter", "untar"], &answer);
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    let rows = table.lines().filter(|line| line.starts_with("| untar"));
    assert_eq!(rows.count(), 1, "{table}");
    assert!(!table.contains("git status"), "{table}");
    let output = trees(&["--filter", "no such thing"], &answer);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
