//! Advisory locks: `fcntl` byte ranges (of the process or the description) and `flock`.
//!
//! The LibFS never waits; waiting is done here, outside it, by asking again at growing
//! intervals, so that a signal interrupts the wait with EINTR as it should, also one that arrives
//! while the LibFS is asked and is put off.

use crate::backend::{
    Errno, Failure, FileSystem, Handle, LockKind, LockOwner, LockRequest, inside, minus,
};
use crate::descriptors::{self, Descriptor, lookup};
use crate::raw::{self, Arguments, error, syscall};
use crate::{memory, report};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

/// Longest pause between two attempts.
const LONGEST_WAIT_NS: i64 = 5_000_000;

fn attempt(descriptor: usize, handle: Handle, request: LockRequest, waits: bool) -> isize {
    let is_external = descriptors::notes(descriptor) & descriptors::EXTERNAL != 0;
    // SAFETY: a descriptor of the program's; where another thread closes it meanwhile, what the
    // controller gets is not what it asks for.
    let file = is_external.then(|| unsafe { BorrowedFd::borrow_raw(descriptor as i32) });
    match inside(|fs| Ok(fs.lock(handle, request, waits, file)?)) {
        Ok(()) => 0,
        Err(Failure::Errno(errno)) => minus(errno),
        Err(Failure::Outside(_)) => error(libc::EIO),
    }
}

fn take(descriptor: usize, handle: Handle, request: LockRequest, wait: bool) -> isize {
    let mut pause = 20_000i64;
    let interruptions = &crate::thread::current().interruptions;
    let before = interruptions.load(Ordering::Relaxed);
    loop {
        let result = attempt(descriptor, handle, request, wait);
        if result != minus(Errno::AGAIN) || !wait {
            return result;
        }
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: pause,
        };
        // SAFETY: the time is valid; the rest is not asked for.
        unsafe { syscall!(libc::SYS_nanosleep, &raw const time, 0) };
        if interruptions.load(Ordering::Relaxed) != before {
            // If it fails, it is forgotten after a while.
            let _ = inside(|fs| Ok(fs.stop_waiting(handle, request)?));
            return error(libc::EINTR);
        }
        pause = (pause * 2).min(LONGEST_WAIT_NS);
    }
}

/// # Safety
/// As the system call's.
pub unsafe fn flock(a: &Arguments) -> isize {
    let handle = match lookup(a[0]) {
        Descriptor::Pool(handle) => handle,
        // SAFETY: the program's arguments.
        Descriptor::Kernel => return unsafe { syscall!(libc::SYS_flock, a[0], a[1]) },
        Descriptor::Error(error) => return error,
    };
    report::served(libc::SYS_flock);
    let operation = a[1] as i32;
    if operation & LOCK_MAND != 0 {
        // Once meant something; the kernel says nothing to it.
        return 0;
    }
    let kind = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => LockKind::Shared,
        libc::LOCK_EX => LockKind::Exclusive,
        libc::LOCK_UN => LockKind::Unlock,
        _ => return error(libc::EINVAL),
    };
    let flags = match super::flags_of(handle) {
        Ok(flags) => flags,
        Err(error) => return error,
    };
    if flags & libc::O_PATH != 0 || flags & libc::O_ACCMODE == libc::O_ACCMODE {
        return error(libc::EBADF);
    }
    let request = LockRequest {
        kind,
        start: 0,
        end: u64::MAX,
        owner: LockOwner::Flock,
    };
    take(
        a[0] as u32 as usize,
        handle,
        request,
        operation & libc::LOCK_NB == 0,
    )
}

const LOCK_MAND: i32 = 32;

/// Reads a `struct flock` into a request; `sets`: to take or drop it, for which the file must be
/// open in the right way.
fn request(
    fs: &FileSystem,
    handle: Handle,
    lock: &libc::flock,
    owner: LockOwner,
    sets: bool,
) -> Result<LockRequest, Errno> {
    let kind = match i32::from(lock.l_type) {
        libc::F_RDLCK => LockKind::Shared,
        libc::F_WRLCK => LockKind::Exclusive,
        libc::F_UNLCK if sets => LockKind::Unlock,
        // Any lock is in the way of this question.
        libc::F_UNLCK if owner == LockOwner::Description => LockKind::Exclusive,
        _ => return Err(Errno::INVAL),
    };
    let access = fs.flags(handle)? & libc::O_ACCMODE;
    let readable = access == libc::O_RDONLY || access == libc::O_RDWR;
    let writable = access == libc::O_WRONLY || access == libc::O_RDWR;
    let base = match i32::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => fs.seek(handle, 0, libc::SEEK_CUR)? as i64,
        libc::SEEK_END => fs.stat_handle(handle)?.size as i64,
        _ => return Err(Errno::INVAL),
    };
    let start = base.checked_add(lock.l_start).ok_or(Errno::OVERFLOW)?;
    let (start, last) = match lock.l_len {
        0 => (start, i64::MAX),
        length if length > 0 => (start, start.checked_add(length - 1).ok_or(Errno::OVERFLOW)?),
        length => (start.checked_add(length).ok_or(Errno::INVAL)?, start - 1),
    };
    if start < 0 {
        return Err(Errno::INVAL);
    }
    // The place is looked at before the way in which the file is open.
    if sets
        && ((kind == LockKind::Shared && !readable) || (kind == LockKind::Exclusive && !writable))
    {
        return Err(Errno::BADF);
    }
    let end = (last != i64::MAX).then(|| last + 1);
    Ok(LockRequest {
        kind,
        start: start as u64,
        end: end.map_or(u64::MAX, |end| end as u64),
        owner,
    })
}

/// The `fcntl` lock commands on a pool file.
pub fn control(descriptor: usize, handle: Handle, command: i32, address: usize) -> isize {
    // SAFETY: integers.
    let mut lock = match unsafe { memory::copy_in::<libc::flock>(address) } {
        Ok(lock) => lock,
        Err(errno) => return minus(errno),
    };
    let of_description = matches!(
        command,
        libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW
    );
    if of_description && lock.l_pid != 0 {
        return error(libc::EINVAL);
    }
    let owner = if of_description {
        LockOwner::Description
    } else {
        LockOwner::Process
    };
    let sets = !matches!(command, libc::F_GETLK | libc::F_OFD_GETLK);
    let asked = match inside(|fs| Ok(request(fs, handle, &lock, owner, sets)?)) {
        Ok(asked) => asked,
        Err(Failure::Errno(errno)) => return minus(errno),
        Err(Failure::Outside(_)) => return raw::error(libc::EIO),
    };
    if sets {
        return take(
            descriptor,
            handle,
            asked,
            matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW),
        );
    }
    match inside(|fs| Ok(fs.conflicting_lock(handle, asked)?)) {
        Ok(None) => lock.l_type = libc::F_UNLCK as i16,
        Ok(Some((found, process))) => {
            lock.l_type = match found.kind {
                LockKind::Shared => libc::F_RDLCK,
                _ => libc::F_WRLCK,
            } as i16;
            lock.l_whence = libc::SEEK_SET as i16;
            lock.l_start = found.start as i64;
            lock.l_len = if found.end == u64::MAX {
                0
            } else {
                (found.end - found.start) as i64
            };
            lock.l_pid = match found.owner {
                // Of a description, which no process has to itself.
                LockOwner::Description => -1,
                _ => process,
            };
        }
        Err(Failure::Errno(errno)) => return minus(errno),
        Err(Failure::Outside(_)) => return raw::error(libc::EIO),
    }
    memory::copy_out(address, &lock).map_or_else(minus, |()| 0)
}
