//! `arck status`: what a served pool says of itself, and which pools are served.

use crate::support::{Place, Running, Serving, arck, refused, run, succeeded};
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

/// It ends in this time, whatever controllers do: what it waits for at most, and as much for a busy machine.
const BOUND: Duration = Duration::from_secs(10);

fn status(pool: &Path, arguments: &[&str]) -> Output {
    let mut command = arck();
    command.arg("status").arg(pool).args(arguments);
    command.output().unwrap()
}

fn json_of(pool: &Path) -> Value {
    serde_json::from_str(&succeeded(&status(pool, &["--json"]))).unwrap()
}

/// `arck status` without a pool; and that it ends soon.
fn list(arguments: &[&str]) -> String {
    let mut command = arck();
    command.arg("status").args(arguments);
    let since = Instant::now();
    let text = succeeded(&command.output().unwrap());
    assert!(since.elapsed() < BOUND, "{:?}", since.elapsed());
    text
}

/// Its lines about a pool.
fn lines_of(list: &str, pool: &Path) -> Vec<String> {
    let path = pool.to_str().unwrap();
    let lines = list.lines().filter(|line| line.contains(path));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_served_pool_tells_how_it_is() {
    let place = Place::made();
    let pool = place.pool();
    refused(&status(&pool, &[]), "nobody serves the pool");
    let serving = Serving::start(&pool, &["--persist", "always"]);
    let text = succeeded(&status(&pool, &[]));
    assert!(text.contains(": served\n  sessions      0\n"), "{text}");
    assert!(text.contains("closing       nothing"), "{text}");
    assert!(text.contains("stores        flushed and fenced"), "{text}");
    assert!(text.contains("violations    none"), "{text}");
    assert!(text.contains("memory        volatile: "), "{text}");
    assert!(!text.contains("PROGRAM"), "{text}");
    let json = json_of(&pool);
    assert_eq!(json["closings"], 0);
    let number = |name: &str| json[name].as_u64().unwrap();
    assert!(number("bytes_free") > 0, "{json}");
    assert_eq!(number("bytes"), number("bytes_free") + number("bytes_used"));
    assert_eq!(json["controller"], serving.process.id());
    assert_eq!(json["user"], rustix::process::geteuid().as_raw());
    assert_eq!(
        (&json["flush"], &json["shared"]),
        (&true.into(), &false.into())
    );
    assert_eq!(json["processes"], Value::Array(Vec::new()));
}

#[test]
fn the_programs_on_a_pool_are_listed() {
    let place = Place::made();
    let pool = place.pool();
    let _serving = Serving::start(&pool, &["--persist", "never"]);
    // Its name would steer a terminal.
    let script = "import ctypes, os, sys\n\
        ctypes.CDLL(None).prctl(15, b'a\\x1b[2Jb\\nc', 0, 0, 0)\n\
        open('/arck/f', 'w').write('x' * 100)\n\
        print(os.getpid(), flush=True)\n\
        sys.stdin.read()";
    let mut running = Running::start_told(run(&pool, &[], &["python3", "-c", script]));
    let process: u32 = running.line().parse().unwrap();
    let json = json_of(&pool);
    let processes = json["processes"].as_array().unwrap();
    let of = |process: u32| processes.iter().find(|one| one["process"] == process);
    let program = of(process).unwrap_or_else(|| panic!("{json}"));
    assert_eq!(program["program"], "a?[2Jb?c");
    assert_eq!(program["user"], rustix::process::geteuid().as_raw());
    assert!(program["session"].as_u64().unwrap() > 0);
    assert_eq!(json["flush"], false);
    assert!(json["bytes_used"].as_u64().unwrap() >= 100);
    let text = succeeded(&status(&pool, &[]));
    assert!(
        text.contains("\n SESSION   PROCESS      USER  PROGRAM\n"),
        "{text}"
    );
    assert!(text.contains("  a?[2Jb?c\n"), "{text}");
    assert!(succeeded(&running.finished(BOUND)).is_empty());
}

#[test]
fn pools_that_are_served_are_listed() {
    let place = Place::made();
    let pool = place.pool();
    assert!(lines_of(&list(&[]), &pool).is_empty());
    let mut serving = Serving::start(&pool, &[]);
    let text = list(&[]);
    let lines = lines_of(&text, &pool);
    assert_eq!(lines.len(), 1, "{text}");
    let words: Vec<&str> = lines[0].split_whitespace().collect();
    let user = rustix::process::geteuid().as_raw().to_string();
    let process = serving.process.id().to_string();
    assert_eq!(words[..3], [process.as_str(), user.as_str(), "0"], "{text}");
    let json = list(&["--json"]);
    let row: Value = serde_json::from_str(&lines_of(&json, &pool)[0]).unwrap();
    assert_eq!(
        (&row["answers"], &row["sessions"]),
        (&true.into(), &0.into())
    );
    // Wherever it is moved to.
    let moved = place.path().join("moved");
    std::fs::rename(&pool, &moved).unwrap();
    assert_eq!(lines_of(&list(&[]), &moved).len(), 1);
    std::fs::rename(&moved, &pool).unwrap();
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
    assert!(lines_of(&list(&[]), &pool).is_empty());
}

/// A controller that is stopped is told of, and not waited for.
#[test]
fn a_controller_that_does_not_answer_keeps_nobody_waiting() {
    let place = Place::made();
    let pool = place.pool();
    let serving = Serving::start(&pool, &[]);
    serving.signal(libc::SIGSTOP);
    let since = Instant::now();
    refused(&status(&pool, &[]), "has not answered");
    assert!(since.elapsed() < BOUND, "{:?}", since.elapsed());
    let text = list(&[]);
    let process = serving.process.id().to_string();
    let its = text
        .lines()
        .find(|line| line.split_whitespace().next() == Some(&process));
    assert!(
        its.is_some_and(|line| line.contains("does not answer")),
        "{text}"
    );
    serving.signal(libc::SIGCONT);
    assert_eq!(lines_of(&list(&[]), &pool).len(), 1);
}
