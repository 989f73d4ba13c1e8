//! Watching what is on the pool: the program's inotify descriptor stays the kernel's, and the controller has it watch what
//! stands for the inode ([`arckfs::FileSystem::watch`]). All else that is done with it is the kernel's alone.
//!
//! Invariant: what does not name the pool goes to the kernel unchanged.

use super::{HERE, on_path};
use crate::raw::{self, Arguments, error, syscall};
use std::os::fd::BorrowedFd;

/// The flags of a watch that are events; of none of them the kernel makes none.
const EVENTS: u32 = libc::IN_ALL_EVENTS | libc::IN_UNMOUNT | libc::IN_Q_OVERFLOW | libc::IN_IGNORED;

/// What the kernel says of the arguments before it looks at the path; 0: nothing.
fn refusal(inotify: usize, mask: u32) -> isize {
    let both = libc::IN_MASK_ADD | libc::IN_MASK_CREATE;
    // SAFETY: a number.
    let flags = unsafe { syscall!(libc::SYS_fcntl, inotify, libc::F_GETFD) };
    match raw::failed(flags) {
        true => flags,
        false if mask & EVENTS == 0 || mask & both == both => error(libc::EINVAL),
        false => 0,
    }
}

/// # Safety
/// As the system call's.
pub unsafe fn add(a: &Arguments) -> isize {
    let (inotify, mask) = (a[0], a[2] as u32);
    // SAFETY: the program's arguments, unchanged but for the path.
    unsafe {
        on_path(
            libc::SYS_inotify_add_watch,
            HERE,
            a[1],
            |fs, at, path| match refusal(inotify, mask) {
                0 => {
                    let inotify = BorrowedFd::borrow_raw(inotify as i32);
                    Ok(fs.watch(at, path, inotify, mask)? as isize)
                }
                refused => Ok(refused),
            },
            |_, path| syscall!(libc::SYS_inotify_add_watch, a[0], path, a[2]),
        )
    }
}
