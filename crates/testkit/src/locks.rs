//! Advisory locks of files of a pool, taken as the kernel keeps them, by their lock files
//! ([`FileSystem::lock_file`](arckfs::FileSystem::lock_file)). Nothing here waits.

use arckfs::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// Who has a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    Process,
    Description,
    Flock,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Shared,
    Exclusive,
    Unlock,
}

/// Of the bytes from `start` on, `length` of them (0: all); all, for `flock`. EAGAIN if others are in the way.
pub fn lock(
    file: &impl AsFd,
    owner: Owner,
    kind: Kind,
    (start, length): (i64, i64),
) -> Result<(), Errno> {
    let file = file.as_fd().as_raw_fd();
    let (ranges, whole) = match kind {
        Kind::Shared => (libc::F_RDLCK, libc::LOCK_SH),
        Kind::Exclusive => (libc::F_WRLCK, libc::LOCK_EX),
        Kind::Unlock => (libc::F_UNLCK, libc::LOCK_UN),
    };
    let range = libc::flock {
        l_type: ranges as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: length,
        l_pid: 0,
    };
    // SAFETY: a descriptor that lives, and a structure that does.
    let done = unsafe {
        match owner {
            Owner::Process => libc::fcntl(file, libc::F_SETLK, &raw const range),
            Owner::Description => libc::fcntl(file, libc::F_OFD_SETLK, &raw const range),
            Owner::Flock => libc::flock(file, whole | libc::LOCK_NB),
        }
    };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_raw_os_error(
            std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        )),
    }
}

/// As [`lock`], of the whole file.
pub fn lock_all(file: &impl AsFd, owner: Owner, kind: Kind) -> Result<(), Errno> {
    lock(file, owner, kind, (0, 0))
}
