//! Answers that are held back: who has asked for what closes something to others is answered when it
//! is closed (see [`crate::access::moving`]).
//!
//! # Invariants
//! * A request whose answer is held back stays submitted, and is not served again.
//! * No answer is held back longer than [`HELD_MAX`].

use crate::service::Service;
use crate::service::calls::send;
use crate::service::held_back::{Asker, Waiting};
use arck_core_state::geometry::SessionNumber;
use arck_protocol::ring;
use arck_protocol::socket::Answer;
use rustix::fd::AsFd;
use std::time::{Duration, Instant};

/// Nobody's answer is held back longer: whoever asks gives up after 30 s.
const HELD_MAX: Duration = Duration::from_secs(20);

impl Service {
    pub(super) fn is_closing_since(&self, closings: u64) -> bool {
        let last = self.core.places.closings.last();
        self.core.places.closings.any_under_way(closings, last)
    }

    pub(super) fn hold(&mut self, to: Asker, closings: u64, ends: Option<SessionNumber>) {
        self.held.push(Waiting {
            to,
            closings: (closings, self.core.places.closings.last()),
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
        let closings = &self.core.places.closings;
        let sessions = &self.core.sessions.all;
        for held in &mut self.held {
            if let Some(session) = held.ends {
                held.closings.1 = closings.last();
                held.ends = sessions.contains_key(&session).then_some(session);
            }
        }
        let is_over = |held: &Waiting| {
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
                    let session = self.core.sessions.all.get(&session);
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
