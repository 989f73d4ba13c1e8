//! The controller: a user-space daemon, one per pool (DESIGN sections 2 to 7). It decides who may
//! touch what, folds what sessions changed and the verifier accepted into the verified state,
//! and is the only one who writes that. It knows no LibFS.
//!
//! | room | what is in it |
//! | --- | --- |
//! | `pool` | the files of a pool, its superblock and its [`journal`] |
//! | `threads` | threads for what may last for ever |
//! | `space` | free segments, pages and places of inodes |
//! | `state` | the verified state in memory, read classes, and changes of it |
//! | `handed` | descriptions that processes hand on, and advisory locks |
//! | `sessions` | who is there, what they hold, were lent, and may be told |
//! | `freeing` | what nobody needs any more |
//! | `fold` | folds, refusals, what is set aside |
//! | `access` | moving what the wrong ones could map |
//! | `ownership` | who owns what: acquiring, recalling, and the end of a session |
//! | `requests` | what sessions ask for |
//! | `recovery` | opening a pool |
//! | `service` | the thread that does it all, its socket and doorbells |
//!
//! A room knows those above it in this table, and none below; `scripts/circles` fails where an import leads there.
//! What it keeps is a struct, and what is done in it methods of one that borrows that and the rooms that it needs, by
//! name; `Core` owns them all.
//!
//! # Invariants
//! * Everything that sessions can write is copied once, with bounds, before it is looked at.
//! * The verified state changes in atomic steps through the journal.
//! * One thread does everything, and there are no locks in here; but what a session could make last
//!   for ever (closing what it sent, growing a file that it has too) is done by threads that touch
//!   nothing else.
// Numbers are narrowed by what is meant: see `arck_core_state::cast`.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod access;
mod core;
mod error;
mod fair;
mod fold;
mod freeing;
mod handed;
mod options;
mod ownership;
mod pool;
mod recovery;
mod requests;
mod service;
mod sessions;
mod space;
mod state;
#[cfg(test)]
mod testing;
mod threads;

pub use crate::options::{Division, Options};
pub use error::{Error, Result, size_text};
pub use fold::aside::{Head, SetAside};
pub use pool::beneath::check_room;
/// Not for use elsewhere: its documentation has programs that must not compile.
#[doc(hidden)]
pub use pool::journal;
pub use pool::mkfs::{MkfsOptions, mkfs};
pub use pool::names::{ASIDE, VIOLATIONS_LOG, VIOLATIONS_LOG_OLD};
pub use pool::progress::{Progress, ProgressHook, Step};
pub use sessions::limits::DESCRIPTORS_MIN;
pub use sessions::log::{Entry, Event, read_log};
pub use state::tables::CrashHook;

use crate::core::Core;
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use service::{End, Service};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

/// An opened pool, about to be served.
pub struct Controller {
    service: Service,
    handle: Handle,
}

/// Tells a controller to end; cheap to clone.
#[derive(Clone)]
struct Handle {
    stop: Arc<OwnedFd>,
    end: Arc<AtomicU32>,
    connections: Arc<AtomicU32>,
    /// Written when the service thread has ended.
    finished: Arc<OwnedFd>,
}

impl Handle {
    fn end(&self, how: End) {
        self.end.store(how as u32, Ordering::SeqCst);
        // A full counter wakes as well.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
    }
}

impl Controller {
    /// Opens a pool: takes its lock, recovers whatever a crash left, and listens on its socket.
    /// Sets the flushing policy of the process ([`arck_pm::set_policy`]). Blocks while it
    /// recovers.
    ///
    /// # Errors
    /// One line each: no pool, damaged, of another version, already served, no memory.
    pub fn open(path: &Path, options: Options) -> Result<Controller> {
        let core = Core::open(path, options)?;
        let eventfd = || {
            rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map(Arc::new)
                .map_err(Error::system(path, "eventfd"))
        };
        let handle = Handle {
            stop: eventfd()?,
            finished: eventfd()?,
            end: Arc::new(AtomicU32::new(0)),
            connections: Arc::new(AtomicU32::new(0)),
        };
        let service = Service::new(
            core,
            handle.stop.as_fd(),
            handle.end.clone(),
            handle.connections.clone(),
        )?;
        Ok(Controller { service, handle })
    }

    /// Serves in a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn spawn(self) -> Result<RunningController> {
        let Controller { service, handle } = self;
        let finished = handle.finished.clone();
        let thread = std::thread::Builder::new()
            .name("arck-controller".into())
            .spawn(move || {
                let result = service.run();
                // A full counter is readable as well.
                let _ = rustix::io::write(&*finished, &1u64.to_ne_bytes());
                result
            })
            .map_err(|error| Error::Memory {
                operation: "starting the service thread",
                errno: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN),
            })?;
        Ok(RunningController {
            handle,
            thread: Some(thread),
        })
    }
}

/// A controller that serves; ends cleanly when dropped.
pub struct RunningController {
    handle: Handle,
    thread: Option<JoinHandle<Result<()>>>,
}

impl RunningController {
    /// Ends cleanly: folds what every session changed, and closes the pool. Blocks.
    ///
    /// # Errors
    /// What went wrong while closing, or while serving.
    pub fn stop(mut self) -> Result<()> {
        self.end(End::Clean)
    }

    /// Ends at once without folding anything, as if the process had been killed: for a pool that
    /// was deleted, and for tests.
    pub fn kill(mut self) {
        // What it says does not matter: it is dead.
        let _ = self.end(End::Kill);
    }

    /// Whether it has ended by itself (a session asked it to, or it failed).
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Becomes readable when it has ended by itself.
    pub fn finished_descriptor(&self) -> BorrowedFd<'_> {
        self.handle.finished.as_fd()
    }

    /// Connections now, those without a session included.
    pub fn connections(&self) -> u32 {
        self.handle.connections.load(Ordering::SeqCst)
    }

    fn end(&mut self, how: End) -> Result<()> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.handle.end(how);
        thread.join().unwrap_or(Err(Error::Memory {
            operation: "the service thread panicked",
            errno: rustix::io::Errno::IO,
        }))
    }
}

impl Drop for RunningController {
    fn drop(&mut self) {
        if let Err(error) = self.end(End::Clean) {
            tracing::error!("ending the controller: {error}");
        }
    }
}
