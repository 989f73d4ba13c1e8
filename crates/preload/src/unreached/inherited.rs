//! What a program that is not reached inherits open on the pool, where the kernel has the pool mounted beneath: the
//! mount's descriptor of the same file takes the place of the placeholder, which stands for nothing in the kernel.
//!
//! The two descriptions have an offset each. So that nobody writes over what the program writes, standard output and
//! error that are at the end of what they write go on appending, on both sides (O_APPEND): `(static; cat file) >out` is
//! whole and in order. What writes elsewhere, or is no standard descriptor, is left as it is, and refused (EBADF), which is
//! said of standard ones. What the program reads, others who have its description read again.
//!
//! # Invariants
//! * A descriptor is replaced only by one of the same inode, and the same or a lesser right.
//! * A description appends from then on only if the mount's descriptor of it has been had.
//! * The session is not asked by a child in its parent's memory: it has become a process with memory of its own before.

use super::mounted::Wanted;
use crate::backend::{Failure, FileSystem, Handle, inside};
use crate::descriptors::{self, Descriptor};
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

/// Whether standard output or error would be the pool's, of which the kernel knows nothing.
#[cold]
#[inline(never)]
pub fn are_standard() -> bool {
    descriptors::pool_descriptors().any(|descriptor| {
        (1..=STANDARD).contains(&descriptor) && !descriptors::close_on_exec(descriptor)
    })
}

/// Says something on standard error where that is the pool's; false if it is not, or cannot be written.
#[cold]
#[inline(never)]
pub fn say(text: &[u8]) -> bool {
    let Descriptor::Pool(handle) = descriptors::lookup(2) else {
        return false;
    };
    spawn::detach();
    inside(|fs| Ok(fs.write(handle, text, None)?)).is_ok()
}

/// How the kernel's description is to be.
struct Replacement {
    file: Wanted,
    offset: u64,
    /// The flags that the program's description gets with it.
    appends: Option<i32>,
}

fn replace(descriptor: usize) -> Option<()> {
    let Descriptor::Pool(handle) = descriptors::lookup(descriptor) else {
        return None;
    };
    let is_standard = descriptor <= STANDARD;
    let wanted = inside(|fs| wanted(fs, handle, is_standard)).ok()??;
    let opened = wanted.file.open();
    if raw::failed(opened) {
        return None;
    }
    // SAFETY: numbers. It is where it has to be read or written then.
    let at = unsafe { syscall!(libc::SYS_lseek, opened, wanted.offset, libc::SEEK_SET) };
    let done = !raw::failed(at)
        && wanted
            .appends
            .is_none_or(|flags| inside(|fs| Ok(fs.set_flags(handle, flags)?)).is_ok());
    // SAFETY: numbers; the descriptor is our own until it takes the place of the program's, which the library's table goes
    // on naming the pool's if nothing is executed.
    let done = done && !raw::failed(unsafe { syscall!(libc::SYS_dup3, opened, descriptor, 0) });
    raw::close(opened);
    done.then_some(())
}

/// `None`: it has no name, or writes where others may not be kept from writing too.
fn wanted(
    fs: &FileSystem,
    handle: Handle,
    is_standard: bool,
) -> Result<Option<Replacement>, Failure> {
    let (flags, found) = (fs.flags(handle)?, fs.stat_handle(handle)?);
    let access = flags & libc::O_ACCMODE;
    let is_directory = found.mode & libc::S_IFMT == libc::S_IFDIR;
    if flags & libc::O_PATH != 0 || !is_directory && found.mode & libc::S_IFMT != libc::S_IFREG {
        return Ok(None);
    }
    let offset = fs.seek(handle, 0, libc::SEEK_CUR)?;
    let mut kept = flags & (libc::O_APPEND | libc::O_NONBLOCK | libc::O_SYNC);
    let mut appends = None;
    if access != libc::O_RDONLY && flags & libc::O_APPEND == 0 {
        // A file that a program has left open to its children it may write elsewhere afterwards.
        if !is_standard || access != libc::O_WRONLY || offset != found.size {
            return Ok(None);
        }
        appends = Some(flags | libc::O_APPEND);
        kept |= libc::O_APPEND;
    }
    let flags = access | kept;
    Ok(Some(Replacement {
        file: Wanted::new(fs, handle, &found, flags)?,
        offset: if is_directory { 0 } else { offset },
        appends,
    }))
}
