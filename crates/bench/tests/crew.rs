//! `arck-bench fxmark` and `personalities` run all that they have a name for, on both sides. Times are not looked at.

use std::path::Path;
use std::process::{Command, Output};

fn bench(arguments: &[&str], answer: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_arck-bench"))
        .args(arguments)
        .arg("--json")
        .arg(answer)
        .output()
        .expect("arck-bench runs")
}

/// Name and setting of each row, all of which have figures.
fn rows(arguments: &[&str]) -> Vec<(String, String)> {
    let answer = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.json", arguments[0]));
    let output = bench(arguments, &answer);
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&answer).expect("the answer");
    let chapter: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let rows = chapter["rows"].as_array().expect("rows");
    let table = String::from_utf8(output.stdout).expect("text");
    let text = |row: &serde_json::Value, field: &str| {
        let text = row[field].as_str().expect("text");
        assert!(table.contains(text), "{text}: {table}");
        text.to_owned()
    };
    for row in rows {
        for field in ["tmpfs", "arck", "ratio", "wanted"] {
            let figure = row[field].as_f64().expect("a figure");
            assert!(figure > 0.0 && figure.is_finite(), "{row}");
        }
        // Where names come and go the controller has something to do.
        let has_names = row["what"]
            .as_str()
            .is_some_and(|what| what.starts_with("MW"));
        let of_controller = if has_names { 1.0 } else { 0.0 };
        for (field, least) in [("tmpfs", 1.0), ("arck", 1.0), ("controller", of_controller)] {
            let figure = row["processors"][field].as_f64().expect("a figure");
            assert!(figure >= least && figure.is_finite(), "{row}");
        }
    }
    assert!(table.contains("| its controller |"), "{table}");
    rows.iter()
        .map(|row| (text(row, "what"), text(row, "setting")))
        .collect()
}

#[test]
fn all_cases_of_fxmark() {
    let rows = rows(&["fxmark", "--quick"]);
    assert_eq!(rows.len(), 19 * 3, "{rows:?}");
    for case in [
        "DRBL", "DRBM", "DRBH", "DWOL", "DWOM", "DWAL", "DWTL", "DWSL", "MRPL", "MRPM", "MRPH",
        "MRDL", "MRDM", "MWCL", "MWCM", "MWUL", "MWUM", "MWRL", "MWRM",
    ] {
        for who in ["1 thread", "2 threads", "2 processes"] {
            let is = |row: &&(String, String)| row.0 == case && row.1.ends_with(who);
            assert_eq!(rows.iter().filter(is).count(), 1, "{case}, {who}: {rows:?}");
        }
    }
}

#[test]
fn all_personalities() {
    let rows = rows(&["personalities", "--quick"]);
    assert_eq!(rows.len(), 4 * 3, "{rows:?}");
    for name in ["varmail", "webproxy", "webserver", "fileserver"] {
        for threads in ["1 thread", "2 threads", "16 threads"] {
            let row = (name.to_owned(), threads.to_owned());
            assert!(rows.contains(&row), "{name}, {threads}: {rows:?}");
        }
    }
}

#[test]
fn what_there_is_not_is_refused() {
    let answer = Path::new(env!("CARGO_TARGET_TMPDIR")).join("none.json");
    for arguments in [
        ["fxmark", "--cases", "mwxx"],
        ["personalities", "--only", "oltp"],
        ["personalities", "--threads", "0"],
    ] {
        let output = bench(&arguments, &answer);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
}
