//! `arck-bench apps`, with a hundredth of the operations: each program runs on both sides, and what is not installed
//! is told. Times are not looked at.

mod common;

use common::{at, bench, json, leveldb_bench, library, printed};
use std::process::Command;

#[test]
fn programs_run_on_both_sides() {
    library();
    leveldb_bench();
    let answer = at("apps.json");
    let path = answer.to_str().expect("a path");
    let table = printed(bench(&["apps", "--few", "--json", path]));
    let chapter = json(&answer);
    let rows = chapter["rows"].as_array().expect("rows");
    let mut seen = [0; 4];
    for row in rows {
        let what = row["what"].as_str().expect("a name");
        let programs = ["LevelDB ", "RocksDB ", "SQLite ", "redis "];
        let program = programs.iter().position(|name| what.starts_with(name));
        seen[program.expect("a program's row")] += 1;
        for field in ["tmpfs", "arck", "ratio", "wanted"] {
            let figure = row[field].as_f64().expect("a figure");
            assert!(figure > 0.0 && figure.is_finite(), "{row}");
        }
        assert!(table.contains(&format!("| {what} | ")), "{what}: {table}");
    }
    assert_eq!(seen, [17, 13, 4, 3], "{table}");
    // Not rounded.
    assert!(table.contains(" | 1.05 |\n"), "{table}");
}

#[test]
fn what_is_not_installed_is_told_and_how_to_install_it() {
    library();
    let cases = [
        ("leveldb", "scripts/leveldb-bench"),
        ("rocksdb", "apt-get install rocksdb-tools"),
        ("sqlite", "apt-get install sqlite3"),
        ("redis", "apt-get install redis-server"),
    ];
    for (name, how) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_arck-bench"))
            .args(["apps", "--few", "--only", name])
            .env("PATH", "/nowhere")
            .env("ARCK_LEVELDB_BENCH", "/nowhere")
            .output()
            .expect("arck-bench runs");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let line = String::from_utf8(output.stderr).expect("text");
        assert!(
            line.contains("is not there") && line.contains(how),
            "{line}"
        );
    }
}
