//! The session that files of a pool have together, and the one that a forked child has instead.
//!
//! # Invariants
//! * The session ends with the last of those that use it.
//! * What was opened in one process is not used in another: ESTALE.

use crate::error::{of_connect, of_errno, of_failure, told};
use arck_libfs_kit::per_process::PerProcess;
use arckfs::{ConnectOptions, Errno, Failure, FileSystem};
use std::io;
use std::time::{Duration, Instant};

/// Pauses between attempts while nobody serves a pool.
const PAUSE: Duration = Duration::from_millis(20);

/// A file system's session. A forked child opens its own at its first need.
pub struct Session {
    options: ConnectOptions,
    here: PerProcess<FileSystem>,
}

fn opened(options: &ConnectOptions) -> Result<PerProcess<FileSystem>, arckfs::ConnectError> {
    let file_system = FileSystem::connect(options)?;
    Ok(PerProcess::new(file_system.session(), file_system))
}

impl Session {
    /// Opens one, waiting for a controller as long as `patience` says where there is none.
    pub fn open(options: ConnectOptions, patience: Duration) -> io::Result<Session> {
        let began = Instant::now();
        loop {
            match opened(&options) {
                Ok(here) => return Ok(Session { options, here }),
                Err(error) if error.errno == Errno::CONNREFUSED && began.elapsed() < patience => {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(of_connect(error)),
            }
        }
    }

    /// The file system of this process.
    #[inline]
    pub fn here(&self) -> io::Result<&FileSystem> {
        let here = self.here.get_or_open(|| opened(&self.options));
        Ok(&here.map_err(of_connect)?.kept)
    }

    /// Runs what is done with a path.
    #[inline]
    pub fn run<T>(&self, work: impl FnOnce(&FileSystem) -> Result<T, Failure>) -> io::Result<T> {
        work(self.here()?).map_err(of_failure)
    }

    /// Runs what is done with something that was opened in the session `of`.
    #[inline]
    pub fn run_in<T>(
        &self,
        of: &'static arck_libfs_kit::Session,
        work: impl FnOnce(&FileSystem) -> Result<T, Errno>,
    ) -> io::Result<T> {
        if of.has_ended() {
            return Err(told(
                Errno::STALE,
                "it was opened before this process was forked; open it again here",
            ));
        }
        work(self.here()?).map_err(of_errno)
    }

    pub fn pool(&self) -> &std::path::Path {
        &self.options.pool
    }

    /// Ends it; says what was not folded.
    pub fn close(self) -> io::Result<()> {
        let here = self.here.last();
        match here.session.has_ended() {
            // It is a parent's, and nothing was done here.
            true => Ok(()),
            false => here.session.goodbye().map_err(of_errno),
        }
    }
}
