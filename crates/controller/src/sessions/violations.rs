//! Sessions whose deltas were refused, in the log of that ([`crate::sessions::log`]).

use crate::pool::clock::now;
use crate::pool::names::{VIOLATIONS_LOG, VIOLATIONS_LOG_OLD};
use crate::sessions::Sessions;
use crate::sessions::log::{Entry, Event, LINES_MAX, LOG_MAX, Window};
use arck_core_state::geometry::SessionNumber;
use arck_verifier::Violation;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

impl Sessions {
    /// Writes to the log that a delta was refused, and warns.
    pub(crate) fn log_violation(&mut self, session: SessionNumber, violation: &Violation) {
        self.violations += 1;
        let inode = violation.inode;
        let event = Event::Refused {
            session,
            inode,
            group: violation.rule.group().to_owned(),
            rule: format!("{:?}", violation.rule),
            offset: violation.offset,
            detail: violation.detail.clone(),
        };
        if self.log_event(session, event) {
            tracing::warn!("session {session}, inode {inode}: refused: {violation}");
        }
    }

    /// Writes to the log; false if the line was left out.
    pub(crate) fn log_event(&mut self, session: SessionNumber, event: Event) -> bool {
        let uid = self
            .all
            .get(&session)
            .map_or(u32::MAX, |session| session.credentials.uid);
        self.log_event_of(uid, event)
    }

    /// As [`log_event`](Self::log_event); of a user whose session may be gone.
    pub(crate) fn log_event_of(&mut self, uid: u32, event: Event) -> bool {
        let window = self
            .violations_logged
            .entry(uid)
            .or_insert_with(Window::new);
        let (may_write, left_out) = window.count();
        if left_out != 0 {
            self.append(uid, Event::Suppressed { count: left_out });
        }
        if may_write {
            self.append(uid, event);
        }
        may_write
    }

    /// Tells what was left out last.
    pub(crate) fn finish_log(&mut self) {
        for (uid, window) in std::mem::take(&mut self.violations_logged) {
            if window.lines > LINES_MAX {
                let count = window.lines - LINES_MAX;
                self.append(uid, Event::Suppressed { count });
            }
        }
    }

    fn append(&self, uid: u32, event: Event) {
        let pool = self.state.pool.path();
        let entry = Entry {
            time: now(),
            uid,
            event,
        };
        let write = || -> std::io::Result<()> {
            let mut line = serde_json::to_vec(&entry)?;
            line.push(b'\n');
            let log = pool.join(VIOLATIONS_LOG);
            let open = || {
                OpenOptions::new()
                    .create(true)
                    .append(true)
                    .mode(0o600)
                    .open(&log)
            };
            let mut file = open()?;
            if file.metadata()?.len() > LOG_MAX {
                std::fs::rename(&log, pool.join(VIOLATIONS_LOG_OLD))?;
                file = open()?;
            }
            file.write_all(&line)
        };
        if let Err(error) = write() {
            tracing::warn!("cannot write to the log of violations: {error}");
        }
    }
}
