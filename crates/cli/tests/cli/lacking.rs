//! Programs that may have little of something (`ulimit -v`, `ulimit -n`): each call gives what is right, or says
//! what is lacking; what failed has changed nothing, and what was acknowledged is there. The verifier has refused
//! nothing of theirs, as every [`Place`] looks after.

use crate::support::{Place, Running, Serving, mkfs, run, succeeded};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Calls that the program tries.
const CALLS: usize = 34;

/// The program of calls: see its head.
fn program(directory: &Path) -> PathBuf {
    let program = directory.join("lacking");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/lacking.c");
    let mut compile = Command::new("cc");
    compile
        .args(["-O1", "-Wall", "-Werror", "-o"])
        .arg(&program)
        .arg(source);
    let made = compile.output().expect("cc: a C compiler");
    assert!(made.status.success(), "{made:?}");
    program
}

fn lines(output: &Output) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let pair = |line: &str| {
        let (call, result) = line.split_once(' ').expect("a call and what came of it");
        (call.to_owned(), result.to_owned())
    };
    text.lines().map(pair).collect()
}

/// What a process may have: KiB of addresses beyond what it has when it begins, and descriptors (0 is no limit),
/// of which all but so many are taken when it has come to its tree (-1: none is).
type Little = (u64, u64, i64);

/// Tries every call with each of these limits on a tree of its own; `told` are the errors by which a program is
/// told. Gives how many calls were right, under each.
fn tried(limits: &[Little], told: &[&str]) -> Vec<usize> {
    let place = Place::new();
    assert!(mkfs(&place.pool(), &["--size", "1G"]).status.success());
    let serving = Serving::start(&place.pool(), &[]);
    let program = program(place.path());
    let of = |arguments: &[&str]| {
        let mut command = vec![program.to_str().unwrap()];
        command.extend(arguments);
        run(&place.pool(), &[], &command).output().unwrap()
    };
    let mut right = Vec::new();
    for &(memory, files, free) in limits {
        let context = format!("{memory} KiB, {files} descriptors, {free} free");
        let tree = format!("/arck/{memory}-{files}-{free}");
        let made = run(&place.pool(), &[], &["mkdir", &tree]).output();
        assert_eq!(succeeded(&made.unwrap()), "", "{context}");
        assert_eq!(succeeded(&of(&["make", &tree])), "", "{context}");
        let [memory, files, free] = [memory.to_string(), files.to_string(), free.to_string()];
        let tries = of(&["little", &memory, &files, &free, &tree]);
        let found = of(&["look", &tree]);
        assert!(tries.status.success(), "{context}: {tries:?}");
        assert!(found.status.success(), "{context}: {found:?}");
        let (tries, found) = (lines(&tries), lines(&found));
        for (call, result) in &tries {
            let is_told = told.contains(&result.as_str()) || result == "short";
            assert!(result == "right" || is_told, "{context}: {call} {result}");
        }
        for (call, state) in &found {
            let expected: &[&str] = match tries.get(call).map(String::as_str) {
                Some("right") => &["done"],
                // Of bytes some may be there.
                Some("short") => &["mixed", "undone"],
                _ if call == "change" => &["mixed", "undone"],
                // The file is there, and its bytes are not.
                _ if call == "create" => &["done", "undone"],
                _ => &["undone"],
            };
            assert!(
                expected.contains(&state.as_str()),
                "{context}: {call} {:?}: {state}",
                tries.get(call)
            );
        }
        right.push(tries.values().filter(|result| *result == "right").count());
        let removed = run(&place.pool(), &[], &["rm", "-r", &tree]).output();
        assert_eq!(succeeded(&removed.unwrap()), "", "{context}");
    }
    serving.signal(libc::SIGTERM);
    let mut serving = serving;
    assert!(serving.process.wait().unwrap().success());
    right
}

/// Under 40,000 KiB `rm -rf` said 0 and removed nothing, names that were there were ENOENT, and under 44,000
/// listings were empty: a segment that could not be mapped was taken for one that is not there.
#[test]
fn with_few_addresses_a_call_is_right_or_says_so() {
    let limits: Vec<Little> = (1..32).map(|step| (step * 2048, 0, -1)).collect();
    covers(&tried(&limits, &["ENOMEM"]));
}

/// `cp -a` said "Protocol error", and `diff -r` waited for 30 seconds for an answer that had come: the kernel drops
/// descriptors that a process may not have, and says so.
#[test]
fn with_few_descriptors_a_call_is_right_or_says_so() {
    let few = (3..16).map(|files| (0, files, -1));
    let left = (0..8).map(|free| (0, 20, free));
    covers(&tried(
        &few.chain(left).collect::<Vec<Little>>(),
        &["EMFILE"],
    ));
}

/// The limits begin with nothing and end with enough, and lie in between, too.
fn covers(right: &[usize]) {
    assert_eq!(right[0], 0, "{right:?}");
    assert!(
        right.iter().any(|&count| count != 0 && count < CALLS),
        "{right:?}"
    );
    assert_eq!(right.last(), Some(&CALLS), "{right:?}");
}

/// With a hard limit of 21 to 32 descriptors the controller of an `arck run` started, and let no program in.
#[test]
fn an_arck_run_with_few_descriptors_works_or_names_the_limit() {
    let place = Place::made();
    let arck = env!("CARGO_BIN_EXE_arck");
    crate::support::preload_library();
    let mut works = Vec::new();
    for limit in (4..64).step_by(3) {
        let file = format!("/arck/{limit}");
        let inner = format!("echo hi > {file} && cat {file}");
        let script = r#"ulimit -n $1; exec "$2" run --pool "$3" -- sh -c "$4""#;
        let mut run = Command::new("sh");
        run.args(["-c", script, "sh", &limit.to_string(), arck]);
        let output = run.arg(place.pool()).arg(inner).output().unwrap();
        let is_right = output.status.success();
        if is_right {
            assert_eq!(succeeded(&output), "hi\n", "{limit}");
        } else {
            crate::support::refused(&output, "(`ulimit -n`)");
        }
        works.push(is_right);
    }
    assert_eq!((works.first(), works.last()), (Some(&false), Some(&true)));
    assert!(works.is_sorted(), "{works:?}");
}

/// A limit on files that no program of a pool would meet is one that its controller would, which `arck run` starts.
#[test]
fn a_controller_is_not_started_where_files_may_not_be_large() {
    for limit in ["1", "100", "200000"] {
        let place = Place::made();
        let arck = crate::support::arck();
        let script = format!(
            "ulimit -f {limit}; exec {} run --pool {} -- true",
            arck.get_program().display(),
            place.pool().display()
        );
        // Root may raise it, where it has that right, and then there is nothing to refuse.
        let mut command = Command::new("setpriv");
        command.args([
            "--bounding-set=-sys_resource",
            "--inh-caps=-all",
            "bash",
            "-c",
        ]);
        command.arg(&script);
        let output = Running::start(command).finished(Duration::from_secs(60));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{limit}: {said}");
        assert!(
            said.contains("`ulimit -f`") && said.contains("arck serve POOL"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
