//! Whether anybody but the controller can still write a file of the pool, and what is done with
//! the arenas of sessions that are gone once nobody can.
//!
//! # Invariants
//! * The kernel grants a read lease on a file exactly if nobody has a descriptor of it, or a map,
//!   through which it can be written.
//! * A file that sessions were sent is removed only when nobody can write it: who has it can hold
//!   its lock for ever with a write whose source never comes, and removing it would wait for that,
//!   and everybody else for the directory.

use crate::core::Core;
use crate::pool::Pool;
use arck_core_state::layout;
use rustix::fd::AsRawFd;
use rustix::fs::OFlags;
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

impl Pool {
    /// Asks the kernel who can write a file; a descriptor of the controller's own counts too.
    pub fn reach(&self, name: &str) -> Reach {
        let Ok(file) = self.open_file(name, OFlags::RDONLY) else {
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
}

impl Core {
    /// Removes the arenas of sessions that are gone, but for those that somebody can still write.
    pub fn remove_remains(&mut self) {
        let pool = &self.state.pool;
        self.remains.retain(|&session| {
            let name = crate::arena::name(session);
            let stays = pool.reach(&name) == Reach::Somebodys;
            if !stays {
                pool.remove_file(&name);
            }
            stays
        });
    }

    /// Notes the arenas whose session is in no table: it was being opened, or had just ended.
    pub fn find_remains(&mut self) {
        let folder = self.state.pool.path().join(layout::ARENAS);
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        self.remains
            .extend(names.filter_map(|name| u32::from_str_radix(name.to_str()?, 16).ok()));
        self.remove_remains();
    }
}
