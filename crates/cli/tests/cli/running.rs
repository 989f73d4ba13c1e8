//! `arck run`: what it makes of its command line, of what its command leaves running, and what it
//! reports.

use crate::support::{Place, Running, arck, refused, run, succeeded};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn options_of_the_command_are_the_commands() {
    let place = Place::made();
    let echoed = run(&place.pool(), &[], &["echo", "--pool", "a", "--", "-b"]);
    let echoed = { echoed }.output().unwrap();
    assert_eq!(succeeded(&echoed), "--pool a -- -b\n");
    // Without `--`, too.
    let mut command = arck();
    command.arg("run").arg("--pool").arg(place.pool());
    let listed = command.args(["ls", "-d", "/arck"]).output().unwrap();
    assert_eq!(succeeded(&listed), "/arck\n");
}

#[test]
fn a_pool_on_a_pool_is_refused() {
    let place = Place::made();
    let arck = env!("CARGO_BIN_EXE_arck");
    let says = "a pool cannot lie on a pool";
    for command in [
        &[arck, "mkfs", "/arck/inner", "--size", "16M"][..],
        &[arck, "mkfs", "/proc/../arck/inner", "--size", "16M"],
        &[
            "sh",
            "-c",
            "cd /arck; exec \"$0\" mkfs inner --size 16M",
            arck,
        ],
        &[arck, "serve", "/arck/inner"],
        &[arck, "run", "--pool", "/arck/inner", "true"],
    ] {
        refused(&run(&place.pool(), &[], command).output().unwrap(), says);
    }
    let left = run(&place.pool(), &[], &["ls", "-A", "/arck"])
        .output()
        .unwrap();
    assert_eq!(succeeded(&left), "");
    // Beside it, there may be another.
    let other = place.path().join("other");
    let other = other.to_str().unwrap();
    let made = run(&place.pool(), &[], &[arck, "mkfs", other, "--size", "16M"]);
    succeeded(&{ made }.output().unwrap());
    let used = [
        arck,
        "run",
        "--pool",
        other,
        "sh",
        "-c",
        "echo hi >/arck/f; cat /arck/f",
    ];
    let used = run(&place.pool(), &[], &used).output().unwrap();
    assert!(
        String::from_utf8_lossy(&used.stdout).ends_with("hi\n"),
        "{used:?}"
    );
}

#[test]
fn what_it_keeps_open_can_be_listed() {
    let place = Place::made();
    let list = ["ls", "-l", "/arck", "/proc/self/fd"];
    succeeded(&run(&place.pool(), &[], &list).output().unwrap());
}

#[test]
fn a_run_inside_a_run_sees_the_same_pool_without_a_word() {
    let place = Place::made();
    let pool = place.pool();
    let inner = [
        env!("CARGO_BIN_EXE_arck"),
        "run",
        "--pool",
        pool.to_str().unwrap(),
    ];
    let inner = [
        &inner[..],
        &["sh", "-c", "echo hi >/arck/file; cat /arck/file"],
    ]
    .concat();
    assert_eq!(
        succeeded(&run(&pool, &[], &inner).output().unwrap()),
        "hi\n"
    );
}

/// A pipe with a name, on the host.
fn named_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// What `arck run` left in the background goes on using the pool when `arck run` has ended, and the
/// controller ends after it.
fn goes_on_in_the_background(command: &[&str]) {
    let place = Place::made();
    let [go, done] = ["go", "done"].map(|name| place.path().join(name));
    named_pipe(&go);
    // Open at both ends, so that nobody waits for the other to open it.
    let mut go_on = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&go)
        .unwrap();
    // Without standard streams of ours, on which we would wait.
    let script = format!(
        "exec >/dev/null 2>&1; read go <{}; echo hi >/arck/file; cat /arck/file >{}",
        go.display(),
        done.display()
    );
    let mut run = run(&place.pool(), &[], command);
    succeeded(&run.arg(script).output().unwrap());
    go_on.write_all(b"go\n").unwrap();
    let started = Instant::now();
    while !std::fs::read(&done).is_ok_and(|text| text == b"hi\n") {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "it lost the pool"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    // Its end is not waited for by anybody but us.
    let socket = place.pool().join("socket");
    while socket.exists() {
        assert!(started.elapsed() < Duration::from_secs(90), "it stays");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn children_in_the_background_keep_the_controller() {
    goes_on_in_the_background(&["sh", "-c", "sh -c \"$0\" &"]);
}

#[test]
fn so_do_children_whose_parent_closed_every_descriptor() {
    // Popen closes all but the standard ones in its child.
    let start = "import subprocess, sys; subprocess.Popen(['sh', '-c', sys.argv[1]])";
    goes_on_in_the_background(&["python3", "-c", start]);
}

/// The report as JSON.
fn report(run: &mut Command, file: &Path) -> serde_json::Value {
    run.output().unwrap();
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

#[test]
fn a_killed_command_was_intercepted_all_the_same() {
    crate::support::hear_interrupts();
    let place = Place::made();
    let file = place.path().join("report.json");
    let option = format!("--report={}", file.display());
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let script = format!("echo hi >/arck/file; kill -{signal} $$");
        let mut run = run(&place.pool(), &[&option], &["sh", "-c", &script]);
        let report = report(&mut run, &file);
        assert_eq!(report["interception_on"], true, "{report:#}");
        assert_eq!(report["signal"], signal);
        assert_eq!(report["processes"][0]["ended"], false, "{report:#}");
    }
    let mut run = run(&place.pool(), &["--report"], &["sh", "-c", "kill -2 $$"]);
    let output = run.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("interception: on\n"), "{text}");
    assert!(text.contains("killed, or still running: sh ("), "{text}");
}

#[test]
fn programs_that_are_not_covered_are_named() {
    let place = Place::made();
    let source = place.path().join("static.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let program = place.path().join("static");
    let mut compile = Command::new("cc");
    compile.args(["-static", "-o"]).arg(&program).arg(&source);
    assert!(compile.status().unwrap().success());
    let name = program.to_str().unwrap();
    let file = place.path().join("report.json");
    let option = format!("--report={}", file.display());
    // By fork and exec, by posix_spawn, by a name relative to a directory, and in sh's place.
    let scripts = [
        "\"$0\"; ls -d /arck",
        "python3 -c 'import os, sys; os.waitpid(os.posix_spawn(sys.argv[1], [\"s\"], {}), 0)' \"$0\"",
        "cd \"${0%/*}\"; ./static; :",
        "ls -d /arck; exec \"$0\"",
    ];
    for script in scripts {
        let command = ["sh", "-c", script, name];
        let report = report(&mut run(&place.pool(), &[&option], &command), &file);
        assert_eq!(report["interception_on"], true, "{script}: {report:#}");
        let uncovered = &report["uncovered"];
        assert_eq!(
            uncovered.as_array().unwrap().len(),
            1,
            "{script}: {report:#}"
        );
        let found = uncovered[0]["program"].as_str().unwrap();
        assert_eq!(
            Path::new(found).canonicalize().unwrap(),
            program,
            "{script}"
        );
        let reason = uncovered[0]["reason"].as_str().unwrap();
        assert!(reason.contains("static executable"), "{reason}");
        assert!(reason.contains("arck export"), "{reason}");
    }
    let mut run = run(
        &place.pool(),
        &["--report"],
        &["sh", "-c", "\"$0\"; :", name],
    );
    let text = String::from_utf8_lossy(&run.output().unwrap().stderr).into_owned();
    assert!(text.contains("not loaded into these programs"), "{text}");
    assert!(text.contains(&format!("1 x {name} (")), "{text}");
    assert!(!text.contains("none seen\n"), "{text}");
    // The command itself.
    let report = report(
        &mut crate::support::run(&place.pool(), &[&option], &[name]),
        &file,
    );
    assert_eq!(report["interception_on"], false);
    assert_eq!(report["uncovered"][0]["program"], name, "{report:#}");
    // Where there are none, nothing is said of them.
    let mut run = crate::support::run(
        &place.pool(),
        &["--report"],
        &["sh", "-c", "ls -d /arck; :"],
    );
    let text = String::from_utf8_lossy(&run.output().unwrap().stderr).into_owned();
    assert!(!text.contains("not loaded into"), "{text}");
    assert!(text.contains("got past it: none seen\n"), "{text}");
    assert!(!text.contains("still running"), "{text}");
}

/// Programs under a limit on the size of files (`ulimit -f`) ended by SIGXFSZ when the report, or the memory
/// file that a program of the pool is executed from, grew beyond it: they themselves had written nothing.
#[test]
fn what_is_written_for_a_program_does_not_count_against_its_limit() {
    let place = Place::made();
    let file = place.path().join("report.json");
    let option = format!("--report={}", file.display());
    let script = r#"cp "$(command -v cat)" /arck/cat; echo text >/arck/file
        for size in unlimited 1 0; do
            (ulimit -f "$size"; for n in 1 2 3 4; do cat /arck/file; done; echo "$?"
             /arck/cat /arck/file; echo "$?")
        done"#;
    let read = "text\n".repeat(4);
    let too_large = format!("{read}0\n126\n");
    let expected = format!("{read}0\ntext\n0\n{too_large}{too_large}");
    let told = |script: &str| {
        let output = run(&place.pool(), &[&option], &["bash", "-c", script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let report = std::fs::read(&file).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(report["unreadable"], 0, "{report:#}");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (text, report["lines_are_missing"].clone())
    };
    let ([printed, errors], are_missing) = told(script);
    assert_eq!(printed, expected, "{errors}");
    let said = errors
        .lines()
        .filter(|line| line.contains("File too large"));
    assert_eq!((said.count(), errors.lines().count()), (2, 2), "{errors}");
    assert_eq!(are_missing, true);
    let (_, are_missing) = told("cat /arck/file");
    assert_eq!(are_missing, false);
}

/// Daemons leave SIGCHLD ignored to what they start: the kernel forgets how children end then, and `arck run` said
/// that the command could not be executed when it had ended.
#[test]
fn ends_are_noticed_where_they_were_ignored() {
    let place = Place::made();
    let script = "grep SigIgn /proc/self/status; echo text >/arck/file; (exit 4); exit 3";
    let mut command = run(&place.pool(), &[], &["bash", "-c", script]);
    let ignore = || {
        // SAFETY: a system call, between fork and exec.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: see within.
    unsafe { command.pre_exec(ignore) };
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(output.stderr, b"", "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let ignored = text.split_whitespace().last().unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_ne!(ignored & 1 << (libc::SIGCHLD - 1), 0, "{text}");
}

/// An `arck run` that comes while an `arck serve` begins uses that one's controller, or has the pool before it.
#[test]
fn while_somebody_begins_to_serve() {
    let place = Place::made();
    for round in 0..24 {
        let mut serve = arck();
        serve.arg("serve").arg(place.pool());
        let serving = Running::start(serve);
        std::thread::sleep(Duration::from_millis(round % 12));
        let running = Running::start(run(&place.pool(), &[], &["true"]));
        let output = running.finished(Duration::from_secs(60));
        assert_eq!(succeeded(&output), "", "round {round}");
        drop(serving);
    }
}
