//! Answers that are held back, and which are: see [`super::held`].

use arck_core_state::geometry::SessionNumber;
use arck_protocol::{Request, Response};
use std::time::Instant;

/// An answer that is held back until what its request has closed is closed.
pub struct Waiting {
    pub to: Asker,
    /// The closings that it waits for: above the first number, up to the second.
    pub closings: (u64, u64),
    /// And for the end of this session, and what that closes.
    pub ends: Option<SessionNumber>,
    /// It is given then all the same.
    pub due: Instant,
}

/// A grant that waits for a file.
pub struct WaitingGrant {
    pub token: u64,
    /// Files made, and workers ended, when it was last looked at.
    pub ended: u64,
    /// Waiting has an end then.
    pub due: Instant,
}

pub enum Asker {
    Slot(SessionNumber, usize, Response),
    /// A connection, which has said goodbye.
    Connection(u64),
}

impl Waiting {
    pub(super) fn is_of(&self, session: SessionNumber, slot: usize) -> bool {
        matches!(&self.to, Asker::Slot(of, at, _) if (*of, *at) == (session, slot))
    }

    pub(super) fn is_of_session(&self, session: SessionNumber) -> bool {
        matches!(&self.to, Asker::Slot(of, ..) if *of == session)
    }
}

/// Whether a request is one by which a session makes its own changes of rights known: it is answered
/// when they are done. Who merely looks at what another has changed is not kept waiting.
pub fn closes(request: &Request) -> bool {
    matches!(
        request,
        Request::Commit { .. }
            | Request::CommitAll { .. }
            | Request::Sync { .. }
            | Request::SetOwner { .. }
            | Request::SetAttributes { .. }
            | Request::MoveDirectory { .. }
    )
}
