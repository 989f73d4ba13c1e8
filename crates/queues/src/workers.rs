//! The threads that do requests: workers, and those that wait.
//!
//! # Who is woken
//! To wake a thread takes longer than most requests on memory. So a thread that waits without a time-out does what its queue has ready itself,
//! *lends* itself, and wakes nobody for that while it is quick: while what it measured last, times what is ready, is less than waking somebody
//! would take. Should one of its requests take long all the same, a worker that naps notices.
//!
//! # Invariants
//! * Whoever changes what is ready, and leaves some that nobody lends himself for, wakes one worker of those that sleep and are not woken
//!   already. So nothing is ready while all workers sleep, but what a thread that is awake does next, and a worker naps meanwhile: what is ready
//!   then waits for [`NAP`] at most, whatever a target does.
//! * Whoever lends himself does so no longer before he sleeps or goes.
//! * One worker naps while something is submitted; it sleeps when nothing was, for as long as a nap.
//! * Whoever sleeps has looked under the lock, and sleeps no longer than to the next deadline; one worker is woken when there is an
//!   earlier one.
//! * The workers end when it has ended and nothing is outstanding: what was begun, or seen, is done.

use crate::calling::is_in_target;
use crate::engine::{Engine, Work};
use crate::handful::{HANDFUL_MOST, Handful};
use crate::lock::{Locked, Shared};
use crate::outstanding::QueueId;
use crate::primitive::{Condvar, MutexGuard, sleep, thread};
use crate::rules::Rule;
use crate::underway::InFlight;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A worker looks again after that while something is submitted.
const NAP: Duration = Duration::from_millis(5);

/// A worker looks for others' handfuls once in so many turns, whatever else there is.
const HANDFULS_EACH: u64 = 64;

/// To wake a worker pays where what is ready takes longer, in nanoseconds.
const WORTH_WAKING: u64 = 20_000;

impl Shared {
    /// Starts the workers if they have not been. EAGAIN: not even one can be.
    pub fn start(self: &Arc<Shared>, locked: &mut Locked) -> Result<(), Errno> {
        while locked.to_start > 0 {
            let shared = Arc::clone(self);
            let name = format!("arck-queue-{}", locked.threads.len());
            let started = thread::Builder::new().name(name);
            match started.spawn(move || shared.work()) {
                Ok(thread) => locked.threads.push(thread),
                // Fewer do the same, later.
                Err(_) if !locked.threads.is_empty() => break,
                Err(_) => return Err(Errno::AGAIN),
            }
            locked.to_start -= 1;
        }
        Ok(())
    }

    /// A worker.
    fn work(&self) {
        let mut locked = self.lock();
        let mut in_flight = InFlight::default();
        // How many had been submitted when it went to sleep.
        let mut before = 0;
        let mut turns: u64 = 0;
        loop {
            turns = turns.wrapping_add(1);
            let is_idle = in_flight.is_empty();
            // Also where there is always something else.
            let looks = is_idle && turns.is_multiple_of(HANDFULS_EACH);
            let of_handfuls = looks.then(|| locked.take_of_handfuls()).flatten();
            let work = of_handfuls.or_else(|| {
                let has_room = in_flight.room() > 0;
                has_room.then(|| locked.engine.take()).flatten()
            });
            let work = work.or_else(|| is_idle.then(|| locked.take_of_handfuls()).flatten());
            if let Some(work) = work {
                self.release(locked);
                locked = in_flight.run(self, work);
                continue;
            }
            if !in_flight.is_empty() {
                self.release(locked);
                locked = in_flight.await_some(self);
                continue;
            }
            let is_over = locked.engine.is_over();
            // Somebody may wait for what was done, or be over as well.
            self.release(locked);
            if is_over {
                return;
            }
            locked = self.lock();
            if !locked.engine.has_ready() && !locked.engine.is_over() {
                let submitted = locked.engine.counters.submitted;
                let naps = !locked.naps && (submitted != before || !locked.handfuls.is_empty());
                before = submitted;
                locked = self.doze(locked, naps);
            }
        }
    }

    fn doze<'m>(
        &'m self,
        mut locked: MutexGuard<'m, Locked>,
        naps: bool,
    ) -> MutexGuard<'m, Locked> {
        locked.sleeping += 1;
        locked.naps |= naps;
        let most = locked
            .engine
            .next_deadline()
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let most = [most, naps.then_some(NAP)].into_iter().flatten().min();
        let mut locked = sleep(&self.work, locked, most);
        locked.sleeping -= 1;
        locked.naps &= !naps;
        // Or another one was: then that one takes this one's place.
        locked.woken = locked.woken.saturating_sub(1);
        // What has come meanwhile may be late already.
        if locked.engine.next_deadline().is_some() {
            locked.engine.expire(Instant::now());
        }
        locked
    }

    /// Waits until a queue has so many completions, or has nothing outstanding, or it is too late. With `lends`, the thread does requests of
    /// that queue meanwhile.
    pub fn wait<'m>(
        &'m self,
        mut locked: MutexGuard<'m, Locked>,
        (queue, bell): (QueueId, &Condvar),
        completions: usize,
        until: Option<Instant>,
        lends: bool,
    ) -> MutexGuard<'m, Locked> {
        let mut lending = Lending::new(queue);
        loop {
            let (outstanding, done) = locked.engine.count(queue);
            let is_enough = done >= completions || outstanding == 0;
            let is_free =
                lending.in_flight.is_empty() || !locked.engine.rules().hold(Rule::LooksAfterBegun);
            if is_enough && is_free {
                lending.end(&mut locked.engine);
                return locked;
            }
            let takes = lends && !is_enough && lending.in_flight.room() > 0;
            let work = takes.then(|| locked.engine.take_of(queue)).flatten();
            if let Some(work) = work {
                lending.begins(&mut locked.engine);
                let handful = lending.handful(&mut locked.engine, work);
                match handful {
                    Ok(handful) => {
                        locked.handfuls.push(Arc::clone(&handful));
                        self.release(locked);
                        locked = lending.in_flight.run_all(self, &handful);
                        locked
                            .handfuls
                            .retain(|other| !Arc::ptr_eq(other, &handful));
                    }
                    Err(work) => {
                        self.release(locked);
                        locked = lending.in_flight.run(self, work);
                    }
                }
                continue;
            }
            lending.end(&mut locked.engine);
            if !is_free {
                self.release(locked);
                locked = lending.in_flight.await_some(self);
                continue;
            }
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return locked;
            }
            // What this thread has done, or ended, may be what others wait for.
            if locked.engine.has_rung() || locked.is_worker_to_be_woken() {
                self.release(locked);
                locked = self.lock();
                continue;
            }
            let first = [until, locked.engine.next_deadline()];
            let first = first.into_iter().flatten().min();
            let most = first.map(|first| first.saturating_duration_since(now));
            locked.engine.sleeps(queue, completions);
            locked = sleep(bell, locked, most);
            locked.engine.wakes(queue);
            if locked.engine.next_deadline().is_some() {
                locked.engine.expire(Instant::now());
            }
        }
    }

    /// Ends all: cancels what has not begun, waits for what has.
    pub fn end(&self) {
        let mut locked = self.lock();
        locked.engine.end();
        let threads = std::mem::take(&mut locked.threads);
        locked.to_start = 0;
        self.release(locked);
        // A target may drop the last of what it works for: the request that it is called for ends after it.
        if is_in_target() {
            return;
        }
        for one in threads {
            // It catches what panics.
            let _ = one.join();
        }
    }
}

/// A thread that waits for a queue and does requests of that meanwhile.
struct Lending {
    queue: QueueId,
    in_flight: InFlight,
    is_alone: bool,
}

impl Lending {
    fn new(queue: QueueId) -> Lending {
        Lending {
            queue,
            in_flight: InFlight::measuring(),
            is_alone: false,
        }
    }

    /// It is about to do one. While these are quick, and few are ready, no worker is needed for the others.
    fn begins(&mut self, engine: &mut Engine) {
        let ready = engine.ready_of(self.queue);
        let is_quick = engine.expects(self.queue, ready + 1) <= WORTH_WAKING;
        match (self.is_alone, is_quick) {
            (false, true) => engine.lend(self.queue),
            (true, false) => engine.lend_no_longer(self.queue),
            _ => {}
        }
        self.is_alone = is_quick;
    }

    /// Some quick ones together, or else the one.
    fn handful(&self, engine: &mut Engine, work: Work) -> Result<Arc<Handful>, Work> {
        let most = HANDFUL_MOST
            .min(work.in_flight_most())
            .min(self.in_flight.room());
        let ready = engine.ready_of(self.queue);
        // What has a deadline is not taken before it begins.
        let has_deadlines = engine.next_deadline().is_some();
        if ready == 0
            || most == 1
            || has_deadlines
            || engine.expects(self.queue, most) > WORTH_WAKING
        {
            return Err(work);
        }
        let mut works = Vec::with_capacity(most.min(ready + 1));
        works.push(work);
        while works.len() < most
            && let Some(work) = engine.take_of(self.queue)
        {
            works.push(work);
        }
        Ok(Arc::new(Handful::new(works)))
    }

    /// It sleeps, or goes.
    fn end(&mut self, engine: &mut Engine) {
        if self.is_alone && engine.rules().hold(Rule::LendsOnlyAwake) {
            engine.lend_no_longer(self.queue);
            self.is_alone = false;
        }
    }
}
