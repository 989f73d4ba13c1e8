//! The symbols that the built library has are those that `docs/calls.md` tells.

use super::support::library;
use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn the_library_has_the_documented_symbols() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/calls.md");
    let text = std::fs::read_to_string(document).expect("docs/calls.md");
    let documented: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| match line.strip_prefix("| ") {
            Some(row) => row.rsplit(" | ").next(),
            None => line.strip_prefix("Not of one call: "),
        })
        .flat_map(|symbols| symbols.split('`').skip(1).step_by(2))
        .collect();
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library())
        .output()
        .expect("nm runs");
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let exported: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    assert!(exported.len() > 150, "{listed}");
    assert_eq!(documented, exported);
}
