//! Descriptors of named pipes, which are the kernel's: their attributes are those of the inode on the pool.
//!
//! Which inode that is says the path of the FIFO, as the kernel tells it. That may be anybody's file, and a path of
//! somebody else's making: so the controller is asked whether it is that one.
//!
//! Invariant: what is not known to be the pool's is the kernel's, as it is told there.

use super::outside;
use crate::backend::{Errno, Failure, FileSystem, Handle, NamedPipe, inside, minus};
use crate::descriptors::{self, placeholders};
use crate::raw::{self, error, syscall};
use crate::{memory, settings, thread};
use std::mem::offset_of;
use std::os::fd::BorrowedFd;

/// What the path of a FIFO ends with: the directory, then number and generation of the inode.
const FOLDER: &[u8] = b"/named-pipes/";
const NAME: usize = 8 + 1 + 8;
/// Longest path that is looked at.
const LINK: usize = 4096;

/// What the path of a descriptor says of the inode.
fn inode_named(link: &[u8]) -> Option<(u32, u32)> {
    let (rest, name) = link.split_at_checked(link.len().checked_sub(NAME)?)?;
    let number = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).ok()?;
        u32::from_str_radix(digits, 16).ok()
    };
    let is_name = rest.ends_with(FOLDER) && name[8] == b'-';
    is_name.then_some((number(&name[..8])?, number(&name[9..])?))
}

/// The inode that a descriptor of the kernel's may be a pipe of.
fn inode_of(descriptor: usize) -> Option<(u32, u32)> {
    if thread::inside() || !settings::ready() {
        return None;
    }
    // SAFETY: a number, and a structure that the kernel fills.
    let mode = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let result = syscall!(libc::SYS_fstat, descriptor, &raw mut status);
        (!raw::failed(result)).then_some(status.st_mode)?
    };
    if mode & libc::S_IFMT != libc::S_IFIFO {
        return None;
    }
    let mut short = [0; 64];
    // What has no name in the file system, as most pipes.
    if placeholders::link(descriptor, &mut short).first() != Some(&b'/') {
        return None;
    }
    let mut room = Box::<[u8]>::new_uninit_slice(LINK);
    // SAFETY: a path of this library's, and room of that length, of which the kernel fills what it says.
    let link = unsafe {
        let length = syscall!(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            raw::descriptor_path(descriptor).pointer(),
            room.as_mut_ptr(),
            LINK
        );
        let length = usize::try_from(length).ok()?;
        std::slice::from_raw_parts(room.as_ptr().cast::<u8>(), length.min(LINK))
    };
    inode_named(link)
}

/// Runs `ask` on a descriptor of the kernel's that may be a pipe of that inode; `None` if it is none of the pool's.
fn asked<R>(
    descriptor: usize,
    ask: impl FnOnce(&'static FileSystem, BorrowedFd<'_>) -> Result<R, Errno>,
) -> Option<Result<R, Errno>> {
    // SAFETY: the program's, for a question; if it closes it meanwhile, the answer is of another file.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor as i32) };
    match inside(|fs| Ok(ask(fs, borrowed)?)) {
        // Another file; or one whose inode is gone, or a pool that cannot be asked.
        Err(Failure::Errno(Errno::BADF | Errno::STALE | Errno::IO)) => None,
        Err(Failure::Errno(errno)) => Some(Err(errno)),
        Err(Failure::Outside(_)) => None,
        Ok(answer) => Some(Ok(answer)),
    }
}

/// What the pool says of the inode of a named pipe, if a descriptor of the kernel's is one of the pool's.
pub fn on_pipe(
    descriptor: usize,
    pool: impl FnOnce(&'static FileSystem, Handle) -> Result<isize, Failure>,
) -> Option<isize> {
    let descriptor = descriptor as u32 as usize;
    let inode = inode_of(descriptor)?;
    let handle = match asked(descriptor, |fs, file| fs.pipe_of(file, inode))? {
        Ok(handle) => handle,
        // Whoever may not see the inode is told what the kernel knows.
        Err(_) => return None,
    };
    let result = inside(|fs| {
        let result = pool(fs, handle);
        fs.close(handle);
        result
    });
    Some(match result {
        Ok(result) => result,
        Err(failure) => outside(failure, |_| error(libc::EIO)),
    })
}

/// The same after the kernel has told attributes: `mode` of which, at this address, is looked at first.
#[inline(always)]
fn after(
    result: isize,
    mode: usize,
    descriptor: usize,
    pool: impl FnOnce(&'static FileSystem, Handle) -> Result<isize, Failure>,
) -> isize {
    let is_pipe = || {
        // SAFETY: an integer.
        let told = unsafe { memory::copy_in::<u16>(mode) };
        told.is_ok_and(|mode| u32::from(mode) & libc::S_IFMT == libc::S_IFIFO)
    };
    match result == 0 && is_pipe() {
        true => on_pipe(descriptor, pool).unwrap_or(result),
        false => result,
    }
}

/// What the kernel has told in a `struct stat`, or the pool where that is of a pipe of its own.
#[inline(always)]
pub fn after_stat(
    result: isize,
    status: usize,
    descriptor: usize,
    pool: impl FnOnce(&'static FileSystem, Handle) -> Result<isize, Failure>,
) -> isize {
    let mode = status.wrapping_add(offset_of!(libc::stat, st_mode));
    after(result, mode, descriptor, pool)
}

/// The same in a `struct statx`.
#[inline(always)]
pub fn after_statx(
    result: isize,
    status: usize,
    descriptor: usize,
    pool: impl FnOnce(&'static FileSystem, Handle) -> Result<isize, Failure>,
) -> isize {
    let mode = status.wrapping_add(offset_of!(libc::statx, stx_mode));
    after(result, mode, descriptor, pool)
}

/// `/proc/self/fd/N`, or one of its other names, opened, where descriptor N is a pipe of the pool's: as its mode says.
pub fn open_again(descriptor: usize, flags: i32) -> Option<isize> {
    if flags & libc::O_PATH != 0 {
        return None;
    }
    let inode = inode_of(descriptor)?;
    let pipe: NamedPipe = match asked(descriptor, |fs, file| fs.pipe_again(file, inode, flags))? {
        Ok(pipe) => pipe,
        Err(errno) => return Some(minus(errno)),
    };
    let opened = descriptors::pipes::open(&pipe, None, flags & libc::O_CLOEXEC != 0);
    Some(opened.unwrap_or_else(|failure| outside(failure, |_| error(libc::EIO))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_pipes_name_their_inodes() {
        let named = |path: &str| inode_named(path.as_bytes());
        let path = "/dev/shm/pool/named-pipes/0000001f-00000002";
        assert_eq!(named(path), Some((31, 2)));
        for other in [
            "",
            "pipe:[1234]",
            "/named-pipes/",
            "0000001f-00000002",
            "/dev/shm/pool/named-pipes/0000001f-0000000g",
            "/dev/shm/pool/named-pipes/0000001f+00000002",
            "/dev/shm/pool/lock-files/0000001f-00000002",
            "/dev/shm/pool/named-pipes/0000001f-00000002 (deleted)",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
