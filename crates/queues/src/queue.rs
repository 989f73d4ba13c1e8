//! What programs hold: the threads, and a queue for each descriptor.
//!
//! # Invariants
//! * A queue that is gone has nothing outstanding: its target is not called any more.
//! * What has ended takes nothing more, and hangs nobody.

use crate::engine::{Outcome, Served, TargetFacts};
use crate::lock::{Locked, Shared};
use crate::outstanding::QueueId;
use crate::primitive::{Condvar, MutexGuard};
use crate::request::{
    Closing, Completion, Counters, Operation, Refused, Request, RequestId, Submitted,
};
use crate::rules::{Rule, Rules};
use crate::spool::{Kept, Spool};
use crate::target::{FileIdentity, Target};
use rustix::io::Errno;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a queue is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueOptions {
    /// How many requests may be outstanding or completed and not reaped: 1 to [`QueueOptions::DEPTH_MAX`].
    pub depth: usize,
    /// Its share beside other queues: 1 to [`QueueOptions::WEIGHT_MAX`].
    pub weight: u32,
}

impl QueueOptions {
    /// The deepest queue.
    pub const DEPTH_MAX: usize = 1 << 16;
    /// The greatest weight.
    pub const WEIGHT_MAX: u32 = 1000;
}

impl Default for QueueOptions {
    /// Depth 128, weight 100.
    fn default() -> QueueOptions {
        QueueOptions {
            depth: 128,
            weight: 100,
        }
    }
}

/// A fixed number of threads, and the order of what they do. One is enough for a process. They start with the first request and end
/// when it is dropped, which cancels what has not begun and waits for what has; queues that are left take no more requests (EBADF).
///
/// A forked child has none of the threads: what it holds of its parent's opens no queue there (ESTALE), and does nothing when it is
/// dropped; a queue of its parent's is not to be used there.
pub struct Queues {
    shared: Arc<Shared>,
}

impl Default for Queues {
    fn default() -> Queues {
        Queues::new()
    }
}

impl Queues {
    /// As many threads as there are processors for this process.
    pub fn new() -> Queues {
        let processors = std::thread::available_parallelism();
        Queues::with_workers(processors.unwrap_or(NonZeroUsize::MIN))
    }

    /// So many threads.
    pub fn with_workers(workers: NonZeroUsize) -> Queues {
        Queues::with_rules(workers.get(), Rules::default())
    }

    pub(crate) fn with_rules(workers: usize, rules: Rules) -> Queues {
        Queues {
            shared: Arc::new(Shared::new(workers, rules)),
        }
    }

    /// A queue for an open file. EINVAL: a depth or a weight that there is not. ESTALE: in a forked child. Or what the target says when it is
    /// asked for its size.
    pub fn open(&self, target: Arc<dyn Target>, options: QueueOptions) -> Result<Queue, Errno> {
        self.open_with(target, options, None)
    }

    /// A queue whose writes and appends are durable when they are queued: [`Queue::submit`] returns when they are in the spool. What a crash, or a
    /// kill, keeps from being done is done by [`Spool::replay`], in the order of submission. Reads, syncs and the order of requests are as
    /// ever; queues with and without a spool may be open on a file at once. `name` is what the file is found by then, of the caller's choosing.
    ///
    /// A write that is queued there is done: it cannot be cancelled (EALREADY), nor have a deadline (EINVAL), and closing and dropping the queue
    /// wait for it. It is not covered by a later one.
    ///
    /// # Errors
    /// As [`Queues::open`]. EBUSY: the spool has to be replayed first. EINVAL: the file is the spool's own. ENAMETOOLONG: the name has more
    /// than [`Spool::NAME_MAX`] bytes.
    pub fn open_spooled(
        &self,
        target: Arc<dyn Target>,
        options: QueueOptions,
        spool: &Arc<Spool>,
        name: &[u8],
    ) -> Result<Queue, Errno> {
        let spooling = Spooling {
            spool: Arc::clone(spool),
            file: target.identity(),
            name: name.into(),
        };
        spool.admits(spooling.file, name)?;
        self.open_with(target, options, Some(spooling))
    }

    fn open_with(
        &self,
        target: Arc<dyn Target>,
        options: QueueOptions,
        spooling: Option<Spooling>,
    ) -> Result<Queue, Errno> {
        let QueueOptions { depth, weight } = options;
        let is_in = (1..=QueueOptions::DEPTH_MAX).contains(&depth)
            && (1..=QueueOptions::WEIGHT_MAX).contains(&weight);
        if !is_in {
            return Err(Errno::INVAL);
        }
        if self.shared.is_of_parent() {
            return Err(Errno::STALE);
        }
        // Asked before the lock is taken.
        let of = TargetFacts::of(&*target)?;
        let spool = spooling.as_ref().map(|of| Arc::clone(&of.spool));
        // Where it is refused it is dropped without the lock: it may close a file.
        let _kept = Arc::clone(&target);
        let opened = self
            .shared
            .look()
            .engine
            .open(target, spool, (depth, weight), of)?;
        let (id, bell) = opened;
        Ok(Queue {
            shared: Arc::clone(&self.shared),
            id,
            bell,
            spooling,
        })
    }

    /// What requests have come to so far; nothing in a forked child.
    pub fn counters(&self) -> Counters {
        match self.shared.is_of_parent() {
            true => Counters::default(),
            false => self.shared.look().engine.counters,
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        if self.shared.is_of_parent() {
            return;
        }
        self.shared.end();
    }
}

/// The requests of an open file. All threads may use it. Dropped, it cancels what has not begun and waits for what has: so it is not to
/// be dropped by its own target, in a call for one of its requests.
pub struct Queue {
    shared: Arc<Shared>,
    id: QueueId,
    bell: Arc<Condvar>,
    spooling: Option<Spooling>,
}

/// What a queue needs whose writes are durable when they are queued.
struct Spooling {
    spool: Arc<Spool>,
    file: FileIdentity,
    name: Box<[u8]>,
}

impl Spooling {
    /// What of a request is spooled: that of writes and appends, unless they are of nothing.
    fn kept<'r>(&'r self, request: &'r Request) -> Option<Kept<'r>> {
        let (position, bytes) = match &request.operation {
            Operation::Write { position, bytes } => (Some(*position), bytes),
            Operation::Append { bytes } => (None, bytes),
            Operation::Read { .. } | Operation::Sync { .. } => return None,
        };
        (!bytes.is_empty()).then_some(Kept {
            position,
            bytes,
            file: self.file,
            name: &self.name,
        })
    }
}

impl Queue {
    /// Submits a request; gives its number. Never waits for a request, but copies what a read is served from. Of a queue with a spool, a write is
    /// durable when this returns, and others of the same spool wait for it meanwhile.
    ///
    /// # Errors
    /// EAGAIN: the queue is full, until something is reaped; or its spool is, until something is done; or no thread can be started. EINVAL: the
    /// range ends behind the greatest position, 2^63 - 1, or what is spooled has a deadline. EBADF: the queue was closed, or the file was not
    /// opened for that. EMSGSIZE: what is to be spooled is longer than half the spool. Or what the spool's file says, from then on to
    /// all. The request is given back.
    pub fn submit(&self, request: Request) -> Result<RequestId, Refused> {
        let deadline = request.deadline.and_then(later);
        let mut locked = self.lock_to_submit();
        if let Err(errno) = self.start(&mut locked) {
            self.shared.release(locked);
            return Err(Refused { errno, request });
        }
        let kept = self
            .spooling
            .as_ref()
            .filter(|of| of.kept(&request).is_some());
        let submitted = match kept {
            Some(spooling) => {
                self.shared.release(locked);
                self.submit_spooled(spooling, request)
            }
            None => {
                let submitted = locked.engine.submit(self.id, request, deadline, None);
                self.shared.release(locked);
                submitted
            }
        };
        let (id, served) = submitted?;
        if let Some(served) = served {
            let outcome = copy(served);
            let mut locked = self.shared.lock();
            locked.engine.finish(id, outcome);
            self.shared.release(locked);
        }
        Ok(id)
    }

    /// In the order of submission, of all queues with this spool: all of it is under the spool's lock.
    fn submit_spooled(
        &self,
        spooling: &Spooling,
        request: Request,
    ) -> Result<(RequestId, Option<Served>), Refused> {
        let refuse = |errno, request| Err(Refused { errno, request });
        if request.deadline.is_some() {
            return refuse(Errno::INVAL, request);
        }
        if let Err(errno) = spooling.spool.is_here() {
            return refuse(errno, request);
        }
        let mut order = spooling.spool.begin();
        let mut locked = self.shared.lock();
        let reserved = locked.engine.reserve(self.id, &request);
        self.shared.release(locked);
        if let Err(errno) = reserved {
            return refuse(errno, request);
        }
        let record = spooling
            .kept(&request)
            .ok_or(Errno::INVAL)
            .and_then(|kept| order.keep(&kept));
        let mut locked = self.shared.lock();
        let submitted = match record {
            Ok(record) => locked.engine.submit(self.id, request, None, Some(record)),
            Err(errno) => {
                locked.engine.give_back(self.id);
                refuse(errno, request)
            }
        };
        self.shared.release(locked);
        drop(order);
        submitted
    }

    /// Submits requests together, in their order, with nobody's between them unless the queue has a spool: as many as there is room for. What is taken is taken out of
    /// `requests`; from the first one that is refused on, all are left there. Costs less than as many calls of [`submit`](Queue::submit), and does
    /// not block either.
    pub fn submit_all(&self, requests: &mut Vec<Request>) -> Submitted {
        let (locked, submitted) = self.take_all(requests);
        self.shared.release(locked);
        submitted
    }

    /// Submits requests together, as [`submit_all`](Queue::submit_all) does, and waits, as [`wait`](Queue::wait) does without a time-out, until
    /// `at_least` have completed or none is outstanding: the cheapest way to have many in flight. As long as the file is quick the thread does them
    /// itself, and wakes nobody.
    pub fn exchange(
        &self,
        requests: &mut Vec<Request>,
        at_least: usize,
    ) -> (Submitted, Vec<Completion>) {
        let (locked, submitted) = self.take_all(requests);
        let of = (self.id, &*self.bell);
        let mut locked = self.shared.wait(locked, of, at_least, None, true);
        let completions = locked.engine.reap(self.id, usize::MAX);
        self.shared.release(locked);
        (submitted, completions)
    }

    /// Takes the lock. Where nothing is under way somebody may have cut the file since, or lengthened it: its size is asked first, without the lock.
    fn lock_to_submit(&self) -> MutexGuard<'_, Locked> {
        let mut locked = self.shared.lock();
        if let Some(target) = locked.engine.idle_target(self.id) {
            self.shared.release(locked);
            let size = target.size().unwrap_or(0);
            locked = self.shared.lock();
            locked.engine.has_size(self.id, size);
        }
        locked
    }

    fn start(&self, locked: &mut Locked) -> Result<(), Errno> {
        match locked.engine.is_closed(self.id) {
            true => Ok(()),
            false => self.shared.start(locked),
        }
    }

    /// One after another: each is in the spool before the next is looked at.
    fn take_each(&self, requests: &mut Vec<Request>) -> (MutexGuard<'_, Locked>, Submitted) {
        let mut submitted = Submitted {
            taken: Vec::with_capacity(requests.len()),
            refused: None,
        };
        for place in requests.iter_mut() {
            match self.submit(std::mem::replace(place, Request::sync())) {
                Ok(id) => submitted.taken.push(id),
                Err(refused) => {
                    *place = refused.request;
                    submitted.refused = Some(refused.errno);
                    break;
                }
            }
        }
        requests.drain(..submitted.taken.len());
        (self.shared.lock(), submitted)
    }

    fn take_all(&self, requests: &mut Vec<Request>) -> (MutexGuard<'_, Locked>, Submitted) {
        let mut submitted = Submitted {
            taken: Vec::with_capacity(requests.len()),
            refused: None,
        };
        if self.spooling.is_some() {
            return self.take_each(requests);
        }
        let mut locked = self.lock_to_submit();
        if let Err(errno) = self.start(&mut locked) {
            submitted.refused = Some(errno);
            return (locked, submitted);
        }
        let mut all_served = Vec::new();
        for place in requests.iter_mut() {
            let deadline = place.deadline.and_then(later);
            // Something that costs nothing stands there meanwhile.
            let request = std::mem::replace(place, Request::sync());
            match locked.engine.submit(self.id, request, deadline, None) {
                Ok((id, served)) => {
                    submitted.taken.push(id);
                    all_served.extend(served.map(|served| (id, served)));
                }
                Err(refused) => {
                    *place = refused.request;
                    submitted.refused = Some(refused.errno);
                    break;
                }
            }
        }
        requests.drain(..submitted.taken.len());
        if !all_served.is_empty() {
            self.shared.release(locked);
            let copied = all_served
                .into_iter()
                .map(|(id, served)| (id, copy(served)));
            let copied: Vec<_> = copied.collect();
            locked = self.shared.lock();
            for (id, outcome) in copied {
                locked.engine.finish(id, outcome);
            }
        }
        (locked, submitted)
    }

    /// Takes what has completed, `most` at most, in the order of completion. Never blocks.
    pub fn reap(&self, most: usize) -> Vec<Completion> {
        let mut locked = self.shared.lock();
        let completions = locked.engine.reap(self.id, most);
        self.shared.release(locked);
        completions
    }

    /// Waits until `at_least` requests have completed, or none is outstanding, or the time is over; takes all that have. Without a
    /// time-out the thread does requests of this queue itself meanwhile, beside the workers.
    pub fn wait(&self, at_least: usize, timeout: Option<Duration>) -> Vec<Completion> {
        let until = timeout.and_then(later);
        let of = (self.id, &*self.bell);
        let lends = timeout.is_none();
        let locked = self.shared.lock();
        let mut locked = self.shared.wait(locked, of, at_least, until, lends);
        let completions = locked.engine.reap(self.id, usize::MAX);
        self.shared.release(locked);
        completions
    }

    /// Cancels a request: it completes with ECANCELED, and nothing of it is done.
    ///
    /// # Errors
    /// EALREADY: it has begun, or was taken together with others that are done right away; or it is a write from which a read was served, or that is in
    /// a spool. It completes as ever. ENOENT: it has completed, or is none of
    /// this queue.
    pub fn cancel(&self, request: RequestId) -> Result<(), Errno> {
        let mut locked = self.shared.lock();
        let cancelled = locked.engine.cancel(self.id, request);
        self.shared.release(locked);
        cancelled
    }

    /// Takes no more requests (EBADF), and waits until nothing is outstanding: all of it done, or what had not begun cancelled. What has
    /// completed can be reaped afterwards.
    pub fn close(&self, closing: Closing) {
        let mut locked = self.shared.lock();
        locked.engine.close(self.id, closing);
        let waits = locked.engine.rules().hold(Rule::CloseWaits);
        self.shared.release(locked);
        if waits {
            let of = (self.id, &*self.bell);
            let locked = self.shared.lock();
            let locked = self.shared.wait(locked, of, usize::MAX, None, true);
            self.shared.release(locked);
        }
    }

    /// How many requests are outstanding, and how many completions can be reaped.
    pub fn count(&self) -> (usize, usize) {
        match self.shared.is_of_parent() {
            true => (0, 0),
            false => self.shared.look().engine.count(self.id),
        }
    }

    /// A descriptor that is readable as long as something can be reaped, for `poll`, `epoll` and what is built on them. It is made when it
    /// is asked for first, and is not to be read or written. EMFILE, ENFILE, ENOMEM.
    pub fn readiness(&self) -> Result<Arc<OwnedFd>, Errno> {
        let mut locked = self.shared.look();
        let completions = locked.engine.completions(self.id).ok_or(Errno::BADF)?;
        completions.readiness()
    }
}

/// None: later than any clock says, which is for ever.
fn later(within: Duration) -> Option<Instant> {
    Instant::now().checked_add(within)
}

fn copy(served: Served) -> Outcome {
    let Served {
        bytes,
        offset,
        mut buffer,
    } = served;
    let length = buffer.len();
    buffer.copy_from_slice(&bytes[offset..offset + length]);
    Outcome {
        result: Ok(length),
        buffer,
        end: None,
        panicked: false,
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.shared.is_of_parent() {
            return;
        }
        self.close(Closing::Cancel);
        let mut locked = self.shared.lock();
        let target = match locked.engine.count(self.id) {
            (0, _) => locked.engine.remove(self.id),
            _ => None,
        };
        self.shared.release(locked);
        // It may close a file.
        drop(target);
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (outstanding, completed) = self.count();
        f.debug_struct("Queue")
            .field("outstanding", &outstanding)
            .field("completed", &completed)
            .finish()
    }
}

impl std::fmt::Debug for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Queues").field(&self.counters()).finish()
    }
}
