//! Group commit: what threads of a process append at the same time is committed as one (flat combining; databases'
//! write-ahead logs).
//!
//! Whoever comes while nobody commits leads: takes along what waits, and commits that with its own, which it does
//! not copy. Whoever comes meanwhile leaves a copy in the next batch, and waits for the end of that. Nobody is handed the lead: it
//! is taken, by the next who comes, or by one of those who wait. So a thread that runs does not wait for one that does not,
//! and a batch grows while its leader is kept from running.
//!
//! Who need not know at once that a record is durable only leaves it (`enqueue`), and commits later, several with one wait.
//!
//! # Invariants
//! * One leads at a time (`is_led`, under the queue's lock), and commits one batch, in the order in which its records
//!   came. So of two records, of which the second came when the first was acknowledged, the first stands before it.
//! * A batch has one outcome, which all who are in it are told: it is committed as a whole or not at all.
//! * What was only left behind waits for whoever leads next: who commits, appends, or closes the log.
//! * Who sleeps has been counted as a sleeper of its batch, under the queue's lock, while somebody led. Who ends leading
//!   looks, under the same lock, whether all of the next batch sleep, and wakes one of them.
//! * The queue's lock is held for a copy of one record, and never while something is committed.

use crate::error::RECORD_MAX;
use rustix::io::Errno;
use rustix::thread::futex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// So often is looked, before a thread that waits lets others run, and so often does it that before it sleeps.
const SPINS: u32 = 100;
const YIELDS: u32 = 500;
/// So many looks there are between two at whether somebody leads; a batch that nobody does is led by one of those who
/// wait for it.
const LONELY: u32 = 16;
/// Batches that are kept to be used again.
const SPARE: usize = 16;
/// So long a sleeper sleeps before it looks for itself.
const LOOK: Duration = Duration::from_millis(50);

/// Nothing has come of a batch yet.
const PENDING: u32 = 0;
/// All who wait for it sleep, and one of them is to lead.
const TO_BE_LED: u32 = 1;
const DONE: u32 = 2;

/// Records that are committed together. Two cache lines: processors fetch them in pairs.
#[repr(align(128))]
struct Batch {
    /// What sleepers sleep on.
    state: AtomicU32,
    /// Threads that wait for it; those that sleep.
    threads: AtomicU32,
    sleepers: AtomicU32,
    /// Where it begins in the log, or why it is not there.
    position: AtomicU64,
    errno: AtomicU32,
}

impl Batch {
    fn new() -> Arc<Batch> {
        Arc::new(Batch {
            state: AtomicU32::new(PENDING),
            threads: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            position: AtomicU64::new(0),
            errno: AtomicU32::new(0),
        })
    }

    fn outcome(&self) -> Option<Result<u64, Errno>> {
        (self.state.load(Ordering::Acquire) == DONE).then(|| {
            match self.errno.load(Ordering::Relaxed) {
                0 => Ok(self.position.load(Ordering::Relaxed)),
                errno => Err(Errno::from_raw_os_error(errno as i32)),
            }
        })
    }

    fn end(&self, outcome: Result<u64, Errno>) {
        match outcome {
            Ok(position) => self.position.store(position, Ordering::Relaxed),
            Err(errno) => self
                .errno
                .store(errno.raw_os_error() as u32, Ordering::Relaxed),
        }
        self.state.store(DONE, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            self.wake(u32::MAX >> 1);
        }
    }

    fn wake(&self, count: u32) {
        // Fails only for an address that is none.
        let _ = futex::wake(&self.state, futex::Flags::PRIVATE, count);
    }
}

#[derive(Default)]
struct Queue {
    is_led: bool,
    /// The batch that gathers, and its bytes.
    batch: Option<Arc<Batch>>,
    bytes: Vec<u8>,
    /// Memory for the bytes of the one after.
    spare: Vec<u8>,
    /// Batches that have been led, of which the first has been the longest time ago.
    led: VecDeque<Arc<Batch>>,
}

impl Queue {
    /// A new batch, or one that nobody looks at any more.
    fn begin_batch(&mut self) -> Arc<Batch> {
        let is_free = |batch: &Arc<Batch>| Arc::strong_count(batch) == 1;
        let batch = match self.led.pop_front() {
            Some(batch) if is_free(&batch) => {
                // Behind what the last who had it did.
                fence(Ordering::Acquire);
                batch.threads.store(0, Ordering::Relaxed);
                batch.errno.store(0, Ordering::Relaxed);
                batch.state.store(PENDING, Ordering::Relaxed);
                batch
            }
            _ => Batch::new(),
        };
        self.batch = Some(batch.clone());
        batch
    }

    /// Keeps a batch to be used again, when nobody looks at it any more.
    fn keep(&mut self, batch: Arc<Batch>) {
        if self.led.len() < SPARE {
            self.led.push_back(batch);
        }
    }
}

/// On cache lines of its own, which those who wait read and only leaders write.
#[derive(Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// A record that was left in a batch.
pub struct Left {
    batch: Arc<Batch>,
    /// Bytes of the batch before it.
    offset: u64,
}

/// The commits of a log in this process.
#[derive(Default)]
pub struct Commits {
    queue: Mutex<Queue>,
    /// As in the queue, for who only looks.
    is_led: Apart<AtomicBool>,
}

/// A batch that is being led, or nothing but what the leader brings. Dropped, it has failed.
struct Leading<'c> {
    commits: &'c Commits,
    batch: Option<Arc<Batch>>,
    bytes: Vec<u8>,
    outcome: Result<u64, Errno>,
}

impl Commits {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing in it is half changed at a panic: what is copied before is cut off by nobody.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the parts, `length` bytes of at most [`RECORD_MAX`], committed, together with what others bring at the same
    /// time: by this thread, which then calls `commit` with them, or by another. Gives where they begin, as
    /// `commit` gave it for the first of all. Blocks until then.
    #[inline]
    pub fn append(
        &self,
        parts: &[&[u8]],
        length: usize,
        mut commit: impl FnMut(&[&[u8]]) -> Result<u64, Errno>,
    ) -> Result<u64, Errno> {
        loop {
            let mut queue = self.lock();
            let has_room = queue.bytes.len() + length <= RECORD_MAX;
            if !queue.is_led {
                let mut leading = self.lead(&mut queue);
                drop(queue);
                if has_room {
                    return leading.commit(parts, &mut commit);
                }
                // What waits goes first, and alone; what comes of it is for those who wait.
                let _ = leading.commit(&[], &mut commit);
                continue;
            }
            let Some(left) = self.leave(&mut queue, parts, length) else {
                // It is full: this one waits for the next.
                let batch = queue.batch.clone();
                drop(queue);
                if let Some(batch) = batch {
                    let _ = self.wait(&batch, &mut commit);
                }
                continue;
            };
            drop(queue);
            return self.commit(&left, commit);
        }
    }

    /// Leaves the parts, as [`append`](Commits::append) has them committed, for whoever commits next: this thread if what
    /// waits would be too much with them.
    pub fn enqueue(
        &self,
        parts: &[&[u8]],
        length: usize,
        mut commit: impl FnMut(&[&[u8]]) -> Result<u64, Errno>,
    ) -> Left {
        loop {
            let mut queue = self.lock();
            if let Some(left) = self.leave(&mut queue, parts, length) {
                return left;
            }
            let batch = queue.batch.clone();
            drop(queue);
            if let Some(batch) = batch {
                // What comes of it is for those who have something in it.
                let _ = self.wait(&batch, &mut commit);
            }
        }
    }

    /// Waits until what was left is committed, or commits it. Gives where it begins.
    pub fn commit(
        &self,
        left: &Left,
        mut commit: impl FnMut(&[&[u8]]) -> Result<u64, Errno>,
    ) -> Result<u64, Errno> {
        let outcome = self.wait(&left.batch, &mut commit);
        outcome.map(|position| position + left.offset)
    }

    /// Commits what waits, if anything does.
    pub fn commit_all(
        &self,
        mut commit: impl FnMut(&[&[u8]]) -> Result<u64, Errno>,
    ) -> Result<(), Errno> {
        let batch = self.lock().batch.clone();
        match batch {
            Some(batch) => self.wait(&batch, &mut commit).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Copies the parts into the batch that gathers, if it has room for them.
    #[inline]
    fn leave(&self, queue: &mut Queue, parts: &[&[u8]], length: usize) -> Option<Left> {
        if queue.bytes.len() + length > RECORD_MAX {
            return None;
        }
        let batch = match &queue.batch {
            Some(batch) => batch.clone(),
            None => queue.begin_batch(),
        };
        let offset = queue.bytes.len() as u64;
        parts
            .iter()
            .for_each(|part| queue.bytes.extend_from_slice(part));
        Some(Left { batch, offset })
    }

    /// Begins to lead, with what waits. Under the queue's lock, while nobody does.
    #[inline]
    fn lead<'c>(&'c self, queue: &mut Queue) -> Leading<'c> {
        queue.is_led = true;
        self.is_led.0.store(true, Ordering::Relaxed);
        let batch = queue.batch.take();
        let bytes = match &batch {
            Some(batch) => {
                // Others of it may sleep meanwhile.
                batch.state.store(PENDING, Ordering::Relaxed);
                let spare = std::mem::take(&mut queue.spare);
                std::mem::replace(&mut queue.bytes, spare)
            }
            None => Vec::new(),
        };
        Leading {
            commits: self,
            batch,
            bytes,
            outcome: Err(Errno::IO),
        }
    }

    /// Waits for the end of a batch, or leads it where nobody does.
    fn wait(
        &self,
        batch: &Arc<Batch>,
        commit: &mut impl FnMut(&[&[u8]]) -> Result<u64, Errno>,
    ) -> Result<u64, Errno> {
        batch.threads.fetch_add(1, Ordering::Relaxed);
        let mut looks = 0;
        loop {
            if let Some(outcome) = batch.outcome() {
                return outcome;
            }
            let is_lonely = (looks == 0 || looks > SPINS || looks % LONELY == LONELY - 1)
                && !self.is_led.0.load(Ordering::Relaxed);
            if is_lonely && let Some(mut leading) = self.lead_if_waiting(batch) {
                return leading.commit(&[], commit);
            }
            looks += 1;
            match looks {
                ..SPINS => std::hint::spin_loop(),
                SPINS.. if looks < SPINS + YIELDS => std::thread::yield_now(),
                _ => self.sleep(batch),
            }
        }
    }

    /// Leads a batch that still waits, if nobody leads.
    fn lead_if_waiting(&self, batch: &Arc<Batch>) -> Option<Leading<'_>> {
        let mut queue = self.lock();
        let is_waiting = queue
            .batch
            .as_ref()
            .is_some_and(|one| Arc::ptr_eq(one, batch));
        (is_waiting && !queue.is_led).then(|| self.lead(&mut queue))
    }

    #[cold]
    fn sleep(&self, batch: &Batch) {
        let queue = self.lock();
        if !queue.is_led || batch.state.load(Ordering::Relaxed) != PENDING {
            return;
        }
        batch.sleepers.fetch_add(1, Ordering::SeqCst);
        drop(queue);
        let time = futex::Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(LOOK.subsec_nanos()),
        };
        // Woken, changed before, interrupted, or out of time: the caller looks again.
        let _ = futex::wait(&batch.state, futex::Flags::PRIVATE, PENDING, Some(&time));
        batch.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Nobody leads any more.
    #[inline]
    fn end_leading(&self, batch: Option<Arc<Batch>>, bytes: Vec<u8>) {
        let mut queue = self.lock();
        if let Some(batch) = batch {
            queue.keep(batch);
        }
        queue.is_led = false;
        self.is_led.0.store(false, Ordering::Relaxed);
        if bytes.capacity() > queue.spare.capacity() {
            queue.spare = bytes;
            queue.spare.clear();
        }
        let Some(next) = &queue.batch else {
            return;
        };
        let threads = next.threads.load(Ordering::Relaxed);
        if threads == 0 || next.sleepers.load(Ordering::SeqCst) < threads {
            return;
        }
        next.state.store(TO_BE_LED, Ordering::SeqCst);
        let next = next.clone();
        drop(queue);
        next.wake(1);
    }
}

impl Leading<'_> {
    /// Commits what waits, and the leader's own parts behind it. Gives where those begin.
    #[inline]
    fn commit(
        &mut self,
        own: &[&[u8]],
        commit: &mut impl FnMut(&[&[u8]]) -> Result<u64, Errno>,
    ) -> Result<u64, Errno> {
        let before = self.bytes.len() as u64;
        self.outcome = match self.batch {
            None => commit(own),
            Some(_) => {
                let mut all = Vec::with_capacity(1 + own.len());
                all.push(&self.bytes[..]);
                all.extend_from_slice(own);
                commit(&all)
            }
        };
        match own {
            // Of what waits, one is the leader's.
            [] => self.outcome,
            _ => self.outcome.map(|position| position + before),
        }
    }
}

impl Drop for Leading<'_> {
    #[inline]
    fn drop(&mut self) {
        // The others may go on while the next one begins to lead.
        let batch = self.batch.take();
        if let Some(batch) = &batch {
            batch.end(self.outcome);
        }
        let bytes = std::mem::take(&mut self.bytes);
        self.commits.end_leading(batch, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A log in memory.
    #[derive(Default)]
    struct Stored {
        bytes: Mutex<Vec<u8>>,
        commits: AtomicUsize,
        is_inside: AtomicBool,
    }

    impl Stored {
        fn commit(&self, parts: &[&[u8]], pause: Duration) -> Result<u64, Errno> {
            assert!(!self.is_inside.swap(true, Ordering::SeqCst), "two lead");
            let mut bytes = self.bytes.lock().unwrap();
            let position = bytes.len() as u64;
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
            drop(bytes);
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            self.commits.fetch_add(1, Ordering::Relaxed);
            self.is_inside.store(false, Ordering::SeqCst);
            Ok(position)
        }
    }

    fn record(thread: u64, count: u64) -> [u8; 16] {
        let mut record = [0; 16];
        record[..8].copy_from_slice(&thread.to_le_bytes());
        record[8..].copy_from_slice(&count.to_le_bytes());
        record
    }

    /// Each record is where its writer was told, once; writers sleep, too, where a commit takes long.
    #[test]
    fn every_record_is_committed_once_and_where_it_is_told() {
        for (threads, count, pause) in [
            (1, 1000, Duration::ZERO),
            (2, 20_000, Duration::ZERO),
            (8, 5000, Duration::ZERO),
            (8, 60, Duration::from_millis(2)),
        ] {
            let (commits, stored) = (Commits::default(), Stored::default());
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let (commits, stored) = (&commits, &stored);
                    scope.spawn(move || {
                        let mut last = None;
                        for count in 0..count {
                            let record = record(thread, count);
                            let parts: [&[u8]; 2] = [&record[..5], &record[5..]];
                            let at = commits
                                .append(&parts, 16, |all| stored.commit(all, pause))
                                .unwrap();
                            let bytes = stored.bytes.lock().unwrap();
                            assert_eq!(bytes[at as usize..][..16], record, "of thread {thread}");
                            assert!(last < Some(at), "the order of thread {thread}");
                            last = Some(at);
                        }
                    });
                }
            });
            let length = stored.bytes.lock().unwrap().len() as u64;
            assert_eq!(length, threads * count * 16);
            let made = stored.commits.load(Ordering::Relaxed) as u64;
            if threads == 1 {
                assert_eq!(made, count);
            } else if !pause.is_zero() {
                assert!(
                    made < threads * count / 2,
                    "{made} commits: nothing is grouped"
                );
            }
        }
    }

    /// All who are in a batch are told that it failed; what comes after goes on.
    #[test]
    fn a_failure_is_told_to_all_who_are_in_the_batch() {
        let commits = Commits::default();
        let turn = AtomicUsize::new(0);
        let outcomes = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (commits, turn, outcomes) = (&commits, &turn, &outcomes);
                scope.spawn(move || {
                    for count in 0..50 {
                        let record = record(thread, count);
                        let outcome = commits.append(&[&record], 16, |_| {
                            std::thread::sleep(Duration::from_micros(200));
                            match turn.fetch_add(1, Ordering::SeqCst) % 2 {
                                0 => Err(Errno::NOSPC),
                                _ => Ok(7),
                            }
                        });
                        outcomes.lock().unwrap().push(outcome);
                    }
                });
            }
        });
        let outcomes = outcomes.into_inner().unwrap();
        let failed = outcomes.iter().filter(|one| **one == Err(Errno::NOSPC));
        assert_eq!(outcomes.len(), 200);
        assert!((40..160).contains(&failed.count()));
    }

    /// Records so long that few of them are one batch.
    #[test]
    fn a_batch_is_no_longer_than_the_longest_record() {
        let (commits, stored) = (Commits::default(), Stored::default());
        let length = RECORD_MAX / 2 - 100;
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (commits, stored) = (&commits, &stored);
                scope.spawn(move || {
                    for _ in 0..10 {
                        let record = vec![thread; length];
                        let commit = |all: &[&[u8]]| {
                            let sum: usize = all.iter().map(|part| part.len()).sum();
                            assert!(sum <= RECORD_MAX && sum > 0, "{sum} bytes");
                            stored.commit(all, Duration::from_micros(100))
                        };
                        let at = commits.append(&[&record], length, commit).unwrap();
                        let bytes = stored.bytes.lock().unwrap();
                        let found = &bytes[at as usize..][..length];
                        assert!(found.iter().all(|&byte| byte == thread));
                    }
                });
            }
        });
        assert_eq!(stored.bytes.lock().unwrap().len(), 40 * length);
    }

    /// One who leads and panics fails, and nobody waits for it for ever.
    #[test]
    fn a_leader_that_panics_leaves_the_others_going() {
        let commits = Commits::default();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            commits.append(&[b"a"], 1, |_| panic!("on purpose"))
        }));
        assert!(panicked.is_err());
        assert_eq!(commits.append(&[b"b"], 1, |_| Ok(5)), Ok(5));
    }
}
