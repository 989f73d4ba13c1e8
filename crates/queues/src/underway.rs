//! What a thread has begun of targets that do several requests at a time, and has to look after until they have ended.
//!
//! # Invariants
//! * A thread that sleeps, returns or ends has nothing underway: nobody else would look after it.
//! * A call that blocks is made with nothing underway: so what has ended is not told late by as much as that call takes.
//! * A target has no more requests of a thread than it says, and is polled without a lock of this crate.

use crate::calling::{in_target, run};
use crate::caught::caught;
use crate::engine::{Outcome, Work};
use crate::handful::Handful;
use crate::lock::{Locked, Shared};
use crate::outstanding::Job;
use crate::primitive::{MutexGuard, nanoseconds};
use crate::request::RequestId;
use crate::target::{Begun, Target, Transfer, Underway};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Instant;

/// See above.
#[derive(Default)]
pub struct InFlight {
    begun: Vec<(RequestId, Box<dyn Underway>)>,
    /// The fewest of what the targets of these do at a time.
    most: usize,
    /// The next one is measured: two looks at the clock for each would be a tenth of what a request costs.
    measures: bool,
}

impl InFlight {
    /// Of a thread that wants to know what requests take.
    pub fn measuring() -> InFlight {
        InFlight {
            measures: true,
            ..InFlight::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// How many more can be begun.
    pub fn room(&self) -> usize {
        match self.begun.is_empty() {
            true => usize::MAX,
            false => self.most.saturating_sub(self.begun.len()),
        }
    }

    /// Does a request, or begins it, without the lock; finishes it under it if it has ended.
    pub fn run<'m>(&mut self, shared: &'m Shared, work: Work) -> MutexGuard<'m, Locked> {
        let id = work.id;
        let begin = std::mem::take(&mut self.measures).then(Instant::now);
        let ended = self.attempt(shared, work);
        let took = begin.map(nanoseconds);
        let mut locked = shared.lock();
        locked.engine.took(id, took);
        if let Some((id, outcome)) = ended {
            locked.engine.finish(id, outcome);
        }
        locked
    }

    /// The same with all of a handful that nobody else does.
    pub fn run_all<'m>(&mut self, shared: &'m Shared, handful: &Handful) -> MutexGuard<'m, Locked> {
        let mut measured = None;
        let mut next = handful.next(None);
        while let Some(work) = next {
            let id = work.id;
            let begin = std::mem::take(&mut self.measures).then(Instant::now);
            let ended = self.attempt(shared, work);
            measured = measured.or(begin.map(|begin| (id, nanoseconds(begin))));
            next = handful.next(ended);
        }
        let mut locked = shared.lock();
        if let Some((id, took)) = measured {
            locked.engine.took(id, Some(took));
        }
        for (id, outcome) in handful.take_done() {
            locked.engine.finish(id, outcome);
        }
        locked
    }

    /// Does a request, or begins it: what came of it if it has ended.
    fn attempt(&mut self, shared: &Shared, work: Work) -> Option<(RequestId, Outcome)> {
        let (id, most) = (work.id, work.in_flight);
        let transfer = match most {
            1 => Err(work),
            // It is marked in its spool by who has done it.
            _ if work.spooled.is_some() => Err(work),
            _ => transfer(work),
        };
        let (target, transfer) = match transfer {
            Ok(begins) => begins,
            Err(work) => {
                self.end(shared);
                return Some((id, run(work)));
            }
        };
        match begin(&*target, transfer) {
            Err(outcome) => Some((id, outcome)),
            Ok(underway) => {
                self.most = match self.is_empty() {
                    true => most,
                    false => self.most.min(most),
                };
                self.begun.push((id, underway));
                None
            }
        }
    }

    /// Waits, without the lock, until something that is underway may have ended; finishes under it what has.
    pub fn await_some<'m>(&mut self, shared: &'m Shared) -> MutexGuard<'m, Locked> {
        let mut ended = Vec::new();
        self.poll(&mut ended);
        if ended.is_empty() {
            if let Some((_, first)) = self.begun.first_mut() {
                // A panic of it comes again when it is polled, or never: then it has not ended.
                in_target(|| caught(|| first.wait()));
            }
            self.poll(&mut ended);
        }
        finish(shared, ended)
    }

    /// Waits until nothing is underway.
    fn end(&mut self, shared: &Shared) {
        while !self.is_empty() {
            let locked = self.await_some(shared);
            shared.release(locked);
        }
    }

    fn poll(&mut self, ended: &mut Vec<(RequestId, Outcome)>) {
        let mut at = 0;
        while at < self.begun.len() {
            let underway = &mut self.begun[at].1;
            let polled = in_target(|| caught(|| underway.poll()));
            if polled == Some(None) {
                at += 1;
                continue;
            }
            // In their order: the oldest is waited for.
            let (id, underway) = self.begun.remove(at);
            let outcome = match polled.flatten() {
                Some(result) => of_transfer(result, in_target(|| caught(|| underway.end()))),
                None => {
                    caught(|| drop(underway));
                    panicked()
                }
            };
            ended.push((id, outcome));
        }
    }
}

fn finish(shared: &Shared, ended: Vec<(RequestId, Outcome)>) -> MutexGuard<'_, Locked> {
    let mut locked = shared.lock();
    for (id, outcome) in ended {
        locked.engine.finish(id, outcome);
    }
    locked
}

/// What can be begun, or else the work.
fn transfer(work: Work) -> Result<(Arc<dyn Target>, Transfer), Work> {
    let transfer = match work.job {
        Job::Read { position, buffer } => Transfer::read(position, buffer),
        Job::Write { position, bytes } => Transfer::write(position, bytes, work.from),
        Job::Append { .. } | Job::Sync { .. } => return Err(work),
    };
    Ok((work.target, transfer))
}

/// What came of it, if it has ended already.
fn begin(target: &dyn Target, transfer: Transfer) -> Result<Box<dyn Underway>, Outcome> {
    match in_target(|| caught(|| target.begin(transfer))) {
        Some(Begun::Underway(underway)) => Ok(underway),
        Some(Begun::Done(transfer, result)) => Err(of_transfer(result, Some(transfer))),
        None => Err(panicked()),
    }
}

fn of_transfer(result: Result<usize, Errno>, transfer: Option<Transfer>) -> Outcome {
    let Some(transfer) = transfer else {
        return panicked();
    };
    let most = transfer.length();
    Outcome {
        result: result.map(|length| length.min(most)),
        buffer: transfer.into_buffer(),
        end: None,
        panicked: false,
    }
}

fn panicked() -> Outcome {
    Outcome {
        result: Err(Errno::IO),
        buffer: Vec::new(),
        end: None,
        panicked: true,
    }
}
