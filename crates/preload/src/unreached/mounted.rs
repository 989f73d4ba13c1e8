//! The mount's descriptor of what the program has open on the pool: opened by its path, where the kernel has the pool
//! mounted beneath.
//!
//! # Invariants
//! * It is of the same inode, by number and generation, and of the same kind, whatever is at that path by now.
//! * It gives no more rights than the program's description has.

use crate::backend::{Attributes, Failure, FileSystem, Handle, inside, minus, mounted_number};
use crate::descriptors::mounted;
use crate::handlers::HERE;
use crate::raw::{self, error, syscall};

/// Words of the kernel's structure, the first of which is the kind of a file system.
const STATUS: usize = 15;

/// What is to be opened.
pub struct Wanted {
    /// With its NUL.
    path: Vec<u8>,
    flags: i32,
    /// As the mount numbers it.
    inode: u64,
    /// Its kind.
    kind: u32,
}

impl Wanted {
    /// `flags`: the access mode, and what else is kept. ENOENT for what has no name.
    pub fn new(
        fs: &FileSystem,
        handle: Handle,
        found: &Attributes,
        flags: i32,
    ) -> Result<Wanted, Failure> {
        let mut path = fs.path_of(handle)?;
        path.push(0);
        let kind = found.mode & libc::S_IFMT;
        let directory = match kind {
            libc::S_IFDIR => libc::O_DIRECTORY,
            _ => 0,
        };
        Ok(Wanted {
            path,
            flags: flags | directory,
            inode: mounted_number(found.inode as u32, found.generation),
            kind,
        })
    }

    /// The mount's descriptor, close-on-exec; minus an error number.
    pub fn open(&self) -> isize {
        // Whatever has been put there since: nobody waits for the other end of a FIFO.
        let careful = match self.flags & libc::O_PATH {
            0 => libc::O_NONBLOCK | libc::O_NOCTTY,
            _ => 0,
        };
        let flags = self.flags | careful | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: a path that lives, with its NUL.
        let opened = unsafe { syscall!(libc::SYS_openat, HERE, self.path.as_ptr(), flags) };
        if raw::failed(opened) {
            return opened;
        }
        if !self.is(opened) {
            raw::close(opened);
            return error(libc::ENOENT);
        }
        // SAFETY: numbers. A descriptor of O_PATH has no such flags.
        unsafe { syscall!(libc::SYS_fcntl, opened, libc::F_SETFL, self.flags) };
        opened
    }

    /// Whether what was opened is the mount's of that inode.
    fn is(&self, opened: isize) -> bool {
        let mut system = [0u64; STATUS];
        // SAFETY: numbers, as many words on the stack as the kernel's structure has, and a structure for which all zeroes are
        // a value; the kernel fills both.
        unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            let asked = syscall!(libc::SYS_fstatfs, opened, system.as_mut_ptr());
            let told = syscall!(libc::SYS_fstat, opened, &raw mut status);
            !raw::failed(asked)
                && system[0] == libc::FUSE_SUPER_MAGIC as u64
                && !raw::failed(told)
                && status.st_ino == self.inode
                && status.st_mode & libc::S_IFMT == self.kind
        }
    }
}

/// The mount's descriptor of a description, which is kept as long as that is open. Minus an error number.
pub fn of(handle: Handle) -> isize {
    if let Some(number) = mounted::find(handle) {
        return number as isize;
    }
    let (opened, _) = open(handle);
    match raw::failed(opened) {
        true => opened,
        false => mounted::keep(handle, opened),
    }
}

/// Another descriptor of the mount's of a description, at the same place if it is a file (a directory's places are known to who
/// has listed it alone), and the caller's to close. Minus an error number.
pub fn another(handle: Handle) -> isize {
    let (opened, kind) = open(handle);
    if !raw::failed(opened)
        && kind == libc::S_IFREG
        && let Ok(place) = inside(|fs| Ok(fs.seek(handle, 0, libc::SEEK_CUR)?))
    {
        // SAFETY: numbers.
        unsafe { syscall!(libc::SYS_lseek, opened, place, libc::SEEK_SET) };
    }
    opened
}

/// Opened anew, or minus an error number; and its kind, if that is known.
fn open(handle: Handle) -> (isize, u32) {
    let wanted = inside(|fs| {
        let (flags, found) = (fs.flags(handle)?, fs.stat_handle(handle)?);
        let kept = libc::O_ACCMODE | libc::O_APPEND | libc::O_NONBLOCK | libc::O_SYNC;
        let flags = match flags & libc::O_PATH {
            0 => flags & kept,
            path => path,
        };
        Wanted::new(fs, handle, &found, flags)
    });
    let mut wanted = match wanted {
        Ok(wanted) => wanted,
        Err(Failure::Errno(errno)) => return (minus(errno), 0),
        Err(Failure::Outside(_)) => return (error(libc::ENOENT), 0),
    };
    let mut opened = wanted.open();
    if opened == error(libc::EACCES) && wanted.kind == libc::S_IFDIR {
        // Who may search it, and not read it.
        wanted.flags = libc::O_PATH | libc::O_DIRECTORY;
        opened = wanted.open();
    }
    (opened, wanted.kind)
}
