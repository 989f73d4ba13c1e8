//! Queues of requests on open files, beneath `arck.Queues` and `arck.Queue`.
//!
//! # Invariants
//! * Python's buffers are copied when a request is submitted, and its bytes made when it is reaped: whatever becomes of a request, nothing
//!   of Python's is used meanwhile.
//! * What was submitted is noted under the lock under which it was submitted; so whoever reaps it finds it noted.
//! * A forked child takes none of its parent's locks: the threads that may have them are not there.

use crate::arguments::{Buffer, PathArgument, seconds};
use crate::errors::Refusal;
use crate::file::OpenFile;
use crate::requested::Requested;
use crate::session::Session;
use crate::spool::Spool;
use arck_queues::{Closing, Completion, Operation, QueueOptions, Request, RequestId};
use arckfs::{At, Errno};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is said to be closed.
const WHAT: &str = "queue";
/// Bytes of one request at most: what the kernel's calls do.
const LENGTH_MAX: usize = 0x7fff_f000;
/// Threads of a set at most.
const WORKERS_MAX: usize = 1024;

/// The threads of queues: what `arck.Queues` is made of.
#[pyclass(frozen, subclass, module = "arck._arck")]
pub struct Queues {
    /// `None` once it is closed. Locked for a moment, under Python's lock, so that nobody forks meanwhile.
    queues: Mutex<Option<Arc<arck_queues::Queues>>>,
}

impl Queues {
    fn slot(&self) -> MutexGuard<'_, Option<Arc<arck_queues::Queues>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Queues {
    #[new]
    fn new(workers: Option<usize>) -> PyResult<Queues> {
        let queues = match workers.map(NonZeroUsize::new) {
            None => arck_queues::Queues::new(),
            Some(Some(workers)) if workers.get() <= WORKERS_MAX => {
                arck_queues::Queues::with_workers(workers)
            }
            Some(_) => {
                let line = format!("queues have 1 to {WORKERS_MAX} threads");
                return Err(PyValueError::new_err(line));
            }
        };
        Ok(Queues {
            queues: Mutex::new(Some(Arc::new(queues))),
        })
    }

    /// Cancels what has not begun, waits for what has, and ends the threads. Does nothing with those of a parent process.
    fn _end(&self, py: Python<'_>) {
        let taken = self.slot().take();
        py.detach(|| drop(taken));
    }

    #[getter]
    fn closed(&self) -> bool {
        self.slot().is_none()
    }
}

/// A request that has not been reaped.
struct Submitted {
    id: RequestId,
    kind: Kind,
}

/// What is told of a request when it is done.
#[derive(Clone, Copy)]
enum Kind {
    /// Its bytes.
    Read,
    /// How many bytes.
    Write,
    /// The position behind them.
    Append,
    /// Nothing.
    Sync,
}

/// What Python is told of a completion: the request's number, what came of it, how many bytes, an error number or 0, and the
/// numbers of what it was served from or covered by.
type Told<'py> = (
    u64,
    Option<Bound<'py, PyAny>>,
    usize,
    i32,
    Option<u64>,
    Option<u64>,
);

/// Requests on an open file: what `arck.Queue` is made of.
#[pyclass(frozen, subclass, module = "arck._arck")]
pub struct Queue {
    queue: arck_queues::Queue,
    submitted: Mutex<HashMap<u64, Submitted>>,
    session: Arc<Session>,
    /// The process that opened it.
    process: u32,
    path: Vec<u8>,
    is_closed: AtomicBool,
}

impl Queue {
    fn submitted(&self) -> MutexGuard<'_, HashMap<u64, Submitted>> {
        let submitted = self.submitted.lock();
        submitted.unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue, if it is this process's.
    fn own(&self) -> PyResult<&arck_queues::Queue> {
        match self.process == std::process::id() {
            true => Ok(&self.queue),
            false => Err(Refusal::OfParent.of(&self.path)),
        }
    }

    fn submit(
        &self,
        py: Python<'_>,
        kind: Kind,
        operation: Operation,
        (urgent, within): (bool, Option<f64>),
    ) -> PyResult<u64> {
        let queue = self.own()?;
        let mut request = Request::from(operation);
        request.urgent = urgent;
        request.deadline = within.map(|within| seconds(within, "within")).transpose()?;
        let taken = py.detach(|| {
            let mut submitted = self.submitted();
            let id = queue.submit(request).map_err(Errno::from)?;
            submitted.insert(id.timestamp(), Submitted { id, kind });
            Ok(id.timestamp())
        });
        taken.map_err(|errno| match errno {
            // What the file was opened for is looked at before.
            Errno::BADF => Refusal::Closed(WHAT).raised(),
            errno => Refusal::Errno(errno).of(&self.path),
        })
    }

    fn told<'py>(&self, py: Python<'py>, completions: Vec<Completion>) -> PyResult<Vec<Told<'py>>> {
        let kinds: Vec<_> = py.detach(|| {
            let mut submitted = self.submitted();
            let kind = |one: &Completion| submitted.remove(&one.id.timestamp());
            completions.iter().map(kind).collect()
        });
        let all = completions.into_iter().zip(kinds);
        all.filter_map(|(one, noted)| Some(told(py, &one, noted?.kind)))
            .collect()
    }
}

fn told<'py>(py: Python<'py>, completion: &Completion, kind: Kind) -> PyResult<Told<'py>> {
    let length = completion.result.unwrap_or(0);
    let value = match (completion.result, kind) {
        (Err(_), _) | (Ok(_), Kind::Sync) => None,
        (Ok(length), Kind::Read) => Some(PyBytes::new(py, &completion.buffer[..length]).into_any()),
        (Ok(length), Kind::Write) => Some(length.into_bound_py_any(py)?),
        (Ok(_), Kind::Append) => Some(completion.end.into_bound_py_any(py)?),
    };
    Ok((
        completion.id.timestamp(),
        value,
        length,
        completion.result.err().map_or(0, Errno::raw_os_error),
        completion.served_by.map(RequestId::timestamp),
        completion.covered_by.map(RequestId::timestamp),
    ))
}

/// A position that Python gives. EINVAL if it is negative, as of the kernel's calls.
fn natural(position: i64) -> PyResult<u64> {
    u64::try_from(position).map_err(|_| Refusal::Errno(Errno::INVAL).raised())
}

/// Room for so many bytes.
fn room(length: usize) -> PyResult<Vec<u8>> {
    let mut room: Vec<u8> = Vec::new();
    let length = length.min(LENGTH_MAX);
    room.try_reserve_exact(length)
        .map_err(|_| PyMemoryError::new_err("no memory for what is to be read"))?;
    room.resize(length, 0);
    Ok(room)
}

/// A copy of a buffer of Python's.
fn copied(data: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let buffer = Buffer::to_read(data)?;
    let bytes = buffer.bytes();
    Ok(bytes[..bytes.len().min(LENGTH_MAX)].to_vec())
}

/// Whether there is such a depth and such a weight.
fn is_in(options: &QueueOptions) -> bool {
    (1..=QueueOptions::DEPTH_MAX).contains(&options.depth)
        && (1..=QueueOptions::WEIGHT_MAX).contains(&options.weight)
}

/// The path by which a file is found after a crash. EINVAL: it leads to another one.
fn expect_same<'p>(py: Python<'_>, file: &OpenFile, path: &'p PathArgument) -> PyResult<&'p [u8]> {
    let own = file.run(py, |file_system, handle| file_system.identity(handle))?;
    let (session, _, _) = file.whose();
    let found = session.run(py, |file_system| {
        let inside = path.inside()?;
        let found = file_system.stat(At::Root, inside, 0)?;
        match (found.inode, found.generation) == (u64::from(own.0), own.1) {
            true => Ok(inside),
            false => {
                let text = "it is another file than the queue's";
                Err(Refusal::Told(Errno::INVAL, text.to_owned()))
            }
        }
    });
    found.map_err(|refusal| refusal.of(&path.given))
}

#[pymethods]
impl Queue {
    #[new]
    fn new(
        py: Python<'_>,
        file: &OpenFile,
        queues: &Queues,
        depth: usize,
        weight: u32,
        spool: Option<(Bound<'_, Spool>, PathArgument)>,
    ) -> PyResult<Queue> {
        let set = queues.slot().clone();
        let set = set.ok_or_else(|| Refusal::Closed("queues").raised())?;
        let (session, _, path) = file.whose();
        let requested = Arc::new(Requested::of(py, file)?);
        let options = QueueOptions { depth, weight };
        let opened = match &spool {
            None => py.detach(|| set.open(requested, options)),
            Some((spool, named)) => {
                let (ring, name) = (spool.get().ring()?, expect_same(py, file, named)?);
                py.detach(|| set.open_spooled(requested, options, &ring, name))
            }
        };
        let queue = opened.map_err(|errno| match errno {
            Errno::INVAL if !is_in(&options) => PyValueError::new_err(format!(
                "depth is 1 to {}, weight 1 to {}",
                QueueOptions::DEPTH_MAX,
                QueueOptions::WEIGHT_MAX
            )),
            errno => Refusal::Errno(errno).of(&path),
        })?;
        Ok(Queue {
            queue,
            submitted: Mutex::default(),
            session,
            process: std::process::id(),
            path,
            is_closed: AtomicBool::new(false),
        })
    }

    fn _read(
        &self,
        py: Python<'_>,
        position: i64,
        length: usize,
        urgent: bool,
        within: Option<f64>,
    ) -> PyResult<u64> {
        let (position, buffer) = (natural(position)?, room(length)?);
        let operation = Operation::Read { position, buffer };
        self.submit(py, Kind::Read, operation, (urgent, within))
    }

    fn _write(
        &self,
        py: Python<'_>,
        position: i64,
        data: &Bound<'_, PyAny>,
        urgent: bool,
        within: Option<f64>,
    ) -> PyResult<u64> {
        let (position, bytes) = (natural(position)?, copied(data)?);
        let operation = Operation::Write { position, bytes };
        self.submit(py, Kind::Write, operation, (urgent, within))
    }

    fn _append(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        urgent: bool,
        within: Option<f64>,
    ) -> PyResult<u64> {
        let bytes = copied(data)?;
        let operation = Operation::Append { bytes };
        self.submit(py, Kind::Append, operation, (urgent, within))
    }

    fn _sync(
        &self,
        py: Python<'_>,
        data_only: bool,
        urgent: bool,
        within: Option<f64>,
    ) -> PyResult<u64> {
        let operation = Operation::Sync { data_only };
        self.submit(py, Kind::Sync, operation, (urgent, within))
    }

    fn _reap<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Vec<Told<'py>>> {
        let queue = self.own()?;
        let done = py.detach(|| queue.reap(most));
        self.told(py, done)
    }

    fn _wait<'py>(
        &self,
        py: Python<'py>,
        at_least: usize,
        timeout: Option<f64>,
    ) -> PyResult<Vec<Told<'py>>> {
        let queue = self.own()?;
        let timeout = timeout.map(|timeout| seconds(timeout, "timeout"));
        let timeout = timeout.transpose()?;
        let done = py.detach(|| queue.wait(at_least, timeout));
        self.told(py, done)
    }

    /// Whether it was cancelled; not if it has begun, has completed or is none of this queue.
    fn _cancel(&self, py: Python<'_>, request: u64) -> PyResult<bool> {
        let queue = self.own()?;
        Ok(py.detach(|| {
            let id = self.submitted().get(&request).map(|noted| noted.id);
            id.is_some_and(|id| queue.cancel(id).is_ok())
        }))
    }

    /// How many requests are outstanding, and how many completions can be reaped.
    fn _count(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        let queue = self.own()?;
        Ok(py.detach(|| queue.count()))
    }

    /// A descriptor that stays the queue's.
    fn _readiness(&self, py: Python<'_>) -> PyResult<i32> {
        let queue = self.own()?;
        let readiness = py.detach(|| queue.readiness());
        let readiness = readiness.map_err(|errno| Refusal::Errno(errno).of(&self.path))?;
        Ok(readiness.as_raw_fd())
    }

    /// Takes no more requests, and waits until nothing is outstanding. Does nothing with what a parent process has opened.
    fn _end(&self, py: Python<'_>, cancel: bool) {
        let Ok(queue) = self.own() else { return };
        self.is_closed.store(true, Ordering::Release);
        let closing = match cancel {
            true => Closing::Cancel,
            false => Closing::Finish,
        };
        py.detach(|| queue.close(closing));
    }

    #[getter]
    fn _closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire) || self.session.is_closed()
    }

    #[classattr]
    const DEPTH_MAX: usize = QueueOptions::DEPTH_MAX;
    #[classattr]
    const WEIGHT_MAX: u32 = QueueOptions::WEIGHT_MAX;
}
