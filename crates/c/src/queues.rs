//! Queues of requests on open files, and the sets that have their threads.
//!
//! # Invariants
//! * What was submitted is noted under the lock under which it was submitted; so whoever reaps it finds it noted.
//! * A queue has nothing outstanding when the session of its file ends, or its set is closed: whoever closes these has closed the
//!   queue before, and nobody opens another one meanwhile.
//! * Whoever forks has the lock of the table meanwhile. No other lock of a queue's is taken in a forked
//!   child of who has opened it.

use crate::requests::{Completion as Told, Note, Request as Asked};
use crate::targets::OpenFile;
use crate::trouble::Trouble;
use crate::workers::Workers;
use arck_libfs_kit::Session;
use arck_queues::{Closing, Completion, Queue, QueueOptions, Queues, RequestId, Spool};
use arckfs::{Errno, FileSystem, Handle};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads of a set at most.
const WORKERS_MAX: u32 = 1024;

/// What `arck_queues` opens.
pub struct Set {
    queues: Queues,
    workers: Arc<Workers>,
}

impl Set {
    /// Of so many threads; 0: as many as there are processors. EINVAL.
    pub fn new(workers: u32) -> Result<Set, Trouble> {
        if workers > WORKERS_MAX {
            return Err(Trouble::said(
                Errno::INVAL,
                "a set of queues has 1024 threads at most",
            ));
        }
        let workers = NonZeroUsize::new(workers as usize)
            .or_else(|| std::thread::available_parallelism().ok())
            .unwrap_or(NonZeroUsize::MIN);
        Ok(Set {
            queues: Queues::with_workers(workers),
            workers: Arc::new(Workers::new(workers)),
        })
    }
}

/// What `arck_queue` opens.
pub struct OpenQueue {
    queue: Queue,
    depth: usize,
    /// The key of its set.
    set: u64,
    workers: Arc<Workers>,
    /// The session that its file is open in.
    of: &'static Session,
    submitted: Mutex<BTreeMap<i64, (RequestId, Note)>>,
}

impl OpenQueue {
    /// For a file, with the threads of a set that has this key, and perhaps a spool and the path that finds the file. EBADF: the file is none; ESTALE: the set is of this process's
    /// parent; EINVAL: a depth or a weight that there is not.
    pub fn open(
        key: u64,
        (files, handle): (&'static FileSystem, Handle),
        options: QueueOptions,
        spool: Option<(&Arc<Spool>, &[u8])>,
    ) -> Result<OpenQueue, Trouble> {
        let set = set(key)?;
        let file = Arc::new(OpenFile::of(files, handle, Some(&set.workers))?);
        let queue = match spool {
            None => set.queues.open(file, options)?,
            Some((spool, path)) => set.queues.open_spooled(file, options, spool, path)?,
        };
        Ok(OpenQueue {
            queue,
            depth: options.depth,
            set: key,
            workers: Arc::clone(&set.workers),
            of: files.session(),
            submitted: Mutex::default(),
        })
    }

    fn submitted(&self) -> MutexGuard<'_, BTreeMap<i64, (RequestId, Note)>> {
        // What it protects is changed by steps that do not fail.
        let submitted = self.submitted.lock();
        submitted.unwrap_or_else(PoisonError::into_inner)
    }

    /// This process is a forked child of the one that has opened it, whose locks may be locked for ever here.
    fn is_of_parent(&self) -> bool {
        self.of.has_ended()
    }

    /// Gives the request's number. EAGAIN, EBADF, EINVAL, ENOMEM.
    pub fn submit(&self, asked: &Asked) -> Result<i64, Trouble> {
        let (request, note) = asked.checked()?;
        let mut submitted = self.submitted();
        let taken = self.workers.start(|| self.queue.submit(request));
        let id = taken.map_err(Errno::from)?;
        let number = id.timestamp().cast_signed();
        submitted.insert(number, (id, note));
        Ok(number)
    }

    /// What has completed, as C has it; the bytes of reads are in its buffers.
    fn told(&self, completions: &[Completion]) -> Vec<Told> {
        let notes: Vec<_> = {
            let mut submitted = self.submitted();
            let note = |one: &Completion| submitted.remove(&one.id.timestamp().cast_signed());
            completions.iter().map(note).collect()
        };
        let all = completions.iter().zip(notes);
        all.filter_map(|(one, note)| Some(note?.1.told(one)))
            .collect()
    }

    pub fn reap(&self, most: usize) -> Vec<Told> {
        self.told(&self.queue.reap(most))
    }

    /// EINVAL: there is no room for all that may have completed.
    pub fn wait(
        &self,
        most: usize,
        at_least: usize,
        timeout: Option<Duration>,
    ) -> Result<Vec<Told>, Trouble> {
        if most < self.depth {
            return Err(Trouble::said(
                Errno::INVAL,
                "who waits has room for as many completions as the queue is deep",
            ));
        }
        Ok(self.told(&self.queue.wait(at_least, timeout)))
    }

    /// EALREADY, ENOENT.
    pub fn cancel(&self, request: i64) -> Result<(), Trouble> {
        let id = {
            let submitted = self.submitted();
            let noted = submitted.get(&request);
            noted.map(|(id, _)| *id).ok_or(Errno::NOENT)?
        };
        Ok(self.queue.cancel(id)?)
    }

    /// Blocks until nothing is outstanding.
    pub fn end(&self, closing: Closing) {
        self.queue.close(closing);
    }

    /// Outstanding ones, and completions that can be reaped.
    pub fn count(&self) -> (usize, usize) {
        self.queue.count()
    }

    /// A descriptor that stays the queue's. EMFILE, ENFILE, ENOMEM.
    pub fn readiness(&self) -> Result<RawFd, Trouble> {
        Ok(self.queue.readiness()?.as_raw_fd())
    }
}

/// All sets and queues that are open.
pub struct Table {
    next: u64,
    sets: BTreeMap<u64, Arc<Set>>,
    queues: BTreeMap<u64, Arc<OpenQueue>>,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    next: 1,
    sets: BTreeMap::new(),
    queues: BTreeMap::new(),
});

/// Its lock, which whoever forks has meanwhile.
pub fn lock() -> MutexGuard<'static, Table> {
    // What it protects is changed by steps that do not fail.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn take_queues(&mut self, which: impl Fn(u64, &OpenQueue) -> bool) -> Vec<Arc<OpenQueue>> {
        let taken = self.queues.extract_if(.., |&key, queue| which(key, queue));
        taken.map(|(_, queue)| queue).collect()
    }
}

/// Bits of a queue's number in its key. Above them stands the connection of its file.
const NUMBER_BITS: u32 = 44;

/// The connection of a queue's file, by its key; of a key that is none, whatever it says.
pub fn root_of(key: u64) -> u32 {
    (key >> NUMBER_BITS) as u32
}

/// Notes a set; gives its key.
pub fn add_set(set: Set) -> u64 {
    let mut table = lock();
    let key = table.number();
    table.sets.insert(key, Arc::new(set));
    key
}

/// What a key means. EBADF.
fn set(key: u64) -> Result<Arc<Set>, Trouble> {
    let set = lock().sets.get(&key).cloned();
    set.ok_or_else(Trouble::no_handle)
}

/// Notes a queue; gives its key. EBADF: its set was closed meanwhile.
pub fn add(root: u32, queue: OpenQueue) -> Result<u64, Trouble> {
    let mut table = lock();
    if !table.sets.contains_key(&queue.set) {
        // Behind the lock: it closes a file.
        drop(table);
        return Err(Trouble::no_handle());
    }
    let key = u64::from(root) << NUMBER_BITS | table.number();
    table.queues.insert(key, Arc::new(queue));
    Ok(key)
}

/// What a key means. EBADF, ESTALE.
pub fn get(key: u64) -> Result<Arc<OpenQueue>, Trouble> {
    let queue = lock().queues.get(&key).cloned();
    let queue = queue.ok_or_else(Trouble::no_handle)?;
    match queue.is_of_parent() {
        true => Err(Trouble::of_parent()),
        false => Ok(queue),
    }
}

/// Closes a queue: what has not begun is cancelled. Blocks until what has is done. EBADF.
pub fn close(key: u64) -> Result<(), Trouble> {
    let queue = lock().queues.remove(&key);
    let_go([queue.ok_or_else(Trouble::no_handle)?]);
    Ok(())
}

/// Closes a set, with its queues. Blocks as [`close`]. EBADF.
pub fn close_set(key: u64) -> Result<(), Trouble> {
    let (set, queues) = {
        let mut table = lock();
        let set = table.sets.remove(&key).ok_or_else(Trouble::no_handle)?;
        (set, table.take_queues(|_, queue| queue.set == key))
    };
    let_go(queues);
    // In a forked child that does nothing: the threads are not there.
    drop(set);
    Ok(())
}

/// Closes the queues of all files of a connection, which is being closed.
pub fn close_all_of(root: u32) {
    let queues = lock().take_queues(|key, _| root_of(key) == root);
    let_go(queues);
}

fn let_go(queues: impl IntoIterator<Item = Arc<OpenQueue>>) {
    for queue in queues {
        // Another thread may be looking at it still, and be who drops it.
        if !queue.is_of_parent() {
            queue.end(Closing::Cancel);
        }
    }
}
