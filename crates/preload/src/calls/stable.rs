//! Calls on descriptors that another thread replaces meanwhile.
//!
//! A handler looks a number up and then uses what it found. In between, another thread may put
//! something else there with `dup2`: a handle of the LibFS's is then closed, and where the kernel
//! had a file there may be a placeholder. Neither is what the program means at any time, so the
//! call is made again, here and nowhere else: [`until_stable`] is around the handler of every call of
//! the table.
//!
//! Invariant: a call is only made again if it has done nothing, or if doing it twice is doing it once.

use super::numbers;
use crate::descriptors::replacements::{Count, count};
use crate::process::spawn;
use crate::raw::{self, Arguments};

/// Makes a system call that looks descriptors up, and again while what it told may be of none
/// that was ever there.
#[inline(always)]
pub fn until_stable(number: i64, a: &Arguments, mut call: impl FnMut() -> isize) -> isize {
    let before = count();
    if before.is_of_spawned_child() {
        return spawn::call(number, a, &mut call);
    }
    if !looks_up(number) {
        return call();
    }
    let result = call();
    if !before.has_moved() {
        return result;
    }
    again(number, a, before, result, &mut call)
}

#[cold]
#[inline(never)]
fn again(
    number: i64,
    a: &Arguments,
    mut before: Count,
    mut result: isize,
    call: &mut dyn FnMut() -> isize,
) -> isize {
    loop {
        let repeats = match result {
            _ if !before.has_moved() => false,
            _ if result == raw::error(libc::EBADF) => true,
            _ if !before.has_moved_over_kernels() || result == raw::error(libc::EINTR) => false,
            _ => raw::failed(result) || tells_of_placeholder(number, a),
        };
        if !repeats {
            return result;
        }
        before = count();
        result = call();
    }
}

/// Whether the call uses descriptors of the program's that may be replaced under it, and leaves
/// everything as it was where it fails.
const fn looks_up(number: i64) -> bool {
    !matches!(
        number,
        // A number is closed once. (`dup2` and `dup3` take care of themselves.)
        libc::SYS_close
            | libc::SYS_close_range
            | libc::SYS_dup2
            | libc::SYS_dup3
            // No descriptor that could be the pool's.
            | libc::SYS_bind
            | libc::SYS_connect
            | libc::SYS_execve
            | libc::SYS_exit_group
            | libc::SYS_io_uring_setup
            // What was asked for is done once.
            | libc::SYS_io_uring_enter
            | libc::SYS_io_uring_register
            | libc::SYS_madvise
            | libc::SYS_mprotect
            | libc::SYS_mremap
            | libc::SYS_msync
            | libc::SYS_munmap
            | libc::SYS_rt_sigaction
            | libc::SYS_rt_sigprocmask
            | libc::SYS_sync
            | libc::SYS_umask
            | libc::SYS_unshare
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_socket
            | libc::SYS_epoll_create
            | libc::SYS_epoll_create1
            | libc::SYS_eventfd
            | libc::SYS_eventfd2
            | libc::SYS_inotify_init
            | libc::SYS_inotify_init1
            | libc::SYS_memfd_create
            | libc::SYS_pidfd_open
            | libc::SYS_signalfd
            | libc::SYS_signalfd4
            | libc::SYS_timerfd_create
            | libc::SYS_pipe
            | libc::SYS_pipe2
            | libc::SYS_socketpair
            | libc::SYS_getpeername
            | libc::SYS_getsockname
            | libc::SYS_recvfrom
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_recvmsg
            | libc::SYS_sendmmsg
            | libc::SYS_recvmmsg
            | libc::SYS_pidfd_getfd
            | libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setgroups
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_capset
            // They wait, and are told of placeholders what regular files tell.
            | libc::SYS_rt_sigsuspend
            | libc::SYS_poll
            | libc::SYS_select
            | libc::SYS_pselect6
            | libc::SYS_ppoll
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
    )
}

/// Whether a call that succeeds may have done so on a placeholder, which grants neither reading
/// nor writing. All of these tell the same, or do the same, when they are made twice.
fn tells_of_placeholder(number: i64, a: &Arguments) -> bool {
    match number {
        numbers::SYS_fstat
        | numbers::SYS_newfstatat
        | numbers::SYS_statx
        | numbers::SYS_fstatfs
        | numbers::SYS_faccessat
        | numbers::SYS_faccessat2
        | numbers::SYS_readlinkat
        | numbers::SYS_fgetxattr
        | numbers::SYS_flistxattr
        | numbers::SYS_getxattrat
        | numbers::SYS_listxattrat => true,
        numbers::SYS_fchmod
        | numbers::SYS_fchmodat
        | numbers::SYS_fchmodat2
        | numbers::SYS_fchown
        | numbers::SYS_fchownat
        | numbers::SYS_utimensat
        | numbers::SYS_futimesat
        | numbers::SYS_fsetxattr
        | numbers::SYS_setxattrat => true,
        numbers::SYS_fsync
        | numbers::SYS_fdatasync
        | numbers::SYS_syncfs
        | numbers::SYS_sync_file_range
        | numbers::SYS_fadvise64
        | numbers::SYS_readahead => true,
        numbers::SYS_lseek => a[2] as i32 != libc::SEEK_CUR || a[1] == 0,
        numbers::SYS_flock => a[1] as i32 & libc::LOCK_UN != 0,
        numbers::SYS_fcntl => matches!(
            a[1] as i32,
            libc::F_GETFD | libc::F_SETFD | libc::F_GETFL | libc::F_SETFL
        ),
        numbers::SYS_ioctl => matches!(
            a[1] as u64,
            libc::FIONREAD | libc::FIONBIO | libc::FIOCLEX | libc::FIONCLEX
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::replacements::{replaced, replaced_over_kernels};

    const BAD: isize = raw::error(libc::EBADF);

    /// What a call tells that is told `results`, while `replace` runs during its first attempt;
    /// and how often it was made.
    fn told(number: i64, results: &[isize], replace: fn()) -> (isize, usize) {
        let mut made = 0;
        let result = until_stable(number, &[0; 6], || {
            if made == 0 {
                replace();
            }
            made += 1;
            results[(made - 1).min(results.len() - 1)]
        });
        (result, made)
    }

    /// One test, as the counts are the process's.
    #[test]
    fn calls_are_made_again_if_something_was_replaced_under_them() {
        let not = || {};
        assert_eq!(told(libc::SYS_read, &[BAD, 5], not), (BAD, 1));
        assert_eq!(told(libc::SYS_read, &[BAD, 5], replaced), (5, 2));
        assert_eq!(told(libc::SYS_read, &[BAD, BAD], replaced), (BAD, 2));
        assert_eq!(told(libc::SYS_read, &[7, 5], replaced_over_kernels), (7, 1));
        assert_eq!(told(libc::SYS_fstat, &[0, 1], replaced), (0, 1));
        assert_eq!(
            told(libc::SYS_fstat, &[0, 1], replaced_over_kernels),
            (1, 2)
        );
        let no_directory = raw::error(libc::ENOTDIR);
        assert_eq!(
            told(libc::SYS_openat, &[no_directory, 3], replaced),
            (no_directory, 1)
        );
        assert_eq!(
            told(libc::SYS_openat, &[no_directory, 3], replaced_over_kernels),
            (3, 2)
        );
        let interrupted = raw::error(libc::EINTR);
        assert_eq!(
            told(libc::SYS_flock, &[interrupted, 0], replaced_over_kernels),
            (interrupted, 1)
        );
        // What is closed is not closed again.
        assert_eq!(told(libc::SYS_close, &[BAD, 0], replaced), (BAD, 1));
    }
}
