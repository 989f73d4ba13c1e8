//! `docs/security.md` names what there is: every file with `unsafe` code, every variable that a program is told by,
//! every group of attacks. What is new is looked at and listed, or this fails.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Crates that run where others' bytes are. The rest measures and tests.
const CRATES: &[&str] = &[
    "arckfs",
    "c",
    "check",
    "cli",
    "controller",
    "controller-state",
    "core-state",
    "executable",
    "fpfs",
    "fuse",
    "kvfs",
    "libfs-kit",
    "logfs",
    "medium",
    "mount",
    "pm",
    "preload",
    "protocol",
    "python",
    "queues",
    "rust",
    "verifier",
];
/// What is a crate and no part of the product.
const OTHERS: &[&str] = &["bench", "fuzz", "test-pool", "testkit"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document() -> String {
    std::fs::read_to_string(root().join("docs/security.md")).expect("the document")
}

/// What stands from a headline on, up to the next.
fn section<'t>(text: &'t str, headline: &str) -> &'t str {
    let start = text
        .find(headline)
        .unwrap_or_else(|| panic!("no {headline:?}"));
    let rest = &text[start + headline.len()..];
    rest.find("\n#").map_or(rest, |end| &rest[..end])
}

/// What stands in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The source files of the product with what is in them before their tests, by their paths below `crates`.
fn product() -> Vec<(String, String)> {
    let crates = root().join("crates");
    for entry in std::fs::read_dir(&crates).expect("the crates").flatten() {
        let name = entry.file_name();
        let name = name.to_str().expect("plain text");
        assert!(
            CRATES.contains(&name) || OTHERS.contains(&name),
            "the crate {name}"
        );
    }
    let mut found = Vec::new();
    for name in CRATES {
        let folder = crates.join(name).join("src");
        if folder.exists() {
            sources(&folder, &mut found);
        }
    }
    let is_test = |path: &str| {
        ["/tests", "_tests", "testing", "/documentation/"]
            .iter()
            .any(|part| path.contains(part))
    };
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a source");
        let name = path.strip_prefix(&crates).expect("below it");
        let text = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        (
            name.to_str().expect("plain text").to_owned(),
            text.to_owned(),
        )
    };
    let all: Vec<_> = found.into_iter().map(read).collect();
    all.into_iter().filter(|(name, _)| !is_test(name)).collect()
}

#[test]
fn all_unsafe_code_is_listed() {
    let document = document();
    let listed: BTreeSet<&str> = quoted(section(&document, "### Unsafe code"))
        .filter(|word| word.contains("/src/"))
        .collect();
    let is_unsafe = |text: &str| {
        let code = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default());
        let mut words =
            code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
        words.any(|word| word == "unsafe")
    };
    let files: Vec<String> = product()
        .into_iter()
        .filter(|(_, text)| is_unsafe(text))
        .map(|(name, _)| name)
        .collect();
    assert!(files.len() > 50, "{files:?}");
    let covers = |entry: &str, file: &str| match entry.strip_suffix(".rs") {
        Some(_) => entry == file,
        None => file.starts_with(entry),
    };
    let missing: Vec<&String> = files
        .iter()
        .filter(|file| !listed.iter().any(|entry| covers(entry, file)))
        .collect();
    assert!(
        missing.is_empty(),
        "unsafe code that is not listed: {missing:?}"
    );
    let old: Vec<&&str> = listed
        .iter()
        .filter(|entry| !files.iter().any(|file| covers(entry, file)))
        .collect();
    assert!(old.is_empty(), "listed, and without unsafe code: {old:?}");
}

#[test]
fn all_variables_are_listed() {
    let document = document();
    let listed: BTreeSet<&str> = quoted(section(&document, "## Settings"))
        .filter(|word| word.starts_with("ARCK_"))
        .collect();
    let mut used = BTreeSet::new();
    for (_, text) in product() {
        let pieces = text.match_indices("ARCK_").map(|(at, _)| &text[at..]);
        let name = |piece: &str| {
            let end = piece.find(|c: char| !c.is_ascii_uppercase() && c != '_');
            piece[..end.unwrap_or(piece.len())].to_owned()
        };
        used.extend(pieces.map(name).filter(|name| name.len() > 5));
    }
    // What C's header defines is no variable.
    let header = std::fs::read_to_string(root().join("crates/c/arck.h")).expect("the header");
    let defined = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define "));
    let defined: BTreeSet<&str> = defined.filter_map(|line| line.split(' ').next()).collect();
    used.retain(|name| !defined.contains(name.as_str()));
    let listed: BTreeSet<String> = listed.into_iter().map(str::to_owned).collect();
    let listed: BTreeSet<String> = listed.into_iter().filter(|name| name != "ARCK_").collect();
    assert_eq!(
        used, listed,
        "those of the sources, and those of the document"
    );
}

/// A name with two underscores and more is a test's, or a call's of Linux.
#[test]
fn all_tests_that_are_named_are_there() {
    let document = document();
    let mut files = Vec::new();
    for folder in std::fs::read_dir(root().join("crates"))
        .expect("the crates")
        .flatten()
    {
        for part in ["src", "tests"] {
            let part = folder.path().join(part);
            if part.exists() {
                sources(&part, &mut files);
            }
        }
    }
    let texts: Vec<String> = files
        .iter()
        .map(|file| std::fs::read_to_string(file).expect("a source"))
        .collect();
    let names = quoted(&document)
        .filter_map(|word| word.rsplit("::").next())
        .filter(|word| word.matches('_').count() >= 2)
        .filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
    let is_there = |name: &str| {
        let function = format!("fn {name}(");
        texts.iter().any(|text| text.contains(&function))
    };
    let gone: Vec<&str> = names.filter(|name| !is_there(name)).collect();
    assert!(gone.is_empty(), "named, and not there: {gone:?}");
}

#[test]
fn all_groups_of_attacks_are_listed() {
    let document = document();
    let attacks = section(&document, "### Hostile LibFSes");
    let rows = attacks.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile");
    let mut files = Vec::new();
    sources(&folder, &mut files);
    let texts: Vec<String> = files
        .iter()
        .map(|file| std::fs::read_to_string(file).expect("a source"))
        .collect();
    let groups: BTreeSet<&str> = texts
        .iter()
        .flat_map(|text| text.split("case(").skip(1))
        .filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next())
        .collect();
    assert_eq!(
        groups, listed,
        "those that there are, and those of the document"
    );
    // What is said to show something is there.
    let held = section(&document, "## Who can hold what");
    let shows = held.lines().filter(|line| line.starts_with("| ")).skip(2);
    let known = ["cli", "controller", "group", "rights", "served", "users"];
    for row in shows {
        let last = row
            .trim_end_matches('|')
            .rsplit('|')
            .next()
            .unwrap_or_default();
        let first = quoted(last).next();
        let is_known = |word: &str| {
            let word = word.split('/').next().unwrap_or_default();
            groups.contains(word) || known.contains(&word)
        };
        assert!(first.is_some_and(is_known), "what shows it: {row}");
    }
}
