//! Texts that are to be alike.

use std::path::PathBuf;
use std::process::Command;

/// The lines that only one of the two has, the first forty, as `diff` tells them. Panics without `diff`.
pub fn differences(expected: &str, got: &str) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, text: &str| -> PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let output = Command::new("diff")
        .arg(write("expected", expected))
        .arg(write("got", got))
        .output()
        .expect("diff runs");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .take(40)
        .map(|line| format!("{line}\n"))
        .collect()
}
