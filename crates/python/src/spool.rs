//! Spools: files in which queued writes are kept until they are done, beneath `arck.Spool`.
//!
//! # Invariants
//! * What a spool says is done with the rights of who opens it. So it is taken only from a file that nobody else can write.
//! * A record is done in the file that it was queued for, wherever that has been moved to, and in no other.
//! * A forked child does not use its parent's spool.

use crate::arguments::PathArgument;
use crate::errors::{Refusal, text_of};
use crate::file_system::FileSystem;
use crate::requested::{Requested, device_of};
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

/// Why a spool was not opened, in words.
fn told(errno: Errno, text: &str) -> Refusal {
    Refusal::Told(errno, text.to_owned())
}

/// Opens it, or makes it, and does what was left there.
fn opened(session: &Arc<Session>, path: &[u8], size: u64) -> Result<(Ring, Replayed), Refusal> {
    if !Ring::is_size(size) {
        return Err(told(Errno::INVAL, "a spool has 64 KiB to 4 GiB"));
    }
    let (file, handle, lock, attributes) = session.run_detached(|arck| {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
        let handle = arck.open(At::Root, path, flags, masked(0o600))?;
        let file = Requested::held(session, arck, handle)?;
        let (lock, attributes) = (arck.lock_file(handle)?, arck.stat_handle(handle)?);
        Ok::<_, Refusal>((file, handle, lock, attributes))
    })?;
    let file = Locked::new(file, lock).map_err(|errno| match errno {
        Errno::BUSY => told(errno, "another process has this spool open, or this one"),
        errno => Refusal::Errno(errno),
    })?;
    let file = Arc::new(file);
    if attributes.uid != rustix::process::geteuid().as_raw() || attributes.mode & 0o022 != 0 {
        return Err(told(
            Errno::PERM,
            "others can write this file, or could: what it says would be done in your name; remove it",
        ));
    }
    let was_empty = file.size()? == 0;
    let ring = Ring::open_or_make(Arc::clone(&file) as Arc<dyn Target>, size);
    if ring.is_err() && was_empty {
        // What was made of it takes no room. It is locked yet: nobody else has made one of it.
        let _ = session.run_detached(|arck| arck.truncate_handle(handle, 0));
    }
    let ring = ring.map_err(|errno| match errno {
        Errno::BADMSG => told(errno, "this is no spool, or a damaged one"),
        errno => Refusal::Errno(errno),
    })?;
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
    if left.file.device != device_of(arck.pool_identity()) {
        let text = "this spool was filled in another pool";
        return Err(told(Errno::XDEV, text));
    }
    let identity = (left.file.inode as u32, (left.file.inode >> 32) as u32);
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
