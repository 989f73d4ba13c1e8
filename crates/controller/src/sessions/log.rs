//! The log of what was refused, and what became of it: one JSON object a line in the pool's
//! directory, for people (`arck violations`) and programs.
//!
//! # Invariants
//! * A line is written whole, by one `write`; a reader skips what it does not understand.
//! * One user's refusals keep nobody else's out of the log: lines are limited user by user, and how
//!   many were left out is told.
//! * The log takes no more than twice [`LOG_MAX`] bytes: the oldest lines go.

use crate::pool::names::{VIOLATIONS_LOG, VIOLATIONS_LOG_OLD};
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes at which a new log is begun.
pub const LOG_MAX: u64 = 4 << 20;
/// Lines of a user in [`WINDOW`] at most.
pub const LINES_MAX: u64 = 20;
const WINDOW: Duration = Duration::from_secs(1);

/// A line of the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Nanoseconds since 1970.
    pub time: i64,
    /// User of the session.
    pub uid: u32,
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A delta broke a rule. The same rule at the same place again is not told again.
    Refused {
        session: SessionNumber,
        inode: InodeNumber,
        /// `I1` to `I4`.
        group: String,
        rule: String,
        /// Byte in the session's arena where the offending value stands.
        offset: u64,
        detail: String,
    },
    /// The session repaired it: a fold of the inode succeeded.
    Repaired {
        session: SessionNumber,
        inode: InodeNumber,
    },
    /// The session lost the inode.
    SetAside {
        session: SessionNumber,
        inode: InodeNumber,
        /// Fold number of the delta.
        fold: u64,
        /// Path in the pool's directory; none if it could not be written.
        file: Option<String>,
        because: String,
    },
    /// The session was closed: a file of the pool that it was sent to write was found to be longer
    /// than it may be, or to take more memory (bytes, of which so many are allowed).
    Outgrown {
        session: SessionNumber,
        file: String,
        size: u64,
        bytes: u64,
        allowed: u64,
    },
    /// So many lines of this user were left out before this one.
    Suppressed { count: u64 },
}

impl Event {
    /// The session and inode that it is about.
    pub fn subject(&self) -> Option<(SessionNumber, InodeNumber)> {
        match *self {
            Event::Refused { session, inode, .. }
            | Event::Repaired { session, inode }
            | Event::SetAside { session, inode, .. } => Some((session, inode)),
            Event::Outgrown { .. } | Event::Suppressed { .. } => None,
        }
    }
}

/// How many lines were written for a user lately.
pub struct Window {
    since: Instant,
    pub lines: u64,
}

/// By user.
pub type Windows = HashMap<u32, Window>;

impl Window {
    /// Counts a line: whether it may be written, and how many were left out before it.
    pub fn count(&mut self) -> (bool, u64) {
        let mut left_out = 0;
        if self.since.elapsed() > WINDOW {
            left_out = self.lines.saturating_sub(LINES_MAX);
            *self = Window::new();
        }
        self.lines += 1;
        (self.lines <= LINES_MAX, left_out)
    }

    pub fn new() -> Window {
        Window {
            since: Instant::now(),
            lines: 0,
        }
    }
}

/// What there is in a file of a pool's directory, which may be anything that its owner has put there: no more than
/// so many bytes, of no file that one would wait for, and through no link.
pub fn read_bounded(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::from_raw_os_error(libc::EINVAL));
    }
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All that the log of a pool tells, oldest first; and how many lines of it cannot be read. The
/// pool may be served meanwhile.
///
/// # Errors
/// The log cannot be read. That there is none is no error.
pub fn read_log(pool: &Path) -> std::io::Result<(Vec<Entry>, usize)> {
    let mut entries = Vec::new();
    let mut unreadable = 0;
    for name in [VIOLATIONS_LOG_OLD, VIOLATIONS_LOG] {
        let bytes = match read_bounded(&pool.join(name), 2 * LOG_MAX) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            read => read?,
        };
        for line in bytes.split(|&byte| byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(entry) => entries.push(entry),
                Err(_) if line.is_empty() => {}
                Err(_) => unreadable += 1,
            }
        }
    }
    Ok((entries, unreadable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_counted() {
        let mut window = Window::new();
        for _ in 0..LINES_MAX {
            assert_eq!(window.count(), (true, 0));
        }
        for _ in 0..5 {
            assert_eq!(window.count(), (false, 0));
        }
        window.since = Instant::now().checked_sub(WINDOW * 2).unwrap();
        assert_eq!(window.count(), (true, 5));
        assert_eq!(window.count(), (true, 0));
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let pool = tempfile::tempdir().unwrap();
        assert_eq!(read_log(pool.path()).unwrap(), (Vec::new(), 0));
        let entry = Entry {
            time: -5,
            uid: 1000,
            event: Event::SetAside {
                session: 3,
                inode: 7,
                fold: 1 << 60,
                file: Some("aside/x".into()),
                because: "a \"reason\"\n".into(),
            },
        };
        let line = serde_json::to_string(&entry).unwrap();
        assert!(
            !line.contains('\n') && line.contains(r#""event":"set-aside""#),
            "{line}"
        );
        let log = format!("{line}\nnonsense\n{{\"time\":1}}\n{line}\n{}", &line[..9]);
        std::fs::write(pool.path().join(VIOLATIONS_LOG), log).unwrap();
        std::fs::write(pool.path().join(VIOLATIONS_LOG_OLD), format!("{line}\n")).unwrap();
        let (entries, unreadable) = read_log(pool.path()).unwrap();
        assert_eq!(entries, [entry.clone(), entry.clone(), entry]);
        assert_eq!(unreadable, 3);
    }
}
