//! What a program left behind in a directory, as text that can be compared.
//!
//! # Invariant
//! Nothing in the text differs between two file systems that hold the same: inode numbers only as
//! "the same file as", times only of what the case says sets them.

use crate::case::Case;
use std::collections::BTreeMap;

/// Prints, for a shell started with the directory as `$1`: of all names kind, mode, owner, group,
/// time of last change and inode; of what is no directory link count, size and target; then sums of
/// contents. Fields are separated by tabs.
pub const LISTING: &str = r#"cd "$1"
find . \( -type d -printf '%p\t%T@\t0\t%y %m %U %G\n' \) -o -printf '%p\t%T@\t%i\t%y %m %U %G %n %s %l\n'
printf '=\n'
find . -type f -print0 | xargs -0 -r sha256sum | sed 's/^\\\{0,1\}\([0-9a-f]*\)  \(.*\)$/\2\t\1/'"#;

/// The listing's output, sorted by name, a line each.
pub fn tree(case: &Case, listing: &str) -> String {
    let is_of = |patterns: &[String], name: &str| patterns.iter().any(|part| name.contains(part));
    let (names, sums) = listing.split_once("=\n").unwrap_or((listing, ""));
    let mut tree: BTreeMap<&str, String> = BTreeMap::new();
    let mut files: BTreeMap<&str, &str> = BTreeMap::new();
    let mut lines: Vec<&str> = names.lines().collect();
    lines.sort_unstable();
    for line in lines {
        let mut fields = line.splitn(4, '\t');
        let (Some(name), Some(time), Some(inode), Some(rest)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            panic!("the listing has a line {line:?}");
        };
        let mut said = String::new();
        if !is_of(&case.volatile, name) {
            said.push_str(rest);
            if is_of(&case.dated, name) {
                said = format!("{said} {time}");
            }
            if inode != "0" {
                let first = files.entry(inode).or_insert(name);
                if *first != name {
                    said = format!("{said} the same file as {first}");
                }
            }
        }
        tree.insert(name, said);
    }
    for line in sums.lines() {
        let (name, sum) = line.rsplit_once('\t').expect("a name, a tab and a sum");
        if !is_of(&case.volatile, name)
            && let Some(said) = tree.get_mut(name)
        {
            said.push(' ');
            said.push_str(sum);
        }
    }
    tree.iter()
        .map(|(name, said)| format!("{name} {said}\n"))
        .collect()
}
