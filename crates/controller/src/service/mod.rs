//! The service thread: connections, doorbells, and when to sleep.
//!
//! # Invariants
//! * While `awake` is 1 in the sessions' control memory the doorbells are polled; before the
//!   thread sleeps it sets `awake` to 0 everywhere and looks at all doorbells once more.
//! * A connection that misbehaves is closed; it never makes the others wait.
//! * Who asks for much makes other users wait for one of his requests at a time (see [`shares`]).
//! * A wake descriptor is never read (see [`crate::sessions::session`]).

mod calls;
mod departed;
mod endings;
mod held;
mod joining;
mod listener;
mod requests;
mod shares;

use self::calls::send;
use self::endings::Endings;
use self::held::{Asker, Held, closes};
use self::joining::Joining;
use self::shares::{SHARE, Shares};
use crate::access::by_message::Piece;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::fold::ownership::Reply;
use crate::service::listener::{Sender, bind_socket, peer, peers_process, spare};
use crate::sessions::limits::{descriptors_max, may_have_another};
use crate::sessions::members::Left;
use crate::sessions::session::Session;
use crate::sessions::take_up::AWAY_INTERVAL;
use crate::threads::closer::Closer;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::layout;
use arck_protocol::socket::Answer;
use arck_protocol::wait::Courtesy;
use arck_protocol::{Request, Response, ring};
use arck_verifier::Credentials;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How the thread is told to end; 0 = not yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum End {
    /// Fold everything and close the pool.
    Clean = 1,
    /// At once, as if killed; for tests.
    Kill = 2,
}

const LISTENER: u64 = 0;
const STOP: u64 = 1;
/// Descriptions that several processes have, of which some were closed.
const DESCRIPTIONS: u64 = 2;
/// Files of sessions that have outgrown what they may take.
const OUTGROWN: u64 = 3;
/// First name of a connection; its wake descriptor's is one more.
const FIRST_TOKEN: u64 = 4;
/// Connections at once.
const CONNECTIONS_MAX: usize = 8192;
/// How often orphans are looked at while there are any.
const ORPHAN_INTERVAL: Duration = Duration::from_secs(1);

struct Connection {
    socket: OwnedFd,
    credentials: Credentials,
    /// The process that connected, and who it was when it sent its first packet.
    peer: i32,
    sender: Option<Sender>,
    session: Option<SessionNumber>,
    /// Which of the session's members it is, and its process.
    member: u16,
    process: u32,
    /// Where it is told what it reads in large pieces.
    piece: Option<Piece>,
}

/// A request that waits for a lease to end.
struct Deferred {
    due: Instant,
    session: SessionNumber,
    slot: usize,
    request: Request,
    /// When it was taken from its slot, if that is measured.
    received: u64,
    /// The last closing when it was served first.
    closings: u64,
}

/// What a process of a session has asked that goes is still done for so long.
const LAST_REQUESTS: Duration = Duration::from_millis(20);

/// Looks at the doorbells between two looks at the sockets, while polling.
const ROUNDS: u32 = 32;

/// Everything that the thread has.
pub struct Service {
    core: Core,
    listener: OwnedFd,
    epoll: OwnedFd,
    /// Given up for a moment to turn a connection away when there are no descriptors left.
    spare: Option<OwnedFd>,
    connections: HashMap<u64, Connection>,
    closer: Closer,
    next_token: u64,
    deferred: Vec<Deferred>,
    held: Vec<Held>,
    joining: Joining,
    shares: Shares,
    endings: Endings,
    /// The session at which the last round of doorbells ended early: the next begins behind it.
    cut_off: SessionNumber,
    end: Arc<AtomicU32>,
    last_request: Instant,
    orphans_checked: Instant,
    away_checked: Instant,
    courtesy: Courtesy,
    /// Told the number of connections, whenever it changes.
    connection_count: Arc<AtomicU32>,
}

impl Service {
    /// Listens. `stop` is an eventfd that is written when `end` has been set.
    pub fn new(
        core: Core,
        stop: BorrowedFd<'_>,
        end: Arc<AtomicU32>,
        connection_count: Arc<AtomicU32>,
    ) -> Result<Service> {
        let path = core.state.pool.path().to_path_buf();
        let failed = |operation| Error::system(path.clone(), operation);
        let listener = bind_socket(&core.state.pool, core.options.shared)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        let outgrown = core.lookout.notice();
        for (descriptor, token) in [
            (listener.as_fd(), LISTENER),
            (stop, STOP),
            (outgrown.as_fd(), OUTGROWN),
        ] {
            let data = epoll::EventData::new_u64(token);
            epoll::add(&epoll, descriptor, data, epoll::EventFlags::IN)
                .map_err(failed("epoll_ctl"))?;
        }
        Ok(Service {
            core,
            listener,
            epoll,
            spare: spare(),
            connections: HashMap::new(),
            closer: Closer::default(),
            next_token: FIRST_TOKEN,
            deferred: Vec::new(),
            held: Vec::new(),
            joining: Joining::default(),
            shares: Shares::default(),
            endings: Endings::default(),
            cut_off: 0,
            end,
            last_request: Instant::now(),
            orphans_checked: Instant::now(),
            away_checked: Instant::now(),
            courtesy: Courtesy::new(),
            connection_count,
        })
    }

    /// Serves until told to end.
    pub fn run(mut self) -> Result<()> {
        let mut events = Vec::with_capacity(64);
        loop {
            match self.end.load(Ordering::SeqCst) {
                0 => {}
                end if end == End::Kill as u32 => return Ok(()),
                _ => break,
            }
            // Nothing is being done: nobody has a label in his hands.
            self.core.state.classes.settle();
            let mut busy = false;
            for _ in 0..ROUNDS {
                busy |= self.poll_doorbells();
                busy |= self.run_deferred();
                if busy || self.core.sessions.is_empty() {
                    break;
                }
                std::hint::spin_loop();
            }
            busy |= self.core.close_slice();
            busy |= self.core.free_slice();
            busy |= self.end_some();
            self.answer_held();
            if busy {
                self.last_request = Instant::now();
            }
            let timeout = self.timeout(busy);
            if timeout != Some(Duration::ZERO) {
                self.set_awake(0);
                // Whoever rang before it saw that must not be missed.
                if self.poll_doorbells() {
                    self.last_request = Instant::now();
                    self.set_awake(1);
                    continue;
                }
            } else {
                // Whoever was answered, or is about to ask, may be waiting for this processor.
                self.courtesy.give_way();
            }
            self.wait(&mut events, timeout)?;
            if timeout != Some(Duration::ZERO) {
                self.set_awake(1);
            }
            let mut looked = Instant::now();
            for event in events.drain(..) {
                self.event(event.data.u64(), event.flags);
                if looked.elapsed() > SHARE {
                    // Sessions of one user that end, one after another: others ask meanwhile.
                    self.poll_doorbells();
                    self.run_deferred();
                    looked = Instant::now();
                }
            }
            self.let_join();
            self.check_orphans();
            self.check_away();
            self.core.evict_due();
            self.core.publish_free_counts(false);
        }
        self.close()
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Option<Duration>) -> Result<()> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::Memory {
                operation: "epoll_wait",
                errno,
            }),
        }
    }

    /// How long to sleep: not at all while polling, else until something is due.
    fn timeout(&self, busy: bool) -> Option<Duration> {
        if busy
            || (!self.core.sessions.is_empty()
                && self.last_request.elapsed() < self.core.options.polling)
        {
            return Some(Duration::ZERO);
        }
        let mut timeout = None;
        if let Some(due) = self.deferred.iter().map(|deferred| deferred.due).min() {
            let left = due.saturating_duration_since(Instant::now());
            // Sleeping takes longer than this: poll.
            if left < Duration::from_micros(200) {
                return Some(Duration::ZERO);
            }
            timeout = Some(left);
        }
        if let Some(due) = self.core.next_eviction() {
            let left = due.saturating_duration_since(Instant::now());
            timeout = Some(timeout.map_or(left, |t| t.min(left)));
        }
        if let Some(due) = self.joining.due() {
            let left = due.saturating_duration_since(Instant::now());
            timeout = Some(timeout.map_or(left, |t| t.min(left)));
        }
        let is_something_left = !self.core.state.orphans.is_empty()
            || !self.core.remains.is_empty()
            || !self.core.emptyings.is_empty()
            || self.core.by_message.keeps_any();
        if is_something_left {
            timeout = Some(timeout.map_or(ORPHAN_INTERVAL, |t| t.min(ORPHAN_INTERVAL)));
        }
        if self.waits_for_any() {
            timeout = Some(timeout.map_or(AWAY_INTERVAL, |t| t.min(AWAY_INTERVAL)));
        }
        timeout
    }

    fn set_awake(&self, awake: u32) {
        for live in self.core.sessions.values().filter_map(|s| s.live.as_ref()) {
            live.control().header.awake.store(awake, Ordering::SeqCst);
        }
    }

    /// Answers every request that rang; true if there was any.
    fn poll_doorbells(&mut self) -> bool {
        let is_rung = |session: &Session| {
            // What one that is leaving has asked is done when its turn comes.
            if session.is_leaving {
                return None;
            }
            let live = session.live.as_ref()?;
            let doorbell = &live.control().header.doorbell;
            (doorbell.load(Ordering::SeqCst) != 0).then_some(session.number)
        };
        let mut rung: Vec<SessionNumber> =
            self.core.sessions.values().filter_map(is_rung).collect();
        let first = rung.partition_point(|&number| number <= self.cut_off);
        rung.rotate_left(first);
        self.cut_off = 0;
        self.shares.begin();
        let mut any = false;
        for number in rung {
            any |= self.poll_session(number, None);
        }
        any
    }

    /// Answers what rang of a session: for `last`, if that is said; else as long as its user has
    /// something left of the round, and the rest rings on.
    fn poll_session(&mut self, number: SessionNumber, last: Option<Duration>) -> bool {
        let began = Instant::now();
        let Some(session) = self.core.sessions.get(&number) else {
            return false;
        };
        let user = session.credentials.uid;
        if last.is_none() && !self.shares.is_left(user) {
            return true;
        }
        let Some(live) = &session.live else {
            return false;
        };
        let mut rung = ring::rung(live.control());
        let any = rung != 0;
        while rung != 0 {
            let slot = rung.trailing_zeros() as usize;
            rung &= rung - 1;
            let Some(live) = self
                .core
                .sessions
                .get(&number)
                .and_then(|s| s.live.as_ref())
            else {
                break;
            };
            if last.is_some_and(|last| began.elapsed() > last) {
                ring::ring_again(live.control(), rung | 1 << slot);
                break;
            }
            // One that waits for a lease already stays submitted: a false ring.
            if self
                .deferred
                .iter()
                .any(|d| (d.session, d.slot) == (number, slot))
                || self.held.iter().any(|held| held.is_of(number, slot))
            {
                continue;
            }
            match ring::receive(live.control(), slot) {
                None => {}
                Some(Err(errno)) => {
                    ring::respond(live.control(), slot, &Response::Error(errno.raw_os_error()));
                }
                Some(Ok(request)) => {
                    self.core.note_serving(number, slot);
                    let received = self.core.meter.now();
                    let since = Instant::now();
                    let closings = self.core.closings.last();
                    self.serve(number, slot, request, received, closings);
                    self.shares.served(user, since);
                }
            }
            if last.is_none() && rung != 0 && !self.shares.is_left(user) {
                let live = self.core.sessions.get(&number);
                if let Some(live) = live.and_then(|session| session.live.as_ref()) {
                    ring::ring_again(live.control(), rung);
                }
                self.cut_off = number;
                break;
            }
        }
        any
    }

    /// `closings`: the last one when it was served first.
    fn serve(
        &mut self,
        session: SessionNumber,
        slot: usize,
        request: Request,
        received: u64,
        closings: u64,
    ) {
        match self.core.request(session, &request) {
            Reply::Now(response) if closes(&request) && self.is_closing_since(closings) => {
                let to = Asker::Slot(session, slot, response);
                self.hold(to, closings, None);
            }
            Reply::Now(response) => {
                self.core.publish_free_counts(false);
                if let Request::Acquire { .. } | Request::Recall { .. } | Request::Commit { .. } =
                    request
                {
                    self.core.meter.answered(received);
                }
                if let Some(live) = self
                    .core
                    .sessions
                    .get(&session)
                    .and_then(|s| s.live.as_ref())
                {
                    ring::respond(live.control(), slot, &response);
                }
            }
            Reply::Later(due) => self.deferred.push(Deferred {
                due,
                session,
                slot,
                request,
                received,
                closings,
            }),
        }
    }

    /// Looks for sessions and members that were away and have come to their end.
    fn check_away(&mut self) {
        if self.away_checked.elapsed() > AWAY_INTERVAL && self.waits_for_any() {
            self.away_checked = Instant::now();
            for session in self.core.departed() {
                self.end_session(session);
            }
            for (session, member) in self.core.departed_members() {
                self.leave(session, member);
            }
        }
    }

    /// Whether there may be anybody whom an earlier controller knew, and who has not come back.
    fn waits_for_any(&self) -> bool {
        self.core.any_away() || self.core.expects_members()
    }

    fn run_deferred(&mut self) -> bool {
        if self.deferred.is_empty() {
            return false;
        }
        let now = Instant::now();
        // In the order in which they came: nobody overtakes for ever.
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.deferred)
            .into_iter()
            .partition(|deferred| deferred.due <= now);
        self.deferred = later;
        let any = !due.is_empty();
        self.shares.begin();
        let mut put_off = Vec::new();
        for deferred in due {
            let session = self.core.sessions.get(&deferred.session);
            let user = session.map(|session| session.credentials.uid);
            if user.is_some_and(|user| !self.shares.is_left(user)) {
                put_off.push(deferred);
                continue;
            }
            let since = Instant::now();
            self.core.meter.add(deferred.received, |m| &mut m.deferred);
            self.core.note_serving(deferred.session, deferred.slot);
            self.serve(
                deferred.session,
                deferred.slot,
                deferred.request,
                deferred.received,
                deferred.closings,
            );
            if let Some(user) = user {
                self.shares.served(user, since);
            }
        }
        put_off.append(&mut self.deferred);
        self.deferred = put_off;
        any
    }

    fn check_orphans(&mut self) {
        if self.orphans_checked.elapsed() > ORPHAN_INTERVAL {
            self.orphans_checked = Instant::now();
            self.core.forget_closed();
            self.core.free_next_orphans();
            self.core.forget_kept();
            self.core.remove_remains();
            self.core.forget_relabelling(false);
            self.core.finish_emptying(Duration::ZERO);
        }
    }

    fn event(&mut self, token: u64, flags: epoll::EventFlags) {
        match token {
            LISTENER => self.accept(),
            STOP => {}
            DESCRIPTIONS => self.core.forget_closed(),
            OUTGROWN => self.close_outgrown(),
            // A wake descriptor: the doorbells are looked at in the next round.
            token if !token.is_multiple_of(2) => {}
            token => self.packet(token, flags),
        }
    }

    /// Closes sessions whose files have outgrown what they may take.
    fn close_outgrown(&mut self) {
        // Only that it is readable matters, until it has been read.
        let _ = rustix::io::read(&*self.core.lookout.notice(), &mut [0; 8]);
        for (lent, found) in self.core.lookout.take_outgrown() {
            if let Some(session) = self.core.outgrown(lent, found) {
                let connections = self.connections.iter();
                let its = connections.filter(|(_, of)| of.session == Some(session));
                let tokens: Vec<u64> = its.map(|(&token, _)| token).collect();
                tokens.into_iter().for_each(|token| self.disconnect(token));
                // Where it has no connection, it is away.
                self.end_outgrown(session, lent);
            } else {
                self.core.take_back(lent);
            }
        }
    }

    fn accept(&mut self) {
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

    fn connect(&mut self, socket: OwnedFd) {
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
    fn may_connect(&self, uid: u32) -> bool {
        let own = self.connections.values();
        let own = own.filter(|connection| connection.credentials.uid == uid);
        let own = own.count();
        let others = self.connections.len() - own;
        let capacity = CONNECTIONS_MAX.min(descriptors_max() / 2);
        let is_trusted = self.core.is_trusted(uid);
        let reserve = self.core.reserve(capacity);
        may_have_another(own, others, capacity, reserve, is_trusted)
    }

    fn count_connections(&self) {
        let count = u32::try_from(self.connections.len()).unwrap_or(u32::MAX);
        self.connection_count.store(count, Ordering::SeqCst);
    }

    fn disconnect(&mut self, token: u64) {
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
    fn leave(&mut self, session: SessionNumber, member: u16) {
        // What it had asked before is still done, as far as it can be; of one that is the last, when its
        // turn comes.
        let others = self.core.sessions.get(&session);
        let has_others = others.is_some_and(|session| session.members.count() > 1);
        if has_others && self.shares.is_left(others.map_or(0, |s| s.credentials.uid)) {
            self.poll_session(session, Some(LAST_REQUESTS));
        }
        let left = self.core.leave_session(session, member);
        match left {
            Left::Nobody => self.end_session(session),
            Left::Others(submitted) | Left::Away(submitted) => {
                self.core.forget_sweep(session);
                let is_its = |slot: usize| submitted & 1 << slot != 0;
                self.deferred
                    .retain(|d| d.session != session || !is_its(d.slot));
                self.held
                    .retain(|held| !(0..32).any(|slot| is_its(slot) && held.is_of(session, slot)));
                let live = self.core.sessions.get(&session);
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
            self.core.lose(session);
        }
    }

    fn watch(
        &mut self,
        session: SessionNumber,
        member: u16,
        process: u32,
        token: u64,
    ) -> std::result::Result<(), Errno> {
        let wake = self
            .core
            .sessions
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

    /// Ends cleanly: no new connections, all sessions folded.
    fn close(self) -> Result<()> {
        let Service {
            core,
            listener,
            connections,
            ..
        } = self;
        drop(listener);
        core.state.pool.remove_file(layout::SOCKET);
        let closed = core.close();
        drop(connections);
        closed
    }
}
