//! Logs that are appended to and followed, beneath `arck.Log`.
//!
//! # Invariants
//! * Who waits for what others append waits without Python's lock, and looks at signals again and again ([`SLICE`]).
//! * A follower keeps its log's memory; when the log is closed it is told so at its next look.
//! * Nobody waits for a follower that another thread uses: that thread may be a forked child's parent's.

use crate::arguments::{Buffer, FOR_EVER, seconds};
use crate::errors::{Refusal, of_end};
use crate::gate::Gate;
use arck_logfs::{Enqueued, Error, Log as Stream, Options, RECORD_MAX, SECTION};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// What is said to be closed.
const WHAT: &str = "log";
/// So long a wait lasts before signals are looked at.
const SLICE: Duration = Duration::from_millis(50);

enum Failed {
    Closed,
    Log(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Log(error)
    }
}

impl From<Failed> for PyErr {
    fn from(failed: Failed) -> PyErr {
        let error = match failed {
            Failed::Closed => return Refusal::Closed(WHAT).raised(),
            Failed::Log(error) => error,
        };
        match error {
            Error::Length { .. } => PyValueError::new_err(error.to_string()),
            Error::System(errno) => Refusal::Errno(errno).raised(),
            other => {
                let told = (other.errno().raw_os_error(), other.to_string());
                PyOSError::new_err(told)
            }
        }
    }
}

/// A log that is open: what `arck.Log` is made of.
#[pyclass(frozen, subclass, module = "arck._arck")]
pub struct Log {
    inner: Arc<Inner>,
}

struct Inner {
    stream: Arc<Stream>,
    gate: Gate,
}

impl Inner {
    /// Runs what is done on the log, without Python's lock.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Arc<Stream>) -> Result<T, Error> + Send,
    ) -> Result<T, Failed> {
        py.detach(|| {
            let _entered = self.gate.enter().ok_or(Failed::Closed)?;
            Ok(work(&self.stream)?)
        })
    }
}

/// A record that was enqueued, and is not known to be durable.
#[pyclass(frozen, name = "Enqueued", module = "arck._arck")]
pub struct Waiting(Enqueued);

#[pymethods]
impl Log {
    #[new]
    #[pyo3(signature = (pool, directory, *, make = true, section = SECTION, mode = 0o644, group = Vec::new(), wait = 0.0))]
    #[expect(clippy::too_many_arguments, reason = "Python's have names")]
    fn new(
        py: Python<'_>,
        pool: PathBuf,
        directory: &str,
        make: bool,
        section: u64,
        mode: u32,
        group: Vec<u8>,
        wait: f64,
    ) -> PyResult<Log> {
        let group = String::from_utf8(group);
        let group = group.map_err(|_| PyValueError::new_err("the name of a group is UTF-8"))?;
        if group.len() > 64 {
            return Err(PyValueError::new_err(
                "the name of a group has 64 bytes at most",
            ));
        }
        if section == 0 {
            return Err(PyValueError::new_err("a section has 1 byte at least"));
        }
        let options = Options {
            pool,
            group,
            make,
            section,
            mode: mode & 0o777,
            patience: seconds(wait, "wait")?,
        };
        let directory = directory.trim_start_matches('/');
        let opened = py.detach(|| Stream::open(options, directory));
        Ok(Log {
            inner: Arc::new(Inner {
                stream: Arc::new(opened.map_err(Failed::Log)?),
                gate: Gate::new(),
            }),
        })
    }

    /// append(record)
    /// --
    ///
    /// Appends a record of 1 byte to RECORD_MAX, durably; gives its position in the stream.
    fn append(&self, py: Python<'_>, record: &Bound<'_, PyAny>) -> PyResult<u64> {
        let record = Buffer::to_read(record)?;
        let bytes = record.bytes();
        Ok(self.inner.run(py, |log| log.append(bytes))?)
    }

    fn _append_all(&self, py: Python<'_>, records: Vec<Bound<'_, PyAny>>) -> PyResult<u64> {
        let records = records.iter().map(Buffer::to_read);
        let records = records.collect::<PyResult<Vec<_>>>()?;
        let bytes: Vec<&[u8]> = records.iter().map(Buffer::bytes).collect();
        Ok(self.inner.run(py, |log| log.append_all(&bytes))?)
    }

    /// enqueue(record)
    /// --
    ///
    /// Appends a record without waiting: it is durable, and has a position, when `commit` says so.
    fn enqueue(&self, py: Python<'_>, record: &Bound<'_, PyAny>) -> PyResult<Waiting> {
        let record = Buffer::to_read(record)?;
        let bytes = record.bytes();
        Ok(Waiting(self.inner.run(py, |log| log.enqueue(bytes))?))
    }

    /// commit(enqueued)
    /// --
    ///
    /// Waits until an enqueued record is durable, with all that were enqueued before it; gives its position.
    fn commit(&self, py: Python<'_>, enqueued: &Waiting) -> PyResult<u64> {
        Ok(self.inner.run(py, |log| log.commit(&enqueued.0))?)
    }

    /// The first position that has not been cut off.
    #[getter]
    fn begin(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.inner.run(py, |log| log.begin())?)
    }

    /// The position behind all that has been appended.
    #[getter]
    fn end(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.inner.run(py, |log| log.end())?)
    }

    /// Bytes at which a file of this log takes no more.
    #[getter]
    fn section(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.inner.run(py, |log| log.section())?)
    }

    /// read(position, length)
    /// --
    ///
    /// Reads up to a number of bytes of the stream; fewer at its end, none there.
    fn read<'py>(
        &self,
        py: Python<'py>,
        position: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        // No more memory than the log can fill.
        let length = match length {
            0..=0xffff => length,
            _ => {
                let end = self.inner.run(py, |log| log.end())?;
                let left = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX);
                length.min(left.max(0xffff))
            }
        };
        let mut buffer = vec![0; length];
        let read = self
            .inner
            .run(py, |log| log.read_at(position, &mut buffer))?;
        Ok(PyBytes::new(py, &buffer[..read]))
    }

    /// cut(position)
    /// --
    ///
    /// Takes away what lies before a position, by whole files, and never the last.
    fn cut(&self, py: Python<'_>, position: u64) -> PyResult<()> {
        Ok(self.inner.run(py, |log| log.cut(position))?)
    }

    fn _follow(&self, py: Python<'_>, position: u64) -> PyResult<Follower> {
        let inner = &self.inner;
        let follower = inner.run(py, |log| log.follow_shared(position))?;
        Ok(Follower {
            of: Arc::clone(inner),
            follower: Mutex::new(follower),
        })
    }

    #[classattr]
    const RECORD_MAX: usize = RECORD_MAX;

    /// Commits what is enqueued, and ends the log's session. Waits for other threads; does nothing the second time.
    fn _end(&self, py: Python<'_>) -> PyResult<()> {
        let ended = py.detach(|| match self.inner.gate.close() {
            true => self.inner.stream.finish(),
            false => Ok(()),
        });
        match ended {
            Err(Error::System(errno)) => of_end(Err(errno)),
            ended => Ok(ended.map_err(Failed::Log)?),
        }
    }

    #[getter]
    fn closed(&self) -> bool {
        self.inner.gate.is_closed()
    }
}

/// Reads a log from a position on, and waits for more: what `arck.Follower` is made of.
#[pyclass(frozen, subclass, module = "arck._arck")]
pub struct Follower {
    of: Arc<Inner>,
    follower: Mutex<arck_logfs::Follower<'static>>,
}

impl Follower {
    /// `None` while another thread uses it.
    fn only(&self) -> Option<MutexGuard<'_, arck_logfs::Follower<'static>>> {
        match self.follower.try_lock() {
            Ok(follower) => Some(follower),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn in_use() -> PyErr {
        PyValueError::new_err(
            "the follower is in use by another thread, or was when this process was forked",
        )
    }
}

#[pymethods]
impl Follower {
    /// Where the next bytes come from.
    #[getter]
    fn _position(&self) -> PyResult<u64> {
        Ok(self.only().ok_or_else(Follower::in_use)?.position())
    }

    /// Up to `length` bytes that follow; none after `timeout` seconds without any.
    #[pyo3(signature = (length, timeout))]
    fn _next<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let timeout = timeout.map_or(Ok(FOR_EVER), |timeout| seconds(timeout, "timeout"))?;
        let mut buffer = vec![0; length];
        let begun = Instant::now();
        loop {
            let left = timeout.saturating_sub(begun.elapsed());
            let read = self.of.run(py, |_| match self.only() {
                Some(mut follower) => follower.next(&mut buffer, left.min(SLICE)).map(Some),
                None => Ok(None),
            })?;
            let read = read.ok_or_else(Follower::in_use)?;
            if read != 0 || left <= SLICE {
                return Ok(PyBytes::new(py, &buffer[..read]));
            }
            py.check_signals()?;
        }
    }
}
