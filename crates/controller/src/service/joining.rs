//! Processes that greet while the region of their group is being made by its first member.
//!
//! They are answered when it is whole, or its maker has gone: then one of them makes another. One that does
//! not go on (it is stopped) keeps nobody: they get a session of their own, of the same name.
//!
//! # Invariants
//! * Whoever waits here has no session.
//! * Nobody waits longer than [`PATIENCE`].

use super::Service;
use super::calls::send;
use arck_protocol::socket::{Answer, Caller};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Making a region takes some hundred microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection whose greeting is answered later.
pub(super) struct Joining {
    pub token: u64,
    caller: Caller,
    /// It is answered then in any case.
    pub due: Instant,
}

impl Service {
    /// Whether a greeting is answered later.
    pub(super) fn joins_soon(&mut self, token: u64, caller: &Caller) -> bool {
        let Some(connection) = self.connections.get(&token) else {
            return false;
        };
        if connection.session.is_some()
            || self.joining.iter().any(|joining| joining.token == token)
            || !self.may_greet(connection)
            || !self.core.may_join_soon(&connection.credentials, caller)
        {
            return false;
        }
        self.joining.push(Joining {
            token,
            caller: caller.clone(),
            due: Instant::now() + PATIENCE,
        });
        true
    }

    /// Answers those who need not wait any more.
    pub(super) fn let_join(&mut self) {
        let now = Instant::now();
        let mut at = 0;
        while let Some(joining) = self.joining.get(at) {
            let connection = self.connections.get(&joining.token);
            let waits = joining.due > now
                && connection.is_some_and(|connection| {
                    let who = &connection.credentials;
                    self.core.may_join_soon(who, &joining.caller)
                });
            if waits {
                at += 1;
                continue;
            }
            let Joining { token, caller, .. } = self.joining.remove(at);
            let (answer, descriptors) =
                self.greet(token, &caller).unwrap_or_else(|(errno, text)| {
                    (Answer::Error(errno.raw_os_error(), text), Vec::new())
                });
            let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            if let Some(connection) = self.connections.get(&token)
                && !send(connection.socket.as_fd(), &answer, &borrowed)
            {
                self.disconnect(token);
            }
        }
    }

    /// Opens a session for a connection, or lets it join one. An error comes with a line that says why.
    pub(super) fn greet(
        &mut self,
        token: u64,
        caller: &Caller,
    ) -> Result<(Answer, Vec<OwnedFd>), (Errno, String)> {
        let connection = self.connections.get(&token);
        let credentials = connection.map(|connection| connection.credentials.clone());
        let credentials = credentials.ok_or((Errno::NOTCONN, String::new()))?;
        self.disconnect_predecessors(caller.process);
        let user = credentials.uid;
        let mut opened = self.core.open_session(credentials.clone(), caller);
        if matches!(opened, Err(Errno::AGAIN | Errno::MFILE)) && self.make_room_for(user) {
            opened = self.core.open_session(credentials, caller);
        }
        let (number, (welcome, descriptors)) =
            opened.map_err(|errno| (errno, self.core.why_no_session(user, errno)))?;
        if let Err(errno) = self.watch(number, welcome.member, caller.process, token) {
            self.leave(number, welcome.member);
            return Err((errno, "the session could not be opened".to_owned()));
        }
        Ok((Answer::Welcome(welcome), descriptors))
    }
}
