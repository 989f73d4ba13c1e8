//! Files, as those need them who do requests on them.
//!
//! # Invariants
//! * A file stays open as long as this is there, whatever becomes of the handle that it was opened with.
//! * Files of one pool have one identity each, in whatever connection they were opened.

use crate::inside::{self, Inside};
use crate::workers::Workers;
use arck_libfs_kit::format::Durability;
use arck_queues::{Access, FileIdentity, Target};
use arckfs::{Errno, FileSystem, Handle};
use std::sync::Arc;

/// A file, for those who do its requests.
pub struct OpenFile {
    files: &'static FileSystem,
    handle: Handle,
    identity: FileIdentity,
    access: Access,
    is_durable: bool,
    /// Those of its queues; none, if it is a spool or what is replayed from one.
    workers: Option<Arc<Workers>>,
}

impl OpenFile {
    /// With a hold of its own. EBADF.
    pub fn of(
        files: &'static FileSystem,
        handle: Handle,
        workers: Option<&Arc<Workers>>,
    ) -> Result<OpenFile, Errno> {
        let flags = files.flags(handle)?;
        let identity = FileIdentity::in_pool(files.pool_identity(), files.identity(handle)?);
        files.retain(handle)?;
        let mode = flags & libc::O_ACCMODE;
        Ok(OpenFile {
            files,
            handle,
            identity,
            access: Access {
                read: mode != libc::O_WRONLY,
                write: mode != libc::O_RDONLY,
            },
            is_durable: files.session().durability() != Durability::Paged,
            workers: workers.cloned(),
        })
    }

    /// A thread of a set is inside while it is at work here; who has called Arck is inside already.
    fn at_work(&self) -> Option<Inside> {
        match &self.workers {
            Some(workers) => workers.at_work(),
            None => inside::enter(inside::NOTHING).ok(),
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // A forked child has none of what its parent had open; nor has a session that has ended.
        if !self.files.session().has_ended() {
            self.files.close(self.handle);
        }
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
        Ok(self.files.stat_handle(self.handle)?.size)
    }

    fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
        let _inside = self.at_work();
        self.files.read(self.handle, buffer, Some(position))
    }

    fn write(&self, bytes: &[u8], position: u64) -> Result<usize, Errno> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let _inside = self.at_work();
        // Where it says, of a file that is opened to append, too: the order is one of positions.
        self.files
            .write_as(self.handle, bytes, Some(position), Some(false))
    }

    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno> {
        let _inside = self.at_work();
        self.files.append(self.handle, bytes)
    }

    fn sync(&self, _data_only: bool) -> Result<(), Errno> {
        let _inside = self.at_work();
        self.files.sync(self.handle)
    }

    fn is_durable(&self) -> bool {
        self.is_durable
    }
}
