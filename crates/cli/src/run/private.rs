//! The private controller of an `arck run`: started with the command, ended after it.
//!
//! # Invariants
//! * One that has said that it is ready serves the pool, and is not ended by us while anybody uses
//!   the pool.
//! * What it says on standard error is told if it fails, and nothing of it otherwise.

use super::telling::plain;
use crate::bar::Bar;
use crate::opening;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a private controller may take until it serves, or says how far it is.
pub const START_LIMIT: Duration = Duration::from_secs(10);
/// How long its end is waited for; it goes on by itself after that.
const END_LIMIT: Duration = Duration::from_secs(30);

/// How one ended.
pub struct End {
    /// As it was told to: the pool is closed.
    pub in_order: bool,
    /// In words: the status, and what it said.
    pub how: String,
}

/// A controller that this process started.
pub struct PrivateController {
    /// Its standard input is the pipe whose end tells it that its starter is gone.
    process: Child,
    /// Says how far it is if that takes long, `ready`, later perhaps `busy`, each on a line.
    status: ChildStdout,
    /// Its standard error, in memory.
    log: File,
}

/// What came through the status pipe.
enum Word {
    Line(String),
    End,
    TimeOut,
}

/// Another controller has had the pool's lock for so long, and no socket.
pub fn being_opened(pool: &Path) -> String {
    format!(
        "another controller is opening the pool {}, and does not serve it after {} s: arck status {0} tells which",
        pool.display(),
        START_LIMIT.as_secs()
    )
}

/// What is asked of a private controller.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// `--persist`.
    pub persist: Option<&'static str>,
    /// `--medium`: a name, or the absolute path of a file, since the controller is in another directory.
    pub medium: Option<String>,
    /// `--nodes`.
    pub nodes: Option<u32>,
    /// Options that were given, by name, and do nothing where the pool is served already.
    pub given: Vec<&'static str>,
}

impl Wishes {
    /// What options and the environment say.
    pub fn new(persist: Option<&'static str>, medium: Option<&str>, nodes: Option<u32>) -> Wishes {
        let given = [
            persist.map(|_| "--persist"),
            medium.map(|_| "--medium"),
            nodes.map(|_| "--nodes"),
        ];
        Wishes {
            persist,
            medium: arck_medium::named(medium),
            nodes,
            given: given.into_iter().flatten().collect(),
        }
    }

    fn tell(&self, command: &mut Command) {
        if let Some(persist) = self.persist {
            command.args(["--persist", persist]);
        }
        match &self.medium {
            Some(medium) => command.args(["--medium", medium]),
            None => command.env_remove(arck_medium::VARIABLE),
        };
        if let Some(nodes) = self.nodes {
            command.args(["--nodes", &nodes.to_string()]);
        }
    }
}

impl PrivateController {
    /// Starts one; none if another one serves the pool by now, or is about to. Blocks until it serves the pool, at most
    /// [`START_LIMIT`], and as long as it says that it comes further.
    pub fn start(pool: &Path, wishes: &Wishes) -> Result<Option<PrivateController>, String> {
        let failed =
            |error: io::Error| format!("cannot start a private controller: {}", plain(&error));
        let log = File::from(
            memfd_create("arck-controller-log", MemfdFlags::CLOEXEC)
                .map_err(|error| failed(error.into()))?,
        );
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("serve")
            .arg(pool)
            .args(["--private", "--ready-fd", "1"]);
        wishes.tell(&mut command);
        command
            .arg0("arck")
            .env_remove("LD_PRELOAD")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().map_err(failed)?)
            // A key on the terminal is for the command; the controller outlives it.
            .process_group(0);
        let mut process = command.spawn().map_err(failed)?;
        let Some(status) = process.stdout.take() else {
            return Err("cannot start a private controller: it has no status pipe".to_string());
        };
        let mut controller = PrivateController {
            process,
            status,
            log,
        };
        match controller.first_word(pool) {
            Word::Line(line) if line == "ready" => Ok(Some(controller)),
            Word::Line(line) if line == "served" => {
                controller.kill();
                Ok(None)
            }
            Word::TimeOut => {
                controller.kill();
                Err(format!(
                    "the private controller of {} does not answer after {} s; run arck serve \
                     yourself to see why",
                    pool.display(),
                    START_LIMIT.as_secs()
                ))
            }
            Word::Line(_) | Word::End => {
                controller.kill();
                let said = controller.said();
                Err(if said.is_empty() {
                    "the private controller ended without a word".to_string()
                } else {
                    said
                })
            }
        }
    }

    /// The first word that is not how far it is with opening the pool: as long as it says that, it
    /// is waited for.
    fn first_word(&mut self, pool: &Path) -> Word {
        let what = format!("arck run: opening {}", pool.display());
        let bar = Bar::new(what.clone(), Duration::ZERO);
        loop {
            let word = self.next_word(START_LIMIT);
            if let Word::Line(line) = &word
                && let Some((done, all, step)) = opening::read(line)
            {
                bar.step(&format!("{what}, {step}"), done, all);
                continue;
            }
            bar.end();
            return word;
        }
    }

    /// For one that failed to start; it has nothing to lose.
    fn kill(&mut self) {
        // It may have ended by itself, and then there is nothing to kill.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Lets it end, unless others use the pool.
    pub fn end(mut self) -> Option<String> {
        drop(self.process.stdin.take());
        match self.next_word(END_LIMIT) {
            Word::Line(_) => None,
            Word::TimeOut => Some(format!(
                "the private controller is still busy after {} s; it ends by itself",
                END_LIMIT.as_secs()
            )),
            Word::End => {
                let end = self.ended();
                match end.in_order {
                    true => Some(self.said()).filter(|said| !said.is_empty()),
                    false => Some(format!(
                        "the private controller has not closed the pool: {}; whatever was done on it is \
                         there when it is used again",
                        end.how
                    )),
                }
            }
        }
    }

    /// What says that it is gone, by being closed at the other end.
    pub fn sign_of_life(&self) -> BorrowedFd<'_> {
        self.status.as_fd()
    }

    /// Of one that is at its end: how it ended. Blocks until the system has taken it down.
    pub fn ended(&mut self) -> End {
        let status = self.process.wait();
        let in_order = status.as_ref().is_ok_and(|status| status.success());
        let mut how = match status {
            Ok(status) => status.to_string(),
            Err(error) => plain(&error),
        };
        let said = self.said();
        if !said.is_empty() {
            how = format!("{how}, {said}");
        }
        End { in_order, how }
    }

    /// What it wrote to standard error, trimmed; without its own name in front.
    fn said(&mut self) -> String {
        let mut text = Vec::new();
        // What cannot be read is not said.
        let _ = self.log.rewind();
        let _ = self.log.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        let text = text.trim();
        text.strip_prefix("arck serve: ")
            .or(text.strip_prefix("arck: "))
            .unwrap_or(text)
            .to_string()
    }

    /// The next line of the status pipe, waiting at most `limit`.
    fn next_word(&mut self, limit: Duration) -> Word {
        let started = Instant::now();
        let mut line = Vec::new();
        loop {
            let left = limit.saturating_sub(started.elapsed());
            let Ok(timeout) = rustix::event::Timespec::try_from(left) else {
                return Word::TimeOut;
            };
            match poll(
                &mut [PollFd::new(&self.status, PollFlags::IN)],
                Some(&timeout),
            ) {
                Ok(0) => return Word::TimeOut,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return Word::End,
            }
            let mut byte = [0];
            match self.status.read(&mut byte) {
                Ok(0) => return Word::End,
                Ok(_) if byte[0] == b'\n' => {
                    return Word::Line(String::from_utf8_lossy(&line).into_owned());
                }
                Ok(_) => line.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Word::End,
            }
        }
    }
}
