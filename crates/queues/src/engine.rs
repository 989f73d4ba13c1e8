//! All queues, their requests and the order of those, without threads and without a clock: steps that workers, those who wait and
//! the tests drive. Each step is one under the lock of `workers`.
//!
//! What a file's requests mean to each other:
//!
//! * **Covering.** A write that lies in a later one, and that nobody else needs, is not begun. It completes with its length when the later
//!   one has written all that lies beneath. Where the later one fails, is cancelled or is late, the earlier one is done after all, in its place in
//!   the order: what waits for it has waited for both. Where the later one ended short, the earlier one is done behind what that has written.
//! * **Seeing.** A read is served from the bytes of a write that is outstanding, at once. From then on that write is as one that has begun:
//!   nobody cancels it, and its deadline is over. Should it fail, its completion says so, and [`served_by`](Completion::served_by) says
//!   who has seen it. It is what reading a page cache means whose page cannot be written back afterwards.
//! * **Time.** A request's number is its timestamp. Whoever applies what was done in the order of timestamps gets each read's bytes and the
//!   file's last contents.
//!
//! # Invariants
//! * A request is outstanding until its completion is there; then everything that waited for it knows.
//! * What is ready, that is queued and waiting for nobody, is in the schedule, and nothing else is.
//! * `deadlines` has what has a deadline and can be withdrawn.

mod covering;
mod ending;
mod withdrawing;

use crate::barriers::note;
use crate::completions::Completions;
use crate::numbered::ByNumber;
use crate::order::{FileOrder, Requests};
use crate::outstanding::{FileNumber, Job, Outstanding, QueueId, Stage};
use crate::primitive::Condvar;
use crate::request::{Completion, Counters, Operation, Refused, Request, RequestId};
use crate::rules::{Rule, Rules};
use crate::schedule::Schedule;
use crate::spool::{Spool, Spooled};
use crate::target::{Access, FileIdentity, Target};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// No byte of a file lies behind it.
const FILE_END: u64 = i64::MAX as u64;

struct QueueState {
    target: Arc<dyn Target>,
    identity: FileIdentity,
    file: FileNumber,
    access: Access,
    in_flight: usize,
    depth: usize,
    is_closed: bool,
    outstanding: usize,
    /// Places of requests that are being spooled, and are outstanding in a moment.
    reserved: usize,
    spool: Option<Arc<Spool>>,
    completions: Completions,
    /// On which those sleep who wait for this queue, so many; the one that is satisfied with the fewest completions wants so many.
    bell: Arc<Condvar>,
    sleeping: usize,
    wanted: usize,
    /// What the last two requests have taken that were measured, in nanoseconds.
    took: [u64; 2],
}

/// What a target has said of itself.
pub struct TargetFacts {
    pub identity: FileIdentity,
    pub access: Access,
    pub in_flight: usize,
    pub size: u64,
}

impl TargetFacts {
    /// Asks it, without the lock.
    pub fn of(target: &dyn Target) -> Result<TargetFacts, Errno> {
        Ok(TargetFacts {
            identity: target.identity(),
            access: target.access(),
            in_flight: target.in_flight(),
            size: target.size()?,
        })
    }
}

/// A request that has begun, for the thread that does it.
pub struct Work {
    pub id: RequestId,
    pub target: Arc<dyn Target>,
    pub job: Job,
    /// Where a write begins: what lies before was written by another.
    pub from: u64,
    pub spooled: Option<(Arc<Spool>, Spooled)>,
    /// How many the target does at a time of a thread.
    pub in_flight: usize,
}

impl Work {
    /// How many of its target are begun by a thread at a time, where they are not just done.
    pub fn in_flight_most(&self) -> usize {
        match self.in_flight {
            1 => usize::MAX,
            most => most,
        }
    }
}

/// What came of a request that had begun.
pub struct Outcome {
    pub result: Result<usize, Errno>,
    /// Of a read: its buffer. Of others, the request's own is given back.
    pub buffer: Vec<u8>,
    pub end: Option<u64>,
    pub panicked: bool,
}

/// A read that is served from bytes that are not written yet.
pub struct Served {
    pub bytes: Arc<Vec<u8>>,
    /// Where in them it begins.
    pub offset: usize,
    pub buffer: Vec<u8>,
}

/// See above.
#[derive(Default)]
pub struct Engine {
    last: u64,
    requests: Requests,
    files: ByNumber<FileNumber, FileOrder>,
    numbers: BTreeMap<FileIdentity, FileNumber>,
    files_opened: u64,
    queues: ByNumber<QueueId, QueueState>,
    queues_opened: u64,
    /// Of all queues.
    reserved: usize,
    schedule: Schedule,
    deadlines: BTreeSet<(Instant, RequestId)>,
    /// Bells to be rung when the lock is free.
    rung: Vec<Arc<Condvar>>,
    /// There is a deadline that is earlier than those that sleepers know.
    is_alarmed: bool,
    has_ended: bool,
    rules: Rules,
    pub counters: Counters,
}

impl Engine {
    pub fn new(rules: Rules) -> Engine {
        Engine {
            rules,
            ..Engine::default()
        }
    }

    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// A new queue. EBADF: all have ended.
    pub fn open(
        &mut self,
        target: Arc<dyn Target>,
        spool: Option<Arc<Spool>>,
        (depth, weight): (usize, u32),
        of: TargetFacts,
    ) -> Result<(QueueId, Arc<Condvar>), Errno> {
        let TargetFacts {
            identity,
            access,
            in_flight,
            size,
        } = of;
        if self.has_ended {
            return Err(Errno::BADF);
        }
        self.queues_opened += 1;
        let id = QueueId(self.queues_opened);
        let bell = Arc::new(Condvar::new());
        let file = *self.numbers.entry(identity).or_insert_with(|| {
            self.files_opened += 1;
            FileNumber(self.files_opened)
        });
        let queue = QueueState {
            target,
            identity,
            file,
            access,
            in_flight: in_flight.max(1),
            depth,
            is_closed: false,
            outstanding: 0,
            reserved: 0,
            spool,
            completions: Completions::default(),
            bell: Arc::clone(&bell),
            sleeping: 0,
            // Who was not measured yet is slow.
            took: [u64::MAX; 2],
            wanted: usize::MAX,
        };
        self.queues.insert(id, queue);
        let order = self.files.entry(file).or_default();
        order.queues += 1;
        // Others may have cut the file, or lengthened it.
        order.end = size;
        self.schedule.add_queue(id, weight);
        Ok((id, bell))
    }

    /// The target of a queue whose file has no request outstanding: how long it is may have changed.
    pub fn idle_target(&self, id: QueueId) -> Option<Arc<dyn Target>> {
        let queue = self.queues.get(&id)?;
        let is_idle = self.files.get(&queue.file)?.is_idle();
        is_idle.then(|| Arc::clone(&queue.target))
    }

    /// That the file is so long, if nothing has become outstanding since it was asked.
    pub fn has_size(&mut self, id: QueueId, size: u64) {
        let file = self.queues.get(&id).map(|queue| queue.file);
        if let Some(file) = file.and_then(|file| self.files.get_mut(&file))
            && file.is_idle()
        {
            file.end = size;
        }
    }

    /// Takes away a queue with nothing outstanding. The target is to be dropped when the lock is free.
    pub fn remove(&mut self, id: QueueId) -> Option<Arc<dyn Target>> {
        let mut queue = self.queues.remove(&id)?;
        debug_assert!(queue.outstanding == 0);
        // Nor is anything to be reaped, for whoever keeps the descriptor that tells so.
        drop(queue.completions.take(usize::MAX));
        self.schedule.remove_queue(id);
        if let Some(file) = self.files.get_mut(&queue.file) {
            file.queues -= 1;
            if file.queues == 0 {
                self.files.remove(&queue.file);
                self.numbers.remove(&queue.identity);
            }
        }
        Some(queue.target)
    }

    fn refusal(queue: &QueueState, request: &Request) -> Option<Errno> {
        let job_refused = |position: u64, length: usize| {
            let end = position.checked_add(length as u64);
            end.is_none_or(|end| end > FILE_END).then_some(Errno::INVAL)
        };
        let access = match &request.operation {
            Operation::Read { .. } => queue.access.read,
            Operation::Write { .. } | Operation::Append { .. } => queue.access.write,
            Operation::Sync { .. } => true,
        };
        let waiting = queue.outstanding + queue.reserved + queue.completions.len();
        match &request.operation {
            _ if queue.is_closed || !access => Some(Errno::BADF),
            Operation::Read { position, buffer } => job_refused(*position, buffer.len()),
            Operation::Write { position, bytes } => job_refused(*position, bytes.len()),
            _ => None,
        }
        .or_else(|| (waiting >= queue.depth).then_some(Errno::AGAIN))
    }

    /// Keeps a place for a request that is spooled before it is submitted, which nothing refuses then.
    pub fn reserve(&mut self, id: QueueId, request: &Request) -> Result<(), Errno> {
        let queue = self.queues.get_mut(&id).ok_or(Errno::BADF)?;
        if let Some(errno) = Engine::refusal(queue, request) {
            return Err(errno);
        }
        queue.reserved += 1;
        self.reserved += 1;
        Ok(())
    }

    /// Gives back the place of one that was not spooled.
    pub fn give_back(&mut self, id: QueueId) {
        self.take_reserved(id);
        if let Some(queue) = self.queues.get_mut(&id) {
            // Somebody may wait until nothing is outstanding.
            queue.wanted = usize::MAX;
            self.rung.push(Arc::clone(&queue.bell));
        }
    }

    fn take_reserved(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.reserved -= 1;
            self.reserved -= 1;
        }
    }

    /// Takes a request, which was spooled or not. What is served is to be copied when the lock is free, and finished then.
    pub fn submit(
        &mut self,
        id: QueueId,
        request: Request,
        deadline: Option<Instant>,
        spooled: Option<Spooled>,
    ) -> Result<(RequestId, Option<Served>), Refused> {
        let refuse = |errno, request| Err(Refused { errno, request });
        let Some(queue) = self.queues.get_mut(&id) else {
            return refuse(Errno::BADF, request);
        };
        if let (None, Some(errno)) = (spooled, Engine::refusal(queue, &request)) {
            return refuse(errno, request);
        }
        if spooled.is_some() {
            queue.reserved -= 1;
            self.reserved -= 1;
        }
        let Some(file) = self.files.get_mut(&queue.file) else {
            return refuse(Errno::BADF, request);
        };
        let file_end = match self.rules.hold(Rule::LengthensForReaders) {
            true => file.end,
            false => u64::MAX,
        };
        self.last += 1;
        let number = RequestId(self.last);
        let mut new = Outstanding::new(id, queue.file, request, deadline, file_end);
        new.spooled = spooled;
        let place = file.place(&self.requests, &new, self.rules);
        queue.outstanding += 1;
        self.counters.submitted += 1;
        if let Some(write) = place.served_by {
            return Ok((number, self.serve(number, new, write)));
        }
        new.waits_for = place.waits_for.len();
        if new.job.is_barrier() {
            let waits = !file.is_idle() && self.rules.hold(Rule::BarrierWaits);
            new.waits_for += usize::from(waits);
        } else {
            let parks = file.waits_for_barriers(number, &self.requests, self.rules);
            new.waits_for += usize::from(parks);
        }
        file.insert(number, &new);
        for earlier in place.waits_for {
            self.depend(number, earlier);
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, number));
            self.is_alarmed |= self.deadlines.first() == Some(&(deadline, number));
        }
        let ready = new.is_ready();
        let covers = place.covers;
        new.covers.clone_from(&covers);
        self.requests.insert(number, new);
        for covered in covers {
            self.cover(covered, number);
        }
        if ready {
            self.make_ready(number);
        }
        Ok((number, None))
    }

    /// A request waits for an earlier one from now on.
    fn depend(&mut self, later: RequestId, earlier: RequestId) {
        let Some(request) = self.requests.get_mut(&earlier) else {
            return;
        };
        let mut dependents = std::mem::take(&mut request.dependents);
        note(&mut dependents, later, |one| {
            self.requests.contains_key(one)
        });
        if let Some(request) = self.requests.get_mut(&earlier) {
            request.dependents = dependents;
        }
    }

    fn serve(&mut self, read: RequestId, mut new: Outstanding, write: RequestId) -> Option<Served> {
        let by = self.requests.get_mut(&write)?;
        by.is_seen = true;
        let served = match (&by.job, &mut new.job) {
            (Job::Write { bytes, position }, Job::Read { buffer, .. }) => Served {
                bytes: Arc::clone(bytes),
                offset: (new.range.start - position) as usize,
                buffer: std::mem::take(buffer),
            },
            _ => return None,
        };
        if let Some(deadline) = by.deadline {
            self.deadlines.remove(&(deadline, write));
        }
        new.stage = Stage::Running;
        new.served_by = Some(write);
        self.requests.insert(read, new);
        self.counters.served += 1;
        Some(served)
    }

    fn make_ready(&mut self, id: RequestId) {
        let request = &self.requests[&id];
        debug_assert!(request.is_ready());
        let kind = (request.urgent, request.job.is_read());
        self.schedule
            .add(request.queue, id, kind, request.job.length());
    }

    pub fn has_ready(&self) -> bool {
        !self.schedule.is_empty()
    }

    /// Whether something is ready that no thread does which waits for it.
    pub fn has_for_workers(&self) -> bool {
        self.schedule.has_for_workers()
    }

    /// A thread that waits for a queue does what that has ready, and wakes nobody for it, from now on.
    pub fn lend(&mut self, queue: QueueId) {
        self.schedule.lend(queue);
    }

    /// And does so no longer.
    pub fn lend_no_longer(&mut self, queue: QueueId) {
        self.schedule.lend_no_longer(queue);
    }

    /// A request that has begun has taken so many nanoseconds, if that was measured.
    pub fn took(&mut self, id: RequestId, nanoseconds: Option<u64>) {
        if let Some(nanoseconds) = nanoseconds
            && let Some(request) = self.requests.get(&id)
            && let Some(queue) = self.queues.get_mut(&request.queue)
        {
            queue.took = [nanoseconds, queue.took[0]];
        }
    }

    /// How many nanoseconds one thread is going to take for so many requests of a queue, going by what was measured last. The quicker of two
    /// counts: a thread that has lost its processor for a while is no slow target.
    pub fn expects(&self, id: QueueId, requests: usize) -> u64 {
        let queue = self.queues.get(&id);
        let took = queue.map_or(u64::MAX, |queue| queue.took[0].min(queue.took[1]));
        took.saturating_mul(requests as u64)
    }

    /// How many requests of a queue are ready.
    pub fn ready_of(&self, id: QueueId) -> usize {
        self.schedule.ready_of(id)
    }

    /// The next request, which begins now.
    pub fn take(&mut self) -> Option<Work> {
        let id = self.schedule.take()?;
        self.begin(id)
    }

    /// The next one of one queue.
    pub fn take_of(&mut self, queue: QueueId) -> Option<Work> {
        let id = self.schedule.take_of(queue)?;
        self.begin(id)
    }

    fn begin(&mut self, id: RequestId) -> Option<Work> {
        let request = self.requests.get_mut(&id)?;
        debug_assert!(request.is_ready());
        request.stage = Stage::Running;
        if let Some(deadline) = request.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        let job = match &mut request.job {
            Job::Read { position, buffer } => Job::Read {
                position: *position,
                buffer: std::mem::take(buffer),
            },
            Job::Write { position, bytes } => Job::Write {
                position: *position,
                bytes: Arc::clone(bytes),
            },
            Job::Append { bytes } => Job::Append {
                bytes: std::mem::take(bytes),
            },
            Job::Sync { data_only } => Job::Sync {
                data_only: *data_only,
            },
        };
        let queue = self.queues.get(&request.queue)?;
        let spool = request.spooled.zip(queue.spool.as_ref());
        let (target, in_flight) = (Arc::clone(&queue.target), queue.in_flight);
        Some(Work {
            id,
            target,
            job,
            from: request.done_until,
            spooled: spool.map(|(record, spool)| (Arc::clone(spool), record)),
            in_flight,
        })
    }

    /// It has ended, and nothing is outstanding.
    pub fn is_over(&self) -> bool {
        self.has_ended && self.requests.is_empty() && self.reserved == 0
    }

    pub fn is_closed(&self, id: QueueId) -> bool {
        self.queues.get(&id).is_none_or(|queue| queue.is_closed)
    }

    /// How many requests of a queue are outstanding, and how many completions can be reaped.
    pub fn count(&self, id: QueueId) -> (usize, usize) {
        self.queues.get(&id).map_or((0, 0), |queue| {
            (queue.outstanding + queue.reserved, queue.completions.len())
        })
    }

    pub fn reap(&mut self, id: QueueId, most: usize) -> Vec<Completion> {
        let queue = self.queues.get_mut(&id);
        queue.map_or_else(Vec::new, |queue| queue.completions.take(most))
    }

    pub fn completions(&mut self, id: QueueId) -> Option<&mut Completions> {
        self.queues.get_mut(&id).map(|queue| &mut queue.completions)
    }

    /// Who goes to sleep on a queue's bell wants so many completions, or that nothing is outstanding.
    pub fn sleeps(&mut self, id: QueueId, completions: usize) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.wanted = queue.wanted.min(completions);
            queue.sleeping += 1;
        }
    }

    /// Who slept on a queue's bell does so no longer.
    pub fn wakes(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.sleeping -= 1;
        }
    }

    pub fn is_alarmed(&self) -> bool {
        self.is_alarmed
    }

    pub fn forget_alarm(&mut self) {
        self.is_alarmed = false;
    }

    pub fn has_rung(&self) -> bool {
        !self.rung.is_empty()
    }

    /// The bells to be rung, when the lock is free.
    #[inline]
    pub fn take_rung(&mut self) -> Vec<Arc<Condvar>> {
        std::mem::take(&mut self.rung)
    }
}
