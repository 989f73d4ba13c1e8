//! Advisory locks: `fcntl` byte ranges (of the process or the description) and `flock`.
//!
//! The kernel keeps them, by the description's [lock file](crate::lock_files), and this only finds that, and
//! says where in the file a place is that is told from its offset or its end. Nothing of the LibFS is held
//! while the kernel lets wait, so signals interrupt it as they do natively; one that comes while the LibFS is
//! asked is put off, and counts as one that came while it waited.

use crate::backend::{Errno, Failure, FileSystem, Handle, inside, minus};
use crate::descriptors::{Descriptor, lookup};
use crate::lock_files::{self, FLOCK, OFD};
use crate::raw::{self, Arguments, blocking, error, syscall};
use crate::{memory, report, thread};
use std::sync::atomic::Ordering;

/// Makes a call on the lock file of a descriptor. `kind`: of the locks that the call may set; `None`: it sets
/// the process's.
#[inline(always)]
fn on_lock_file(
    descriptor: usize,
    handle: Handle,
    (waits, kind): (bool, Option<u8>),
    call: impl FnOnce(usize) -> isize,
) -> isize {
    // A call that waits is interrupted. Any other is over at once: no handler of a signal comes between.
    let inside = (!waits).then(thread::enter);
    let interruptions = &thread::current().interruptions;
    let before = interruptions.load(Ordering::Relaxed);
    let is_alone = !waits && raw::is_single_threaded();
    let file = match lock_files::of(descriptor as u32 as usize, handle, is_alone) {
        Ok(file) => file,
        Err(error) => return error,
    };
    match kind {
        Some(kind) => file.note_kind(kind),
        None if !file.locks_process() => lock_files::lock_process(&file),
        None => {}
    }
    let result = match waits && interruptions.load(Ordering::Relaxed) != before {
        true => error(libc::EINTR),
        false => call(file.descriptor()),
    };
    if kind.is_none() && result == 0 && !file.locks_process() {
        lock_files::lock_process(&file);
    }
    let is_closed = file.end();
    drop(inside);
    match is_closed {
        // As the kernel, which takes back what it gave to a descriptor that was closed meanwhile.
        true if kind.is_none() && result == 0 => error(libc::EBADF),
        _ => result,
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
    if !matches!(
        operation & !libc::LOCK_NB,
        libc::LOCK_SH | libc::LOCK_EX | libc::LOCK_UN
    ) {
        return error(libc::EINVAL);
    }
    let waits = operation & libc::LOCK_NB == 0;
    on_lock_file(a[0], handle, (waits, Some(FLOCK)), |file| match waits {
        // SAFETY: a descriptor of this library's.
        true => unsafe { blocking!(libc::SYS_flock, file, operation) },
        // SAFETY: the same.
        false => unsafe { syscall!(libc::SYS_flock, file, operation) },
    })
}

const LOCK_MAND: i32 = 32;

/// Where a lock begins that begins so far from a place that the kernel does not know.
fn start(fs: &FileSystem, handle: Handle, lock: &libc::flock) -> Result<i64, Errno> {
    let base = match i32::from(lock.l_whence) {
        libc::SEEK_CUR => fs.seek(handle, 0, libc::SEEK_CUR)? as i64,
        libc::SEEK_END => fs.stat_handle(handle)?.size as i64,
        _ => return Ok(lock.l_start),
    };
    base.checked_add(lock.l_start).ok_or(Errno::OVERFLOW)
}

/// Whether a command of `fcntl` is about locks.
pub fn is_command(command: i32) -> bool {
    matches!(
        command,
        libc::F_GETLK
            | libc::F_SETLK
            | libc::F_SETLKW
            | libc::F_OFD_GETLK
            | libc::F_OFD_SETLK
            | libc::F_OFD_SETLKW
    )
}

/// The `fcntl` lock commands on a pool file.
pub fn control(descriptor: usize, handle: Handle, command: i32, address: usize) -> isize {
    // SAFETY: integers.
    let mut lock = match unsafe { memory::copy_in::<libc::flock>(address) } {
        Ok(lock) => lock,
        Err(errno) => return minus(errno),
    };
    let asked = lock;
    if matches!(i32::from(lock.l_whence), libc::SEEK_CUR | libc::SEEK_END) {
        match inside(|fs| Ok(start(fs, handle, &lock)?)) {
            Ok(start) => {
                lock.l_start = start;
                lock.l_whence = libc::SEEK_SET as i16;
            }
            Err(Failure::Errno(errno)) => return minus(errno),
            Err(Failure::Outside(_)) => return error(libc::EIO),
        }
    }
    let waits = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
    let sets = waits || matches!(command, libc::F_SETLK | libc::F_OFD_SETLK);
    let kind = match command {
        libc::F_OFD_SETLK | libc::F_OFD_SETLKW => Some(OFD),
        libc::F_SETLK | libc::F_SETLKW if i32::from(lock.l_type) != libc::F_UNLCK => None,
        _ => Some(0),
    };
    let at = &raw mut lock;
    let result = on_lock_file(descriptor, handle, (waits, kind), |file| match waits {
        // SAFETY: a descriptor of this library's, and a structure on the stack.
        true => unsafe { blocking!(libc::SYS_fcntl, file, command, at) },
        // SAFETY: the same.
        false => unsafe { syscall!(libc::SYS_fcntl, file, command, at) },
    });
    if sets || result != 0 {
        return result;
    }
    if i32::from(lock.l_type) == libc::F_UNLCK {
        // All else stays as it was.
        lock = libc::flock {
            l_type: lock.l_type,
            ..asked
        };
    }
    memory::copy_out(address, &lock).map_or_else(minus, |()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_files::tests::{Made, whole};

    /// A thread is granted a lock of the process's while another closes the descriptor. That drops the process's
    /// locks first, and gives the lock file up then: wherever between the two steps the lock is granted, none is
    /// left in the end, and who was granted it after the close is told that the descriptor is none.
    #[test]
    fn what_is_granted_while_its_description_is_closed_is_taken_back() {
        let drop_locks = |made: &Made| lock_files::tests::drop_process_locks(made);
        let close = |made: &Made| lock_files::closed(made.handle);
        type Step<'a> = &'a dyn Fn(&Made);
        let nothing: Step<'_> = &|_: &Made| {};
        let both: Step<'_> = &|made: &Made| {
            drop_locks(made);
            close(made);
        };
        let closed = error(libc::EBADF);
        // What the other thread does before the lock is granted, before the call returns, and after.
        let cases: [(Step<'_>, Step<'_>, Step<'_>, isize); 6] = [
            (nothing, nothing, both, 0),
            (nothing, &drop_locks, &close, 0),
            (&drop_locks, nothing, &close, 0),
            (nothing, both, nothing, closed),
            (&drop_locks, &close, nothing, closed),
            (both, nothing, nothing, closed),
        ];
        for (number, (before, within, after, expected)) in (100..).zip(cases) {
            let made = Made::new(number);
            let result = on_lock_file(0, made.handle, (false, None), |file| {
                before(&made);
                let mut lock = whole(libc::F_WRLCK);
                let at = &raw mut lock;
                // SAFETY: a descriptor of the test's, and a structure on the stack.
                let granted = unsafe { syscall!(libc::SYS_fcntl, file, libc::F_SETLK, at) };
                assert_eq!(granted, 0, "case {number}");
                assert!(made.is_locked(), "case {number}");
                within(&made);
                granted
            });
            assert_eq!(result, expected, "case {number}");
            after(&made);
            assert!(!made.is_locked(), "case {number}");
        }
    }
}
