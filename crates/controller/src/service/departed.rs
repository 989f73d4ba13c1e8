//! Processes that execute another program, noticed before the kernel's word of it comes round.

use crate::service::Service;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};

impl Service {
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
