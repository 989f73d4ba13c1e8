//! `arck-bench fio` runs fio on both sides, and says how to get it where it is missing. Rates are not compared.

mod common;

use common::{at, bench, json, library, printed};
use std::process::Command;

#[test]
fn engines_are_measured_beside_plain_calls() {
    // The command and the library, which it runs fio by.
    library();
    let answer = at("fio.json");
    let answer = answer.to_str().expect("UTF-8");
    let table = printed(bench(&[
        "fio",
        "--quick",
        "--engines",
        "libaio",
        "--json",
        answer,
    ]));
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| rand"))
        .collect();
    // psync and libaio, reads and writes.
    assert_eq!(rows.len(), 4, "{table}");
    let told = json(answer.as_ref());
    let rows = told["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4);
    for row in rows {
        for side in 0..2 {
            let rate = row["rates"][side].as_f64().expect("a rate");
            assert!(rate > 0.0, "{row}");
        }
    }
}

#[test]
fn fio_that_is_missing_is_told_before_anything_is_measured() {
    library();
    let output = Command::new(env!("CARGO_BIN_EXE_arck-bench"))
        .args(["fio", "--quick"])
        .env("PATH", "/nowhere")
        .output()
        .expect("arck-bench runs");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("fio is not there: apt-get install fio"),
        "{said}"
    );
}
