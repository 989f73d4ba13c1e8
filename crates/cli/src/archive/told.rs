//! What export and import tell while they work, and why they could not go on.

use arckfs::{Errno, Failure};
use indicatif::{ProgressBar, ProgressDrawTarget};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// What is told while it runs, and what went wrong.
pub struct Told {
    pub command: &'static str,
    pub wrong: u64,
    pub bar: ProgressBar,
    pub since: Instant,
    pub entries: u64,
    pub bytes: u64,
}

/// Before that nobody waits.
const MOMENT: Duration = Duration::from_millis(500);

impl Told {
    pub fn new(command: &'static str) -> Told {
        Told {
            command,
            wrong: 0,
            bar: ProgressBar::hidden(),
            since: Instant::now(),
            entries: 0,
            bytes: 0,
        }
    }

    /// Something could not be carried over.
    pub fn wrong(&mut self, path: &[u8], why: impl std::fmt::Display) {
        self.wrong += 1;
        let line = format!("arck {}: {}: {why}", self.command, arck_check::quoted(path));
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// One more is done.
    pub fn entry(&mut self, bytes: u64) {
        self.entries += 1;
        self.bytes += bytes;
        if !self.entries.is_multiple_of(64) || self.since.elapsed() < MOMENT {
            return;
        }
        if self.bar.is_hidden() && io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_message(format!(
            "{} entries, {} MiB",
            self.entries,
            self.bytes >> 20
        ));
        self.bar.tick();
    }
}

/// Why an entry could not be carried over.
pub enum Wrong {
    Pool(Failure),
    Archive(io::Error),
    /// Said by us.
    Kind(&'static str),
}

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Wrong {
        Wrong::Pool(failure)
    }
}
impl From<Errno> for Wrong {
    fn from(errno: Errno) -> Wrong {
        Wrong::Pool(errno.into())
    }
}
impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Wrong {
        Wrong::Archive(error)
    }
}

/// An error as users read it.
pub fn plain(failure: impl Into<Failure>) -> String {
    match failure.into() {
        Failure::Errno(errno) => crate::run::plain(&errno.into()),
        Failure::Outside(path) => {
            format!("leads out of the pool, to {}", arck_check::quoted(&path))
        }
    }
}
