//! Files, as those need them who do requests on them.
//!
//! # Invariants
//! * A file stays open as long as this is there, whatever becomes of the object that it was opened with.
//! * Files of one pool have one identity each, in whatever session they were opened.
//! * It is used without Python's lock.

use crate::file::OpenFile;
use crate::session::Session;
use arck_libfs_kit::format::Durability;
use arck_queues::{Access, FileIdentity, Target};
use arckfs::{Errno, FileSystem, Handle};
use pyo3::prelude::*;
use std::sync::Arc;

/// A file, for those who do its requests.
pub struct Requested {
    session: Arc<Session>,
    /// That of the process that opened it.
    of: &'static arck_libfs_kit::Session,
    handle: Handle,
    identity: FileIdentity,
    access: Access,
    is_durable: bool,
}

impl Requested {
    /// With a hold of its own.
    pub fn of(py: Python<'_>, file: &OpenFile) -> PyResult<Requested> {
        let (session, _, _) = file.whose();
        file.run(py, |file_system, handle| {
            file_system.retain(handle)?;
            Requested::held(&session, file_system, handle)
        })
    }

    /// Of a handle that nobody else closes: it is closed with this, or at once if there is an error.
    pub fn held(
        session: &Arc<Session>,
        file_system: &FileSystem,
        handle: Handle,
    ) -> Result<Requested, Errno> {
        let looked = file_system
            .flags(handle)
            .and_then(|flags| Ok((flags, file_system.identity(handle)?)));
        let (flags, identity) = looked.inspect_err(|_| file_system.close(handle))?;
        let mode = flags & libc::O_ACCMODE;
        Ok(Requested {
            session: Arc::clone(session),
            of: file_system.session(),
            handle,
            identity: FileIdentity::in_pool(file_system.pool_identity(), identity),
            access: Access {
                read: mode != libc::O_WRONLY,
                write: mode != libc::O_RDONLY,
            },
            is_durable: file_system.session().durability() != Durability::Paged,
        })
    }

    fn ask<T>(
        &self,
        work: impl FnOnce(&FileSystem, Handle) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if self.of.has_ended() {
            return Err(Errno::BADF);
        }
        let done = self
            .session
            .run_detached(|file_system| work(file_system, self.handle));
        done.map_err(|refusal| refusal.errno())
    }
}

impl Drop for Requested {
    fn drop(&mut self) {
        // Of a session that has ended nothing is open.
        let _ = self.ask(|file_system, handle| {
            file_system.close(handle);
            Ok(())
        });
    }
}

impl Target for Requested {
    fn identity(&self) -> FileIdentity {
        self.identity
    }

    fn access(&self) -> Access {
        self.access
    }

    fn size(&self) -> Result<u64, Errno> {
        let told = self.ask(FileSystem::stat_handle)?;
        Ok(told.size)
    }

    fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
        self.ask(|file_system, handle| file_system.read(handle, buffer, Some(position)))
    }

    fn write(&self, bytes: &[u8], position: u64) -> Result<usize, Errno> {
        // Where it says, of a file that is opened to append, too: the order is one of positions.
        self.ask(|file_system, handle| {
            file_system.write_as(handle, bytes, Some(position), Some(false))
        })
    }

    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno> {
        self.ask(|file_system, handle| file_system.append(handle, bytes))
    }

    fn sync(&self, _data_only: bool) -> Result<(), Errno> {
        self.ask(FileSystem::sync)
    }

    fn is_durable(&self) -> bool {
        self.is_durable
    }
}
