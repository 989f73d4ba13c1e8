//! `docs/calls.md`, drawn from the tables of [`calls`](crate::calls) and
//! [`symbols`](crate::symbols) and the lists of what is left to the kernel and to libc, and the
//! tests that nothing is missing in them: every system call that there is stands in one of the
//! lists, and every function of libc that takes a path or a descriptor.
//!
//! `CALLS_DRAW=1 cargo test -p arck-preload documentation` draws the document anew.

mod libc_functions;
mod lists;
mod through_mount;

use crate::{calls, symbols};
use lists::{LEFT_TO_LIBC, PASSED, WITHOUT_FILES, words};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use through_mount::THROUGH_MOUNT;

/// Every symbol and the call it is answered as.
fn symbols() -> BTreeMap<&'static str, i64> {
    [
        symbols::SYMBOLS,
        symbols::status::SYMBOLS,
        symbols::WRITTEN_OUT,
        symbols::status::WRITTEN_OUT,
        symbols::execute::WRITTEN_OUT,
        symbols::load::WRITTEN_OUT,
        symbols::signal::WRITTEN_OUT,
        symbols::rings::WRITTEN_OUT,
        symbols::rings::SERVED,
    ]
    .concat()
    .into_iter()
    // Any call by its number, and none.
    .chain([("syscall", -1)])
    .chain(symbols::thread::NAMES.iter().map(|&name| (name, -1)))
    .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const HEAD: &str = "\
# Calls

What becomes of each system call and each function of libc that takes a path or a descriptor, when
the path or descriptor is the pool's; any other goes to the kernel unchanged. Made from the tables
in `crates/preload/src/calls.rs` and `symbols.rs`, which also choose the handlers, and from
`documentation/lists.rs`: do not edit; `CALLS_DRAW=1 cargo test -p arck-preload documentation`
makes it anew, and a test fails if it differs from the tables, or if a function of the libc in use
or a system call of the kernel is in none of them.

*served*: by the LibFS. *refused*: with this error, as file systems do that do not have the
feature. *past*: goes to the kernel, which does not know the pool, and `arck run --report` counts it
as \"got past\". How calls are caught is in [architecture.md](architecture.md#interception).

Through a [mount](mount.md) each call is the kernel's, and *works* as on any file system; what else is said there is what
differs from tmpfs.
";

/// What becomes of a call through a mount.
fn through_mount(call: &str) -> &'static str {
    let row = THROUGH_MOUNT
        .iter()
        .find(|(names, _)| words(names).any(|name| name == call));
    row.map_or("works", |(_, what)| what)
}

#[test]
fn calls_through_a_mount_are_calls() {
    let unknown: Vec<_> = THROUGH_MOUNT
        .iter()
        .flat_map(|(names, _)| words(names))
        .filter(|name| calls::ROWS.iter().all(|(call, ..)| call != name))
        .collect();
    assert!(unknown.is_empty(), "not in the table: {unknown:?}");
}

/// The whole document.
fn draw() -> String {
    let mut text = HEAD.to_string();
    let mut by_call: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    for (name, number) in symbols() {
        by_call.entry(number).or_default().push(name);
    }
    let mut rows = calls::ROWS.to_vec();
    rows.sort();
    let number = rows.len();
    let _ = writeln!(
        text,
        "\n## Calls that are looked at\n\n{number} system calls, caught wherever they are made in \
         libc and in `syscall(2)`, and by these\nsymbols of libc (of liburing and libaio, where \
         the call is theirs), which this library has in their place.\n\n| call | by the library | through a mount | symbols |\n| --- | --- | --- | --- |"
    );
    for (name, number, how, note) in rows {
        let how = if how.is_empty() { "served" } else { how };
        let note = if note.is_empty() {
            String::new()
        } else {
            format!(": {note}")
        };
        let symbols = by_call.remove(&number).unwrap_or_default();
        let symbols: Vec<_> = symbols.iter().map(|name| format!("`{name}`")).collect();
        let mount = through_mount(name);
        let symbols = symbols.join(" ");
        let _ = writeln!(text, "| {name} | {how}{note} | {mount} | {symbols} |");
    }
    let _ = writeln!(
        text,
        "\nNot of one call: {}.",
        by_call
            .values()
            .flatten()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let mut list = |title: &str, rows: &[(&str, &str)]| {
        let _ = writeln!(text, "\n## {title}\n\n| what | why |\n| --- | --- |");
        for (names, why) in rows {
            let mut names: Vec<_> = words(names).collect();
            names.sort_unstable();
            let _ = writeln!(text, "| {} | {why} |", names.join(", "));
        }
    };
    list("System calls passed to the kernel", PASSED);
    list("Functions of libc left as they are", LEFT_TO_LIBC);
    let _ = writeln!(
        text,
        "\n## System calls without files\n\nNeither a path nor a descriptor of a file can be given \
         to these, or no kernel has them any more.\n"
    );
    let mut line = String::new();
    for name in words(WITHOUT_FILES) {
        if line.len() + name.len() > 98 {
            let _ = writeln!(text, "{}", line.trim_end());
            line.clear();
        }
        let _ = write!(line, "{name} ");
    }
    let _ = writeln!(text, "{}", line.trim_end());
    text
}

#[test]
fn the_document_is_as_drawn() {
    let path = root().join("docs/calls.md");
    let drawn = draw();
    if std::env::var_os("CALLS_DRAW").is_some() {
        std::fs::write(&path, &drawn).expect("docs/calls.md can be written");
        return;
    }
    let there = std::fs::read_to_string(&path).expect("docs/calls.md");
    let differs = there
        .lines()
        .zip(drawn.lines())
        .find(|(there, drawn)| there != drawn);
    assert!(
        there == drawn,
        "docs/calls.md is not as drawn from the tables ({differs:?}); CALLS_DRAW=1 draws it anew"
    );
}

/// The names in `#define __NR_name` or `pub const __NR_name`.
fn numbered(source: &str) -> BTreeSet<&str> {
    source
        .split("__NR_")
        .skip(1)
        .filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
            let (name, value) = rest.split_at(end);
            // Bases and counts are no calls.
            let value = value.strip_prefix(": u32 =").unwrap_or(value).trim_start();
            let counts = value.starts_with(|c: char| c.is_ascii_digit());
            (!name.is_empty() && counts).then_some(name)
        })
        .collect()
}

/// The system calls of this machine's headers, and those known to the crate `linux-raw-sys`,
/// which follows the newest kernel.
fn system_calls() -> BTreeSet<String> {
    let header = libc_functions::preprocessed(&["-dM"], "#include <asm/unistd.h>\n");
    let metadata = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--offline", "--locked"])
        // What this machine does not need may not be here.
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&metadata.stderr);
    assert!(metadata.status.success(), "{errors}");
    let metadata: serde_json::Value =
        serde_json::from_slice(&metadata.stdout).expect("cargo's metadata");
    let crate_file = metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .filter(|package| package["name"] == "linux-raw-sys")
        .filter_map(|package| package["manifest_path"].as_str())
        .map(|manifest| Path::new(manifest).with_file_name("src/x86_64/general.rs"))
        .next_back()
        .expect("linux-raw-sys is among the packages, by way of rustix");
    let source = std::fs::read_to_string(crate_file).expect("its list of calls");
    let both = [numbered(&header), numbered(&source)];
    for calls in &both {
        assert!(calls.len() > 300, "only {} calls found", calls.len());
    }
    both.into_iter().flatten().map(str::to_owned).collect()
}

#[test]
fn every_system_call_is_in_one_list() {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let handled = calls::ROWS.iter().map(|(name, ..)| *name);
    let passed = PASSED.iter().flat_map(|(names, _)| words(names));
    for name in handled.chain(passed).chain(words(WITHOUT_FILES)) {
        *seen.entry(name).or_default() += 1;
    }
    let twice: Vec<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "in two lists: {twice:?}");
    let known = system_calls();
    let missing: Vec<_> = known
        .iter()
        .filter(|name| !seen.contains_key(name.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "neither handled nor listed in documentation/lists.rs: {missing:?}"
    );
    let unknown: Vec<_> = seen.keys().filter(|name| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "no system calls: {unknown:?}");
}

#[test]
fn every_function_of_libc_that_takes_a_file_is_in_one_list() {
    let replaced = symbols();
    let left: BTreeSet<_> = LEFT_TO_LIBC
        .iter()
        .flat_map(|(names, _)| words(names))
        .collect();
    let both: Vec<_> = left
        .iter()
        .filter(|name| replaced.contains_key(**name))
        .collect();
    assert!(both.is_empty(), "replaced and left: {both:?}");
    let functions = libc_functions::functions();
    let missing: Vec<_> = libc_functions::that_take_files(&functions)
        .into_iter()
        .filter(|(name, _)| !replaced.contains_key(name.as_str()) && !left.contains(name.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "neither replaced nor listed in documentation/lists.rs: {missing:#?}"
    );
}

/// A misspelt one would replace nothing.
#[test]
fn every_symbol_is_a_function_of_libc() {
    let functions = libc_functions::functions();
    let others = [symbols::rings::WRITTEN_OUT, symbols::rings::SERVED].concat();
    let unknown: Vec<_> = symbols()
        .into_keys()
        .filter(|name| !others.iter().any(|(other, _)| other == name))
        .filter(|name| !functions.contains_key(*name))
        .collect();
    assert!(unknown.is_empty(), "not in libc: {unknown:?}");
}

/// Programs may call a function by the names that the headers of other times gave it.
#[test]
fn other_names_of_a_symbol_are_replaced_too() {
    let replaced = symbols();
    let functions = libc_functions::functions();
    let mut missing = Vec::new();
    for name in replaced.keys() {
        for other in [
            format!("{name}64"),
            format!("__{name}"),
            format!("__{name}64"),
            format!("__{name}_chk"),
            format!("__{name}_2"),
        ] {
            if functions.contains_key(&other) && !replaced.contains_key(other.as_str()) {
                missing.push(other);
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
