//! Locks, as the kernel keeps them.

use super::*;

impl FileSystem {
    fn flock_of(request: LockRequest) -> libc::flock {
        // SAFETY: plain integers.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = match request.kind {
            LockKind::Shared => libc::F_RDLCK,
            LockKind::Exclusive => libc::F_WRLCK,
            LockKind::Unlock => libc::F_UNLCK,
        } as i16;
        lock.l_start = request.start as i64;
        lock.l_len = if request.end == u64::MAX {
            0
        } else {
            (request.end - request.start) as i64
        };
        lock
    }
    pub fn stop_waiting(&self, _handle: Handle, _request: LockRequest) -> Result<(), Errno> {
        Ok(())
    }
    pub fn lock(
        &self,
        handle: Handle,
        request: LockRequest,
        _waits: bool,
        _file: Option<BorrowedFd<'_>>,
    ) -> Result<(), Errno> {
        if request.owner == LockOwner::Flock {
            let operation = match request.kind {
                LockKind::Shared => libc::LOCK_SH,
                LockKind::Exclusive => libc::LOCK_EX,
                LockKind::Unlock => libc::LOCK_UN,
            } | libc::LOCK_NB;
            // SAFETY: integers.
            return check(unsafe { syscall!(libc::SYS_flock, self.file(handle)?, operation) })
                .map(drop);
        }
        let lock = Self::flock_of(request);
        let command = if request.owner == LockOwner::Process {
            libc::F_SETLK
        } else {
            libc::F_OFD_SETLK
        };
        match self.control(handle, command, &raw const lock as usize) {
            Err(Errno::ACCESS) => Err(Errno::AGAIN),
            other => other.map(drop),
        }
    }
    pub fn conflicting_lock(
        &self,
        handle: Handle,
        request: LockRequest,
    ) -> Result<Option<(LockRequest, i32)>, Errno> {
        let mut lock = Self::flock_of(request);
        let command = if request.owner == LockOwner::Process {
            libc::F_GETLK
        } else {
            libc::F_OFD_GETLK
        };
        self.control(handle, command, &raw mut lock as usize)?;
        let kind = match i32::from(lock.l_type) {
            libc::F_UNLCK => return Ok(None),
            libc::F_RDLCK => LockKind::Shared,
            _ => LockKind::Exclusive,
        };
        let end = if lock.l_len == 0 {
            u64::MAX
        } else {
            (lock.l_start + lock.l_len) as u64
        };
        Ok(Some((
            LockRequest {
                kind,
                start: lock.l_start as u64,
                end,
                owner: request.owner,
            },
            lock.l_pid,
        )))
    }
}
