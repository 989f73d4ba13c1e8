//! Processes that have gone, noticed before the kernel's word of it comes round.
//!
//! A process that ends closes its connection before its parent's `wait` returns, and whoever knows that
//! it has ended expects what it held to be free. But requests come by shared memory, and may be looked
//! at before that connection is.
//!
//! # Invariant
//! Whoever is told that somebody's lock stands in the way is told of one who was there when asked.

use super::Service;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::message::LockRange;
use arck_protocol::{Request, Response};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

/// The lock that a request could not have.
fn refused<'a>(request: &'a Request, response: &Response) -> Option<&'a LockRange> {
    match (request, response) {
        (Request::Lock { range, .. }, Response::Error(errno)) => {
            let errno = Errno::from_raw_os_error(*errno);
            matches!(errno, Errno::AGAIN | Errno::DEADLK).then_some(range)
        }
        (Request::TestLock { range }, Response::Conflict(_)) => Some(range),
        _ => None,
    }
}

impl Service {
    /// Whether a lock is refused for one who has gone.
    pub(super) fn may_stand_aside(
        &self,
        session: SessionNumber,
        request: &Request,
        response: &Response,
    ) -> bool {
        refused(request, response).is_some_and(|range| !self.departed(session, range).is_empty())
    }

    /// Ends those who have gone of them that have what a request for a lock wants.
    pub(super) fn disconnect_departed(&mut self, session: SessionNumber, request: &Request) {
        if let Request::Lock { range, .. } | Request::TestLock { range } = request {
            let departed = self.departed(session, range);
            departed
                .into_iter()
                .for_each(|token| self.disconnect(token));
        }
    }

    /// Connections that are cut of processes whose locks stand in the way.
    fn departed(&self, session: SessionNumber, range: &LockRange) -> Vec<u64> {
        let holders = self.core.locks.in_the_way(session, range);
        let has_lock = |token: &u64| {
            let connection = self.connections.get(token)?;
            let of = connection.session?;
            let process = self.core.sessions.get(&of)?.process(connection.member)?;
            (holders.contains(&(of, process)) && is_cut(connection.socket.as_fd())).then_some(())
        };
        let tokens = self.connections.keys().copied();
        match holders.is_empty() {
            true => Vec::new(),
            false => tokens.filter(|token| has_lock(token).is_some()).collect(),
        }
    }

    /// A process that greets has no other program any more: connections of what it was before it
    /// executed this one are closed, and may be seen here only after its greeting.
    pub(super) fn disconnect_predecessors(&mut self, process: u32) {
        let of_process = self.connections.iter().filter(|(_, connection)| {
            connection.session.is_some() && connection.process == process
        });
        let gone: Vec<u64> = of_process
            .filter(|(_, connection)| is_cut(connection.socket.as_fd()))
            .map(|(&token, _)| token)
            .collect();
        gone.into_iter().for_each(|token| self.disconnect(token));
    }
}

/// Whether the other end of a connection is closed.
fn is_cut(socket: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    matches!(poll(&mut asked, Some(&Timespec::default())), Ok(1..))
        && asked[0]
            .revents()
            .intersects(PollFlags::HUP | PollFlags::ERR)
}
