//! Answers that are held back: who has asked for what closes something to others is answered when it
//! is closed (see [`crate::access::relocate`]).
//!
//! # Invariants
//! * A request whose answer is held back stays submitted, and is not served again.
//! * No answer is held back longer than [`HELD_MAX`].

use super::Service;
use super::calls::send;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::socket::Answer;
use arck_protocol::{Request, Response, ring};
use rustix::fd::AsFd;
use std::time::{Duration, Instant};

/// An answer that is held back until what its request has closed is closed.
pub(super) struct Held {
    to: Asker,
    /// The closings that it waits for: above the first number, up to the second.
    closings: (u64, u64),
    /// And for the end of this session, and what that closes.
    ends: Option<SessionNumber>,
    /// It is given then all the same.
    due: Instant,
}

pub(super) enum Asker {
    Slot(SessionNumber, usize, Response),
    /// A connection, which has said goodbye.
    Connection(u64),
}

/// Nobody's answer is held back longer: whoever asks gives up after 30 s.
const HELD_MAX: Duration = Duration::from_secs(20);

impl Service {
    pub(super) fn is_closing_since(&self, closings: u64) -> bool {
        let last = self.core.closings.last();
        self.core.closings.any_under_way(closings, last)
    }

    pub(super) fn hold(&mut self, to: Asker, closings: u64, ends: Option<SessionNumber>) {
        self.held.push(Held {
            to,
            closings: (closings, self.core.closings.last()),
            ends,
            due: Instant::now() + HELD_MAX,
        });
    }

    /// Gives the answers that have been held back long enough.
    pub(super) fn answer_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let now = Instant::now();
        let closings = &self.core.closings;
        let sessions = &self.core.sessions;
        for held in &mut self.held {
            if let Some(session) = held.ends {
                held.closings.1 = closings.last();
                held.ends = sessions.contains_key(&session).then_some(session);
            }
        }
        let is_over = |held: &Held| {
            let (after, to) = held.closings;
            held.due <= now || (held.ends.is_none() && !closings.any_under_way(after, to))
        };
        let (over, held): (Vec<_>, Vec<_>) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(is_over);
        self.held = held;
        for held in over {
            match held.to {
                Asker::Slot(session, slot, response) => {
                    let session = self.core.sessions.get(&session);
                    if let Some(live) = session.and_then(|s| s.live.as_ref()) {
                        ring::respond(live.control(), slot, &response);
                    }
                }
                Asker::Connection(token) => {
                    if let Some(connection) = self.connections.get(&token)
                        && !send(connection.socket.as_fd(), &Answer::Done, &[])
                    {
                        self.disconnect(token);
                    }
                }
            }
        }
    }
}

impl Held {
    pub(super) fn is_of(&self, session: SessionNumber, slot: usize) -> bool {
        matches!(&self.to, Asker::Slot(of, at, _) if (*of, *at) == (session, slot))
    }

    pub(super) fn is_of_session(&self, session: SessionNumber) -> bool {
        matches!(&self.to, Asker::Slot(of, ..) if *of == session)
    }
}

/// Whether a request is one by which a session makes its own changes of rights known: it is answered
/// when they are done. Who merely looks at what another has changed is not kept waiting.
pub(super) fn closes(request: &Request) -> bool {
    matches!(
        request,
        Request::Commit { .. }
            | Request::CommitAll { .. }
            | Request::Sync { .. }
            | Request::SetOwner { .. }
            | Request::MoveDirectory { .. }
    )
}
