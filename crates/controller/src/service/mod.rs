//! The service thread: connections, doorbells, and when to sleep.
//!
//! # Invariants
//! * While `awake` is 1 in the sessions' control memory the doorbells are polled; before the
//!   thread sleeps it sets `awake` to 0 everywhere and looks at all doorbells once more.
//! * A connection that misbehaves is closed; it never makes the others wait.
//! * Who asks for much makes other users wait for one of his requests at a time (see [`shares`]).
//! * A wake descriptor is never read (see [`crate::sessions::session`]).

mod calls;
mod connections;
mod departed;
mod doorbells;
mod endings;
mod ends;
mod granting;
mod greetings;
mod held;
mod held_back;
mod joining;
mod listener;
mod shares;
mod status;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::requests::by_message::Piece;
use crate::service::ends::Endings;
use crate::service::greetings::Joining;
use crate::service::held_back::{Waiting, WaitingGrant};
use crate::service::listener::{Sender, bind_socket, spare};
use crate::service::shares::{SHARE, Shares};
use crate::sessions::take_up::AWAY_INTERVAL;
use crate::threads::closer::Closer;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::layout;
use arck_protocol::Request;
use arck_protocol::wait::Courtesy;
use arck_verifier::Credentials;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
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
pub const DESCRIPTIONS: u64 = 2;
/// Files of sessions that have outgrown what they may take.
const OUTGROWN: u64 = 3;
/// Workers that have ended.
const WORKERS: u64 = 4;
/// First name of a connection; its wake descriptor's is one more.
const FIRST_TOKEN: u64 = 6;
/// Connections at once.
pub const CONNECTIONS_MAX: usize = 8192;
/// Nodes of what meets in the kernel, of each kind, that are looked at as often as orphans.
const TIDIED: usize = 64;
/// How often orphans are looked at while there are any.
const ORPHAN_INTERVAL: Duration = Duration::from_secs(1);

pub struct Connection {
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

/// A request that waits for a lease to end, or for a worker.
pub struct Deferred {
    due: Instant,
    /// Workers that had ended when it was begun, if it waits for another one.
    worker: Option<u64>,
    session: SessionNumber,
    slot: usize,
    request: Request,
    /// When it was taken from its slot, if that is measured.
    received: u64,
    /// The last closing when it was served first.
    closings: u64,
}

impl Deferred {
    /// Whether it is to be looked at again, when so many workers have ended.
    fn is_due(&self, now: Instant, ended: u64) -> bool {
        self.due <= now || self.worker.is_some_and(|worker| worker != ended)
    }
}

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
    held: Vec<Waiting>,
    grants: Vec<WaitingGrant>,
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
        let path = core.sessions.state.pool.path().to_path_buf();
        let failed = |operation| Error::system(path.clone(), operation);
        let listener = bind_socket(&core.sessions.state.pool, core.sessions.options.shared)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        let outgrown = core.sessions.lookout.notice();
        let told = core.sessions.workers.clone();
        let pool = &core.sessions.state.pool;
        pool.spares().tell(move || told.note());
        let workers = core.sessions.workers.notice();
        let watched = [
            (listener.as_fd(), LISTENER),
            (stop, STOP),
            (outgrown.as_fd(), OUTGROWN),
        ];
        let workers = workers.map(|workers| (workers, WORKERS));
        for (descriptor, token) in watched.into_iter().chain(workers) {
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
            grants: Vec::new(),
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
            self.core.sessions.state.classes.forget_told();
            let mut busy = false;
            for _ in 0..ROUNDS {
                busy |= self.poll_doorbells();
                busy |= self.run_deferred();
                if busy || self.core.sessions.all.is_empty() {
                    break;
                }
                std::hint::spin_loop();
            }
            busy |= self.core.access().close_slice();
            busy |= self.core.freeing().free_slice();
            busy |= self.end_some();
            busy |= self.core.tell_watchers();
            self.answer_held();
            busy |= self.answer_grants();
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
                self.core.sessions.mediating.wakes(Instant::now());
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
            self.core.owners().evict_due();
            self.core.sessions.publish_free_counts(false);
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
            || (!self.core.sessions.all.is_empty()
                && self.last_request.elapsed() < self.core.sessions.options.polling)
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
        if let Some(due) = self.core.folds.next_eviction() {
            let left = due.saturating_duration_since(Instant::now());
            timeout = Some(timeout.map_or(left, |t| t.min(left)));
        }
        if let Some(due) = self.core.next_look() {
            let left = due.saturating_duration_since(Instant::now());
            timeout = Some(timeout.map_or(left, |t| t.min(left)));
        }
        if let Some(due) = self.joining.due() {
            let left = due.saturating_duration_since(Instant::now());
            timeout = Some(timeout.map_or(left, |t| t.min(left)));
        }
        let is_something_left = !self.core.sessions.state.orphans.is_empty()
            || !self.core.sessions.remains.is_empty()
            || !self.core.places.emptyings.is_empty()
            || self.core.sessions.rights.keeps_any()
            || self.core.watched.is_any();
        if is_something_left {
            timeout = Some(timeout.map_or(ORPHAN_INTERVAL, |t| t.min(ORPHAN_INTERVAL)));
        }
        if self.waits_for_any() {
            timeout = Some(timeout.map_or(AWAY_INTERVAL, |t| t.min(AWAY_INTERVAL)));
        }
        timeout
    }

    /// Looks for sessions and members that were away and have come to their end.
    fn check_away(&mut self) {
        if self.away_checked.elapsed() > AWAY_INTERVAL && self.waits_for_any() {
            self.away_checked = Instant::now();
            for session in self.core.sessions.departed() {
                self.end_session(session);
            }
            for (session, member) in self.core.sessions.departed_members() {
                self.leave(session, member);
            }
        }
    }

    fn check_orphans(&mut self) {
        if self.orphans_checked.elapsed() > ORPHAN_INTERVAL {
            self.orphans_checked = Instant::now();
            self.core.forget_closed();
            self.core.tidy_meeting(TIDIED);
            self.core.tidy_watched();
            self.core.access().free_next_orphans();
            self.core.sessions.forget_kept();
            self.core.sessions.remove_remains();
            self.core.access().forget_relabelling(false);
            self.core.access().finish_emptying(Duration::ZERO);
        }
    }

    fn event(&mut self, token: u64, flags: epoll::EventFlags) {
        match token {
            LISTENER => self.accept(),
            STOP => {}
            DESCRIPTIONS => self.core.forget_closed(),
            OUTGROWN => self.close_outgrown(),
            // Who waits for one looks again in the next round.
            WORKERS => {
                let notice = self.core.sessions.workers.notice();
                let _ = notice.map(|notice| rustix::io::read(notice, &mut [0; 8]));
            }
            // A wake descriptor: the doorbells are looked at in the next round.
            token if !token.is_multiple_of(2) => {}
            token => self.packet(token, flags),
        }
    }

    /// Closes sessions whose files have outgrown what they may take.
    fn close_outgrown(&mut self) {
        // Only that it is readable matters, until it has been read.
        let _ = rustix::io::read(&*self.core.sessions.lookout.notice(), &mut [0; 8]);
        for (lent, found) in self.core.sessions.lookout.take_outgrown() {
            if let Some(session) = self.core.sessions.outgrown(lent, found) {
                let connections = self.connections.iter();
                let its = connections.filter(|(_, of)| of.session == Some(session));
                let tokens: Vec<u64> = its.map(|(&token, _)| token).collect();
                tokens.into_iter().for_each(|token| self.disconnect(token));
                // Where it has no connection, it is away.
                self.end_outgrown(session, lent);
            } else {
                self.core.sessions.take_back(lent);
            }
        }
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
        core.sessions.state.pool.remove_file(layout::SOCKET);
        let closed = core.close();
        drop(connections);
        closed
    }
}
