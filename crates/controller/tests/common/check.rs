//! The whole-pool check, for tests: of a pool that nobody serves.
// Not every test needs all of it.
#![allow(dead_code)]

use arck_check::{Finding, Options, Rule};
use arck_core_state::InodeNumber;
use std::collections::BTreeMap;
use std::path::Path;

/// What a check found: every path below the root, with its inode.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Tree {
    pub paths: BTreeMap<String, InodeNumber>,
    pub sizes: BTreeMap<String, u64>,
}

/// Panics with what is wrong.
pub fn check(pool: &Path) -> Tree {
    check_but(pool, |_| false)
}

/// The same, but for data segments that are too short, and whose pages were in them: their sessions
/// can cut them off, and lose what they held.
pub fn check_metadata(pool: &Path) -> Tree {
    check_but(pool, |finding| {
        let of_cut_off = ["are in use", "in what is missing"];
        finding.rule == Rule::Files && of_cut_off.iter().any(|end| finding.detail.ends_with(end))
    })
}

fn check_but(pool: &Path, passes: fn(&Finding) -> bool) -> Tree {
    let report = arck_check::check(pool, &Options::default()).unwrap();
    let wrong = report.findings.iter().filter(|finding| !passes(finding));
    let lines: Vec<String> = wrong.map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
    assert_eq!(report.more, 0);
    let mut tree = Tree {
        paths: BTreeMap::new(),
        sizes: BTreeMap::new(),
    };
    for (path, (number, inode)) in arck_check::paths(pool).unwrap() {
        if path.is_empty() {
            continue;
        }
        let path = String::from_utf8_lossy(&path).into_owned();
        tree.paths.insert(path.clone(), number);
        tree.sizes.insert(path, inode.size);
    }
    tree
}
