//! `arck-bench fold` tells what the controller spends on each kind of change. Times are not looked at.

use std::path::Path;
use std::process::Command;

#[test]
fn each_kind_of_change_costs_the_controller_something() {
    let answer = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fold.json");
    let output = Command::new(env!("CARGO_BIN_EXE_arck-bench"))
        .args(["fold", "--names", "3000", "--directories", "7"])
        .args(["--rounds", "2", "--json"])
        .arg(&answer)
        .output()
        .expect("arck-bench runs");
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&answer).expect("the answer");
    let found: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let rows = found["rows"].as_array().expect("rows");
    let whats: Vec<_> = rows.iter().map(|row| row["what"].as_str()).collect();
    assert_eq!(
        whats,
        [Some("created"), Some("renamed"), Some("removed")],
        "{text}"
    );
    for row in rows {
        let figure = |field: &str| row[field].as_f64().expect("a figure");
        assert!(figure("fold") > 0.0, "{row}");
        assert!(figure("both") >= figure("storm"), "{row}");
    }
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(table.contains("3000 names in 7 directories"), "{table}");
    assert_eq!(
        table.lines().filter(|line| line.starts_with('|')).count(),
        5
    );
}
