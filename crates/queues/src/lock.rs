//! The one lock that all of a [`Queues`](crate::Queues) stands under, and who is woken when it is given back.
//!
//! # Locks
//! * `locked`, for one step of the engine: short, whatever the requests are. Under it no target is called, no bell is rung, and no
//!   bytes of requests are copied, but for a write's that completes while a read is served from it. Timestamps are given under it, so
//!   that their order is the order of submission, for each file.
//! * A handful's own lock may be taken under it, and no other.
//!
//! # Invariants
//! * Whoever changes what is ready gives the lock back by [`Shared::release`], which wakes one worker if somebody has to look after that.

use crate::engine::{Engine, Work};
use crate::handful::Handful;
use crate::primitive::{Condvar, JoinHandle, Mutex, MutexGuard, lock};
use crate::rules::{Rule, Rules};
use std::sync::Arc;
use std::time::Instant;

/// What stands under the lock.
pub struct Locked {
    pub engine: Engine,
    /// Workers that sleep, and how many of them have been woken.
    pub sleeping: usize,
    pub woken: usize,
    /// One of those that sleep naps.
    pub naps: bool,
    /// Underway, by threads that lend themselves.
    pub handfuls: Vec<Arc<Handful>>,
    /// Workers that are to be started yet.
    pub to_start: usize,
    pub threads: Vec<JoinHandle<()>>,
}

impl Locked {
    /// Whether somebody has to look after what is ready, or late soon, who is not about to.
    pub fn is_worker_to_be_woken(&self) -> bool {
        let engine = &self.engine;
        let is_lent = engine.has_ready() && !engine.has_for_workers() || !self.handfuls.is_empty();
        (engine.has_for_workers() || engine.is_alarmed() || is_lent && !self.naps)
            && self.sleeping > self.woken
            && engine.rules().hold(Rule::WakesWorkers)
    }

    /// Something out of a handful whose thread may be stuck; what is done of it is finished.
    pub fn take_of_handfuls(&mut self) -> Option<Work> {
        self.handfuls.iter().find_map(|handful| {
            for (id, outcome) in handful.take_done() {
                self.engine.finish(id, outcome);
            }
            handful.next(None)
        })
    }
}

/// What workers, queues and [`Queues`](crate::Queues) share.
pub struct Shared {
    locked: Mutex<Locked>,
    /// On which workers sleep.
    pub work: Condvar,
    /// The process that the threads are of.
    process: u32,
}

impl Shared {
    pub fn new(workers: usize, rules: Rules) -> Shared {
        Shared {
            locked: Mutex::new(Locked {
                engine: Engine::new(rules),
                sleeping: 0,
                woken: 0,
                naps: false,
                handfuls: Vec::new(),
                to_start: workers,
                threads: Vec::new(),
            }),
            work: Condvar::new(),
            process: std::process::id(),
        }
    }

    /// This process is a child of the one that has the threads. Whoever held the lock there may never give it back here.
    pub fn is_of_parent(&self) -> bool {
        self.process != std::process::id()
    }

    /// Takes the lock for a look, which changes nothing.
    pub fn look(&self) -> MutexGuard<'_, Locked> {
        lock(&self.locked)
    }

    /// Takes the lock, and ends what is late. It is given back by [`release`](Shared::release).
    pub fn lock(&self) -> MutexGuard<'_, Locked> {
        let mut locked = lock(&self.locked);
        if locked.engine.next_deadline().is_some() {
            locked.engine.expire(Instant::now());
        }
        locked
    }

    /// Gives the lock back, and wakes who has something to do since.
    pub fn release(&self, mut locked: MutexGuard<'_, Locked>) {
        let rung = locked.engine.take_rung();
        let wakes = locked.is_worker_to_be_woken();
        locked.engine.forget_alarm();
        if wakes {
            locked.woken += 1;
        }
        let is_over = locked.engine.is_over();
        drop(locked);
        if is_over {
            self.work.notify_all();
        } else if wakes {
            self.work.notify_one();
        }
        rung.iter().for_each(|bell| bell.notify_all());
    }
}
