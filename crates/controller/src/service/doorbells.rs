//! Requests that sessions ring for, and those that are put off.
//!
//! # Invariants
//! * While `awake` is 1 in the sessions' control memory the doorbells are polled.
//! * Who asks for much makes other users wait for one of his requests at a time (see [`super::shares`]).
//! * What a session asks for that takes no time waits for one fold of its own at most, which was begun before.

use crate::fold::reply::Reply;
use crate::service::held_back::{Asker, closes};
use crate::service::{Deferred, Service};
use crate::sessions::session::Session;
use arck_core_state::FileKind;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::{Request, Response, ring};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A slot, and what stands in it.
type Asked = (usize, Result<Request, Errno>);

/// Whether a request may take as long as a fold: others of its session come first.
fn takes_long(request: &Request) -> bool {
    !matches!(
        request,
        Request::GrantInodes { .. }
            | Request::GrowArena { .. }
            | Request::MoreCredits {
                pressing: false,
                ..
            }
            | Request::FoldCopy { .. }
            | Request::Ping
    )
}

impl Service {
    pub(super) fn set_awake(&self, awake: u32) {
        for live in self
            .core
            .sessions
            .all
            .values()
            .filter_map(|s| s.live.as_ref())
        {
            live.control().header.awake.store(awake, Ordering::SeqCst);
        }
    }

    /// Answers every request that rang; true if there was any.
    pub(super) fn poll_doorbells(&mut self) -> bool {
        self.core.sessions.mediating.looks(Instant::now());
        let is_rung = |session: &Session| {
            // What one that is leaving has asked is done when its turn comes.
            if session.is_leaving {
                return None;
            }
            let live = session.live.as_ref()?;
            let doorbell = &live.control().header.doorbell;
            (doorbell.load(Ordering::SeqCst) != 0).then_some(session.number)
        };
        let mut rung: Vec<SessionNumber> = self
            .core
            .sessions
            .all
            .values()
            .filter_map(is_rung)
            .collect();
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
    pub(super) fn poll_session(&mut self, number: SessionNumber, last: Option<Duration>) -> bool {
        let began = Instant::now();
        let Some(session) = self.core.sessions.all.get(&number) else {
            return false;
        };
        let user = session.credentials.uid;
        if last.is_none() && !self.shares.is_left(user) {
            return true;
        }
        let Some(live) = &session.live else {
            return false;
        };
        let rung = ring::rung(live.control());
        let any = rung != 0;
        let slots = (0..u32::BITS as usize).filter(|slot| rung & 1 << slot != 0);
        let asked = slots.filter_map(|slot| Some((slot, ring::receive(live.control(), slot)?)));
        let mut asked: Vec<Asked> = asked.collect();
        asked.sort_by_key(|(_, request)| request.as_ref().is_ok_and(takes_long));
        let mut asked = VecDeque::from(asked);
        let rest = |asked: &VecDeque<Asked>| {
            let slots = asked.iter().map(|(slot, _)| slot);
            slots.fold(0u32, |rest, slot| rest | 1 << slot)
        };
        while let Some((slot, request)) = asked.pop_front() {
            let Some(live) = self
                .core
                .sessions
                .all
                .get(&number)
                .and_then(|s| s.live.as_ref())
            else {
                break;
            };
            if last.is_some_and(|last| began.elapsed() > last) {
                ring::ring_again(live.control(), rest(&asked) | 1 << slot);
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
            let is_long = request.as_ref().is_ok_and(takes_long);
            match request {
                Err(errno) => {
                    ring::respond(live.control(), slot, &Response::Error(errno.raw_os_error()));
                }
                Ok(request) => {
                    self.core.sessions.note_serving(number, slot);
                    let received = self.core.folds.meter.now();
                    let since = Instant::now();
                    let closings = self.core.places.closings.last();
                    self.serve(number, slot, request, received, closings);
                    self.shares.served(user, since);
                }
            }
            if last.is_none() && !asked.is_empty() && !self.shares.is_left(user) {
                let live = self.core.sessions.all.get(&number);
                if let Some(live) = live.and_then(|session| session.live.as_ref()) {
                    ring::ring_again(live.control(), rest(&asked));
                }
                self.cut_off = number;
                break;
            }
            if is_long && !asked.is_empty() {
                self.let_small_go_first(number, &mut asked);
            }
        }
        any
    }

    /// What a session has asked for meanwhile that takes no time comes before what it asked for earlier; the rest
    /// rings on, behind all of that.
    fn let_small_go_first(&self, number: SessionNumber, asked: &mut VecDeque<Asked>) {
        let live = self.core.sessions.all.get(&number);
        let Some(live) = live.and_then(|session| session.live.as_ref()) else {
            return;
        };
        let rung = ring::rung(live.control());
        let mut rest = 0;
        for slot in (0..u32::BITS as usize).filter(|slot| rung & 1 << slot != 0) {
            let is_known = asked.iter().any(|(other, _)| *other == slot);
            match ring::receive(live.control(), slot) {
                Some(Ok(request)) if !takes_long(&request) && !is_known => {
                    asked.push_front((slot, Ok(request)));
                }
                Some(_) => rest |= 1 << slot,
                None => {}
            }
        }
        if rest != 0 {
            ring::ring_again(live.control(), rest);
        }
    }

    /// A copy of what is attached to a request.
    fn attached(
        &self,
        session: SessionNumber,
        slot: usize,
        request: &Request,
    ) -> Result<Vec<u8>, Errno> {
        let length = match request {
            Request::WriteAttached { length, .. } | Request::SetExtended { length, .. } => length,
            Request::MakeName { kind, size, .. } if *kind == FileKind::Link as u8 => size,
            _ => return Ok(Vec::new()),
        };
        let session = self.core.sessions.all.get(&session);
        let live = session.and_then(|session| session.live.as_ref());
        ring::attached(live.ok_or(Errno::NOENT)?.control(), slot, *length)
    }

    /// `closings`: the last one when it was served first.
    pub(super) fn serve(
        &mut self,
        session: SessionNumber,
        slot: usize,
        request: Request,
        received: u64,
        closings: u64,
    ) {
        let ended = self.core.sessions.workers.ended();
        let defer = |due, worker| Deferred {
            due,
            worker,
            session,
            slot,
            request: request.clone(),
            received,
            closings,
        };
        let attached = self.attached(session, slot, &request);
        let reply = attached.map_or_else(Reply::from, |attached| {
            self.core.request(session, &request, &attached)
        });
        match reply {
            Reply::Now(response) if closes(&request) && self.is_closing_since(closings) => {
                let to = Asker::Slot(session, slot, response);
                self.hold(to, closings, None);
            }
            Reply::Now(response) => {
                self.core.sessions.publish_free_counts(false);
                if let Request::Acquire { .. } | Request::Recall { .. } | Request::Commit { .. } =
                    request
                {
                    self.core.folds.meter.answered(received);
                }
                if let Some(live) = self
                    .core
                    .sessions
                    .all
                    .get(&session)
                    .and_then(|s| s.live.as_ref())
                {
                    ring::respond(live.control(), slot, &response);
                }
            }
            Reply::Later(due) => self.deferred.push(defer(due, None)),
            Reply::Growing(due) => self.deferred.push(defer(due, Some(ended))),
        }
    }

    /// Whether there may be anybody whom an earlier controller knew, and who has not come back.
    pub(super) fn waits_for_any(&self) -> bool {
        self.core.sessions.any_away() || self.core.sessions.expects_members()
    }

    pub(super) fn run_deferred(&mut self) -> bool {
        if self.deferred.is_empty() {
            return false;
        }
        let (now, ended) = (Instant::now(), self.core.sessions.workers.ended());
        // In the order in which they came: nobody overtakes for ever.
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.deferred)
            .into_iter()
            .partition(|deferred| deferred.is_due(now, ended));
        self.deferred = later;
        let any = !due.is_empty();
        self.shares.begin();
        let mut put_off = Vec::new();
        for deferred in due {
            let session = self.core.sessions.all.get(&deferred.session);
            let user = session.map(|session| session.credentials.uid);
            if user.is_some_and(|user| !self.shares.is_left(user)) {
                put_off.push(deferred);
                continue;
            }
            let since = Instant::now();
            self.core
                .folds
                .meter
                .add(deferred.received, |m| &mut m.deferred);
            self.core
                .sessions
                .note_serving(deferred.session, deferred.slot);
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
}
