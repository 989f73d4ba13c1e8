//! Spools: files in which queued writes are kept until they are done, beneath `arck.Spool`.
//!
//! # Invariants
//! * What a spool says is done with the rights of who opens it. So it is taken only from a file that nobody else can write.
//! * A record is done in the file that it was queued for, wherever that has been moved to, and in no other.
//! * A forked child does not use its parent's spool.

use crate::arguments::PathArgument;
use crate::errors::{Refusal, text_of};
use crate::file_system::FileSystem;
use crate::requested::Requested;
use crate::session::Session;
use arck_queues::{Left, Locked, Replayed, Spool as Ring, Target};
use arckfs::{At, Errno, FileSystem as Arck, masked};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is said to be closed.
const WHAT: &str = "spool";

/// A spool that is open: what `arck.Spool` is made of. Queues that have it keep it open.
#[pyclass(frozen, subclass, module = "arck._arck")]
pub struct Spool {
    /// `None` once it is closed. Locked for a moment, under Python's lock, so that nobody forks meanwhile.
    ring: Mutex<Option<Arc<Ring>>>,
    replayed: Replayed,
    /// The process that opened it.
    process: u32,
    path: Vec<u8>,
}

impl Spool {
    fn slot(&self) -> MutexGuard<'_, Option<Arc<Ring>>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What queues keep, if it is open and this process's.
    pub fn ring(&self) -> PyResult<Arc<Ring>> {
        if self.process != std::process::id() {
            return Err(Refusal::OfParent.of(&self.path));
        }
        let ring = self.slot().clone();
        ring.ok_or_else(|| Refusal::Closed(WHAT).raised())
    }
}

/// Why a spool was not opened.
fn why_not(errno: Errno) -> Refusal {
    match Ring::why_not(errno) {
        Some(text) => Refusal::Told(errno, text.to_owned()),
        None => Refusal::Errno(errno),
    }
}

/// Opens it, or makes it, and does what was left there.
fn opened(session: &Arc<Session>, path: &[u8], size: u64) -> Result<(Ring, Replayed), Refusal> {
    if !Ring::is_size(size) {
        return Err(why_not(Errno::INVAL));
    }
    let (file, handle, lock) = session.run_detached(|arck| {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
        let handle = arck.open(At::Root, path, flags, masked(0o600))?;
        let file = Requested::held(session, arck, handle)?;
        Ok::<_, Refusal>((file, handle, arck.lock_file(handle)?))
    })?;
    let file = Arc::new(Locked::new(file, lock).map_err(why_not)?);
    let attributes = session.run_detached(|arck| arck.stat_handle(handle))?;
    let own = (attributes.uid, attributes.mode);
    let ring = Ring::open_own(file, own, size, || {
        let _ = session.run_detached(|arck| arck.truncate_handle(handle, 0));
    });
    let ring = ring.map_err(why_not)?;
    let mut failed = None;
    let replayed = ring.replay(|left| {
        let found = session.run_detached(|arck| open_left(session, arck, left));
        found.map_err(|refusal| {
            let errno = refusal.errno();
            failed = Some(refusal);
            errno
        })
    });
    let replayed = replayed.map_err(|errno| failed.unwrap_or(Refusal::Errno(errno)))?;
    Ok((ring, replayed))
}

/// The file that something was queued for; nothing if it is gone.
fn open_left(
    session: &Arc<Session>,
    arck: &Arck,
    left: &Left,
) -> Result<Option<Arc<dyn Target>>, Refusal> {
    let identity = left.file.of_pool(arck.pool_identity());
    let identity = identity.ok_or_else(|| why_not(Errno::XDEV))?;
    let found = arck
        .open_identity(&left.name, identity)
        .map_err(|failure| {
            let errno = Refusal::from(failure).errno();
            let (length, name) = (left.length, String::from_utf8_lossy(&left.name));
            let why = text_of(errno);
            let text =
                format!("{length} bytes were queued for {name}, which cannot be opened: {why}");
            Refusal::Told(errno, text)
        })?;
    let Some(handle) = found else { return Ok(None) };
    Ok(Some(Arc::new(Requested::held(session, arck, handle)?)))
}

#[pymethods]
impl Spool {
    #[new]
    fn new(
        py: Python<'_>,
        file_system: &FileSystem,
        path: PathArgument,
        size: u64,
    ) -> PyResult<Spool> {
        let session = file_system.session();
        let done = py.detach(|| opened(session, path.inside()?, size));
        let (ring, replayed) = done.map_err(|refusal| refusal.of(&path.given))?;
        Ok(Spool {
            ring: Mutex::new(Some(Arc::new(ring))),
            replayed,
            process: std::process::id(),
            path: path.given,
        })
    }

    /// Requests that were left and are done, their bytes, and requests whose files are gone.
    #[getter]
    fn _replayed(&self) -> (u64, u64, u64) {
        let told = &self.replayed;
        (told.requests, told.bytes, told.dropped)
    }

    /// Lets it go; queues that have it keep it.
    fn _end(&self, py: Python<'_>) {
        let taken = self.slot().take();
        py.detach(|| drop(taken));
    }

    #[getter]
    fn closed(&self) -> bool {
        self.slot().is_none()
    }
}
