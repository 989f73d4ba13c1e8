//! `arck run --delegate` and `--at-once`: programs that know nothing of it have their large accesses done by threads of the library's, which are there
//! when they are needed, and the bytes are the same.

use crate::support::{Place, Running, mkfs, refused, run, succeeded};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(120);
/// The options, and the variables that say the same.
const NAMES: [(&str, &str); 2] = [
    ("--delegate", "ARCK_DELEGATE"),
    ("--at-once", "ARCK_AT_ONCE"),
];
/// What the threads are called.
const DELEGATE: &str = "arck-delegate";

fn program(directory: &Path) -> PathBuf {
    let program = directory.join("delegating");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/delegating.c");
    let mut compile = Command::new("cc");
    let options = ["-O1", "-Wall", "-Werror", "-o"];
    let made = compile.args(options).arg(&program).arg(source).output();
    let made = made.expect("cc: a C compiler");
    assert!(made.status.success(), "{made:?}");
    program
}

fn made() -> Place {
    let place = Place::new();
    let made = mkfs(&place.pool(), &["--size", "64M"]);
    assert!(made.status.success(), "{made:?}");
    place
}

/// A medium of two nodes, with so much said of delegation.
fn medium(place: &Place, said: &str) -> String {
    let text = format!(
        r#"about = "two nodes"
[nodes]
count = 2
stripe = 65536
source = "a test"
[unit]
bytes = 64
source = "a test"
[read.latency]
nanoseconds = 100
source = "a test"
[read.by_threads]
points = [[1, 50]]
source = "a test"
[write.latency]
nanoseconds = 100
source = "a test"
[write.by_threads]
points = [[1, 20], [3, 50]]
source = "a test"
{said}"#
    );
    let file = place.path().join("medium.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// What the program tells of its threads, in this order.
const TOLD: [&str; 7] = [
    "little",
    "handler",
    "much",
    "child-little",
    "child",
    "parent",
    "again",
];

/// Runs the program, of which all bytes have to be right; threads at each of [`TOLD`].
fn threads(place: &Place, options: &[&str], variable: Option<&str>) -> Vec<usize> {
    let program = program(place.path());
    let program = program.to_str().unwrap();
    let mut command = run(&place.pool(), options, &[program, "/arck/file", DELEGATE]);
    match variable {
        Some(value) => command.env("ARCK_DELEGATE", value),
        None => command.env_remove("ARCK_DELEGATE"),
    };
    let told = succeeded(&Running::start(command).finished(SOON));
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), TOLD.len(), "{options:?}: {told}");
    let of = |(line, what): (&&str, &str)| {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[..2], [what, "0"], "{options:?}: {told}");
        words[2].parse().unwrap()
    };
    lines.iter().zip(TOLD).map(of).collect()
}

/// Nobody has threads before there is something for them, nor are they started in the handler of a signal. Children and what is executed
/// start their own.
#[test]
fn threads_are_started_when_there_is_something_for_them() {
    let place = made();
    let with = |most: usize| [0, 0, most, 0, most, most, most].to_vec();
    for group in [&[][..], &["--no-group"]] {
        let options = |more: &[&'static str]| [group, more].concat();
        assert_eq!(
            threads(&place, &options(&["--delegate", "3"]), None),
            with(3)
        );
        assert_eq!(threads(&place, &options(&[]), Some("2")), with(2));
        assert_eq!(threads(&place, &options(&[]), None), with(0));
        assert_eq!(
            threads(&place, &options(&["--delegate", "off"]), Some("2")),
            with(0)
        );
        // There is no medium.
        assert_eq!(
            threads(&place, &options(&["--delegate", "auto"]), None),
            with(0)
        );
    }
}

/// `auto` is what the medium's file says, of each of its nodes, and where it says nothing as many as write most.
#[test]
fn a_medium_says_how_many_and_from_which_size_on() {
    let never = "writes_from = 4294967295\nreads_from = 4294967295\n";
    for (said, expected) in [
        ("", 6),
        ("[delegation]\nthreads = 1\nsource = \"a test\"\n", 2),
        (&format!("[delegation]\n{never}source = \"a test\"\n"), 0),
    ] {
        let place = made();
        let medium = medium(&place, said);
        let told = threads(&place, &["--medium", &medium, "--delegate", "auto"], None);
        assert_eq!(
            told,
            [0, 0, expected, 0, expected, expected, expected],
            "{said}"
        );
        if expected == 6 {
            let told = threads(&place, &["--medium", &medium], None);
            assert_eq!(told, [0; 7], "nobody has asked for it");
        }
    }
}

/// `--nodes` stands in place of the file's: each node has threads of its own.
#[test]
fn nodes_are_as_many_as_the_option_says() {
    let place = made();
    let medium = medium(&place, "[delegation]\nthreads = 2\nsource = \"a test\"\n");
    let options = ["--medium", &medium, "--delegate", "auto", "--nodes", "3"];
    assert_eq!(threads(&place, &options, None), [0, 0, 6, 0, 6, 6, 6]);
}

/// dd and cmp, as they are.
#[test]
fn what_other_programs_copy_is_the_same() {
    let place = made();
    let script = "set -e; head -c 20000000 /dev/urandom >$0; \
                  dd if=$0 of=/arck/one bs=1M conv=fsync status=none; \
                  dd if=/arck/one of=/arck/two bs=70000 status=none; cmp $0 /arck/one; cmp /arck/one /arck/two; echo same";
    let file = place.path().join("random");
    let command = ["sh", "-c", script, file.to_str().unwrap()];
    for option in ["--delegate", "--at-once"] {
        let output = run(&place.pool(), &[option, "2"], &command);
        assert_eq!(succeeded(&Running::start(output).finished(SOON)), "same\n");
    }
}

/// Of all programs of the user, one at a time, be they a group or not: so long the medium takes at least, which is four times as fast for four.
#[test]
fn programs_wait_for_each_other() {
    let place = made();
    let text = std::fs::read_to_string(medium(&place, "")).unwrap();
    let slow = text.replace("[[1, 20], [3, 50]]", "[[1, 0.02], [4, 0.08]]");
    assert_ne!(slow, text);
    let file = place.path().join("slow.toml");
    std::fs::write(&file, slow).unwrap();
    let script =
        "for n in 1 2 3 4; do dd if=/dev/zero of=/arck/$n bs=1M count=4 status=none & done; wait";
    let file = file.to_str().unwrap();
    let took = |options: &[&str], variable: Option<&str>| {
        let options = [&["--medium", file, "--nodes", "1"], options].concat();
        let mut command = run(&place.pool(), &options, &["sh", "-c", script]);
        if let Some(value) = variable {
            command.env("ARCK_AT_ONCE", value);
        }
        let begun = Instant::now();
        succeeded(&Running::start(command).finished(SOON));
        begun.elapsed()
    };
    // 16 MiB at 0.02 GB/s are 839 ms, and 210 at four times as much. What one writes of names and sizes passes no gate, and while it is at
    // the node the medium is as fast as for two: a tenth of the time.
    let least = Duration::from_millis(650);
    let free = took(&[], None);
    for (options, variable) in [
        (&["--at-once", "1"][..], None),
        (&[], Some("1")),
        (&["--at-once", "1"], Some("4")),
        (&["--at-once", "1", "--no-group"], None),
    ] {
        let took = took(options, variable);
        assert!(
            took >= least,
            "{options:?} {variable:?}: {took:?}; otherwise {free:?}"
        );
    }
}

/// One or the other; what stands in the environment gives way to an option.
#[test]
fn only_one_of_both_is_said() {
    let place = Place::made();
    let output = run(
        &place.pool(),
        &["--at-once", "2", "--delegate", "2"],
        &["true"],
    )
    .output();
    assert_eq!(output.unwrap().status.code(), Some(2));
    let mut both = run(&place.pool(), &[], &["true"]);
    both.env("ARCK_AT_ONCE", "2").env("ARCK_DELEGATE", "auto");
    refused(
        &both.output().unwrap(),
        "ARCK_AT_ONCE and ARCK_DELEGATE are both set",
    );
    for (option, other) in [
        ("--at-once", "ARCK_DELEGATE"),
        ("--delegate", "ARCK_AT_ONCE"),
    ] {
        let own = format!("ARCK_{}", option[2..].to_uppercase().replace('-', "_"));
        let script = format!("echo ${own} ${other}");
        let mut one = run(&place.pool(), &[option, "2"], &["sh", "-c", &script]);
        one.env(other, "3");
        assert_eq!(succeeded(&Running::start(one).finished(SOON)), "2 off\n");
        // None of this one is not to say that there is none of the other.
        let mut none = run(&place.pool(), &[option, "off"], &["sh", "-c", &script]);
        none.env(other, "3");
        let told = succeeded(&Running::start(none).finished(SOON));
        assert_eq!(told.trim_start_matches("off").trim(), "3", "{told}");
    }
}

#[test]
fn what_is_no_number_of_them_is_refused() {
    let place = Place::made();
    for wrong in ["0", "65", "-1", "many", "1.5", "99999999999"] {
        for (option, variable) in NAMES {
            let option = format!("{option}={wrong}");
            let output = run(&place.pool(), &[&option], &["true"]).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{wrong}");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let what = format!("{wrong} is no number of threads; there can be: 1 to 64, auto, off");
            assert!(said.contains(&what), "{said}");
            let mut command = run(&place.pool(), &[], &["true"]);
            command.env(variable, wrong);
            refused(&command.output().unwrap(), &format!("{variable}: {what}"));
        }
    }
    // A program that is told so by somebody else.
    for (_, variable) in NAMES {
        let script = format!("{variable}=many cat /arck/file; echo $?");
        let mut program = run(&place.pool(), &["--no-group"], &["sh", "-c", &script]);
        let output = program.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let told = format!("{variable} is no number of threads");
        assert!(said.contains(&told), "{said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n");
    }
}
