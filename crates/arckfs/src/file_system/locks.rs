//! Advisory locks, kept by the controller. Nothing here waits: EAGAIN when in conflict, and the
//! caller retries for F_SETLKW.
//!
//! Locks of a description that only this process has open are held by this session, and dropped
//! when it is closed. From the time on when others may have it open they are held under the name by
//! which the controller knows what was handed on, by whichever session asks, and the controller
//! drops them when the description is closed everywhere.

use super::*;

/// In [`LockHolder::family`]; 0 is the process's.
const FAMILY_DESCRIPTION: u8 = 1;
const FAMILY_FLOCK: u8 = 2;
/// What these are more if other processes have the description open too.
const SHARED: u8 = 2;

impl FileSystem {
    /// The range, held as the description's own (by this session); and, if other processes have
    /// the description open too, as they hold it.
    fn ranges(
        &self,
        handle: Handle,
        request: LockRequest,
    ) -> Result<(LockRange, Option<LockRange>), Errno> {
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
        let own = LockRange {
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
        };
        let name = match request.owner {
            LockOwner::Process => None,
            _ => self.engine.lock_name(description, &self.externals),
        };
        let shared = name.map(|name| LockRange {
            holder: LockHolder {
                family: family + SHARED,
                owner: name,
                process,
            },
            ..own
        });
        Ok((own, shared))
    }

    /// Takes, changes or drops a lock. `waits`: the caller asks again after EAGAIN, until it has
    /// the lock or calls [`FileSystem::stop_waiting`]; EDEADLK if processes would wait for each
    /// other's POSIX locks. `file`: of a description that other processes have open, the memory
    /// file that stands for it.
    pub fn lock(
        &self,
        handle: Handle,
        request: LockRequest,
        waits: bool,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<(), Errno> {
        let description = self.engine.description(handle)?;
        let (range, shared) = self.ranges(handle, request)?;
        let ask = |range| self.engine.session.ask(&Request::Lock { range, waits });
        if let Some(shared) = shared {
            match (ask(shared), file) {
                // Not known: there are no locks yet.
                (Err(Errno::BADF), _) if request.kind == LockKind::Unlock => {}
                (Err(Errno::BADF), Some(file)) => {
                    let (inode, name) = (shared.inode, shared.holder.owner);
                    let owner = handle.0.get();
                    if let Ok(()) = self.engine.session.share_locks(file, inode, name, owner) {
                        return ask(shared);
                    }
                }
                (Err(Errno::BADF), None) => {}
                (result, _) => return result,
            }
        }
        // Before it is there, so that whoever closes meanwhile drops it.
        match (request.kind, request.owner) {
            (LockKind::Unlock, _) => {}
            (_, LockOwner::Process) => {
                if let Some(inode) = self.engine.known(range.inode) {
                    inode.set(flag::LOCKED, true);
                }
            }
            (_, LockOwner::Description | LockOwner::Flock) => {
                description.set_has_locks();
            }
        }
        description.still()?;
        ask(range)
    }

    /// Says that a lock that [`FileSystem::lock`] refused is not waited for any more.
    pub fn stop_waiting(&self, handle: Handle, request: LockRequest) -> Result<(), Errno> {
        let (range, _) = self.ranges(handle, request)?;
        self.engine.session.ask(&Request::StopWaiting { range })
    }

    /// As F_GETLK: the first conflicting lock (with the holder's process id), if any.
    pub fn conflicting_lock(
        &self,
        handle: Handle,
        request: LockRequest,
    ) -> Result<Option<(LockRequest, i32)>, Errno> {
        let (own, shared) = self.ranges(handle, request)?;
        let range = shared.unwrap_or(own);
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
                        1 | 3 => LockOwner::Description,
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
        let (range, _) = self.ranges(handle, request)?;
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
