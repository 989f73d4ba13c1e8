//! The steady state makes no system calls: counted by `arck-bench count`, with bounds.

mod common;

use std::path::Path;
use std::process::Command;

/// System calls that 10,000 operations may make: stocks of inode numbers and arena pages are
/// refilled by message, a fold of a directory is asked for ahead, once in some hundreds of names, the group region
/// grows. Everything else makes none at all.
///
/// Who waits for the answer to a message, or for the instant of a seal, lets others run, as often as the machine is
/// busy: that is not counted here, but bounded for each message ([`GIVES_WAY`]).
fn bound(operation: &str) -> u64 {
    match operation {
        // A creation takes a number and a record; 256 numbers come with one message, and two
        // megabytes of records.
        "create+close" => 200,
        // A record, which is two names.
        "rename" => 100,
        "unlink" => 60,
        "append 4 KiB" => 20,
        _ => 0,
    }
}

/// How often a thread gives way, at most, while it waits for one answer (`finish` in the protocol crate's
/// `ring.rs`): then it sleeps.
const GIVES_WAY: u64 = 32;

/// Of a line's system calls, those by which a thread that waits lets others run.
fn given_way(line: &serde_json::Value) -> u64 {
    let calls = line["calls"].as_array().expect("calls by name");
    calls
        .iter()
        .filter(|call| {
            ["sched_yield", "clock_nanosleep", "futex"]
                .iter()
                .any(|&name| call[0] == name)
        })
        .map(|call| call[1].as_u64().expect("a count"))
        .sum()
}

#[test]
fn steady_state_makes_no_system_calls() {
    let answer = Path::new(env!("CARGO_TARGET_TMPDIR")).join("count.json");
    let output = Command::new(env!("CARGO_BIN_EXE_arck-bench"))
        .args(["count", "--pool-size", "512M", "--json"])
        .arg(&answer)
        .env("ARCK_PRELOAD", common::library())
        .output()
        .expect("arck-bench runs");
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&answer).expect("the answer");
    let lines: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
    // Ten loops, each in two ways, and on tmpfs.
    assert_eq!(lines.len(), 30, "{text}");
    for line in &lines {
        let operation = line["operation"].as_str().expect("a name");
        assert_eq!(line["operations"], 10_000);
        let calls = line["system_calls"].as_u64().expect("a count");
        if line["way"] == "tmpfs" {
            // What makes system calls is seen to make them.
            let each = if operation.contains("+close") { 2 } else { 1 };
            assert_eq!(calls, 10_000 * each, "{line}");
        } else {
            let waited = given_way(line);
            assert!(calls - waited <= bound(operation), "{line}");
            assert!(waited <= bound(operation) * GIVES_WAY, "{line}");
            assert_eq!(line["caught"], 0, "{line}");
        }
    }
}
