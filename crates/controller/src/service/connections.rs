//! Connections: who comes, and who goes.
//!
//! # Invariant
//! * A connection that misbehaves is closed; it never makes the others wait.

use crate::fair::descriptors_max;
use crate::fair::may_have_another;
use crate::service::calls::send;
use crate::service::listener::{peer, peers_process, spare};
use crate::service::{CONNECTIONS_MAX, Connection, Service};
use crate::sessions::members::Left;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::ring;
use arck_protocol::socket::Answer;
use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a process of a session has asked that goes is still done for so long.
const LAST_REQUESTS: Duration = Duration::from_millis(20);

impl Service {
    pub(super) fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..16 {
            match acceptfrom_with(&self.listener, flags) {
                Ok((socket, _)) => self.connect(socket),
                Err(Errno::MFILE | Errno::NFILE) => {
                    // Turn one away, so that it does not wait and we do not spin.
                    self.spare = None;
                    if let Ok((socket, _)) = acceptfrom_with(&self.listener, flags) {
                        let text = "the controller has no descriptors left";
                        let answer = Answer::Error(Errno::MFILE.raw_os_error(), text.into());
                        send(socket.as_fd(), &answer, &[]);
                        self.closer.close([socket]);
                    }
                    self.spare = spare();
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return,
            }
        }
    }

    pub(super) fn connect(&mut self, socket: OwnedFd) {
        let passes = rustix::net::sockopt::set_socket_passcred(&socket, true);
        let who = passes.and_then(|()| Ok((peer(socket.as_fd())?, peers_process(socket.as_fd())?)));
        let (credentials, peer) = match who {
            Ok((credentials, peer)) if self.may_connect(credentials.uid) => (credentials, peer),
            turned_away => {
                let (errno, text) = match turned_away {
                    Ok(_) => (Errno::AGAIN, "too many connections"),
                    Err(Errno::OVERFLOW) => (
                        Errno::OVERFLOW,
                        "your user or one of your groups has no number in the user namespace of the controller",
                    ),
                    Err(errno) => (errno, "the kernel does not say whose program this is"),
                };
                let answer = Answer::Error(errno.raw_os_error(), text.into());
                send(socket.as_fd(), &answer, &[]);
                return self.closer.close([socket]);
            }
        };
        let token = self.next_token;
        let data = epoll::EventData::new_u64(token);
        if epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN).is_err() {
            return self.closer.close([socket]);
        }
        self.next_token += 2;
        self.connections.insert(
            token,
            Connection {
                socket,
                credentials,
                peer,
                sender: None,
                session: None,
                member: 0,
                process: 0,
                piece: None,
            },
        );
        self.count_connections();
    }

    /// Whether a user gets another connection: see [`crate::sessions::limits`].
    pub(super) fn may_connect(&self, uid: u32) -> bool {
        let own = self.connections.values();
        let own = own.filter(|connection| connection.credentials.uid == uid);
        let own = own.count();
        let others = self.connections.len() - own;
        let capacity = CONNECTIONS_MAX.min(descriptors_max() / 2);
        let is_trusted = self.core.sessions.is_trusted(uid);
        let reserve = self.core.sessions.reserve(capacity);
        may_have_another(own, others, capacity, reserve, is_trusted)
    }

    pub(super) fn count_connections(&self) {
        let count = u32::try_from(self.connections.len()).unwrap_or(u32::MAX);
        self.connection_count.store(count, Ordering::SeqCst);
    }

    pub(super) fn disconnect(&mut self, token: u64) {
        let Some(connection) = self.connections.remove(&token) else {
            return;
        };
        self.count_connections();
        self.joining.forget(token);
        if let Some(session) = connection.session {
            self.leave(session, connection.member);
        }
        // It is closed some time soon, and must not be heard of until then.
        let _ = epoll::delete(&self.epoll, &connection.socket);
        self.closer.close([connection.socket]);
    }

    /// A process of a session has gone.
    pub(super) fn leave(&mut self, session: SessionNumber, member: u16) {
        // What it had asked before is still done, as far as it can be; of one that is the last, when its
        // turn comes.
        let others = self.core.sessions.all.get(&session);
        let has_others = others.is_some_and(|session| session.members.count() > 1);
        if has_others && self.shares.is_left(others.map_or(0, |s| s.credentials.uid)) {
            self.poll_session(session, Some(LAST_REQUESTS));
        }
        let left = self.core.sessions.leave_session(session, member);
        match left {
            Left::Nobody => self.end_session(session),
            Left::Others(submitted) | Left::Away(submitted) => {
                self.core.owners().forget_sweep(session);
                let is_its = |slot: usize| submitted & 1 << slot != 0;
                self.deferred
                    .retain(|d| d.session != session || !is_its(d.slot));
                self.held
                    .retain(|held| !(0..32).any(|slot| is_its(slot) && held.is_of(session, slot)));
                let live = self.core.sessions.all.get(&session);
                if let Some(live) = live.and_then(|session| session.live.as_ref()) {
                    let ring = ring::Ring::from(live.control());
                    (0..32)
                        .filter(|&slot| is_its(slot))
                        .for_each(|slot| ring.free(slot));
                }
            }
        }
        if let Left::Away(_) = left {
            // What others have asked stands in their memory, with which they come back.
            self.deferred.retain(|deferred| deferred.session != session);
            self.held.retain(|held| !held.is_of_session(session));
            self.core.sessions.lose(session);
        }
    }

    pub(super) fn watch(
        &mut self,
        session: SessionNumber,
        member: u16,
        process: u32,
        token: u64,
    ) -> std::result::Result<(), Errno> {
        let wake = self
            .core
            .sessions
            .all
            .get(&session)
            .and_then(|s| s.live.as_ref())
            .map(|live| live.wake.as_fd())
            .ok_or(Errno::NOENT)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(token + 1);
        match epoll::add(&self.epoll, wake, data, flags) {
            // All members have the same.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.session = Some(session);
            connection.member = member;
            connection.process = process;
        }
        Ok(())
    }
}
