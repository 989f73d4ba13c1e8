//! A process with a session of its own, told what to do by lines on its standard input.
//!
//! # Invariants
//! * One line is one order, and each is answered by one line.
//! * What is timed begins and ends in this process; nothing is read or written in between.

use super::how::How;
use super::timing::{until, wait_until};
use super::work::{Done, Task, Worker};
use crate::calls::{Calls, DirectCalls};
use crate::measure::{Random, monotonic as now};
use crate::outcome::Outcome;
use crate::pool::Bench;
use arck_protocol::Request;
use arckfs::{At, ConnectOptions, FileSystem, Handle, Mediation};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// What a session is to do. Times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// A file of so many bytes, written.
    File { path: String, bytes: u64 },
    /// Every other page of a file written over, from the second on.
    Half { path: String, pages: u64 },
    /// A directory with so many files.
    Directory { path: String, names: u64 },
    /// Everything folded, nothing owned.
    GiveUp,
    /// 4 KiB, once; the controller is woken before, or not.
    Write {
        path: String,
        page: u64,
        awake: bool,
    },
    /// A file, made and closed.
    Create { path: String, awake: bool },
    /// Removed, if it is there.
    Remove { path: String },
    /// Whether a file may become mediated by itself.
    MayBeMediated { path: String, may: bool },
    /// A file of so many bytes, written in this way; or, with none, a directory.
    TurnsFile {
        path: String,
        bytes: usize,
        how: How,
    },
    /// Of a program: so many bytes from a file's beginning on, written or read; or, with none, a file made or removed.
    Turn {
        path: String,
        bytes: usize,
        write: bool,
    },
    /// From `begin` to `end`: 4 KiB to one of so many pages; or, with 0 pages, a file made in the
    /// directory, and another one removed.
    Repeat {
        path: String,
        pages: u64,
        in_order: bool,
        /// Which of the two sessions it is.
        part: u64,
        seed: u64,
        begin: u64,
        end: u64,
    },
    /// What FxMark has two do.
    Pair(Task),
}

/// What it says when it is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    Timed {
        begin: u64,
        end: u64,
    },
    /// `busy`: nanoseconds of its processor, where that is told.
    Count {
        operations: u64,
        time: u64,
        busy: Option<u64>,
    },
    Failed(String),
}

/// The other end: the process as the benchmark sees it.
pub struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub name: &'static str,
}

impl Process {
    /// One with a session of its own, or, with the preload library, a program that knows of none.
    pub fn start(bench: &Bench, name: &'static str, library: Option<&Path>) -> Outcome<Process> {
        let mut child = bench
            .worker(library)?
            .args(["--task", "sharing"])
            .stdin(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| format!("starting a session: {error}"))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(orders), Some(answers)) => Ok(Process {
                child,
                orders,
                answers: BufReader::new(answers),
                name,
            }),
            _ => Err("a session without its pipes".to_owned()),
        }
    }

    pub fn tell(&mut self, order: &Order) -> Outcome<()> {
        let mut line = serde_json::to_string(order).map_err(|error| error.to_string())?;
        line.push('\n');
        self.orders
            .write_all(line.as_bytes())
            .map_err(|error| format!("a session is gone: {error}"))
    }

    pub fn hear(&mut self) -> Outcome<Answer> {
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .map_err(|error| format!("a session is gone: {error}"))?;
        match serde_json::from_str(&line) {
            Ok(Answer::Failed(why)) => Err(format!("session {}: {why}", self.name)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(format!("session {} said {line:?}: {error}", self.name)),
        }
    }

    pub fn ask(&mut self, order: &Order) -> Outcome<Answer> {
        self.tell(order)?;
        self.hear()
    }

    pub fn end(self) -> Outcome<()> {
        let Process {
            mut child, orders, ..
        } = self;
        drop(orders);
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("a session ended with {other:?}")),
        }
    }
}

const PAGE: usize = 4096;
/// Files that a session leaves in a directory, the oldest of which goes when another is made.
const LEFT: usize = 8;

/// The process.
pub fn main(pool: &Path) -> Outcome<()> {
    let options = ConnectOptions {
        pool: pool.to_owned(),
        mount: crate::pool::MOUNT.into(),
        group: Vec::new(),
        resolver: arckfs::Resolver::default(),
    };
    let file_system = FileSystem::connect(&options).map_err(|error| error.to_string())?;
    let mut session = Session {
        calls: DirectCalls { file_system },
        files: HashMap::new(),
        places: HashMap::new(),
        left: HashMap::new(),
        worker: Worker::default(),
    };
    follow_all(|order| session.follow(order))?;
    let disconnected = session.calls.file_system.disconnect();
    disconnected.map_err(|errno| format!("ending the session: {errno}"))
}

/// The process as a program under the preload library, without a group: all that it does are libc's calls.
pub fn program() -> Outcome<()> {
    follow_all(|order| match order {
        Order::Turn {
            path,
            bytes: 0,
            write,
        } => {
            let begin = now();
            match write {
                true => std::fs::File::create_new(path).map(drop),
                false => std::fs::remove_file(path),
            }
            .map_err(|error| format!("{path}: {error}"))?;
            Ok(Answer::Timed { begin, end: now() })
        }
        Order::Turn { path, bytes, write } => {
            let failed = |error: std::io::Error| format!("{path}: {error}");
            let mut data = vec![7; *bytes];
            let mut options = std::fs::OpenOptions::new();
            let file = options.read(true).write(true).open(path).map_err(failed)?;
            let begin = now();
            match write {
                true => file.write_all_at(&data, 0),
                false => file.read_exact_at(&mut data, 0),
            }
            .map_err(failed)?;
            Ok(Answer::Timed { begin, end: now() })
        }
        other => Err(format!("{other:?} is a session's")),
    })
}

fn follow_all(mut follow: impl FnMut(&Order) -> Outcome<Answer>) -> Outcome<()> {
    let mut output = std::io::stdout();
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let order = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let answer = follow(&order).unwrap_or_else(Answer::Failed);
        let answer = serde_json::to_string(&answer).map_err(|error| error.to_string())?;
        writeln!(output, "{answer}").map_err(|error| error.to_string())?;
    }
    Ok(())
}

struct Session {
    calls: DirectCalls,
    files: HashMap<String, Handle>,
    /// Where writing in order goes on.
    places: HashMap<String, u64>,
    /// Files made in directories and not removed yet, and how many were made.
    left: HashMap<String, (u64, VecDeque<CString>)>,
    worker: Worker,
}

impl Session {
    fn ask(&self, request: &Request) -> Outcome<()> {
        let asked = self.calls.file_system.session().ask(request);
        asked.map_err(|errno| format!("{request:?}: {errno}"))
    }

    fn mediate(&self, path: &str, mediation: Mediation) -> Outcome<()> {
        let file_system = &self.calls.file_system;
        let set = file_system.set_mediation(At::Root, path.as_bytes(), mediation);
        set.map_err(|failure| format!("{path}: {failure:?}"))
    }

    fn file(&mut self, path: &str) -> Outcome<Handle> {
        if let Some(&file) = self.files.get(path) {
            return Ok(file);
        }
        let file = self.calls.open(&self.calls.path(path), libc::O_RDWR)?;
        self.files.insert(path.to_owned(), file);
        Ok(file)
    }

    fn make(&self, path: &CString) -> Outcome<()> {
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        self.calls.close(self.calls.open(path, flags)?);
        Ok(())
    }

    fn follow(&mut self, order: &Order) -> Outcome<Answer> {
        match order {
            Order::File { path, bytes } => {
                let flags = libc::O_CREAT | libc::O_RDWR;
                let file = self.calls.open(&self.calls.path(path), flags)?;
                let data = vec![1; 1 << 20];
                for place in (0..*bytes).step_by(data.len()) {
                    self.calls.write(file, &data, place)?;
                }
                self.files.insert(path.clone(), file);
                Ok(Answer::Done)
            }
            Order::Half { path, pages } => {
                let file = self.file(path)?;
                for page in (1..*pages).step_by(2) {
                    self.calls.write(file, &[2; PAGE], page * PAGE as u64)?;
                }
                Ok(Answer::Done)
            }
            Order::Directory { path, names } => {
                self.calls.make_directory(&self.calls.path(path))?;
                for name in 0..*names {
                    self.make(&self.calls.path(&format!("{path}/{name:07}")))?;
                }
                Ok(Answer::Done)
            }
            Order::GiveUp => {
                self.ask(&Request::CommitAll { release: true })?;
                Ok(Answer::Done)
            }
            Order::Write { path, page, awake } => {
                let file = self.file(path)?;
                let data = [*page as u8; PAGE];
                if *awake {
                    self.ask(&Request::Ping)?;
                }
                let begin = now();
                self.calls.write(file, &data, page * PAGE as u64)?;
                Ok(Answer::Timed { begin, end: now() })
            }
            Order::Create { path, awake } => {
                let path = self.calls.path(path);
                if *awake {
                    self.ask(&Request::Ping)?;
                }
                let begin = now();
                self.make(&path)?;
                Ok(Answer::Timed { begin, end: now() })
            }
            Order::MayBeMediated { path, may } => {
                self.mediate(
                    path,
                    if *may {
                        Mediation::Auto
                    } else {
                        Mediation::Off
                    },
                )?;
                Ok(Answer::Done)
            }
            Order::TurnsFile { path, bytes, how } => {
                let data = vec![1; *bytes];
                if *how == How::Tmpfs {
                    match bytes {
                        0 => std::fs::create_dir(path),
                        _ => std::fs::write(path, &data),
                    }
                    .map_err(|error| format!("{path}: {error}"))?;
                    return Ok(Answer::Done);
                }
                if *bytes == 0 {
                    let path = path.as_bytes();
                    let made = self.calls.file_system.make_directory(At::Root, path, 0o777);
                    made.map_err(|failure| format!("{failure:?}"))?;
                } else {
                    let flags = libc::O_CREAT | libc::O_RDWR;
                    let file = self.calls.open(&self.calls.path(path), flags)?;
                    self.calls.write(file, &data, 0)?;
                    self.files.insert(path.clone(), file);
                }
                let mediation = match how {
                    How::Messages => Mediation::On,
                    How::Auto => Mediation::Auto,
                    How::Owners | How::Tmpfs => Mediation::Off,
                };
                self.mediate(path, mediation)?;
                Ok(Answer::Done)
            }
            Order::Pair(task) => match self.worker.follow(&self.calls, task)? {
                Some(Done {
                    operations,
                    time,
                    busy,
                }) => Ok(Answer::Count {
                    operations,
                    time,
                    busy: Some(busy),
                }),
                None => Ok(Answer::Done),
            },
            Order::Turn { .. } => Err("a turn is a program's".to_owned()),
            Order::Remove { path } => {
                self.calls.unlink(&self.calls.path(path))?;
                Ok(Answer::Done)
            }
            Order::Repeat {
                path,
                pages,
                in_order,
                part,
                seed,
                begin,
                end,
            } => {
                let begin = wait_until(*begin);
                let operations = match pages {
                    0 => self.create_and_remove(path, *part, *end)?,
                    _ if *in_order => self.write_in_order(path, *pages, *part, *end)?,
                    _ => self.write_at_random(path, *pages, *seed, *end)?,
                };
                let time = now().saturating_sub(begin).max(1);
                Ok(Answer::Count {
                    operations,
                    time,
                    busy: None,
                })
            }
        }
    }

    fn write_in_order(&mut self, path: &str, pages: u64, part: u64, end: u64) -> Outcome<u64> {
        let file = self.file(path)?;
        let place = self.places.entry(path.to_owned());
        let place = place.or_insert(part * pages / 2);
        let data = [part as u8; PAGE];
        until(end, || {
            *place = (*place + 1) % pages;
            self.calls.write(file, &data, *place * PAGE as u64)
        })
    }

    fn write_at_random(&mut self, path: &str, pages: u64, seed: u64, end: u64) -> Outcome<u64> {
        let file = self.file(path)?;
        let mut random = Random(seed);
        let data = [seed as u8; PAGE];
        until(end, || {
            let page = random.next() % pages;
            self.calls.write(file, &data, page * PAGE as u64)
        })
    }

    fn create_and_remove(&mut self, path: &str, part: u64, end: u64) -> Outcome<u64> {
        let (mut made, mut left) = self.left.remove(path).unwrap_or_default();
        let count = until(end, || {
            let file = self.calls.path(&format!("{path}/new-{part}-{made}"));
            made += 1;
            self.make(&file)?;
            left.push_back(file);
            match left.len() > LEFT {
                true => left
                    .pop_front()
                    .map_or(Ok(()), |old| self.calls.unlink(&old)),
                false => Ok(()),
            }
        });
        self.left.insert(path.to_owned(), (made, left));
        count
    }
}
