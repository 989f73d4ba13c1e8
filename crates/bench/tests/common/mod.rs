//! What tests of the bench need beside it: the preload library and the `arck` command, built where the test was, and
//! LevelDB's db_bench.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The preload library; `arck` lies beside it.
pub fn library() -> PathBuf {
    let directory = Path::new(env!("CARGO_BIN_EXE_arck-bench"))
        .parent()
        .expect("a directory");
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["build", "--quiet", "--locked", "--target-dir"])
        .arg(directory.parent().expect("a directory"))
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    // As `make` and `scripts/test` build it: with other features it would be another library in the same place.
    command.args(match directory.ends_with("release") {
        true => ["--release", "-parck-cli", "-parck-preload"].as_slice(),
        false => &["--workspace"],
    });
    let status = command.status().expect("cargo runs");
    assert!(status.success(), "the preload library does not build");
    directory.join("libarck_preload.so")
}

/// LevelDB's db_bench, which stays once it is built.
pub fn leveldb_bench() -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_arck-bench"))
        .ancestors()
        .nth(2)
        .expect("a target directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/leveldb-bench");
    let status = Command::new(script)
        .env("CARGO_TARGET_DIR", target)
        .status()
        .expect("the script runs");
    assert!(status.success(), "LevelDB's db_bench does not build");
    target.join("apps/leveldb-db_bench")
}

/// `arck-bench` with arguments.
pub fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_arck-bench"))
        .args(arguments)
        .output()
        .expect("arck-bench runs")
}

/// A file for a test alone.
pub fn at(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

pub fn json(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).expect("the answer");
    serde_json::from_str(&text).expect("JSON")
}

/// What a program has printed; it has to have succeeded.
pub fn printed(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}
