//! Offsets and flags of descriptions that were handed on: the kernel's, of the open file that stands for
//! one ([`arck_libfs_kit::messages::Call::HandOn`]) in every process that has it.
//!
//! # Invariants
//! * A part of the file is taken by moving the offset behind it, in one system call, before it is read or
//!   written; what was not is given back in another one. So no two processes have the same part, and
//!   none waits for another, whoever that is and whatever it does with the offset.
//! * A reader takes no more than there is: whoever writes at the same time does not begin behind it.

use rustix::fd::BorrowedFd;
use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;

/// Flags of the kernel's file that are the description's.
const SHARED: OFlags = OFlags::APPEND.union(OFlags::NONBLOCK);

/// The first thing with a new one: it has the offset and flags of the description from now on.
pub fn begin(file: BorrowedFd<'_>, offset: u64, flags: i32) -> Result<(), Errno> {
    seek(file, SeekFrom::Start(offset))?;
    set_flags(file, flags)
}

pub fn get(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    seek(file, SeekFrom::Current(0))
}

pub fn set(file: BorrowedFd<'_>, offset: u64) -> Result<(), Errno> {
    seek(file, SeekFrom::Start(offset)).map(drop)
}

/// Moves the offset; where it is then. EINVAL if that would be before the beginning.
pub fn move_by(file: BorrowedFd<'_>, distance: i64) -> Result<u64, Errno> {
    seek(file, SeekFrom::Current(distance))
}

/// Takes so many bytes from the offset on; where they begin.
pub fn take(file: BorrowedFd<'_>, length: usize) -> Result<u64, Errno> {
    let distance = i64::try_from(length).map_err(|_| Errno::INVAL)?;
    let end = move_by(file, distance)?;
    Ok(end.saturating_sub(length as u64))
}

/// Gives back all of what was taken but what was `used`.
pub fn give_back(file: BorrowedFd<'_>, taken: usize, used: usize) {
    let distance = taken.saturating_sub(used) as i64;
    if distance != 0 {
        // Somebody else may have moved it to before that.
        let _ = move_by(file, -distance);
    }
}

/// `own`, with what others see of it.
pub fn flags(file: BorrowedFd<'_>, own: i32) -> i32 {
    let shared = rustix::fs::fcntl_getfl(file).unwrap_or(OFlags::empty()) & SHARED;
    own & !SHARED.bits().cast_signed() | shared.bits().cast_signed()
}

pub fn set_flags(file: BorrowedFd<'_>, flags: i32) -> Result<(), Errno> {
    let shared = OFlags::from_bits_retain(flags.cast_unsigned()) & SHARED;
    rustix::fs::fcntl_setfl(file, shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::{AsFd, AsRawFd, OwnedFd};
    use rustix::fs::{MemfdFlags, Mode};
    use std::collections::BTreeSet;

    /// As the controller makes them.
    fn made() -> OwnedFd {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::open(path, OFlags::RWMODE | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn all_who_have_it_see_one_offset_and_flags() {
        let one = made();
        let two = one.try_clone().unwrap();
        begin(one.as_fd(), 7, libc::O_APPEND | libc::O_RDWR | libc::O_SYNC).unwrap();
        assert_eq!(get(two.as_fd()), Ok(7));
        assert_eq!(
            flags(two.as_fd(), libc::O_RDWR),
            libc::O_RDWR | libc::O_APPEND
        );
        set_flags(two.as_fd(), libc::O_NONBLOCK).unwrap();
        let own = libc::O_WRONLY | libc::O_APPEND;
        assert_eq!(flags(one.as_fd(), own), libc::O_WRONLY | libc::O_NONBLOCK);
        assert_eq!(take(one.as_fd(), 10), Ok(7));
        give_back(one.as_fd(), 10, 4);
        assert_eq!(get(two.as_fd()), Ok(11));
        // Moved in between to where nothing can be given back.
        assert_eq!(take(one.as_fd(), 100), Ok(11));
        set(two.as_fd(), 3).unwrap();
        give_back(one.as_fd(), 100, 0);
        assert_eq!(get(one.as_fd()), Ok(3));
        assert_eq!(take(one.as_fd(), usize::MAX), Err(Errno::INVAL));
        assert_eq!(take(one.as_fd(), i64::MAX as usize), Err(Errno::INVAL));
        assert_eq!(move_by(one.as_fd(), -4), Err(Errno::INVAL));
        assert_eq!(get(one.as_fd()), Ok(3));
    }

    #[test]
    fn no_two_have_the_same_part() {
        const THREADS: usize = 4;
        const ROUNDS: usize = 20_000;
        let file = made();
        let parts: Vec<u64> = std::thread::scope(|scope| {
            let taking = || {
                let mut parts = Vec::new();
                for _ in 0..ROUNDS {
                    parts.push(take(file.as_fd(), 3).unwrap());
                    give_back(file.as_fd(), 3, 3);
                }
                parts
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(taking)).collect();
            let parts = threads.into_iter().map(|thread| thread.join().unwrap());
            parts.flatten().collect()
        });
        let different: BTreeSet<u64> = parts.iter().copied().collect();
        assert_eq!(different.len(), parts.len());
        assert_eq!(get(file.as_fd()), Ok((THREADS * ROUNDS * 3) as u64));
    }
}
