//! Ends of sessions: a queue for each user, done step by step between what others ask.
//!
//! # Invariants
//! * A step is charged to the session's user like a request: in one round he gets one, and where
//!   others ask too, none for as long as it took.
//! * What is small ends at once, with the connection: who waits for a process finds free what it held.
//! * A file that has outgrown what it may take is cut when its session has ended, and not under its end.

use crate::service::Service;
use crate::service::ends::Waiting;
use crate::service::shares::SHARE;
use crate::sessions::lent::Lent;
use arck_core_state::geometry::SessionNumber;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What a session has asked when it ends is still done for so long.
const LAST_REQUESTS: Duration = Duration::from_millis(500);
/// Where a user has as many sessions as he may, a new one waits so long for the end of one.
const ROOM_FOR_ANOTHER: Duration = Duration::from_millis(20);

impl Service {
    /// The last process of a session has gone.
    pub(super) fn end_session(&mut self, session: SessionNumber) {
        self.end_with(session, None);
    }

    /// Ends a session, of which a file has outgrown what it may take: before others of its user.
    pub(super) fn end_outgrown(&mut self, session: SessionNumber, file: Lent) {
        self.end_with(session, Some(file));
    }

    fn end_with(&mut self, session: SessionNumber, outgrown: Option<Lent>) {
        let Some(user) = self
            .core
            .sessions
            .all
            .get(&session)
            .map(|s| s.credentials.uid)
        else {
            return outgrown
                .into_iter()
                .for_each(|file| self.core.sessions.take_back(file));
        };
        self.answer_no_more(session);
        let queue = self.endings.queues.entry(user).or_default();
        if self.core.owners().close_doors(session) {
            let waiting = Waiting {
                session,
                asked: Duration::ZERO,
                ending: None,
                outgrown: Vec::new(),
            };
            queue.push_back(waiting);
        }
        if let Some(file) = outgrown
            && let Some(place) = queue.iter().position(|waiting| waiting.session == session)
            && let Some(mut waiting) = queue.remove(place)
        {
            waiting.outgrown.push(file);
            queue.push_front(waiting);
        }
        let is_next = queue.front().is_some_and(|next| next.session == session);
        while is_next && self.shares.is_left(user) && self.core.sessions.all.contains_key(&session)
        {
            self.end_step(user);
        }
        // Nobody is kept waiting for what died before its turn comes.
        self.cut_off_if_silent(session);
    }

    /// Does a step for each user who has something left of the round; whether there is any to do.
    pub(super) fn end_some(&mut self) -> bool {
        if self.endings.is_empty() {
            return false;
        }
        let users: Vec<u32> = self.endings.queues.keys().copied().collect();
        for user in users {
            if self.shares.is_left(user) {
                self.end_step(user);
            }
        }
        true
    }

    /// A user's new session finds no room: ends one that waits for it, if that does not take long.
    /// False if none has ended.
    pub(super) fn make_room_for(&mut self, user: u32) -> bool {
        let began = Instant::now();
        let before = self.core.sessions.all.len();
        while self.shares.is_left(user)
            && self.core.sessions.all.len() == before
            && began.elapsed() < ROOM_FOR_ANOTHER
            && self.endings.queues.contains_key(&user)
        {
            self.end_step(user);
        }
        self.core.sessions.all.len() < before
    }

    /// A step of the first of a user's ends.
    fn end_step(&mut self, user: u32) {
        let Some(queue) = self.endings.queues.get_mut(&user) else {
            return;
        };
        let Some(mut waiting) = queue.pop_front() else {
            self.endings.queues.remove(&user);
            return;
        };
        if self.is_through(user, &mut waiting) {
            for file in waiting.outgrown {
                self.core.sessions.take_back(file);
            }
        } else if let Some(queue) = self.endings.queues.get_mut(&user) {
            queue.push_front(waiting);
        }
        if self
            .endings
            .queues
            .get(&user)
            .is_some_and(VecDeque::is_empty)
        {
            self.endings.queues.remove(&user);
        }
    }

    fn is_through(&mut self, user: u32, waiting: &mut Waiting) -> bool {
        let session = waiting.session;
        let since = Instant::now();
        if self.has_asked(session) && waiting.asked < LAST_REQUESTS {
            // Each is charged as ever.
            self.poll_session(session, Some(SHARE));
            self.deferred.retain(|deferred| deferred.session != session);
            waiting.asked += since.elapsed();
            return false;
        }
        if waiting.ending.is_none() {
            self.answer_no_more(session);
            self.core.owners().cut_off(session, libc::EIO);
            waiting.ending = self.core.owners().begin_end(session);
        }
        let goes_on = waiting
            .ending
            .as_mut()
            .is_some_and(|ending| self.core.owners().end_step(ending));
        self.shares.served(user, since);
        !goes_on
    }

    /// What a session has been told to wait for is not looked at again.
    fn answer_no_more(&mut self, session: SessionNumber) {
        self.deferred.retain(|deferred| deferred.session != session);
        self.held.retain(|held| !held.is_of_session(session));
    }

    /// Whether anything rings that a session has asked.
    fn has_asked(&self, session: SessionNumber) -> bool {
        let live = self.core.sessions.all.get(&session);
        live.and_then(|session| session.live.as_ref())
            .is_some_and(|live| {
                let doorbell = &live.control().header.doorbell;
                doorbell.load(std::sync::atomic::Ordering::SeqCst) != 0
            })
    }

    /// What it says it has mapped or open keeps nobody waiting for its turn, if it has asked nothing.
    fn cut_off_if_silent(&mut self, session: SessionNumber) {
        if !self.has_asked(session) {
            self.core.owners().cut_off(session, libc::EIO);
        }
    }
}
