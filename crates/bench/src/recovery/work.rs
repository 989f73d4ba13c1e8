//! The processes with sessions: those that make files and stay until they are killed, and the one
//! that asks first.
//!
//! Invariant: a process says one line when it is done, and what is timed by it ends before that.

use crate::calls::{Calls, DirectCalls};
use crate::measure::monotonic;
use crate::outcome::Outcome;
use crate::pool::Bench;
use crate::pool::MOUNT;
use arckfs::{ConnectOptions, FileSystem};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Files to be made below a directory of this name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    pub name: String,
    pub files: u64,
    /// In directories of so many.
    pub each: u64,
    pub bytes: usize,
}

impl Work {
    /// One small file.
    pub fn one() -> Work {
        Work {
            name: "one".to_owned(),
            files: 1,
            each: 1,
            bytes: 1,
        }
    }
}

/// A process that makes files.
pub struct Maker {
    child: Child,
    /// Its end would be the session's.
    _input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Maker {
    pub fn start(bench: &Bench, work: &Work, quiet: bool) -> Outcome<Maker> {
        let mut child = bench
            .worker(None)?
            .args(["--task", "make"])
            .stdin(Stdio::piped())
            .stderr(match quiet {
                // They are killed, and some may say that their controller is gone.
                true => Stdio::null(),
                false => Stdio::inherit(),
            })
            .spawn()
            .map_err(|error| format!("starting a session: {error}"))?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a session without its pipes".to_owned());
        };
        let line = serde_json::to_string(work).map_err(|error| error.to_string())?;
        writeln!(input, "{line}").map_err(|error| format!("a session is gone: {error}"))?;
        Ok(Maker {
            child,
            _input: Some(input),
            output: BufReader::new(output),
        })
    }

    /// Waits until it has made all.
    pub fn done(mut self) -> Outcome<Maker> {
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .map_err(|error| format!("a session is gone: {error}"))?;
        match line.trim_end() {
            "done" => Ok(self),
            other => Err(format!("a session failed: {other}")),
        }
    }

    pub fn kill(mut self) {
        // It is our own child, and waited for: there is nobody else of its number.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(pool: &Path) -> Outcome<DirectCalls> {
    let options = ConnectOptions {
        pool: pool.to_path_buf(),
        mount: MOUNT.into(),
        group: Vec::new(),
        resolver: arckfs::Resolver::default(),
    };
    let file_system = FileSystem::connect(&options).map_err(|error| error.to_string())?;
    Ok(DirectCalls { file_system })
}

/// In a worker: makes what its standard input says, and stays until that ends.
pub fn make(pool: &Path) -> Outcome<()> {
    let stdin = std::io::stdin();
    let mut line = String::new();
    stdin
        .lock()
        .read_line(&mut line)
        .map_err(|error| error.to_string())?;
    let work: Work = serde_json::from_str(&line).map_err(|error| error.to_string())?;
    let calls = connect(pool)?;
    match make_all(&calls, &work) {
        Ok(()) => println!("done"),
        Err(line) => println!("{line}"),
    }
    let _ = stdin.lock().read_to_end(&mut Vec::new());
    Ok(())
}

fn make_all(calls: &DirectCalls, work: &Work) -> Outcome<()> {
    calls.make_directory(&calls.path(&work.name))?;
    let data = vec![1; work.bytes];
    for file in 0..work.files {
        let directory = file / work.each;
        if file % work.each == 0 {
            calls.make_directory(&calls.path(&format!("{}/{directory:07}", work.name)))?;
        }
        let path = calls.path(&format!("{}/{directory:07}/{file:07}", work.name));
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        let handle = calls.open(&path, flags)?;
        if !data.is_empty() {
            calls.write(handle, &data, 0)?;
        }
        calls.close(handle);
    }
    Ok(())
}

/// Starts a process that looks a file up and opens it; when it had the answer, by
/// CLOCK_MONOTONIC.
pub fn ask_first(bench: &Bench, path: &str) -> Outcome<u64> {
    let output = bench
        .worker(None)?
        .args(["--task", "first", "--filter", path])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("starting a session: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .map_err(|_| format!("the first session failed: {}", output.status))
}

/// In a worker: looks a file up and opens it, and says when it had the answer.
pub fn first(pool: &Path, path: &str) -> Outcome<()> {
    let calls = connect(pool)?;
    let path = calls.path(path);
    calls.stat(&path)?;
    let file = calls.open(&path, libc::O_RDONLY)?;
    println!("{}", monotonic());
    calls.close(file);
    let disconnected = calls.file_system.disconnect();
    disconnected.map_err(|errno| format!("ending the session: {errno}"))
}
