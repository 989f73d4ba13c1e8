//! What must not compile, and what the tokens cost.

use arck_pm::order::{Durable, Flushed};

#[test]
fn unordered_publishing_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/order/ordered.rs");
    cases.compile_fail("tests/order/fail_*.rs");
}

#[test]
fn tokens_have_no_size() {
    struct Dentry;
    assert_eq!(size_of::<Flushed<Dentry>>(), 0);
    assert_eq!(size_of::<Durable<Dentry>>(), 0);
    assert_eq!(size_of::<(Durable, Durable<Dentry>)>(), 0);
}

/// A proof that is bound to nothing (`let _ = order::fence(..)`), or to a name that says so (`let _durable = ..`),
/// is one that nothing asked for: what it stands for is in no type then. Who needs none calls `order::drain`.
#[test]
fn no_proof_is_dropped() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut looked_at = 0;
    let mut dropped = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap().flatten() {
        for path in sources(&entry.path().join("src")) {
            let text = std::fs::read_to_string(&path).unwrap();
            // Comments show what does not compile.
            let code: Vec<&str> = text
                .lines()
                .map(|line| line.split("//").next().unwrap_or_default())
                .collect();
            looked_at += 1;
            dropped.extend(
                drops(&code.join("\n"))
                    .into_iter()
                    .map(|what| format!("{}: {what}", path.display())),
            );
        }
    }
    assert!(looked_at > 300, "{looked_at} files");
    assert!(dropped.is_empty(), "{}", dropped.join("\n"));
    let samples = [
        ("let _ = order::fence(a);", 1),
        ("let _durable = branch.fence(\n    (a, b),\n);", 1),
        ("let (_begun, data) = order::fence((begun, data));", 1),
        ("let _ = dirty.flush();", 1),
        (
            "let _locked = self.lock();\nlet durable = order::fence(a);",
            0,
        ),
        ("let (committed, stamped) = branch.fence((a, b));", 0),
    ];
    for (code, count) in samples {
        assert_eq!(drops(code).len(), count, "{code}");
    }
}

fn sources(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found
}

/// The bindings that drop what a flush, a streaming store or a fence gives.
fn drops(code: &str) -> Vec<&str> {
    /// What gives a token or a proof.
    const GIVES: [&str; 8] = [
        "::fence(",
        ".fence(",
        ".flush(",
        ".begun_with(",
        ".stream(",
        ".stream_zeroes(",
        ".stream_word(",
        "publish(",
    ];
    let statements = code.match_indices("let ").filter_map(|(at, _)| {
        let statement = &code[at..];
        let end = statement.find(';')?;
        let (pattern, value) = statement[..end].split_once('=')?;
        // Of a tuple, a place that nobody needs may be left out (`_`), but none is named so.
        let names = pattern[4..].split(['(', ')', ',', ' ']);
        let is_dropped =
            |name: &str| name.starts_with('_') && (name.len() > 1 || !pattern.contains('('));
        // A stream of the standard library has a `flush`, too.
        let gives = |value: &str| {
            GIVES.iter().any(|gives| value.contains(gives)) && !value.contains("std::io::")
        };
        // What is in a closure or a block is a statement of its own.
        let value = value.split(['{', '|']).next().unwrap_or_default();
        (names.map(str::trim).any(is_dropped) && gives(value)).then_some(&statement[..end])
    });
    statements.collect()
}
