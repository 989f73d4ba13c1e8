//! Queues of requests on open files: what `arck-queues` needs of them.
//!
//! # Invariants
//! * Files of one pool have one identity each, in whatever session they were opened.
//! * The queue of a forked child's parent is not touched in the child: its threads are not there.

use crate::error::of_errno;
use crate::file::File;
use arck_libfs_kit::format::Durability;
use arck_queues::{
    Access, Closing, Completion, FileIdentity, QueueOptions, Queues, Refused, Request, RequestId,
    Submitted, Target,
};
use arckfs::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Requests on a file: what [`File::queue`](crate::File::queue) gives. All threads may use it. Dropped, it cancels what has not
/// begun and waits for what has.
pub struct Queue {
    queue: arck_queues::Queue,
    target: Arc<OpenFile>,
}

/// A file, as queues and spools know it.
pub struct OpenFile {
    file: File,
    identity: FileIdentity,
    access: Access,
    is_durable: bool,
}

impl OpenFile {
    pub fn new(file: File) -> io::Result<OpenFile> {
        let told = file.ask(|file_system, handle| {
            let pool = file_system.pool_identity();
            Ok((
                FileIdentity::in_pool(pool, file_system.identity(handle)?),
                file_system.flags(handle)?,
                file_system.session().durability() != Durability::Paged,
            ))
        });
        let (identity, flags, is_durable) = told.map_err(of_errno)?;
        let mode = flags & libc::O_ACCMODE;
        Ok(OpenFile {
            file,
            identity,
            access: Access {
                read: mode != libc::O_WRONLY,
                write: mode != libc::O_RDONLY,
            },
            is_durable,
        })
    }

    /// This process is a forked child of the one that opened it.
    pub fn is_of_parent(&self) -> bool {
        self.file.is_of_parent()
    }
}

impl Target for OpenFile {
    fn identity(&self) -> FileIdentity {
        self.identity
    }

    fn access(&self) -> Access {
        self.access
    }

    fn size(&self) -> Result<u64, Errno> {
        let told = self
            .file
            .ask(|file_system, handle| file_system.stat_handle(handle))?;
        Ok(told.size)
    }

    fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
        self.file
            .ask(|file_system, handle| file_system.read(handle, buffer, Some(position)))
    }

    fn write(&self, bytes: &[u8], position: u64) -> Result<usize, Errno> {
        // Where it says, of a file that is opened to append, too: the order is one of positions.
        self.file.ask(|file_system, handle| {
            file_system.write_as(handle, bytes, Some(position), Some(false))
        })
    }

    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno> {
        self.file
            .ask(|file_system, handle| file_system.append(handle, bytes))
    }

    fn sync(&self, _data_only: bool) -> Result<(), Errno> {
        self.file
            .ask(|file_system, handle| file_system.sync(handle))
    }

    fn is_durable(&self) -> bool {
        self.is_durable
    }
}

impl File {
    /// A queue of requests on this file, which it keeps open: see [`queues`](crate::queues).
    ///
    /// # Errors
    /// `InvalidInput`: a depth or a weight that there is not. ESTALE in a forked child.
    pub fn queue(&self, queues: &Queues, options: QueueOptions) -> io::Result<Queue> {
        Queue::open(self.try_clone()?, queues, options, None)
    }
}

impl Queue {
    /// With a spool, and the name by which it finds the file.
    pub(crate) fn open(
        file: File,
        queues: &Queues,
        options: QueueOptions,
        spool: Option<(&Arc<arck_queues::Spool>, &[u8])>,
    ) -> io::Result<Queue> {
        let target = Arc::new(OpenFile::new(file)?);
        let opened = Arc::clone(&target) as Arc<dyn Target>;
        let queue = match spool {
            Some((spool, name)) => queues.open_spooled(opened, options, spool, name),
            None => queues.open(opened, options),
        };
        let queue = queue.map_err(of_errno)?;
        Ok(Queue { queue, target })
    }

    fn is_of_parent(&self) -> bool {
        self.target.is_of_parent()
    }

    /// Submits a request; gives its number, which is its place in the order. Does not block, but copies what a read is served from. A write is
    /// at its position also if the file was opened to append.
    ///
    /// # Errors
    /// EAGAIN: the queue is full, until something is reaped; or no thread can be started. EINVAL: the range ends behind 2^63 - 1. EBADF: the
    /// queue was closed, or the file was not opened for that. ESTALE in a forked child. Of a queue with a [`Spool`](crate::queues::Spool),
    /// also EAGAIN: that is full, until something is done; EMSGSIZE: a write is longer than half of it; EINVAL: a write has a deadline; or what the spool's file
    /// says. The request is given back.
    pub fn submit(&self, request: Request) -> Result<RequestId, Refused> {
        if self.is_of_parent() {
            let errno = Errno::STALE;
            return Err(Refused { errno, request });
        }
        self.queue.submit(request)
    }

    /// Submits requests together, in their order, with nobody's between them unless the queue has a spool: as many as there is room for. What is taken is taken out of
    /// `requests`; from the first one that is refused on, all are left there. Costs less than as many calls of [`submit`](Queue::submit), and does
    /// not block either. What is refused is what that refuses.
    pub fn submit_all(&self, requests: &mut Vec<Request>) -> Submitted {
        match self.is_of_parent() {
            true => of_parent(),
            false => self.queue.submit_all(requests),
        }
    }

    /// Submits requests together, as [`submit_all`](Queue::submit_all) does, and waits, as [`wait`](Queue::wait) does without a time-out, until
    /// `at_least` have completed or none is outstanding: the cheapest way to have many in flight. As long as the file is quick the thread does them
    /// itself, and wakes nobody.
    pub fn exchange(
        &self,
        requests: &mut Vec<Request>,
        at_least: usize,
    ) -> (Submitted, Vec<Completion>) {
        match self.is_of_parent() {
            true => (of_parent(), Vec::new()),
            false => self.queue.exchange(requests, at_least),
        }
    }

    /// Takes what has completed, `most` at most, in the order of completion. Never blocks. What a [`Completion`] has for an error is
    /// what the plain call would have given.
    pub fn reap(&self, most: usize) -> Vec<Completion> {
        match self.is_of_parent() {
            true => Vec::new(),
            false => self.queue.reap(most),
        }
    }

    /// Waits until `at_least` requests have completed, or none is outstanding, or the time is over; takes all that have. Without a
    /// time-out the thread does requests of this queue itself meanwhile, beside the threads of [`Queues`].
    pub fn wait(&self, at_least: usize, timeout: Option<Duration>) -> Vec<Completion> {
        match self.is_of_parent() {
            true => Vec::new(),
            false => self.queue.wait(at_least, timeout),
        }
    }

    /// Cancels a request: it completes with ECANCELED, and nothing of it is done.
    ///
    /// # Errors
    /// EALREADY: it has begun, or was taken together with others that are done right away; a read was served from it; or it is in a
    /// spool. `NotFound`: it has completed, or is none of this queue. ESTALE in a forked child.
    pub fn cancel(&self, request: RequestId) -> io::Result<()> {
        if self.is_of_parent() {
            return Err(of_errno(Errno::STALE));
        }
        self.queue.cancel(request).map_err(of_errno)
    }

    /// Takes no more requests (EBADF), and blocks until nothing is outstanding: all of it done, or what had not begun cancelled. What has
    /// completed can be reaped afterwards.
    pub fn close(&self, closing: Closing) {
        if !self.is_of_parent() {
            self.queue.close(closing);
        }
    }

    /// How many requests are outstanding, and how many completions can be reaped.
    pub fn count(&self) -> (usize, usize) {
        match self.is_of_parent() {
            true => (0, 0),
            false => self.queue.count(),
        }
    }

    /// A descriptor that is readable as long as something can be reaped, for `poll`, `epoll` and what is built on them. It is made when it
    /// is asked for first, and is not to be read or written.
    ///
    /// # Errors
    /// EMFILE, ENFILE, `OutOfMemory`; ESTALE in a forked child.
    pub fn readiness(&self) -> io::Result<Arc<OwnedFd>> {
        if self.is_of_parent() {
            return Err(of_errno(Errno::STALE));
        }
        self.queue.readiness().map_err(of_errno)
    }
}

/// What is told in a forked child.
fn of_parent() -> Submitted {
    Submitted {
        taken: Vec::new(),
        refused: Some(Errno::STALE),
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (outstanding, completed) = self.count();
        f.debug_struct("Queue")
            .field("file", &self.target.file)
            .field("outstanding", &outstanding)
            .field("completed", &completed)
            .finish()
    }
}
