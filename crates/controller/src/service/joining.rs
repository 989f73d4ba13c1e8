//! Processes that greet while the region of their group is being made by its first member.
//!
//! They are answered when it is whole, or its maker has gone: then one of them makes another. One that does
//! not go on (it is stopped) keeps nobody: they get a session of their own, of the same name.
//!
//! # Invariants
//! * Whoever waits here has no session.
//! * Nobody waits longer than [`PATIENCE`], and for his user's turn: each greeting is charged like a request.
//! * Looking after those who wait takes little of the time, however many they are, of however many groups.

use crate::service::Service;
use crate::service::calls::send;
use crate::service::greetings::{PATIENCE, Waiting};
use arck_protocol::socket::{Answer, Caller};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::time::Instant;

/// They are looked after for no more than one part in so many of the time.
const LOOKING: u32 = 20;

impl Service {
    /// Whether a greeting is answered later.
    pub(super) fn joins_soon(&mut self, token: u64, caller: &Caller) -> bool {
        let Some(connection) = self.connections.get(&token) else {
            return false;
        };
        let user = connection.credentials.uid;
        let waits = |waiting: &Waiting| waiting.token == token;
        if connection.session.is_some()
            || self.joining.waiting.iter().any(waits)
            || !self.joining.has_room_for(user)
            || !self.may_greet(connection)
            || !self
                .core
                .sessions
                .may_join_soon(&connection.credentials, caller)
        {
            return false;
        }
        self.joining.waiting.push(Waiting {
            token,
            user,
            caller: caller.clone(),
            due: Instant::now() + PATIENCE,
        });
        true
    }

    /// Answers those who need not wait any more.
    pub(super) fn let_join(&mut self) {
        let now = Instant::now();
        if self.joining.waiting.is_empty() {
            return;
        }
        self.joining.has_missed = self.joining.again.is_some_and(|again| now < again);
        if self.joining.has_missed {
            return;
        }
        let all = std::mem::take(&mut self.joining.waiting);
        let (waiting, ready): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|one| self.waits_for_region(one, now));
        self.joining.waiting = waiting;
        self.joining.again = Some(now + now.elapsed() * LOOKING);
        for one in ready {
            if self.waits_for_region(&one, now) {
                // For that which one of the others is to make.
                self.joining.waiting.push(one);
                continue;
            }
            if !self.shares.is_left(one.user) {
                self.joining.has_missed = true;
                self.joining.waiting.push(one);
                continue;
            }
            let since = Instant::now();
            self.let_one_join(&one);
            self.shares.served(one.user, since);
        }
    }

    fn waits_for_region(&self, one: &Waiting, now: Instant) -> bool {
        let connection = self.connections.get(&one.token);
        one.due > now
            && connection.is_some_and(|connection| {
                let who = &connection.credentials;
                self.core.sessions.may_join_soon(who, &one.caller)
            })
    }

    fn let_one_join(&mut self, Waiting { token, caller, .. }: &Waiting) {
        let (answer, descriptors) = self.greet(*token, caller).unwrap_or_else(|(errno, text)| {
            (Answer::Error(errno.raw_os_error(), text), Vec::new())
        });
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        if let Some(connection) = self.connections.get(token)
            && !send(connection.socket.as_fd(), &answer, &borrowed)
        {
            self.disconnect(*token);
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
            opened.map_err(|errno| (errno, self.core.sessions.why_no_session(user, errno)))?;
        if let Err(errno) = self.watch(number, welcome.member, caller.process, token) {
            self.leave(number, welcome.member);
            let reason = format!("the session could not be watched: {errno}");
            return Err((errno, reason));
        }
        Ok((Answer::Welcome(welcome), descriptors))
    }
}
