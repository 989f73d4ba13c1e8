//! What a program that is not reached inherits open on the pool, where the kernel has the pool mounted beneath: the
//! mount's descriptor of the same file takes the place of the placeholder, which stands for nothing in the kernel.
//!
//! The two descriptions have an offset each. So that nobody writes over what the program writes, one that writes at the
//! end of its file goes on appending, on both sides (O_APPEND): `(static; cat file) >out` is whole and in order. One that
//! writes elsewhere is left as it is, and refused (EBADF), which is said. What the program reads, others who have its
//! description read again.
//!
//! # Invariants
//! * A descriptor is replaced only by one of the same inode, and the same or a lesser right.
//! * The session is not asked by a child in its parent's memory: it has become a process with memory of its own before.

use crate::backend::{Failure, FileSystem, Handle, inside, mounted_number};
use crate::descriptors::{self, Descriptor};
use crate::handlers::HERE;
use crate::process::spawn;
use crate::raw::{self, syscall};

/// Descriptors that programs take for granted.
const STANDARD: usize = 2;

/// Replaces what can be; whether a standard descriptor could not be.
#[cold]
#[inline(never)]
pub fn replace_all() -> bool {
    let inherited = |descriptor: &usize| !descriptors::close_on_exec(*descriptor);
    if descriptors::pool_descriptors().any(|descriptor| inherited(&descriptor)) {
        spawn::detach();
    }
    let mut is_left = false;
    for descriptor in descriptors::pool_descriptors().filter(inherited) {
        is_left |= replace(descriptor).is_none() && descriptor <= STANDARD;
    }
    is_left
}

/// How the kernel's description is to be, to be had by a path.
struct Wanted {
    /// With its NUL.
    path: Vec<u8>,
    flags: i32,
    /// As the mount numbers it.
    inode: u64,
    offset: u64,
}

fn replace(descriptor: usize) -> Option<()> {
    let Descriptor::Pool(handle) = descriptors::lookup(descriptor) else {
        return None;
    };
    let wanted = inside(|fs| wanted(fs, handle)).ok()??;
    // SAFETY: a path that lives, numbers, and a structure that the kernel fills; the descriptor is our own until it takes
    // the place of the program's, which the library's table goes on naming the pool's if nothing is executed.
    unsafe {
        let flags = wanted.flags | libc::O_CLOEXEC;
        let opened = syscall!(libc::SYS_openat, HERE, wanted.path.as_ptr(), flags);
        if raw::failed(opened) {
            return None;
        }
        let found = raw::identity_of(opened as usize);
        let is_it = found.is_some_and(|[_, inode]| inode == wanted.inode);
        let at = syscall!(libc::SYS_lseek, opened, wanted.offset, libc::SEEK_SET);
        let done = is_it
            && !raw::failed(at)
            && !raw::failed(syscall!(libc::SYS_dup3, opened, descriptor, 0));
        raw::close(opened);
        done.then_some(())
    }
}

/// `None`: it has no name, or writes where others may not be kept from writing too.
fn wanted(fs: &FileSystem, handle: Handle) -> Result<Option<Wanted>, Failure> {
    let (flags, found) = (fs.flags(handle)?, fs.stat_handle(handle)?);
    let access = flags & libc::O_ACCMODE;
    let is_directory = found.mode & libc::S_IFMT == libc::S_IFDIR;
    if flags & libc::O_PATH != 0 || !is_directory && found.mode & libc::S_IFMT != libc::S_IFREG {
        return Ok(None);
    }
    let offset = fs.seek(handle, 0, libc::SEEK_CUR)?;
    let mut kept = flags & (libc::O_APPEND | libc::O_NONBLOCK | libc::O_SYNC);
    if access != libc::O_RDONLY && flags & libc::O_APPEND == 0 {
        if access != libc::O_WRONLY || offset != found.size {
            return Ok(None);
        }
        fs.set_flags(handle, flags | libc::O_APPEND)?;
        kept |= libc::O_APPEND;
    }
    let mut path = fs.path_of(handle)?;
    path.push(0);
    Ok(Some(Wanted {
        path,
        flags: access | kept | if is_directory { libc::O_DIRECTORY } else { 0 },
        inode: mounted_number(found.inode as u32, found.generation),
        offset: if is_directory { 0 } else { offset },
    }))
}
