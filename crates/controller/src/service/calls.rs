//! What comes by a connection's socket: greetings, and whatever is about descriptors.
//!
//! # Invariants
//! * A packet is copied once, then decoded; what is malformed closes the connection.
//! * A packet counts if the process has sent it that connected, and is who it was when it sent the first
//!   one. Others are dropped without an answer, which would be taken for one to the process itself: whoever
//!   else has the connection in his hands has nothing of it, and takes nothing away.
//! * Descriptors that were received are closed where it can keep nobody waiting (see
//!   [`crate::threads::closer`]).

use super::End;
use crate::handed::descriptions::Description;
use crate::handed::named_pipes::Opened;
use crate::requests::by_message::Piece;
use crate::service::held_back::Asker;
use crate::service::listener::{Packet, Sender, receive};
use crate::service::{Connection, DESCRIPTIONS, Service};
use crate::sessions::members::Left;
use crate::sessions::take_up::Returning;
use arck_protocol::PROTOCOL_VERSION;
use arck_protocol::message::MESSAGE_MAX;
use arck_protocol::socket::{self, Answer, Call, DESCRIPTORS_MAX};
use arck_protocol::wire::WireError;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Service {
    pub(super) fn packet(&mut self, token: u64, flags: epoll::EventFlags) {
        let Some(connection) = self.connections.get(&token) else {
            return;
        };
        if !self.shares.is_left(connection.credentials.uid) {
            // It is told of again.
            return;
        }
        let mut buffer = [0u8; MESSAGE_MAX];
        let (call, received) = match receive(connection.socket.as_fd(), &mut buffer) {
            // At the end of a connection nobody has sent anything.
            Ok(packet) if packet.length == 0 && packet.sender.is_none() => {
                return self.disconnect(token);
            }
            Ok(packet) if !self.is_of_peer(token, packet.sender) => {
                self.refuse(token, packet.sender);
                return self.closer.close(packet.descriptors);
            }
            Ok(packet) if packet.length == 0 => return self.disconnect(token),
            Ok(Packet {
                length,
                descriptors,
                ..
            }) => (Call::decode(&buffer[..length]), descriptors),
            Err(Errno::AGAIN)
                if !flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) =>
            {
                return;
            }
            Err(_) => return self.disconnect(token),
        };
        let Some(connection) = self.connections.get(&token) else {
            return;
        };
        // Descriptors come with the calls that are about one, and with no other.
        let takes_any = |call: &Call| {
            use Call::{AddWatch, BindSocket, Claim, IsPipe, KeepLock, Resume};
            matches!(
                call,
                Resume { .. }
                    | Claim { .. }
                    | KeepLock
                    | IsPipe { .. }
                    | BindSocket { .. }
                    | AddWatch { .. }
            )
        };
        let call = match call {
            Err(WireError::OtherVersion(version)) => {
                self.closer.close(received);
                let (user, since) = (connection.credentials.uid, Instant::now());
                let is_sent = send(connection.socket.as_fd(), &other_version(version), &[]);
                self.shares.served(user, since);
                if !is_sent {
                    self.disconnect(token);
                }
                return;
            }
            call => call
                .ok()
                .filter(|call| received.is_empty() || takes_any(call)),
        };
        let Some(call) = call else {
            self.closer.close(received);
            let answer = Answer::Error(Errno::PROTO.raw_os_error(), "malformed packet".into());
            send(connection.socket.as_fd(), &answer, &[]);
            return self.disconnect(token);
        };
        let (session, user) = (connection.session, connection.credentials.uid);
        if let Call::Hello { caller, .. } = &call
            && self.joins_soon(token, caller)
        {
            return;
        }
        if call == Call::GrantSegment {
            // Nothing comes with it.
            return self.grant_when_ready(token);
        }
        let closings = self.core.places.closings.last();
        let since = Instant::now();
        let called = self.call(token, &call, &received);
        self.shares.served(user, since);
        let (answer, descriptors) = match called {
            Ok(_) if call == Call::Goodbye => {
                // It may have had others than this process.
                let sessions = &self.core.sessions.all;
                let ends = session.filter(|of| sessions.get(of).is_some_and(|s| s.is_leaving));
                if ends.is_none() && !self.is_closing_since(closings) {
                    (Answer::Done, Vec::new())
                } else {
                    return self.hold(Asker::Connection(token), closings, ends);
                }
            }
            Ok(answered) => answered,
            Err((errno, text)) => (Answer::Error(errno.raw_os_error(), text), Vec::new()),
        };
        let closing = Instant::now();
        if matches!((&call, &answer), (Call::KeepLock, Answer::Done)) {
            // What was looked at, and waits for nobody: a copy that is closed later would be a lock that lasts
            // longer.
            self.core.close_kept(user, received);
        } else if let (Call::IsPipe { inode, generation }, Answer::Done) = (&call, &answer) {
            // Whoever closes his own then is not to be there any more.
            for file in received {
                self.core
                    .named_pipes
                    .close_one((*inode, *generation), user, file);
            }
        } else if let (
            Call::BindSocket {
                inode, generation, ..
            },
            Answer::Done,
        ) = (&call, &answer)
        {
            for socket in received {
                let sockets = &mut self.core.sockets;
                sockets.close_one((*inode, *generation), user, socket);
            }
        } else {
            self.closer.close(received);
        }
        // Whoever has it take long is who is served less.
        self.shares.served(user, closing);
        let Some(connection) = self.connections.get(&token) else {
            return;
        };
        let socket = connection.socket.as_fd();
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let locks = match (&call, &answer) {
            (
                Call::LockFile {
                    inode, generation, ..
                },
                _,
            ) => Some((*inode, *generation)),
            (Call::Claim { .. }, Answer::Described(of)) => Some((of.inode, of.generation)),
            _ => None,
        };
        let pipe = match (&call, &answer) {
            (
                Call::OpenPipe {
                    inode, generation, ..
                },
                Answer::Done,
            ) => Some((*inode, *generation)),
            _ => None,
        };
        let is_sent = if let Some(inode) = locks.filter(|_| !borrowed.is_empty()) {
            let is_ahead = send(socket, &Answer::Ahead, &borrowed);
            // A lock that its holder took before would outlive him until this is done.
            for file in descriptors {
                self.core.lock_files.close_one(inode, user, file);
            }
            is_ahead && send(socket, &answer, &[])
        } else if let Some(inode) = pipe {
            let is_ahead = send(socket, &Answer::Ahead, &borrowed);
            // Who closes it at once is not to be there any more then.
            for file in descriptors {
                self.core.named_pipes.close_one(inode, user, file);
            }
            is_ahead && send(socket, &answer, &[])
        } else {
            send(socket, &answer, &borrowed)
        };
        if !is_sent {
            self.disconnect(token);
        }
    }

    /// Whether a packet is of the process that connected, as it was at its first packet.
    fn is_of_peer(&mut self, token: u64, sender: Option<Sender>) -> bool {
        let (Some(connection), Some(sender)) = (self.connections.get_mut(&token), sender) else {
            return false;
        };
        sender.process == connection.peer && *connection.sender.get_or_insert(sender) == sender
    }

    /// Answers the process that connected, and has become somebody else since: it waits. Whoever else has the
    /// connection is not answered, as the answer would be taken for one to its peer's own call.
    fn refuse(&self, token: u64, sender: Option<Sender>) {
        if let Some(connection) = self.connections.get(&token)
            && sender.is_some_and(|sender| sender.process == connection.peer)
        {
            let text = "the connection is of who the process was".to_owned();
            let answer = Answer::Error(Errno::PERM.raw_os_error(), text);
            send(connection.socket.as_fd(), &answer, &[]);
        }
    }

    fn call(
        &mut self,
        token: u64,
        call: &Call,
        received: &[OwnedFd],
    ) -> std::result::Result<(Answer, Vec<OwnedFd>), (Errno, String)> {
        let connection = self
            .connections
            .get(&token)
            .ok_or((Errno::NOTCONN, String::new()))?;
        let said = |text: &str| {
            let text = text.to_owned();
            move |errno: Errno| (errno, text)
        };
        let session = connection.session;
        let need = session.ok_or((Errno::PROTO, "no session: say hello first".to_owned()));
        match call {
            Call::Hello { .. } if session.is_some() => {
                Err((Errno::ISCONN, "this connection has a session".to_owned()))
            }
            Call::Hello { .. } if !self.may_greet(connection) => {
                let text = "it is served for its own user; for all users: arck serve --shared";
                Err((Errno::ACCESS, text.to_owned()))
            }
            Call::Hello { caller, .. } => self.greet(token, caller),
            Call::RegionMade => {
                self.core.sessions.note_region(need?);
                Ok((Answer::Done, Vec::new()))
            }
            Call::Resume { .. } if session.is_some() => {
                Err((Errno::ISCONN, "this connection has a session".to_owned()))
            }
            Call::Resume {
                session,
                secret,
                member,
                caller,
                ..
            } => {
                let text = "that session cannot be gone on with";
                let returning = Returning {
                    number: *session,
                    secret: *secret,
                    member: *member,
                    caller,
                };
                let wake = self
                    .core
                    .sessions
                    .resume(&connection.credentials, &returning, received)
                    .map_err(said(text))?;
                if let Err(errno) = self.watch(*session, *member, caller.process, token) {
                    let left = self.core.sessions.leave_session(*session, *member);
                    if !matches!(left, Left::Others(_)) {
                        self.core.sessions.lose(*session);
                    }
                    return Err((errno, text.to_owned()));
                }
                Ok((Answer::Resumed, vec![wake]))
            }
            Call::MapSegments { segments } | Call::ReadSegments { segments } => {
                let session = need?;
                if segments.is_empty() || segments.len() > DESCRIPTORS_MAX {
                    return Err((Errno::INVAL, "1 to 16 segments at once".to_owned()));
                }
                let descriptors = self
                    .core
                    .sessions
                    .map_segments(session, segments, matches!(call, Call::MapSegments { .. }))
                    .map_err(said("a segment cannot be mapped"))?;
                Ok((Answer::Segments(segments.clone()), descriptors))
            }
            // Answered before it comes here.
            Call::GrantSegment => Err((Errno::PROTO, String::new())),
            Call::ReadPiece {
                inode,
                generation,
                position,
                length,
            } => {
                let session = need?;
                let connection = self
                    .connections
                    .get_mut(&token)
                    .ok_or((Errno::NOTCONN, String::new()))?;
                let text = "the file cannot be read out";
                if connection.piece.is_none() {
                    connection.piece = Some(Piece::new().map_err(said(text))?);
                }
                let Some(piece) = &mut connection.piece else {
                    return Err((Errno::NOMEM, text.to_owned()));
                };
                let file = (*inode, *generation);
                let length = self
                    .core
                    .read_piece(session, file, *position, *length, piece)
                    .map_err(said(text))?;
                let number = piece.number();
                let descriptor = piece.descriptor().map_err(said(text))?;
                Ok((Answer::Piece { number, length }, vec![descriptor]))
            }
            Call::HandOn(of) => {
                let (description, descriptor) = self
                    .core
                    .hand_on(need?, *of)
                    .map_err(said("that cannot be handed on"))?;
                let text = "descriptions that are handed on cannot be watched";
                self.watch_descriptions().map_err(said(text))?;
                Ok((Answer::Described(description.of), vec![descriptor]))
            }
            Call::Claim { was_sent, has_lock } => {
                let session = need?;
                let text = "that descriptor stands for nothing of this pool";
                let [descriptor] = received else {
                    return Err((Errno::INVAL, text.to_owned()));
                };
                let Description { of, name } = self
                    .core
                    .claim(session, descriptor.as_fd())
                    .map_err(said(text))?;
                self.watch_descriptions().map_err(said(text))?;
                let kept = &mut self.core.kept_locks;
                let lock = match was_sent {
                    true => kept.take(name),
                    false => kept.copy(name),
                };
                let lock = lock.filter(|_| !has_lock);
                Ok((Answer::Described(of), lock.into_iter().collect()))
            }
            Call::KeepLock => {
                let text = "that lock cannot be kept for others";
                let [descriptor, file] = received else {
                    return Err((Errno::INVAL, text.to_owned()));
                };
                self.core
                    .keep_lock(need?, descriptor.as_fd(), file.as_fd())
                    .map_err(said(text))?;
                Ok((Answer::Done, Vec::new()))
            }
            Call::LockFile {
                inode,
                generation,
                access,
            } => {
                let file = self
                    .core
                    .lock_file(need?, (*inode, *generation), *access)
                    .map_err(said("it cannot be locked"))?;
                Ok((Answer::Done, vec![file]))
            }
            Call::OpenPipe {
                inode,
                generation,
                access,
                waits,
            } => {
                let opened = self
                    .core
                    .open_pipe(need?, (*inode, *generation), (*access, *waits))
                    .map_err(said("that pipe cannot be opened"))?;
                Ok(match opened {
                    Opened::Now(file) => (Answer::Done, vec![file]),
                    Opened::Later(ticket) => (Answer::Waits, vec![ticket]),
                })
            }
            Call::IsPipe { inode, generation } => {
                need?;
                match received {
                    [file]
                        if self
                            .core
                            .named_pipes
                            .is_of((*inode, *generation), file.as_fd()) =>
                    {
                        Ok((Answer::Done, Vec::new()))
                    }
                    _ => Err((Errno::BADF, "that is another file".to_owned())),
                }
            }
            Call::BindSocket {
                inode,
                generation,
                path,
            } => {
                let text = "it cannot be bound";
                let [socket] = received else {
                    return Err((Errno::INVAL, text.to_owned()));
                };
                let socket = socket.try_clone().map_err(|_| Errno::NFILE);
                let socket = socket.map_err(said(text))?;
                self.core
                    .bind_socket(need?, (*inode, *generation), (socket, path))
                    .map_err(said(text))?;
                Ok((Answer::Done, Vec::new()))
            }
            Call::FindSocket { inode, generation } => {
                let node = self
                    .core
                    .find_socket(need?, (*inode, *generation))
                    .map_err(said("nobody can be connected to by it"))?;
                Ok((Answer::Done, vec![node]))
            }
            Call::AddWatch {
                inode,
                generation,
                mask,
                parent,
            } => {
                let text = "it cannot be watched";
                let [inotify] = received else {
                    return Err((Errno::INVAL, text.to_owned()));
                };
                let inode = (*inode, *generation);
                let watch = self
                    .core
                    .add_watch(need?, (inode, *parent), inotify.as_fd(), *mask)
                    .map_err(said(text))?;
                let watch = watch.cast_unsigned();
                Ok((Answer::Watched { watch }, Vec::new()))
            }
            Call::Gates => {
                let gates = self.core.sessions.gates_of(need?);
                let gates = gates.map_err(said("there is no room for gates"))?;
                Ok((Answer::Done, vec![gates]))
            }
            Call::Goodbye => {
                let session = need?;
                let member = connection.member;
                self.leave(session, member);
                if let Some(connection) = self.connections.get_mut(&token) {
                    connection.session = None;
                }
                Ok((Answer::Done, Vec::new()))
            }
            Call::Measure { .. } | Call::Shutdown if !self.is_pools_user(connection) => {
                Err((Errno::PERM, "only the pool's user may".to_owned()))
            }
            Call::Measure { on } => {
                let pages_read = self.core.sessions.state.pool.take_pages_read();
                let mut measured = self.core.folds.meter.take(*on);
                measured.pages_read = pages_read;
                measured.bytes_journaled = self.core.sessions.state.journal.take_bytes();
                Ok((Answer::Measured(measured), Vec::new()))
            }
            Call::Status => Ok((Answer::Status(self.status()), Vec::new())),
            Call::Pool => Ok((Answer::Pool(self.pool_status()), Vec::new())),
            Call::Processes { session, member } => {
                let processes = self.processes(connection, *session, *member);
                Ok((Answer::Processes(processes), Vec::new()))
            }
            Call::Shutdown => {
                self.end.store(End::Clean as u32, Ordering::SeqCst);
                Ok((Answer::Done, Vec::new()))
            }
        }
    }

    /// Whether a process may have a session of this pool.
    pub(super) fn may_greet(&self, connection: &Connection) -> bool {
        self.core.sessions.options.shared
            || self
                .core
                .sessions
                .state
                .is_privileged(&connection.credentials)
    }

    pub(super) fn is_pools_user(&self, connection: &Connection) -> bool {
        let uid = connection.credentials.uid;
        uid == 0 || uid == self.core.sessions.state.pool.superblock().uid
    }

    /// Wakes from now on when descriptions are closed.
    fn watch_descriptions(&self) -> std::result::Result<(), Errno> {
        let Some(watches) = self.core.sessions.watches.descriptor() else {
            return Ok(());
        };
        let data = epoll::EventData::new_u64(DESCRIPTIONS);
        match epoll::add(&self.epoll, watches, data, epoll::EventFlags::IN) {
            Err(Errno::EXIST) => Ok(()),
            other => other,
        }
    }
}

fn other_version(version: u32) -> Answer {
    let text = format!(
        "protocol version {version} is not spoken here, but {PROTOCOL_VERSION}: use a LibFS and a \
         controller of the same release"
    );
    Answer::Error(Errno::PROTONOSUPPORT.raw_os_error(), text)
}

pub fn send(socket: BorrowedFd<'_>, answer: &Answer, descriptors: &[BorrowedFd<'_>]) -> bool {
    let mut buffer = [0u8; MESSAGE_MAX];
    answer
        .encode(&mut buffer)
        .ok()
        .and_then(|length| socket::send(socket, &buffer[..length], descriptors).ok())
        .is_some()
}
