//! C programs that exercise one area each, compared with the plain host.

use super::support::{
    Place, compare, compare_program, compare_with_tmpfs, compile, compile_with, served_by_pool,
};
use arck_testkit::TestPool;
use std::process::Command;

#[test]
fn descriptors() {
    let printed = compare_program("descriptors");
    assert!(printed.contains("close(a) = 0"));
}

#[test]
fn processes() {
    let printed = compare_program("processes");
    assert!(printed.contains("popen made"));
}

#[test]
fn threads_and_signals() {
    let printed = compare_program("threads");
    assert!(printed.contains("cancelled"));
}

#[test]
fn calls_inside_libc() {
    let printed = compare_program("library");
    assert!(printed.contains("nftw"));
}

#[test]
fn descriptors_of_threads() {
    let binary = compile("races");
    compare_with_tmpfs(|| Command::new(&binary));
}

#[test]
fn named_pipes() {
    let binary = compile("named_pipes");
    compare_with_tmpfs(|| Command::new(&binary));
}

#[test]
fn holes_made_through_maps() {
    let binary = compile("removing");
    compare_with_tmpfs(|| Command::new(&binary));
}

#[test]
fn unix_sockets() {
    let binary = compile("sockets");
    compare_with_tmpfs(|| Command::new(&binary));
}

#[test]
fn maps_of_files() {
    let printed = compare_program("maps");
    assert!(printed.contains("stores are read: 88 89"), "{printed}");
    assert!(printed.contains("past the end:"), "{printed}");
}

/// `mlockall(MCL_CURRENT)` filled the group's shared memory and the arena: 35 GB locked, the session closed
/// for taking more memory than it was given, and all programs of the group without a pool.
#[test]
fn a_program_locks_its_own_memory() {
    let printed = compare_program("locking");
    assert!(
        printed.contains("now: 256 256 256 256\nnow: locked some"),
        "{printed}"
    );
    assert!(
        printed.contains("mapped in future: 256 256 256"),
        "{printed}"
    );
    assert!(!printed.contains("too much"), "{printed}");
}

#[test]
fn leveldb_reads_through_maps() {
    let binary = compile_with("level", &["-lleveldb"]);
    let printed = compare(|| Command::new(&binary));
    assert!(
        printed.contains("round 2: 20000 found, 2990000 bytes, 0 wrong, 20000 seen"),
        "{printed}"
    );
}

/// Neither the interception nor ArckFS makes a system call of its own where there is nothing to ask for.
#[test]
fn the_common_calls_make_no_system_call() {
    let binary = compile("silent");
    let pool = TestPool::new(64 << 20);
    for dispatch in ["sud-inclusive", "none"] {
        let run = |report: &str, argument: &str| {
            let mut command = Command::new(&binary);
            // Nothing but the report shall be written.
            command.env("ARCK_TOLD", "1").env("ARCK_DISPATCH", dispatch);
            let output = served_by_pool(&pool, report, command.args(["/arck", argument]));
            assert!(output.status.success(), "{dispatch}: {output:?}");
            output
        };
        run("", "");
        let output = run("fd:2", "reported");
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().expect("a report");
        let line: serde_json::Value = serde_json::from_str(last).expect("JSON");
        assert_eq!(line["served"]["openat"], 2020, "{line}");
        assert_eq!(line["past"], serde_json::json!({}));
    }
    // The filter does its work: on the plain host the first call kills.
    let plain = Command::new(&binary)
        .arg(Place::new().files())
        .output()
        .expect("the program runs");
    assert!(!plain.status.success());
}

/// What libc calls often is rewritten, and works as before.
#[test]
fn sites_that_trap_often_are_rewritten() {
    let binary = compile("library");
    let place = Place::new();
    let output = place.served("sud-inclusive", Command::new(&binary).arg("/arck"));
    assert!(output.status.success());
    let report = place.report();
    let last = report.last().expect("a line");
    let sites = last["interception"]["patched_sites"].as_u64();
    assert!(sites.expect("a count") >= 2, "{report:?}");
}

/// A program that loads its locale, as most do, traps a few times: each of the sites of that trapped five times, and was
/// rewritten by itself, in each program of a script anew.
#[test]
fn loading_a_locale_hardly_traps() {
    let place = Place::new();
    let output = place.served(
        "sud-exclusive",
        Command::new("ls").arg("/").env("LC_ALL", "C.UTF-8"),
    );
    assert!(output.status.success(), "{output:?}");
    let report = place.report();
    let interception = &report.last().expect("a line")["interception"];
    let count = |name: &str| interception[name].as_u64().expect("a count");
    assert!(count("patched_sites") >= 4, "{report:?}");
    assert!((1..20).contains(&count("traps")), "{report:?}");
}

/// Where there are threads, each of libc's sites is rewritten too, before there are or when it has trapped: so many
/// more calls are no more traps.
#[test]
fn sites_are_rewritten_where_there_are_threads() {
    let binary = compile("contended");
    let traps = |count: &str| {
        let place = Place::new();
        let output = place.served("sud-exclusive", Command::new(&binary).arg(count));
        assert!(output.status.success(), "{output:?}");
        let report = place.report();
        let interception = &report.last().expect("a line")["interception"];
        interception["traps"].as_u64().expect("a count")
    };
    let few = traps("3");
    // Which waits come about at all is a matter of luck: each of their sites traps once.
    let many = traps("300");
    assert!(many <= few + 10, "{few} traps, and {many}");
}
