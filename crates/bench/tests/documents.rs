//! README's table has the rows that a report gives. Figures are not looked at.

mod common;

use common::{bench, printed};
use std::path::Path;

#[test]
fn the_table_of_readme_has_the_rows_of_a_report() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(path).expect("README.md");
    let between = |mark: &str| {
        let mark = format!("<!-- arck-bench readme {mark} -->");
        assert_eq!(readme.matches(&mark).count(), 1, "{mark}");
        readme.find(&mark).expect("a mark")
    };
    let table = &readme[between("begins")..between("ends")];
    let first = |line: &str| line.split('|').nth(1).map(|cell| cell.trim().to_owned());
    let rows: Vec<String> = table.lines().filter_map(first).collect();
    // `report` looks whether a report has them.
    let names = printed(bench(&["readme"]));
    let names: Vec<&str> = names.lines().collect();
    assert!(names.len() > 15, "{names:?}");
    // Behind the head and the line beneath it.
    assert_eq!(rows[2..], names, "{table}");
}
