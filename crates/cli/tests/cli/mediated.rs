//! `arck attr`, and unmodified programs of sessions that do not trust each other, which write one file.

use crate::support::{Place, Running, Serving, arck, mkfs, refused, run, succeeded};
use crate::users::{ANN, BOB, EVE, Users};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

fn attr(pool: &Path, arguments: &[&str]) -> Output {
    let mut command = arck();
    command.arg("attr").arg("--pool").arg(pool).args(arguments);
    command.output().unwrap()
}

#[test]
fn what_is_said_is_told_and_stays() {
    let place = Place::made();
    let pool = place.pool();
    let made = "echo text >/arck/file; mkdir /arck/directory; mkfifo /arck/pipe";
    succeeded(&Running::start(run(&pool, &[], &["sh", "-c", made])).finished(SOON));
    for (said, told, json) in [
        (
            None,
            "file: by its owner (auto)\n",
            r#"{"path":"file","mediated":"auto","by_messages":false,"mapped_together":false}"#,
        ),
        (
            Some("on"),
            "file: mediated\n",
            r#"{"path":"file","mediated":"on","by_messages":true,"mapped_together":false}"#,
        ),
        (
            Some("off"),
            "file: by its owner\n",
            r#"{"path":"file","mediated":"off","by_messages":false,"mapped_together":false}"#,
        ),
        (
            Some("auto"),
            "file: by its owner (auto)\n",
            r#"{"path":"file","mediated":"auto","by_messages":false,"mapped_together":false}"#,
        ),
    ] {
        if let Some(said) = said {
            assert_eq!(
                succeeded(&attr(&pool, &["--mediated", said, "/arck/file"])),
                ""
            );
        }
        assert_eq!(succeeded(&attr(&pool, &["file"])), told);
        assert_eq!(succeeded(&attr(&pool, &["--json", "file"])).trim(), json);
    }
    succeeded(&attr(&pool, &["--mediated", "on", "directory"]));
    let told = succeeded(&attr(&pool, &["directory"]));
    assert_eq!(told, "directory: mediated\n");
    let below = "mkdir -p /arck/one/two; touch /arck/one/two/three; ln -s .. /arck/one/up; ln /arck/file /arck/directory/";
    succeeded(&Running::start(run(&pool, &[], &["sh", "-c", below])).finished(SOON));
    succeeded(&attr(&pool, &["--mediated", "off", "one/two/three"]));
    assert_eq!(
        succeeded(&attr(&pool, &["--below", "/"])),
        "/directory: mediated\n/one/two/three: by its owner\n"
    );
    assert_eq!(
        succeeded(&attr(&pool, &["--below", "--json", "/arck/one", "pipe"])),
        "{\"path\":\"/arck/one/two/three\",\"mediated\":\"off\",\"by_messages\":false,\"mapped_together\":false}\n"
    );
    refused(
        &attr(&pool, &["--below", "nothing"]),
        "nothing: No such file",
    );
    refused(
        &attr(&pool, &["--mediated", "on", "pipe"]),
        "neither a file nor a directory",
    );
    refused(&attr(&pool, &["nothing"]), "nothing: No such file");
    // What can be told is told.
    let both = attr(&pool, &["nothing", "file"]);
    assert_eq!(
        String::from_utf8_lossy(&both.stdout),
        "file: by its owner (auto)\n"
    );
    assert_eq!(both.status.code(), Some(1));
}

/// What a shell without a group says.
fn alone(pool: &Path, script: &str) -> String {
    let shell = run(pool, &["--no-group"], &["bash", "-c", script]);
    succeeded(&Running::start(shell).finished(SOON))
}

/// Lines that a shell appends, each by one write, with what it is and how many it has written.
fn appending(name: &str, lines: u32) -> String {
    format!("for i in $(seq {lines}); do printf '%s %s %0500d\\n' {name} $i 7; done >>/arck/log")
}

fn assert_all_there(log: &str, names: &[&str], lines: u32) {
    let mut next = vec![1; names.len()];
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let &[name, number, rest] = &words[..] else {
            panic!("{line:?}");
        };
        let at = names
            .iter()
            .position(|known| *known == name)
            .unwrap_or_else(|| panic!("{line:?}"));
        assert_eq!(number.parse(), Ok(next[at]), "{name}'s lines are in order");
        assert!(rest.len() == 500 && rest.ends_with("07"), "{line:?}");
        next[at] += 1;
    }
    assert_eq!(next, vec![lines + 1; names.len()]);
}

/// Shells that make files of one directory, move them and remove them, each its own and all of them some that are named as the other's.
#[test]
fn shells_without_a_group_change_names_of_a_directory() {
    const NAMES: u32 = 30;
    let place = Place::made();
    let pool = place.pool();
    let mut serving = Serving::start(&pool, &[]);
    let plain = |script: &str| alone(&pool, script);
    for how in ["on", "auto", "off"] {
        plain(&format!("mkdir /arck/{how}"));
        succeeded(&attr(&pool, &["--mediated", how, how]));
        let running = ["one", "other"].map(|name| {
            let script = format!(
                "cd /arck/{how} && for i in $(seq {NAMES}); do
                     echo {name} >new-{name}-$i || exit 1
                     mv -n new-{name}-$i {name}-$i || exit 1
                     (set -o noclobber; echo {name} >both-$i) 2>/dev/null && echo $i
                     if ((i % 3 == 0)); then rm {name}-$i || exit 1; fi
                 done"
            );
            Running::start(run(&pool, &["--no-group"], &["bash", "-c", &script]))
        });
        let made: Vec<String> = running
            .map(|running| succeeded(&running.finished(SOON)))
            .to_vec();
        let count: usize = made.iter().map(|made| made.lines().count()).sum();
        assert_eq!(count, NAMES as usize, "{how}: each is made by one of them");
        let names = plain(&format!(
            "cd /arck/{how} && ls | wc -l && cat one-* | sort | uniq -c && cat both-* | wc -l"
        ));
        let words: Vec<&str> = names.split_whitespace().collect();
        let left = NAMES - NAMES / 3;
        let expected = [2 * left + NAMES, left].map(|count| count.to_string());
        assert_eq!(
            words,
            [&*expected[0], &*expected[1], "one", &*NAMES.to_string()],
            "{how}"
        );
    }
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

#[test]
fn shells_without_a_group_append_whole_lines() {
    const LINES: u32 = 400;
    let place = Place::made();
    let pool = place.pool();
    let mut serving = Serving::start(&pool, &[]);
    let plain = |script: &str| alone(&pool, script);
    plain(": >/arck/log");
    for how in ["on", "auto", "off"] {
        plain(": >/arck/log");
        succeeded(&attr(&pool, &["--mediated", how, "log"]));
        let names = ["one", "other"];
        let running = names.map(|name| {
            let script = appending(name, LINES);
            Running::start(run(&pool, &["--no-group"], &["bash", "-c", &script]))
        });
        for running in running {
            succeeded(&running.finished(SOON));
        }
        assert_all_there(&plain("cat /arck/log"), &names, LINES);
    }
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

#[test]
fn users_who_may_write_a_file_append_to_it_by_messages() {
    const LINES: u32 = 300;
    let mut users = Users::new();
    users.serve(&["--shared"]);
    let of = |who, script: &str| {
        succeeded(
            &users
                .of(who, &["run", "--", "bash", "-c", script])
                .output()
                .unwrap(),
        )
    };
    of(ANN, "umask 0; : >/arck/log; chmod 666 /arck/log");
    let pool = users.place.pool();
    let say = |who, how: &str| {
        users
            .of(who, &["attr", "--mediated", how, "/arck/log"])
            .arg("--pool")
            .arg(&pool)
            .output()
            .unwrap()
    };
    refused(&say(BOB, "on"), "only its user and root");
    succeeded(&say(ANN, "on"));
    let names = ["ann", "bob", "eve"];
    let running = [ANN, BOB, EVE].into_iter().zip(names).map(|(who, name)| {
        let script = appending(name, LINES);
        Running::start(users.of(who, &["run", "--", "bash", "-c", &script]))
    });
    for running in running.collect::<Vec<_>>() {
        succeeded(&running.finished(SOON));
    }
    assert_all_there(&of(ANN, "cat /arck/log"), &names, LINES);
    // Who may not any more does not.
    of(ANN, "chmod 644 /arck/log");
    let script = "echo more >>/arck/log";
    refused(
        &users
            .of(EVE, &["run", "--", "bash", "-c", script])
            .output()
            .unwrap(),
        "Permission denied",
    );
    assert_all_there(&of(ANN, "cat /arck/log"), &names, LINES);
    users.end();
}

/// Programs of two groups append to a file, and are killed at any moment, also while their message is served: what
/// others of their group have written, and go on to write, is all there, and of a line there is all or nothing.
#[test]
fn who_is_killed_leaves_whole_lines_and_its_group() {
    const ROUNDS: u32 = 15;
    let place = Place::new();
    let pool = place.pool();
    succeeded(&mkfs(&pool, &["--size", "256M"]));
    let mut serving = Serving::start(&pool, &[]);
    let plain = |script: &str| {
        let command = run(&pool, &["--no-group"], &["bash", "-c", script]);
        succeeded(&Running::start(command).finished(SOON))
    };
    plain(": >/arck/log");
    succeeded(&attr(&pool, &["--mediated", "on", "log"]));
    // Each tells in the log what it has written, as the last that it does is to be killed.
    let endless = |name: &str| {
        let lines = format!("printf '%s %s %0500d\\n' {name} $((++i)) 7");
        format!("i=0; exec >>/arck/log; while :; do {lines}; done")
    };
    for round in 0..ROUNDS {
        let running = ["one", "two"].map(|group| {
            let inner = format!(
                "bash -c '{}' & victim=$!; bash -c '{}' & other=$!; \
                 sleep 0.0{}; kill -9 $victim; sleep 0.02; kill -9 $other; wait; exit 0",
                endless(&format!("{group}-victim-{round}")).replace('\'', "'\\''"),
                endless(&format!("{group}-other-{round}")).replace('\'', "'\\''"),
                2 + round % 7,
            );
            Running::start(run(&pool, &["--group", group], &["bash", "-c", &inner]))
        });
        for running in running {
            let output = running.finished(SOON);
            // What the shell says of whom it has killed, and nothing else.
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.lines().all(|line| line.contains("Killed")), "{said}");
            assert!(output.status.success(), "{output:?}");
        }
    }
    let log = plain("cat /arck/log");
    let mut next = std::collections::BTreeMap::<&str, u32>::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let &[name, number, rest] = &words[..] else {
            panic!("{line:?}");
        };
        let next = next.entry(name).or_insert(1);
        assert_eq!(number.parse(), Ok(*next), "{name}'s lines are in order");
        assert!(rest.len() == 500 && rest.ends_with("07"), "{line:?}");
        *next += 1;
    }
    let (rounds, lines) = (ROUNDS as usize, log.lines().count());
    assert!(next.len() >= 3 * rounds, "{} have written", next.len());
    println!("{lines} lines of {} programs", next.len());
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}
