//! Grants of segments, which wait for the file of one where it is being made.
//!
//! To fill a file takes milliseconds, in which the service thread would serve nobody. A thread makes some ahead
//! ([`crate::pool::spare_files`]). Who needs one before it is made waits for it, and while nobody else asks for
//! anything the service thread makes one beside it, a piece at a time.
//!
//! # Invariants
//! * A connection has one grant that waits at most; another call for one is answered as a mistake.
//! * A grant waits for [`PATIENCE`] at most. Then its file is made at once.
//! * Those that wait are served in the order in which they came.

use super::Service;
use crate::service::calls::send;
use crate::service::held_back::WaitingGrant;
use arck_protocol::socket::Answer;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Longer than it takes to make some files, where nobody else needs the processors.
const PATIENCE: Duration = Duration::from_millis(100);

impl Service {
    /// Grants a segment to the session of a connection: now, or when its file is made.
    pub(super) fn grant_when_ready(&mut self, token: u64) {
        if self.grants.iter().any(|waiting| waiting.token == token) {
            let text = "a segment is being granted already".to_owned();
            let answer = Answer::Error(Errno::ALREADY.raw_os_error(), text);
            return self.answer(token, &answer, &[]);
        }
        let due = Instant::now() + PATIENCE;
        let ended = self.core.sessions.workers.ended();
        if !self.grant(token, true) {
            self.grants.push(WaitingGrant { token, ended, due });
        }
    }

    /// Makes a piece of what is waited for, and looks again at the grants that wait, when a file may have been made. True if
    /// any waits.
    pub(super) fn answer_grants(&mut self) -> bool {
        if self.grants.is_empty() {
            return false;
        }
        if self.core.sessions.state.pool.make_piece() {
            self.core.sessions.workers.note();
        }
        let (now, ended) = (Instant::now(), self.core.sessions.workers.ended());
        let mut waiting = std::mem::take(&mut self.grants);
        waiting.retain_mut(|grant| {
            let is_over = grant.due <= now;
            if !is_over && grant.ended == ended {
                return true;
            }
            grant.ended = ended;
            !self.grant(grant.token, !is_over)
        });
        self.grants = waiting;
        true
    }

    /// False if it has to wait, and may.
    fn grant(&mut self, token: u64, may_wait: bool) -> bool {
        let Some(connection) = self.connections.get(&token) else {
            return true;
        };
        let Some(session) = connection.session else {
            let text = "no session: say hello first".to_owned();
            let answer = Answer::Error(Errno::PROTO.raw_os_error(), text);
            self.answer(token, &answer, &[]);
            return true;
        };
        let (user, since) = (connection.credentials.uid, Instant::now());
        let granted = self.core.grant_segment(session, may_wait);
        self.shares.served(user, since);
        match granted {
            Err(Errno::INPROGRESS) if may_wait => return false,
            Ok((segment, file)) => {
                let answer = Answer::Segments(vec![segment]);
                self.answer(token, &answer, &[file.as_fd()]);
            }
            Err(errno) => {
                let text = "no segment can be granted".to_owned();
                self.answer(token, &Answer::Error(errno.raw_os_error(), text), &[]);
            }
        }
        true
    }

    /// Answers a connection, if it is still there.
    fn answer(&mut self, token: u64, answer: &Answer, descriptors: &[BorrowedFd<'_>]) {
        if let Some(connection) = self.connections.get(&token)
            && !send(connection.socket.as_fd(), answer, descriptors)
        {
            self.disconnect(token);
        }
    }
}
