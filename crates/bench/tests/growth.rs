//! `arck-bench growth` runs on both sides, with a bystander. Times are not looked at.

use std::path::Path;
use std::process::Command;

fn growth(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_arck-bench"))
        .arg("growth")
        .args(arguments)
        .output()
        .expect("arck-bench runs")
}

#[test]
fn all_calls_are_timed_on_both_sides() {
    let answer = Path::new(env!("CARGO_TARGET_TMPDIR")).join("growth.json");
    let path = answer.to_str().expect("a path");
    let output = growth(&[
        "--files",
        "1000,3000",
        "--directories",
        "1,7",
        "--rounds",
        "2",
        "--json",
        path,
    ]);
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&answer).expect("the answer");
    let chapter: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let rows = chapter["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2 * 2 * 11, "{text}");
    for row in rows {
        for field in ["tmpfs", "arck", "ratio"] {
            let figure = row[field].as_f64().expect("a figure");
            assert!(figure > 0.0 && figure.is_finite(), "{row}");
        }
        let files = match row["setting"].as_str().expect("a setting") {
            setting if setting.starts_with("1000 files, ") => 1000,
            setting => {
                assert!(setting.starts_with("3000 files, "), "{setting}");
                3000
            }
        };
        let what = row["what"].as_str().expect("a name");
        let listed = what.contains("readdir");
        // 256 MiB of data, whatever the number of files.
        let made = match what {
            what if what.contains("append 4 KiB") => 65_536,
            what if what.contains("write 1 MiB") => 256,
            _ => files,
        };
        for side in ["tmpfs", "arck"] {
            let calls = &row["calls"][side];
            match listed {
                true => assert!(calls.is_null(), "{row}"),
                false => {
                    assert_eq!(calls["calls"], made, "{row}");
                    let waiting = calls["waiting"].as_f64().expect("a part");
                    assert!((0.0..=1.0).contains(&waiting), "{row}");
                }
            }
            let watched = &row["bystander"][side];
            assert!(watched["calls"].as_u64().expect("a number") >= 3, "{row}");
            let part = |name: &str| watched[name].as_f64().expect("a time");
            assert!(part("middle") <= part("percent_99"), "{row}");
            assert!(part("percent_99_9") <= part("longest"), "{row}");
        }
    }
    let table = String::from_utf8(output.stdout).expect("text");
    let lines = |part: &str| table.lines().filter(|line| line.starts_with(part)).count();
    // Once beside what is wanted, and then each side's calls.
    assert_eq!(
        lines("| create+close, fresh | 3000 files, 7 "),
        3,
        "{table}"
    );
    assert!(!table.contains("NaN"), "{table}");
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_tried() {
    let output = growth(&["--files", "100000000", "--rounds", "1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let line = String::from_utf8(output.stderr).expect("text");
    assert!(line.contains("100000000 files need 7"), "{line}");
    assert!(line.contains("MiB of memory"), "{line}");
}
