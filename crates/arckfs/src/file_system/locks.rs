//! Advisory locks, kept by the controller. Nothing here waits: EAGAIN when in conflict, and the
//! caller retries for F_SETLKW.

use super::*;

/// In [`LockHolder::family`]; 0 is the process's.
const FAMILY_DESCRIPTION: u8 = 1;
const FAMILY_FLOCK: u8 = 2;

impl FileSystem {
    fn range(&self, handle: Handle, request: LockRequest) -> Result<LockRange, Errno> {
        let description = self.engine.description(handle)?;
        let process = rustix::process::getpid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        let (family, owner) = match request.owner {
            LockOwner::Process => (0, u64::from(process)),
            LockOwner::Description => (FAMILY_DESCRIPTION, handle.0.get()),
            LockOwner::Flock => (FAMILY_FLOCK, handle.0.get()),
        };
        Ok(LockRange {
            inode: description.identity()?.0,
            mode: match request.kind {
                LockKind::Shared => LockMode::Shared,
                LockKind::Exclusive => LockMode::Exclusive,
                LockKind::Unlock => LockMode::Unlock,
            },
            start: request.start,
            end: request.end,
            holder: LockHolder {
                family,
                owner,
                process,
            },
        })
    }

    /// Takes, changes or drops a lock.
    pub fn lock(&self, handle: Handle, request: LockRequest) -> Result<(), Errno> {
        let description = self.engine.description(handle)?;
        let range = self.range(handle, request)?;
        // Before it is there, so that whoever closes meanwhile drops it.
        match (request.kind, request.owner) {
            (LockKind::Unlock, _) => {}
            (_, LockOwner::Process) => {
                if let Some(inode) = self.engine.known(range.inode) {
                    inode.set(flag::LOCKED, true);
                }
            }
            (_, LockOwner::Description | LockOwner::Flock) => {
                description.other.store(1, Ordering::Relaxed);
            }
        }
        description.still()?;
        self.engine.session.ask(&Request::Lock { range })
    }

    /// As F_GETLK: the first conflicting lock (with the holder's process id), if any.
    pub fn conflicting_lock(
        &self,
        handle: Handle,
        request: LockRequest,
    ) -> Result<Option<(LockRequest, i32)>, Errno> {
        let range = self.range(handle, request)?;
        match self.engine.session.request(&Request::TestLock { range })? {
            Response::Done => Ok(None),
            Response::Conflict(found) => Ok(Some((
                LockRequest {
                    kind: match found.mode {
                        LockMode::Exclusive => LockKind::Exclusive,
                        _ => LockKind::Shared,
                    },
                    start: found.start,
                    end: found.end,
                    owner: match found.holder.family {
                        0 => LockOwner::Process,
                        1 => LockOwner::Description,
                        _ => LockOwner::Flock,
                    },
                },
                found.holder.process as i32,
            ))),
            _ => Err(Errno::PROTO),
        }
    }

    /// Drops every lock that the process holds on the handle's inode (POSIX: at any close).
    pub fn drop_process_locks(&self, handle: Handle) -> Result<(), Errno> {
        let request = LockRequest {
            kind: LockKind::Unlock,
            start: 0,
            end: u64::MAX,
            owner: LockOwner::Process,
        };
        let range = self.range(handle, request)?;
        if let Some(inode) = self.engine.known(range.inode) {
            inode.set(flag::LOCKED, false);
        }
        self.engine.session.ask(&Request::DropLocks {
            inode: range.inode,
            holder: range.holder,
        })
    }

    /// Drops the locks of a description that has been closed.
    pub(super) fn drop_locks_of(&self, inode: InodeNumber, handle: Handle) {
        for family in [FAMILY_DESCRIPTION, FAMILY_FLOCK] {
            let holder = LockHolder {
                family,
                owner: handle.0.get(),
                process: 0,
            };
            // Fails only where the session itself is lost; then the controller cleans up.
            let _ = self
                .engine
                .session
                .ask(&Request::DropLocks { inode, holder });
        }
    }
}
