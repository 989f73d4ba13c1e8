//! The whole-pool check, for tests: of a pool that nobody serves.

use arck_check::Options;
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
    let report = arck_check::check(pool, &Options::default()).unwrap();
    let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(report.is_clean(), "{}", lines.join("\n"));
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
