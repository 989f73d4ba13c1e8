//! Programs that watch files and directories of the pool by inotify: what they are told beside what the same program is told
//! on tmpfs of the same changes, made by a program of the same session, of another one, and of another user.

use crate::support::{Place, Running, arck, run, succeeded};
use crate::users::{ANN, BOB, DENIED, EVE, Users};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Who watches and who changes.
const SCRIPT: &str = include_str!("watching.py");

/// What the one who watches is told of each change that the other one makes.
fn told(watcher: Command, changer: Command, count: usize) -> Vec<String> {
    let mut watcher = Running::start_told(watcher);
    assert_eq!(watcher.line(), "ready");
    let mut changer = Running::start_told(changer);
    assert_eq!(changer.line(), "ready");
    let told = (0..count).map(|case| {
        changer.tell(&case.to_string());
        assert_eq!(changer.line(), "done");
        watcher.tell("");
        watcher.line()
    });
    let told = told.collect();
    for program in [changer, watcher] {
        succeeded(&program.finished(PATIENCE));
    }
    told
}

fn python<'a>(role: &'a str, top: &'a str, times: &[&'a str]) -> Vec<&'a str> {
    let mut command = vec!["python3", "-c", SCRIPT, role, top];
    command.extend(times);
    command
}

fn host(command: &[&str]) -> Command {
    let mut host = Command::new(command[0]);
    host.args(&command[1..]);
    host
}

/// So long is waited for a first event, and for another one: on the host they are there at once.
const AT_ONCE: [&str; 2] = ["0.02", "0.02"];
const SOON: [&str; 2] = ["1", "0.3"];

fn count() -> usize {
    let count = succeeded(&host(&python("count", "/", &[])).output().unwrap());
    count.trim().parse().unwrap()
}

fn told_on_tmpfs(count: usize) -> Vec<String> {
    let place = Place::new();
    let top = place.path().join("top");
    let top = top.to_str().unwrap();
    succeeded(&host(&python("prepare", top, &[])).output().unwrap());
    let watcher = host(&python("watch", top, &AT_ONCE));
    told(watcher, host(&python("change", top, &[])), count)
}

fn compare(expected: &[String], got: &[String]) {
    let events = |told: &str| -> BTreeSet<String> {
        let inner = told.trim_start_matches("[\"").trim_end_matches("\"]");
        inner.split("\", \"").map(str::to_owned).collect()
    };
    let cases = expected.iter().zip(got).enumerate();
    let wrong = cases.filter_map(|(case, (expected, got))| {
        let (expected, got) = (events(expected), events(got));
        let differs: Vec<String> = expected.symmetric_difference(&got).cloned().collect();
        (!differs.is_empty()).then(|| format!("case {case}: {differs:?} of {}", expected.len()))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn who_watches_is_told_as_on_tmpfs_whoever_makes_the_change() {
    let count = count();
    let expected = told_on_tmpfs(count);
    assert!(expected.iter().all(|told| told != "[]"), "{expected:?}");
    let other: &[&str] = &["--own-group"];
    for (options, is_mediated) in [(&[][..], false), (other, false), (other, true)] {
        let place = Place::made();
        let pool = place.pool();
        let run = |options: &[&str], command: &[&str]| run(&pool, options, command);
        // The same session lasts from one program to the next.
        let mut keeper = Running::start_told(run(&[], &["sh", "-c", "echo here; read end"]));
        assert_eq!(keeper.line(), "here");
        let prepared = run(&[], &python("prepare", "/arck/top", &[])).output();
        succeeded(&prepared.unwrap());
        // What is there already is there for others.
        let listed = run(&["--own-group"], &["find", "/arck/top"]).output();
        succeeded(&listed.unwrap());
        if is_mediated {
            let names = ["d", "e", "many", "d/old", "single"].map(|name| format!("/top/{name}"));
            let mut attr = arck();
            attr.args(["attr", "--mediated", "on", "--pool"]).arg(&pool);
            succeeded(&attr.args(names).output().unwrap());
        }
        let watcher = run(&[], &python("watch", "/arck/top", &SOON));
        let changer = run(options, &python("change", "/arck/top", &[]));
        compare(&expected, &told(watcher, changer, count));
        keeper.tell("");
        succeeded(&keeper.finished(PATIENCE));
        assert!(!pool.join("watched").exists());
    }
}

#[test]
fn users_watch_what_they_may_read() {
    let count = count();
    let expected = told_on_tmpfs(count);
    let mut users = Users::new();
    users.serve(&["--shared"]);
    let command = |user, role: &str, times: &[&str]| {
        let mut command = users.of(user, &["run", "--"]);
        command.args(python(role, "/arck/top", times));
        command
    };
    succeeded(&command(ANN, "prepare", &[]).output().unwrap());
    users.says(ANN, "chmod 777 top top/*");
    let told = told(
        command(BOB, "watch", &SOON),
        command(ANN, "change", &[]),
        count,
    );
    compare(&expected, &told);
    users.says(
        ANN,
        "mkdir -m 711 private; mkdir -m 700 home; echo x >private/none; echo x >private/some; \
         chmod 600 private/none; chmod 644 private/some; echo x >home/hidden; chmod 644 home/hidden",
    );
    let add = |path: &str| {
        let call = "import ctypes, os, sys; c = ctypes.CDLL(None, use_errno=True); \
                    w = c.inotify_add_watch(c.inotify_init(), sys.argv[1].encode(), 2); \
                    print(w if w > 0 else os.strerror(ctypes.get_errno()))";
        format!("python3 -c '{call}' {path}")
    };
    for user in [BOB, EVE] {
        for (path, says) in [
            ("private", DENIED),
            ("private/none", DENIED),
            ("private/some", "1"),
            ("home/hidden", DENIED),
            ("nothing", "No such file or directory"),
        ] {
            assert_eq!(users.says(user, &add(path)).trim(), says, "{path}");
        }
    }
    users.end();
}

/// Watches a directory, and says when each of the files has come that are named to it.
const LATENCY: &str = r#"
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
inotify = libc.inotify_init()
assert libc.inotify_add_watch(inotify, b"/arck/w", 0x100) > 0
print("ready", flush=True)
for line in sys.stdin:
    os.read(inotify, 4096)
    print(time.monotonic(), flush=True)
"#;

const MAKER: &str = r#"
import sys, time
print("ready", flush=True)
for line in sys.stdin:
    open("/arck/w/" + line.strip(), "w").close()
    print(time.monotonic(), flush=True)
"#;

#[test]
fn who_watches_is_told_soon_also_after_a_while_and_the_rest_is_gone_with_it() {
    let place = Place::made();
    let pool = place.pool();
    let mut maker = Running::start_told(run(&pool, &["--own-group"], &["python3", "-c", MAKER]));
    assert_eq!(maker.line(), "ready");
    succeeded(&run(&pool, &[], &["mkdir", "/arck/w"]).output().unwrap());
    let mut watcher = Running::start_told(run(&pool, &[], &["python3", "-c", LATENCY]));
    assert_eq!(watcher.line(), "ready");
    let mut took = Vec::new();
    for round in 0..12 {
        // In between those that own what is watched are quiet, and at last own nothing of it.
        std::thread::sleep(Duration::from_millis(if round % 4 == 3 {
            1500
        } else {
            60
        }));
        watcher.tell("");
        maker.tell(&format!("file{round}"));
        let [made, told] = [maker.line(), watcher.line()].map(|line| line.parse::<f64>().unwrap());
        took.push(told - made);
    }
    took.sort_by(f64::total_cmp);
    assert!(took[took.len() / 2] < 0.05, "{took:?}");
    // Killed, it leaves nothing behind.
    let folder = pool.join("watched");
    let nodes = || std::fs::read_dir(&folder).map_or(0, |listed| listed.count());
    assert!(nodes() > 1);
    drop(watcher);
    let since = Instant::now();
    while nodes() > 1 {
        assert!(since.elapsed() < PATIENCE, "{:?}", listing(&folder));
        std::thread::sleep(Duration::from_millis(20));
    }
    succeeded(&maker.finished(PATIENCE));
}

fn listing(folder: &Path) -> Vec<String> {
    let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
    listed
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
