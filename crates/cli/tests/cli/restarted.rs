//! Private controllers that are killed under a program: `arck run` starts another one, and the program
//! goes on without an error and without losing anything.

use crate::support::{Place, Serving, arck, run, succeeded};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Makes, writes, renames and removes, and says a number when all of its round is done; until its
/// standard input ends.
const WRITER: &str = r#"
import os, select, sys
top = sys.argv[1]
os.mkdir(top)
log = os.open(top + "/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
n = 0
while not select.select([0], [], [], 0)[0]:
    with open(f"{top}/new", "w") as file:
        file.write(f"content {n}")
    os.rename(f"{top}/new", f"{top}/{n}")
    os.write(log, b"%07d\n" % n)
    if n >= 300:
        os.unlink(f"{top}/{n - 300}")
    print(n, flush=True)
    n += 1
"#;

/// Says what is missing of so many rounds.
const READER: &str = r#"
import os, sys
top, rounds = sys.argv[1], int(sys.argv[2])
log = open(top + "/log").read().split()
assert log == ["%07d" % n for n in range(len(log))], log
assert len(log) >= rounds, len(log)
for n in range(max(0, len(log) - 300), rounds):
    assert open(f"{top}/{n}").read() == f"content {n}", n
names = set(os.listdir(top))
assert not {str(n) for n in range(0, rounds - 300)} & names
print("all")
"#;

/// The process that serves the pool, or did last.
fn controller(pool: &Path) -> i32 {
    let text = std::fs::read_to_string(pool.join("lock")).unwrap();
    text.trim().parse().unwrap()
}

fn signal(process: i32, signal: libc::c_int) {
    // SAFETY: no memory is involved; a controller that this test's programs have started.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A program that writes, under `arck run`.
struct Writer {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    name: String,
    /// Rounds that it has told of.
    rounds: u64,
}

impl Writer {
    fn start(pool: &Path, name: &str) -> Writer {
        let top = format!("/arck/{name}");
        let mut child = run(pool, &[], &["python3", "-c", WRITER, &top])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Writer {
            child,
            said,
            name: name.into(),
            rounds: 0,
        }
    }

    /// Waits for so many rounds more.
    fn go_on(&mut self, rounds: u64) {
        for _ in 0..rounds {
            let mut line = String::new();
            self.said.read_line(&mut line).unwrap();
            assert_eq!(line.trim().parse(), Ok(self.rounds), "{}", self.name);
            self.rounds += 1;
        }
    }

    /// Ends it; what was said on standard error.
    fn end(mut self, pool: &Path) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        self.rounds += rest.lines().count() as u64;
        let output = self.child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        let (top, rounds) = (format!("/arck/{}", self.name), self.rounds.to_string());
        let read = run(pool, &[], &["python3", "-c", READER, &top, &rounds]);
        assert_eq!(succeeded(&{ read }.output().unwrap()), "all\n");
        text
    }
}

fn is_clean(pool: &Path) {
    let checked = arck().arg("check").arg(pool).output().unwrap();
    assert_eq!(succeeded(&checked), "");
}

/// Kills the controller; gives the next one.
pub fn kill_and_wait_for_the_next(pool: &Path) -> i32 {
    let killed = controller(pool);
    signal(killed, libc::SIGKILL);
    wait_until("nobody starts another one", || {
        let text = std::fs::read_to_string(pool.join("lock")).unwrap();
        text.trim().parse().is_ok_and(|next: i32| next != killed)
    });
    controller(pool)
}

/// A controller that ends by a signal of its own choice: programs that are started then say at once
/// that they wait, and in the end what became of it. (How soon it was said was told by the clock.)
#[test]
fn who_comes_when_nobody_serves_says_that_he_waits() {
    // Somebody serves the pool again: it is said before that. Nobody does: after the time that was set.
    for (is_served_again, seconds) in [(true, 600), (false, 2)] {
        let place = Place::made();
        let pool = place.pool();
        let mut serving = Serving::start(&pool, &[]);
        let script = "ls /arck && echo on && read line; ls /arck; echo status $?";
        let mut command = run(&pool, &[], &["sh", "-c", script]);
        let mut child = command
            .env("ARCK_WAIT", seconds.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "on\n");
        serving.signal(libc::SIGTERM);
        assert!(serving.process.wait().unwrap().success());
        let began = Instant::now();
        child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        let shown = pool.display();
        assert_eq!(
            line,
            format!(
                "arck: nobody serves the pool {shown}; waiting for it, at most {seconds} s \
                 (arck serve {shown})\n"
            )
        );
        let again = is_served_again.then(|| Serving::start(&pool, &[]));
        let (mut rest, mut end) = (String::new(), String::new());
        said.read_to_string(&mut end).unwrap();
        told.read_to_string(&mut rest).unwrap();
        child.wait().unwrap();
        if let Some(mut serving) = again {
            assert_eq!((end.as_str(), rest.as_str()), ("status 0\n", ""));
            serving.signal(libc::SIGTERM);
            assert!(serving.process.wait().unwrap().success());
            continue;
        }
        let waited = began.elapsed();
        assert!(waited >= Duration::from_secs(seconds), "it did not wait");
        assert!(
            rest.contains("nobody has served this pool for 2 s") && rest.contains("started again"),
            "{rest}"
        );
        assert!(end.starts_with("status ") && end != "status 0\n", "{end}");
    }
}

#[test]
fn a_program_goes_on_when_its_private_controller_is_killed() {
    let place = Place::made();
    let pool = place.pool();
    let mut writer = Writer::start(&pool, "w");
    writer.go_on(100);
    for _ in 0..4 {
        kill_and_wait_for_the_next(&pool);
        // Somebody else looks, so that the next controller has to ask the writer's session.
        let look = run(&pool, &[], &["ls", "/arck/w"]).output().unwrap();
        assert!(look.status.success(), "{look:?}");
        writer.go_on(300);
    }
    let said = writer.end(&pool);
    // Once, and not what only somebody who waits in vain would say.
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("arck run: the private controller of "),
        "{said}"
    );
    assert!(said.contains("ended (signal: 9 (SIGKILL));"), "{said}");
    is_clean(&pool);
}

#[test]
fn who_only_found_the_private_controller_starts_the_next_one_too() {
    let place = Place::made();
    let pool = place.pool();
    // It starts the controller, and ends.
    let mut first = run(&pool, &[], &["sh", "-c", "read line"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("nobody serves the pool", || pool.join("socket").exists());
    let started = controller(&pool);
    let mut writer = Writer::start(&pool, "w");
    writer.go_on(50);
    drop(first.stdin.take());
    first.wait().unwrap();
    assert_eq!(controller(&pool), started);
    let next = kill_and_wait_for_the_next(&pool);
    writer.go_on(300);
    assert_eq!(controller(&pool), next);
    writer.end(&pool);
    // The one that was started last ends with who uses it, too.
    wait_until("it stays", || !pool.join("socket").exists());
    is_clean(&pool);
}

#[test]
fn a_controller_that_is_not_private_is_left_to_who_started_it() {
    let place = Place::made();
    let pool = place.pool();
    let mut serving = Serving::start(&pool, &[]);
    let mut writer = Writer::start(&pool, "w");
    writer.go_on(50);
    let served = controller(&pool);
    serving.process.kill().unwrap();
    serving.process.wait().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(controller(&pool), served);
    let mut serving = Serving::start(&pool, &[]);
    writer.go_on(300);
    writer.end(&pool);
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
    is_clean(&pool);
}

#[test]
fn a_controller_that_was_told_to_end_is_not_started_again() {
    let place = Place::made();
    let pool = place.pool();
    let mut child = run(&pool, &[], &["sh", "-c", "echo hi >/arck/f; read line"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It is the one that starts the controller, and so knows how that ends.
    wait_until("nobody serves the pool", || pool.join("socket").exists());
    let in_pool = || {
        let look = run(&pool, &[], &["cat", "/arck/f"]).output().unwrap();
        look.stdout == b"hi\n"
    };
    wait_until("it does nothing", in_pool);
    let ended = controller(&pool);
    signal(ended, libc::SIGTERM);
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(
        line.contains("ended, and no other one is started"),
        "{line}"
    );
    assert!(line.contains("told to end"), "{line}");
    assert_eq!(controller(&pool), ended);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
    is_clean(&pool);
}

/// Where nobody is left to start another one, it is said what became of it.
#[test]
fn a_controller_that_is_killed_at_the_end_loses_nothing() {
    let place = Place::made();
    let pool = place.pool();
    let script = "echo hi >/arck/f; kill -9 $(cat \"$0\")";
    let lock = pool.join("lock");
    let mut command: Command = run(&pool, &[], &["sh", "-c", script]);
    let output = command.arg(lock).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("signal: 9"), "{text}");
    let is_whole = |line: &str| !line.trim_end().ends_with(':');
    assert!(text.lines().all(is_whole), "{text}");
    let look = run(&pool, &[], &["cat", "/arck/f"]).output().unwrap();
    assert_eq!(succeeded(&look), "hi\n");
    is_clean(&pool);
}
