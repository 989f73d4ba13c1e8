//! The workloads as the test sees them: what was acknowledged, and whether it is there.
//!
//! # Invariant
//! * A check of what is there is made by a session of its own, from beside the workload if that
//!   runs; then what it finds may be more than what was acknowledged before.

use crate::support::run;
use crate::work::contents;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub trait Workload {
    fn name(&self) -> &'static str;
    /// How much is acknowledged until now.
    fn acknowledged(&mut self) -> u64;
    fn runner(&mut self) -> &mut Runner;
    /// Everything acknowledged is there. Starts it again if it does not run.
    fn check(&mut self, pool: &Path, context: &str);
    /// What its processes are at, for who asks why it does not go on.
    fn told(&mut self) -> String {
        self.runner().told()
    }
}

/// How much a workload that has ended since the last check had acknowledged.
fn acknowledged_at_end(workload: &mut impl Workload, context: &str) -> Option<u64> {
    let name = workload.name();
    let is_over = workload.runner().is_over(name, context);
    is_over.then(|| workload.acknowledged())
}

/// A program under `arck run`, the leader of a process group, and the lines that it has said.
pub struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    pub fn start(mut command: Command) -> Program {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().expect("spawn");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // The end of a line that was cut off says nothing.
            for line in output.split(b'\n').map_while(Result::ok) {
                if sender
                    .send(String::from_utf8_lossy(&line).into_owned())
                    .is_err()
                {
                    break;
                }
            }
        });
        Program { child, lines }
    }

    /// By now it has ended, or it was told to.
    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_some()
    }

    /// How it ended, if it does so in this time.
    pub fn ends(&mut self, bound: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < bound {
            let status = self.child.try_wait().expect("wait");
            if status.is_some() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    fn kill(&mut self, group: bool) {
        self.signal(libc::SIGKILL, group);
        self.child.wait().expect("wait");
    }

    /// Its processes: name, what each of their threads waits for, and in which system call.
    fn told(&self) -> String {
        let leader = self.child.id().to_string();
        let mut told = String::new();
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            // After the name: state, parent, process group.
            let group = stat
                .rsplit(')')
                .next()
                .and_then(|rest| rest.split(' ').nth(3));
            if group != Some(&leader) {
                continue;
            }
            for thread in std::fs::read_dir(entry.path().join("task"))
                .into_iter()
                .flatten()
                .flatten()
            {
                let word = |name: &str| {
                    let text = std::fs::read_to_string(thread.path().join(name));
                    text.unwrap_or_default().trim().to_owned()
                };
                told += &format!(
                    "{} ({}): waits in {}, system call {}\n",
                    thread.path().display(),
                    word("comm"),
                    word("wchan"),
                    word("syscall")
                );
            }
        }
        told
    }

    /// To the process that uses the pool, or to all of the group. Nothing, if it has been waited for.
    fn signal(&mut self, signal: libc::c_int, group: bool) {
        if self.has_ended() {
            return;
        }
        let leader = self.child.id();
        let children = format!("/proc/{leader}/task/{leader}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        // What serves the mount beneath is in a group of its own.
        let is_commands = |process: &libc::pid_t| {
            // SAFETY: a number.
            unsafe { libc::getpgid(*process) == leader as i32 }
        };
        let command = children
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .find(is_commands);
        match command {
            // SAFETY: signals to processes that descend from this one.
            Some(process) if !group => unsafe { libc::kill(process, signal) },
            // SAFETY: the same.
            _ => unsafe { libc::kill(-(leader as i32), signal) },
        };
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill(true);
    }
}

/// What this program prints as a worker.
fn ask(pool: &Path, words: &[&str], context: &str) -> String {
    let this = std::env::current_exe().expect("this program");
    let mut all = vec![this.to_str().expect("a path"), "worker"];
    all.extend(words);
    let output = run(pool, &[], &all).output().expect("arck run");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{context}: {words:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn worker(pool: &Path, words: &[&str]) -> Program {
    let this = std::env::current_exe().expect("this program");
    let mut all = vec![this.to_str().expect("a path"), "worker"];
    all.extend(words);
    Program::start(run(pool, &[], &all))
}

/// What the workloads have in common: a program that may run, and was killed by the test or not.
#[derive(Default)]
pub struct Runner {
    program: Option<Program>,
    was_killed: bool,
}

impl Runner {
    pub fn is_running(&mut self) -> bool {
        self.program
            .as_mut()
            .is_some_and(|program| !program.has_ended())
    }

    /// Kills the process that uses the pool, or all of its group.
    pub fn kill(&mut self, group: bool) {
        if let Some(program) = &mut self.program {
            program.kill(group);
        }
        self.was_killed = true;
    }

    /// Stops it, or has it go on.
    pub fn signal(&mut self, signal: libc::c_int, group: bool) {
        if let Some(program) = &mut self.program {
            program.signal(signal, group);
        }
    }

    /// Whether it is to be started (again). It has not ended by itself.
    pub fn is_over(&mut self, name: &str, context: &str) -> bool {
        let is_over = !self.is_running();
        let is_first = self.program.is_none();
        assert!(
            !is_over || is_first || self.was_killed,
            "{context}: {name} ended by itself"
        );
        is_over
    }

    pub fn told(&self) -> String {
        self.program.as_ref().map(Program::told).unwrap_or_default()
    }

    pub fn set(&mut self, program: Program) {
        self.program = Some(program);
        self.was_killed = false;
    }

    /// The lines that have come since the last look; all of a program that has ended.
    pub fn lines(&mut self) -> Vec<String> {
        let is_over = !self.is_running();
        let Some(program) = &mut self.program else {
            return Vec::new();
        };
        match is_over {
            true => program.lines.iter().collect(),
            false => program.lines.try_iter().collect(),
        }
    }
}

/// Records with checksums, appended to a file.
pub struct Log {
    name: &'static str,
    runner: Runner,
    records: u64,
}

impl Log {
    pub fn new(name: &'static str) -> Log {
        Log {
            name,
            runner: Runner::default(),
            records: 0,
        }
    }
}

impl Workload for Log {
    fn name(&self) -> &'static str {
        self.name
    }
    fn acknowledged(&mut self) -> u64 {
        for line in self.runner.lines() {
            if let Some(records) = line.strip_prefix("done ") {
                self.records = records.parse().expect("a number");
            }
        }
        self.records
    }
    fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }
    fn check(&mut self, pool: &Path, context: &str) {
        let is_over = self.runner.is_over(self.name, context);
        let acknowledged = self.acknowledged();
        let least = acknowledged.to_string();
        let found = ask(pool, &["read-log", self.name, &least], context);
        let found = found
            .trim()
            .strip_prefix("records ")
            .and_then(|n| n.parse::<u64>().ok());
        let found = found.expect("a number");
        assert!(
            found >= acknowledged,
            "{context}: {found} of {acknowledged} records"
        );
        if is_over {
            assert!(
                found <= acknowledged + 1,
                "{context}: {found} of {acknowledged} records"
            );
            self.runner.set(worker(pool, &["log", self.name, &least]));
        }
    }
}

/// Files that are made, written, moved and removed.
pub struct Storm {
    name: &'static str,
    runner: Runner,
    files: BTreeMap<String, Option<u64>>,
    /// What was begun, and is not done.
    under_way: Option<String>,
    done: u64,
    starts: u64,
}

impl Storm {
    pub fn new(name: &'static str) -> Storm {
        Storm {
            name,
            runner: Runner::default(),
            files: BTreeMap::new(),
            under_way: None,
            done: 0,
            starts: 0,
        }
    }

    fn apply(files: &mut BTreeMap<String, Option<u64>>, step: &str) {
        let words: Vec<&str> = step.split(' ').collect();
        match words[..] {
            ["create", name] => drop(files.insert(name.to_owned(), None)),
            ["unlink", name] => drop(files.remove(name)),
            ["rename", from, to] => {
                if let Some(found) = files.remove(from) {
                    files.insert(to.to_owned(), found);
                }
            }
            ["write", name, write] => {
                files.insert(name.to_owned(), Some(write.parse().expect("a number")));
            }
            _ => panic!("{step}"),
        }
    }

    fn listed(listing: &str) -> BTreeMap<String, Option<u64>> {
        assert!(listing.ends_with("end\n"), "{listing}");
        let mut files = BTreeMap::new();
        for line in listing
            .lines()
            .filter_map(|line| line.strip_prefix("file "))
        {
            let words: Vec<&str> = line.split(' ').collect();
            let found = match words[1..] {
                ["empty"] => None,
                [one, two] => {
                    let word = |text: &str| text.parse::<u64>().expect("a word").to_le_bytes();
                    let bytes = [word(one), word(two)].concat();
                    let write = one.parse().expect("a word");
                    // One that was being written when it was killed may be half old, half new.
                    let is_whole = bytes == contents(write);
                    Some(if is_whole { write } else { u64::MAX })
                }
                _ => panic!("{line}"),
            };
            files.insert(words[0].to_owned(), found);
        }
        files
    }
}

impl Workload for Storm {
    fn name(&self) -> &'static str {
        self.name
    }
    fn acknowledged(&mut self) -> u64 {
        for line in self.runner.lines() {
            if let Some(step) = line.strip_prefix("begin ") {
                self.under_way = Some(step.to_owned());
            } else if let Some(step) = line.strip_prefix("done ") {
                Storm::apply(&mut self.files, step);
                self.under_way = None;
                self.done += 1;
            }
        }
        self.done
    }
    fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }
    fn check(&mut self, pool: &Path, context: &str) {
        let is_over = self.runner.is_over(self.name, context);
        self.acknowledged();
        // Beside a storm that goes on, only that it can be listed.
        let listing = ask(pool, &["list", self.name], context);
        let found = Storm::listed(&listing);
        if !is_over {
            return;
        }
        let mut may_be = self.files.clone();
        let under_way = self.under_way.take();
        if let Some(step) = &under_way {
            Storm::apply(&mut may_be, step);
        }
        let mut expected = self.files.clone();
        let in_write = under_way
            .as_deref()
            .and_then(|step| step.strip_prefix("write "));
        if let Some((name, _)) = in_write.and_then(|step| step.split_once(' ')) {
            // Any part of it may be there.
            for files in [&mut expected, &mut may_be] {
                files.insert(name.to_owned(), found.get(name).copied().flatten());
            }
        }
        assert!(
            found == expected || found == may_be,
            "{context}: {}: found {found:?}, expected {expected:?}, or with {under_way:?}",
            self.name
        );
        self.files = found;
        self.starts += 1;
        let seed = self.starts.to_string();
        self.runner.set(worker(pool, &["storm", self.name, &seed]));
    }
}

/// Rows, each inserted by a transaction of its own.
pub struct Sqlite {
    name: &'static str,
    runner: Runner,
    rows: u64,
}

impl Sqlite {
    pub fn new(name: &'static str) -> Sqlite {
        Sqlite {
            name,
            runner: Runner::default(),
            rows: 0,
        }
    }

    fn ask(&self, pool: &Path, question: &str, context: &str) -> String {
        let file = format!("/arck/{}", self.name);
        let command = ["sqlite3", "-cmd", ".timeout 60000", &file, question];
        let output = run(pool, &[], &command).output().expect("arck run");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && errors.is_empty(),
            "{context}: {question}: {errors}"
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Workload for Sqlite {
    fn name(&self) -> &'static str {
        self.name
    }
    fn acknowledged(&mut self) -> u64 {
        for line in self.runner.lines() {
            // Behind prompts, and after what it was told.
            let row = line.split_once("done ").map(|(_, row)| row.trim().parse());
            if let Some(Ok(row)) = row {
                self.rows = row;
            }
        }
        self.rows
    }
    fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }
    fn check(&mut self, pool: &Path, context: &str) {
        let Some(acknowledged) = acknowledged_at_end(self, context) else {
            return;
        };
        self.ask(
            pool,
            "CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, x TEXT)",
            context,
        );
        assert_eq!(
            self.ask(pool, "PRAGMA integrity_check", context),
            "ok",
            "{context}"
        );
        let question = format!(
            "SELECT count(*), max(n), sum(x = hex(n * n)) FROM t WHERE n <= {acknowledged}"
        );
        let expected = match acknowledged {
            0 => "0||".to_owned(),
            count => format!("{count}|{count}|{count}"),
        };
        assert_eq!(self.ask(pool, &question, context), expected, "{context}");
        let last = self.ask(pool, "SELECT max(n) FROM t", context);
        let first = last.parse::<u64>().map_or(1, |last| last + 1);
        let file = format!("/arck/{}", self.name);
        // Says a prompt, and so what came before it, as soon as a statement is done.
        let command = [
            "sqlite3",
            "-interactive",
            "-bail",
            "-cmd",
            ".timeout 60000",
            &file,
        ];
        let mut program = Program::start(run(pool, &[], &command));
        let mut input = program.child.stdin.take().expect("a pipe");
        std::thread::spawn(move || {
            for row in first.. {
                let insert = format!("INSERT INTO t VALUES ({row}, hex({row} * {row}))");
                if writeln!(input, "{insert} RETURNING 'done ' || n;").is_err() {
                    break;
                }
            }
        });
        self.runner.set(program);
    }
}

/// Keys of the redis server: a round of them is set anew for ever, so that the log, which the server
/// writes anew when it is large, does not fill the pool however long this goes on.
const KEYS: u64 = 20_000;

/// Keys of a server that writes each command to its log before it answers.
pub struct Redis {
    name: &'static str,
    socket: PathBuf,
    runner: Runner,
    client: Option<Receiver<u64>>,
    keys: u64,
}

impl Redis {
    pub fn new(name: &'static str, host: &Path) -> Redis {
        let socket = host.join("redis.sock");
        Redis {
            name,
            socket,
            runner: Runner::default(),
            client: None,
            keys: 0,
        }
    }

    fn connect(&mut self, context: &str) -> BufReader<UnixStream> {
        let began = Instant::now();
        loop {
            if let Ok(stream) = UnixStream::connect(&self.socket) {
                let mut reader = BufReader::new(stream);
                if exchange(&mut reader, "PING").is_some_and(|answer| answer == "+PONG") {
                    return reader;
                }
            }
            assert!(
                self.runner.is_running(),
                "{context}: redis-server does not start"
            );
            assert!(
                began.elapsed() < crate::PATIENCE,
                "{context}: redis-server does not answer"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A command and the first line of its answer.
fn exchange(stream: &mut BufReader<UnixStream>, command: &str) -> Option<String> {
    stream
        .get_mut()
        .write_all(format!("{command}\r\n").as_bytes())
        .ok()?;
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    line.ends_with('\n').then(|| line.trim().to_owned())
}

/// The value of a key.
fn value(stream: &mut BufReader<UnixStream>, key: u64) -> Option<String> {
    // Its length comes first; `$-1`, and nothing more, if there is none.
    let length = exchange(stream, &format!("GET key:{key}"))?;
    if length == "$-1" {
        return None;
    }
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    Some(line.trim_end().to_owned())
}

impl Workload for Redis {
    fn name(&self) -> &'static str {
        self.name
    }
    fn acknowledged(&mut self) -> u64 {
        let is_over = !self.runner.is_running();
        if let Some(client) = &self.client {
            let last = match is_over {
                // Until the client has met the end.
                true => client.iter().last(),
                false => client.try_iter().last(),
            };
            self.keys = last.unwrap_or(self.keys);
        }
        self.keys
    }
    fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }
    fn check(&mut self, pool: &Path, context: &str) {
        let Some(acknowledged) = acknowledged_at_end(self, context) else {
            return;
        };
        let directory = format!("/arck/{}", self.name);
        let socket = self.socket.to_str().expect("a path").to_owned();
        let script = "mkdir -p \"$0\" && exec redis-server --port 0 --unixsocket \"$1\" --dir \"$0\" \
            --save '' --appendonly yes --appendfsync always --daemonize no";
        let command = ["sh", "-c", script, &directory, &socket];
        // It replaces an old socket itself.
        self.runner.set(Program::start(run(pool, &[], &command)));
        let mut stream = self.connect(context);
        for number in acknowledged.saturating_sub(KEYS - 1).max(1)..=acknowledged {
            let found = value(&mut stream, number % KEYS);
            // The next one may have been set, and not acknowledged.
            let next = (acknowledged + 1 == number + KEYS).then_some(acknowledged + 1);
            let is_it = |number: u64| found.as_deref() == Some(&*format!("value {number}"));
            assert!(
                is_it(number) || next.is_some_and(is_it),
                "{context}: the value of number {number} of {acknowledged}: {found:?}"
            );
        }
        let (sender, receiver) = channel();
        self.client = Some(receiver);
        std::thread::spawn(move || {
            for key in acknowledged + 1.. {
                let command = format!("SET key:{} \"value {key}\"", key % KEYS);
                match exchange(&mut stream, &command) {
                    Some(answer) if answer == "+OK" => {}
                    // Killed, or it says that it cannot write: then it is not acknowledged.
                    _ => break,
                }
                if sender.send(key).is_err() {
                    break;
                }
            }
            // Nothing more comes.
            let _ = stream.read_to_end(&mut Vec::new());
        });
    }
}
