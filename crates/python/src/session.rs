//! The session of a file system, and the one that a forked child has instead.
//!
//! Invariant: all of a session that Python reaches goes through [`Session::run`], which is inside its gate.

use crate::errors::Refusal;
use crate::gate::Gate;
use arck_libfs_kit::per_process::PerProcess;
use arckfs::{ConnectOptions, Errno, FileSystem};
use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// Pauses between attempts while nobody serves a pool.
const PAUSE: Duration = Duration::from_millis(20);
/// What is said to be closed.
const WHAT: &str = "file system";

/// A file system's session. A forked child opens its own at its first need.
pub struct Session {
    options: ConnectOptions,
    gate: Gate,
    here: PerProcess<FileSystem>,
}

fn opened(options: &ConnectOptions) -> Result<PerProcess<FileSystem>, Refusal> {
    let file_system = FileSystem::connect(options)?;
    Ok(PerProcess::new(file_system.session(), file_system))
}

impl Session {
    /// Opens one, waiting for a controller as long as `patience` says where there is none. Signals end the wait.
    pub fn open(py: Python<'_>, options: ConnectOptions, patience: Duration) -> PyResult<Session> {
        let began = Instant::now();
        loop {
            match py.detach(|| opened(&options)) {
                Ok(here) => {
                    let gate = Gate::new();
                    return Ok(Session {
                        options,
                        gate,
                        here,
                    });
                }
                Err(Refusal::Connect(error))
                    if error.errno == Errno::CONNREFUSED && began.elapsed() < patience => {}
                Err(refusal) => return Err(refusal.raised()),
            }
            py.check_signals()?;
            py.detach(|| std::thread::sleep(PAUSE));
        }
    }

    /// Runs what is done on the session of this process, without Python's lock.
    #[inline]
    pub fn run<T: Send, E: Into<Refusal> + Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&FileSystem) -> Result<T, E> + Send,
    ) -> Result<T, Refusal> {
        py.detach(|| self.run_detached(work))
    }

    /// The same, where Python's lock is not held, or what is done is short.
    #[inline]
    pub fn run_detached<T, E: Into<Refusal>>(
        &self,
        work: impl FnOnce(&FileSystem) -> Result<T, E>,
    ) -> Result<T, Refusal> {
        let _entered = self.gate.enter().ok_or(Refusal::Closed(WHAT))?;
        let here = self.here.get_or_open(|| opened(&self.options))?;
        work(&here.kept).map_err(Into::into)
    }

    /// The one that this process has, or had last.
    pub fn last(&self) -> &'static arck_libfs_kit::Session {
        self.here.last().session
    }

    pub fn options(&self) -> &ConnectOptions {
        &self.options
    }

    pub fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// Ends it: all that was done is folded when this returns, or it says why not. Waits for other threads. Does
    /// nothing the second time, nor in a forked child that has not used it.
    pub fn close(&self) -> Result<(), Errno> {
        let was_open = self.gate.close();
        let session = self.last();
        if !was_open || session.has_ended() {
            return Ok(());
        }
        let said = session.goodbye();
        session.end();
        said
    }
}
