//! What processes share besides memory: descriptors (CLONE_FILES), and the working directory and
//! umask (CLONE_FS).
//!
//! This library's tables of them are the process's, one for all of its threads. So the kernel's are
//! too: a child with memory of its own gets copies whatever it asked for, and a thread among others
//! cannot part with them. (Otherwise each side would see the other's placeholders without what they
//! stand for.)

use crate::raw::{self, Arguments, error, syscall};
use crate::{settings, thread};

/// The flags of a call that makes a process, for a child with memory of its own.
pub const fn apart(flags: u64) -> u64 {
    const VM: u64 = libc::CLONE_VM as u64;
    let mut taken = VM | libc::CLONE_FILES as u64;
    // Only those who share memory can share handlers.
    if flags & VM != 0 {
        taken |= libc::CLONE_SIGHAND as u64;
    }
    // These do not go with it, which is the kernel's to say.
    if flags & (libc::CLONE_NEWNS | libc::CLONE_NEWUSER) as u64 == 0 {
        taken |= libc::CLONE_FS as u64;
    }
    flags & !taken
}

/// Whether the process's children are in another namespace of processes than itself, where they have other
/// numbers, and the first of them no siblings; or that is not known.
pub fn is_apart_from_children() -> bool {
    // SAFETY: constant paths; the kernel fills the structure.
    let of = |path: &std::ffi::CStr| unsafe {
        raw::identity(|status| {
            syscall!(
                libc::SYS_newfstatat,
                libc::AT_FDCWD,
                path.as_ptr(),
                status,
                0
            )
        })
    };
    let own = of(c"/proc/self/ns/pid");
    own.is_none() || own != of(c"/proc/self/ns/pid_for_children")
}

/// Whether the process has other threads.
pub fn has_threads() -> bool {
    if raw::is_single_threaded() {
        return false;
    }
    // The threads' directory has a link for each, besides the two of every directory.
    // SAFETY: a constant path; the kernel fills the structure, for which all zeroes are a value.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let path = c"/proc/self/task".as_ptr();
        let result = syscall!(libc::SYS_stat, path, &raw mut status);
        raw::failed(result) || status.st_nlink != 3
    }
}

/// `unshare`: EPERM for a thread among others that asks for descriptors, or for a directory and
/// umask, of its own.
///
/// # Safety
/// As the system call's.
pub unsafe fn unshare(a: &Arguments) -> isize {
    let apart = libc::CLONE_FILES | libc::CLONE_FS;
    if a[0] as i32 & apart != 0 && settings::ready() && !thread::inside() && has_threads() {
        return error(libc::EPERM);
    }
    // SAFETY: the program's argument.
    unsafe { syscall!(libc::SYS_unshare, a[0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_shared_memory_goes_with_it() {
        let of = |flags: i32| apart(flags as u32 as u64) as u32 as i32;
        let all = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_SIGHAND;
        assert_eq!(of(all | libc::CLONE_VFORK), libc::CLONE_VFORK);
        // EINVAL, as without this library.
        assert_eq!(of(libc::CLONE_SIGHAND), libc::CLONE_SIGHAND);
        let wrong = libc::CLONE_FS | libc::CLONE_NEWNS;
        assert_eq!(of(wrong), wrong);
    }

    #[test]
    fn threads_are_counted() {
        std::thread::spawn(|| assert!(has_threads()))
            .join()
            .unwrap();
        // A child has the thread that made it, and no other.
        // SAFETY: the child makes system calls, and ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(has_threads()));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
        }
    }
}
