//! Whether anybody but the controller can still write a file of the pool.
//!
//! # Invariants
//! * The kernel grants a read lease on a file exactly if nobody has a descriptor of it, or a map,
//!   through which it can be written.
//! * A file that sessions were sent is removed only when nobody can write it: who has it can hold
//!   its lock for ever with a write whose source never comes, and removing it would wait for that,
//!   and everybody else for the directory.

use crate::pool::files::Pool;
use crate::pool::files::numbered;
use arck_core_state::{SegmentNumber, layout};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// `F_SETSIG` of fcntl(2).
const F_SETSIG: libc::c_int = 10;

/// Who may write a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Nobody but the controller.
    Nobodys,
    Somebodys,
    /// The file system has no leases, or there is no such file.
    Unknown,
}

/// Asks the kernel who can write a file of a directory; a descriptor of the controller's own
/// counts too.
pub fn reach_of(directory: &OwnedFd, name: &str) -> Reach {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let Ok(file) = rustix::fs::openat(directory, name, flags, Mode::empty()) else {
        return Reach::Unknown;
    };
    // Who opens the file for writing meanwhile breaks the lease, which would send SIGIO and end
    // the process; SIGURG is ignored by default.
    // SAFETY: fcntl with integer arguments on a descriptor that lives; the lease ends when the
    // descriptor is closed, at the end of this function.
    let lease = unsafe {
        libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG);
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK)
    };
    match Errno::from_io_error(&std::io::Error::last_os_error()) {
        _ if lease == 0 => Reach::Nobodys,
        Some(Errno::AGAIN) => Reach::Somebodys,
        _ => Reach::Unknown,
    }
}

impl Pool {
    /// As [`reach_of`].
    pub fn reach(&self, name: &str) -> Reach {
        self.forget_written();
        reach_of(self.directory(), name)
    }
}

/// Whether nobody can write a segment's file; there may be none, where no room was left for a new one.
pub fn is_out_of_reach(pool: &Pool, segment: SegmentNumber) -> bool {
    let name = numbered(layout::SEGMENTS, segment);
    pool.reach(&name) == Reach::Nobodys
        || pool.open_file(&name, OFlags::RDONLY).err() == Some(Errno::NOENT)
}
