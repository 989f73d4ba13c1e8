//! The table of calls: number, name, handler, and what becomes of the call where it is not simply
//! served. It drives Syscall User Dispatch under libc, `syscall(2)` by its libc function, the symbols (each row
//! of [`symbols`](crate::symbols) names a call of this table), the names in the report, and
//! `docs/calls.md`, which the tests in `documentation` compare with it. They
//! also list the calls that are not here.
//!
//! Invariants:
//! * A number without a handler goes to the kernel unchanged (from a spawned child: see
//!   [`spawn`](process::spawn)).
//! * Handlers are reached through this table only, so that each call is
//!   [until_stable](stable::until_stable).

pub mod numbers;
mod stable;

use crate::handlers::others::{self, NO_DIRECTORY};
use crate::handlers::{
    asynchronous, attributes, control, data, extended, limits, locking, locks, mapping, names,
    passing, rings, root, sockets, transfer, waiting, watching,
};
use crate::raw::{self, Arguments};
use crate::{process, signals, stack};
use numbers::COUNT;

pub type Handler = unsafe fn(&Arguments) -> isize;

/// In [`INDEX`]: no handler.
const NONE: u8 = u8::MAX;

/// A row: `NUMBER "name" => handler`, then, if it is not simply served, `refused` (with an error,
/// on the pool), `past` (goes to the kernel, and the report says so) or `served` (in part), and
/// why or how.
macro_rules! calls {
    ($($number:ident $name:literal => $handler:expr $(, $how:ident $note:literal)?;)*) => {
        const NUMBERS: &[i64] = &[$(numbers::$number),*];
        const HANDLERS: [Handler; NUMBERS.len()] = [$({
            #[inline(always)]
            unsafe fn until_stable(a: &Arguments) -> isize {
                // SAFETY: the program's arguments.
                stable::until_stable(numbers::$number, a, || unsafe { $handler(a) })
            }
            until_stable
        }),*];
        /// All names, one behind the other, and where each ends.
        const NAMES: &str = concat!($($name),*);
        static ENDS: [u16; NUMBERS.len()] = {
            let lengths = [$($name.len()),*];
            let mut ends = [0; NUMBERS.len()];
            let (mut row, mut end) = (0, 0);
            while row < ends.len() {
                end += lengths[row];
                ends[row] = end as u16;
                row += 1;
            }
            assert!(NAMES.len() == end && end <= u16::MAX as usize);
            ends
        };
        /// Every row: name, number, what becomes of it, and why; empty strings if it is served.
        #[cfg(test)]
        pub const ROWS: &[(&str, i64, &str, &str)] = &[$((
            $name,
            numbers::$number,
            concat!($(stringify!($how))?),
            concat!($($note)?),
        ),)*];
    };
}

/// Which row is a number's. Addresses are in [`TABLE`] alone, and few: where the loader puts this library
/// it has to write each, in pages that every process copies for that.
static INDEX: [u8; COUNT] = {
    assert!(NUMBERS.len() <= NONE as usize);
    let mut index = [NONE; COUNT];
    let mut row = 0;
    while row < NUMBERS.len() {
        index[NUMBERS[row] as usize] = row as u8;
        row += 1;
    }
    index
};
static TABLE: [Handler; NUMBERS.len()] = HANDLERS;

/// The handler of a number that has one; only that compiles, in a constant.
pub const fn handler(number: i64) -> Handler {
    let mut row = 0;
    while row < NUMBERS.len() {
        if NUMBERS[row] == number {
            return HANDLERS[row];
        }
        row += 1;
    }
    panic!("no handler for this call")
}

/// The row of a number that has a handler.
#[inline]
fn row(number: usize) -> Option<usize> {
    let row = *INDEX.get(number)?;
    (row != NONE).then_some(usize::from(row))
}

const EOPNOTSUPP: i32 = libc::EOPNOTSUPP;

calls! {
    SYS_read "read" => data::read;
    SYS_write "write" => data::write;
    SYS_open "open" => names::open;
    SYS_close "close" => control::close;
    SYS_stat "stat" => attributes::stat;
    SYS_fstat "fstat" => attributes::fstat;
    SYS_lstat "lstat" => attributes::lstat;
    SYS_lseek "lseek" => data::lseek;
    SYS_mmap "mmap" => mapping::mmap;
    SYS_mprotect "mprotect" => mapping::mprotect,
        served "maps of pool files";
    SYS_munmap "munmap" => mapping::munmap,
        served "maps of pool files";
    SYS_rt_sigaction "rt_sigaction" => signals::rt_sigaction,
        served "takes no file: no handler of the program runs inside the LibFS";
    SYS_rt_sigprocmask "rt_sigprocmask" => signals::rt_sigprocmask,
        served "takes no file: as rt_sigaction";
    SYS_ioctl "ioctl" => control::ioctl,
        served "FIONREAD, FIONBIO, FIOASYNC, FIOQSIZE, FIGETBSZ, FIOCLEX, FIONCLEX; flags of inodes (FS_IOC_GETFLAGS, lsattr): there are none, EOPNOTSUPP for any; ENOTTY otherwise, EOPNOTSUPP for FICLONE, FICLONERANGE, FIDEDUPERANGE and FS_IOC_FIEMAP";
    SYS_pread64 "pread64" => data::pread64;
    SYS_pwrite64 "pwrite64" => data::pwrite64;
    SYS_readv "readv" => data::readv;
    SYS_writev "writev" => data::writev;
    SYS_access "access" => attributes::access;
    SYS_mremap "mremap" => mapping::mremap,
        served "maps of pool files";
    SYS_msync "msync" => mapping::msync;
    SYS_madvise "madvise" => mapping::madvise,
        served "only so that maps of pool files stay what they are";
    SYS_setrlimit "setrlimit" => limits::setrlimit,
        served "takes no file: where it limits the address space, the LibFS gives up what it has reserved of it; a limit on the size of files holds on the pool at once";
    SYS_prlimit64 "prlimit64" => limits::prlimit64,
        served "takes no file: as setrlimit";
    SYS_mlockall "mlockall" => locking::mlockall,
        served "takes no file: locks what the program has mapped, maps of pool files included, and nothing of the LibFS's";
    SYS_munlockall "munlockall" => locking::munlockall,
        served "takes no file: as mlockall";
    SYS_dup "dup" => control::dup;
    SYS_dup2 "dup2" => control::dup2;
    SYS_sendfile "sendfile" => transfer::sendfile;
    SYS_execve "execve" => process::execve;
    SYS_fcntl "fcntl" => control::fcntl;
    SYS_flock "flock" => locks::flock;
    SYS_fsync "fsync" => data::sync_descriptor::<{ libc::SYS_fsync as usize }>;
    SYS_fdatasync "fdatasync" => data::sync_descriptor::<{ libc::SYS_fdatasync as usize }>;
    SYS_truncate "truncate" => data::truncate;
    SYS_ftruncate "ftruncate" => data::ftruncate;
    SYS_getdents "getdents" => data::getdents;
    SYS_getcwd "getcwd" => names::getcwd;
    SYS_chdir "chdir" => names::chdir;
    SYS_fchdir "fchdir" => names::fchdir;
    SYS_rename "rename" => names::rename;
    SYS_mkdir "mkdir" => names::mkdir;
    SYS_rmdir "rmdir" => names::rmdir;
    SYS_creat "creat" => names::creat;
    SYS_link "link" => names::link;
    SYS_unlink "unlink" => names::unlink;
    SYS_symlink "symlink" => names::symlink;
    SYS_readlink "readlink" => names::readlink;
    SYS_chmod "chmod" => attributes::chmod;
    SYS_fchmod "fchmod" => attributes::fchmod;
    SYS_chown "chown" => attributes::chown;
    SYS_fchown "fchown" => attributes::fchown;
    SYS_lchown "lchown" => attributes::lchown;
    SYS_umask "umask" => control::umask,
        served "takes no file: masks modes of what is made on the pool";
    SYS_rt_sigsuspend "rt_sigsuspend" => signals::with_mask::<{ libc::SYS_rt_sigsuspend as usize }, 0>,
        served "only its signal mask, as rt_sigaction; the descriptors are placeholders, which are always ready, as regular files are";
    SYS_utime "utime" => attributes::utime;
    SYS_mknod "mknod" => names::mknod;
    SYS_uselib "uselib" => others::past_name::<{ libc::SYS_uselib as usize }, NO_DIRECTORY, 0>,
        past "the kernel maps nothing of the pool";
    SYS_statfs "statfs" => attributes::statfs;
    SYS_fstatfs "fstatfs" => attributes::fstatfs;
    SYS_chroot "chroot" => root::chroot,
        served "a directory of the pool can be a root where the pool is mounted at the same path, and what is executed in it goes through the mount; elsewhere the pool is not seen inside another root";
    SYS_sync "sync" => data::sync,
        served "the pool and the kernel's file systems";
    SYS_acct "acct" => others::past_name::<{ libc::SYS_acct as usize }, NO_DIRECTORY, 0>,
        past "the kernel cannot write there";
    SYS_swapon "swapon" => others::past_name::<{ libc::SYS_swapon as usize }, NO_DIRECTORY, 0>,
        past "no swap space";
    SYS_readahead "readahead" => data::advise::<{ libc::SYS_readahead as usize }>,
        served "advice is ignored";
    SYS_setxattr "setxattr" => extended::setxattr::<{ libc::SYS_setxattr as usize }>,
        served "the namespace user; of the others there are none, and none can be made";
    SYS_lsetxattr "lsetxattr" => extended::setxattr::<{ libc::SYS_lsetxattr as usize }>,
        served "the namespace user; of the others there are none, and none can be made";
    SYS_fsetxattr "fsetxattr" => extended::setxattr::<{ libc::SYS_fsetxattr as usize }>,
        served "the namespace user; of the others there are none, and none can be made";
    SYS_getxattr "getxattr" => extended::getxattr::<{ libc::SYS_getxattr as usize }>;
    SYS_lgetxattr "lgetxattr" => extended::getxattr::<{ libc::SYS_lgetxattr as usize }>;
    SYS_fgetxattr "fgetxattr" => extended::getxattr::<{ libc::SYS_fgetxattr as usize }>;
    SYS_listxattr "listxattr" => extended::listxattr::<{ libc::SYS_listxattr as usize }>;
    SYS_llistxattr "llistxattr" => extended::listxattr::<{ libc::SYS_llistxattr as usize }>;
    SYS_flistxattr "flistxattr" => extended::listxattr::<{ libc::SYS_flistxattr as usize }>;
    SYS_removexattr "removexattr" => extended::removexattr::<{ libc::SYS_removexattr as usize }>;
    SYS_lremovexattr "lremovexattr" => extended::removexattr::<{ libc::SYS_lremovexattr as usize }>;
    SYS_fremovexattr "fremovexattr" => extended::removexattr::<{ libc::SYS_fremovexattr as usize }>;
    SYS_getdents64 "getdents64" => data::getdents64;
    SYS_fadvise64 "fadvise64" => data::advise::<{ libc::SYS_fadvise64 as usize }>,
        served "advice is ignored";
    SYS_exit_group "exit_group" => process::exit_group,
        served "takes no file: the report is written and the session ended";
    SYS_utimes "utimes" => attributes::utimes;
    SYS_inotify_add_watch "inotify_add_watch" => watching::add,
        served "changes are told when they have been folded, some 10 ms later; reading and opening are not";
    SYS_openat "openat" => names::openat;
    SYS_mkdirat "mkdirat" => names::mkdirat;
    SYS_mknodat "mknodat" => names::mknodat;
    SYS_fchownat "fchownat" => attributes::fchownat;
    SYS_futimesat "futimesat" => attributes::futimesat;
    SYS_newfstatat "newfstatat" => attributes::newfstatat;
    SYS_unlinkat "unlinkat" => names::unlinkat;
    SYS_renameat "renameat" => names::renameat;
    SYS_linkat "linkat" => names::linkat;
    SYS_symlinkat "symlinkat" => names::symlinkat;
    SYS_readlinkat "readlinkat" => names::readlinkat;
    SYS_fchmodat "fchmodat" => attributes::fchmodat;
    SYS_faccessat "faccessat" => attributes::faccessat;
    SYS_poll "poll" => waiting::poll,
        served "what is closed; other descriptors are placeholders, which are always ready, as regular files are";
    SYS_select "select" => waiting::select,
        served "what is closed; other descriptors are placeholders, which are always ready, as regular files are";
    SYS_pselect6 "pselect6" => waiting::pselect6,
        served "its signal mask, as rt_sigaction, and what is closed; other descriptors are placeholders, which are always ready, as regular files are";
    SYS_ppoll "ppoll" => waiting::ppoll,
        served "its signal mask, as rt_sigaction, and what is closed; other descriptors are placeholders, which are always ready, as regular files are";
    SYS_splice "splice" => transfer::splice;
    SYS_tee "tee" => transfer::tee;
    SYS_vmsplice "vmsplice" => transfer::vmsplice;
    SYS_sync_file_range "sync_file_range" => data::sync_descriptor::<{ libc::SYS_sync_file_range as usize }>;
    SYS_utimensat "utimensat" => attributes::utimensat;
    SYS_epoll_pwait "epoll_pwait" => signals::with_mask::<{ libc::SYS_epoll_pwait as usize }, 4>,
        served "only its signal mask, as rt_sigaction; the descriptors are placeholders, which are always ready, as regular files are";
    SYS_fallocate "fallocate" => data::fallocate;
    SYS_dup3 "dup3" => control::dup3;
    SYS_preadv "preadv" => data::preadv;
    SYS_pwritev "pwritev" => data::pwritev;
    SYS_name_to_handle_at "name_to_handle_at" => others::refuse_name::<{ libc::SYS_name_to_handle_at as usize }, 0, 1, EOPNOTSUPP>,
        refused "EOPNOTSUPP: no file handles, as on many file systems";
    SYS_syncfs "syncfs" => data::sync_descriptor::<{ libc::SYS_syncfs as usize }>;
    SYS_renameat2 "renameat2" => names::renameat2;
    SYS_execveat "execveat" => process::execveat;
    SYS_copy_file_range "copy_file_range" => transfer::copy_file_range;
    SYS_preadv2 "preadv2" => data::preadv2;
    SYS_pwritev2 "pwritev2" => data::pwritev2;
    SYS_statx "statx" => attributes::statx;
    SYS_close_range "close_range" => control::close_range;
    SYS_openat2 "openat2" => names::openat2;
    SYS_faccessat2 "faccessat2" => attributes::faccessat2;
    SYS_epoll_pwait2 "epoll_pwait2" => signals::with_mask::<{ libc::SYS_epoll_pwait2 as usize }, 4>,
        served "only its signal mask, as rt_sigaction; the descriptors are placeholders, which are always ready, as regular files are";
    SYS_fchmodat2 "fchmodat2" => attributes::fchmodat2;
    SYS_connect "connect" => sockets::connect,
        served "to the name of a Unix socket";
    SYS_bind "bind" => sockets::bind,
        served "a Unix socket to a name";
    SYS_sendto "sendto" => sockets::sendto,
        served "to the name of a Unix socket; a pool descriptor is no socket: ENOTSOCK";
    SYS_recvfrom "recvfrom" => sockets::recvfrom,
        served "only the name that it tells; a pool descriptor is no socket: ENOTSOCK";
    SYS_getsockname "getsockname" => sockets::name::<{ libc::SYS_getsockname as usize }>,
        served "only the name that it tells; a pool descriptor is no socket: ENOTSOCK";
    SYS_getpeername "getpeername" => sockets::name::<{ libc::SYS_getpeername as usize }>,
        served "only the name that it tells; a pool descriptor is no socket: ENOTSOCK";
    SYS_mount "mount" => others::past_name::<{ libc::SYS_mount as usize }, NO_DIRECTORY, 1>,
        past "the kernel does not see the pool";
    SYS_umount2 "umount2" => others::past_name::<{ libc::SYS_umount2 as usize }, NO_DIRECTORY, 0>,
        past "as mount";
    SYS_swapoff "swapoff" => others::past_name::<{ libc::SYS_swapoff as usize }, NO_DIRECTORY, 0>,
        past "as swapon";
    SYS_pivot_root "pivot_root" => others::past_name::<{ libc::SYS_pivot_root as usize }, NO_DIRECTORY, 0>,
        past "as mount";
    SYS_open_tree "open_tree" => others::past_name::<{ libc::SYS_open_tree as usize }, 0, 1>,
        past "as mount";
    SYS_open_tree_attr "open_tree_attr" => others::past_name::<{ numbers::SYS_open_tree_attr as usize }, 0, 1>,
        past "as mount";
    SYS_move_mount "move_mount" => others::past_name::<{ libc::SYS_move_mount as usize }, 2, 3>,
        past "as mount";
    SYS_fspick "fspick" => others::past_name::<{ libc::SYS_fspick as usize }, 0, 1>,
        past "as mount";
    SYS_mount_setattr "mount_setattr" => others::past_name::<{ libc::SYS_mount_setattr as usize }, 0, 1>,
        past "as mount";
    SYS_fanotify_mark "fanotify_mark" => others::refuse_name::<{ libc::SYS_fanotify_mark as usize }, 3, 4, { libc::ENODEV }>,
        refused "ENODEV: changes are not watched";
    SYS_cachestat "cachestat" => others::refuse_descriptor::<{ numbers::SYS_cachestat as usize }, EOPNOTSUPP>,
        refused "EOPNOTSUPP: nothing of the pool is in the kernel's cache";
    SYS_setxattrat "setxattrat" => extended::setxattrat,
        served "the namespace user; of the others there are none, and none can be made";
    SYS_getxattrat "getxattrat" => extended::getxattrat;
    SYS_listxattrat "listxattrat" => extended::listxattrat;
    SYS_removexattrat "removexattrat" => extended::removexattrat;
    SYS_file_getattr "file_getattr" => others::refuse_name::<{ numbers::SYS_file_getattr as usize }, 0, 1, EOPNOTSUPP>,
        refused "EOPNOTSUPP: no such attributes, as on many file systems";
    SYS_file_setattr "file_setattr" => others::refuse_name::<{ numbers::SYS_file_setattr as usize }, 0, 1, EOPNOTSUPP>,
        refused "EOPNOTSUPP: as file_getattr";
    SYS_setuid "setuid" => process::identities::change::<{ libc::SYS_setuid as usize }>,
        served "takes no file: the session ends, and another one is opened with the new rights";
    SYS_setgid "setgid" => process::identities::change::<{ libc::SYS_setgid as usize }>,
        served "takes no file: the session ends, and another one is opened with the new rights";
    SYS_setreuid "setreuid" => process::identities::change::<{ libc::SYS_setreuid as usize }>,
        served "takes no file: the session ends, and another one is opened with the new rights";
    SYS_setregid "setregid" => process::identities::change::<{ libc::SYS_setregid as usize }>,
        served "takes no file: the session ends, and another one is opened with the new rights";
    SYS_setgroups "setgroups" => process::identities::change::<{ libc::SYS_setgroups as usize }>,
        served "takes no file: the session ends, and another one is opened with the new rights";
    SYS_setresuid "setresuid" => process::identities::change::<{ libc::SYS_setresuid as usize }>,
        served "takes no file: the session ends, and another one is opened with the new rights";
    SYS_setresgid "setresgid" => process::identities::change::<{ libc::SYS_setresgid as usize }>,
        served "takes no file: the session ends, and another one is opened with the new rights";
    SYS_capset "capset" => process::identities::change::<{ libc::SYS_capset as usize }>,
        served "takes no file: the session ends, and another one is opened with the new rights";
    SYS_sendmsg "sendmsg" => passing::sendmsg,
        served "descriptors in it (SCM_RIGHTS), and the name of a Unix socket; a pool descriptor is no socket: ENOTSOCK";
    SYS_recvmsg "recvmsg" => passing::recvmsg,
        served "descriptors in it (SCM_RIGHTS), and the name of a Unix socket; a pool descriptor is no socket: ENOTSOCK";
    SYS_sendmmsg "sendmmsg" => passing::sendmmsg,
        served "descriptors in it (SCM_RIGHTS), and the name of a Unix socket; a pool descriptor is no socket: ENOTSOCK";
    SYS_recvmmsg "recvmmsg" => passing::recvmmsg,
        served "descriptors in it (SCM_RIGHTS), and the name of a Unix socket; a pool descriptor is no socket: ENOTSOCK";
    SYS_pidfd_getfd "pidfd_getfd" => passing::pidfd_getfd,
        served "what the other process has handed on to any; EBADF for what else is the pool's there";
    SYS_accept "accept" => sockets::accept::<{ libc::SYS_accept as usize }>,
        served "only the name that it tells, and so that its number is the lowest that is free";
    SYS_accept4 "accept4" => sockets::accept::<{ libc::SYS_accept4 as usize }>,
        served "only the name that it tells, and so that its number is the lowest that is free";
    SYS_socket "socket" => control::opens::<{ libc::SYS_socket as usize }>,
        served "takes no file: only so that its number is the lowest that is free";
    SYS_epoll_create "epoll_create" => control::opens::<{ libc::SYS_epoll_create as usize }>,
        served "takes no file: only so that its number is the lowest that is free";
    SYS_epoll_create1 "epoll_create1" => control::opens::<{ libc::SYS_epoll_create1 as usize }>,
        served "takes no file: only so that its number is the lowest that is free";
    SYS_eventfd "eventfd" => control::opens::<{ libc::SYS_eventfd as usize }>,
        served "takes no file: only so that its number is the lowest that is free";
    SYS_eventfd2 "eventfd2" => control::opens::<{ libc::SYS_eventfd2 as usize }>,
        served "takes no file: only so that its number is the lowest that is free";
    SYS_inotify_init "inotify_init" => control::opens::<{ libc::SYS_inotify_init as usize }>,
        served "takes no file: only so that its number is the lowest that is free";
    SYS_inotify_init1 "inotify_init1" => control::opens::<{ libc::SYS_inotify_init1 as usize }>,
        served "takes no file: only so that its number is the lowest that is free";
    SYS_memfd_create "memfd_create" => control::opens::<{ libc::SYS_memfd_create as usize }>,
        served "takes no file: only so that its number is the lowest that is free";
    SYS_pidfd_open "pidfd_open" => control::opens::<{ libc::SYS_pidfd_open as usize }>,
        served "takes no file: only so that its number is the lowest that is free";
    SYS_signalfd "signalfd" => control::opens::<{ libc::SYS_signalfd as usize }>,
        served "takes no file: only so that its number is the lowest that is free";
    SYS_signalfd4 "signalfd4" => control::opens::<{ libc::SYS_signalfd4 as usize }>,
        served "takes no file: only so that its number is the lowest that is free";
    SYS_timerfd_create "timerfd_create" => control::opens::<{ libc::SYS_timerfd_create as usize }>,
        served "takes no file: only so that its number is the lowest that is free";
    SYS_pipe "pipe" => control::opens_two::<{ libc::SYS_pipe as usize }, 0>,
        served "takes no file: only so that its numbers are the lowest that are free";
    SYS_pipe2 "pipe2" => control::opens_two::<{ libc::SYS_pipe2 as usize }, 0>,
        served "takes no file: only so that its numbers are the lowest that are free";
    SYS_socketpair "socketpair" => control::opens_two::<{ libc::SYS_socketpair as usize }, 3>,
        served "takes no file: only so that its numbers are the lowest that are free";
    SYS_sigaltstack "sigaltstack" => stack::sigaltstack,
        served "takes no file: only so that it is known which stack is which";
    SYS_unshare "unshare" => process::sharing::unshare,
        served "takes no file: EPERM for a thread among others that asks for descriptors or a directory of its own";
    SYS_io_uring_setup "io_uring_setup" => rings::setup,
        served "where the pool is mounted at the same path: requests on the pool are done while they are submitted, or by the mount; IORING_SETUP_SQPOLL is EPERM. Elsewhere ENOSYS, for all files, as by a kernel without it: programs that are told so fall back";
    SYS_io_uring_enter "io_uring_enter" => rings::enter,
        served "as io_uring_setup";
    SYS_io_uring_register "io_uring_register" => rings::register,
        served "as io_uring_setup; IORING_REGISTER_RING_FDS and IORING_REGISTER_RESIZE_RINGS are EINVAL";
    SYS_io_setup "io_setup" => asynchronous::setup,
        served "requests on the pool are done while they are submitted, as on tmpfs; completions are the kernel's, in order with those of other files";
    SYS_io_destroy "io_destroy" => asynchronous::destroy,
        served "as io_setup";
    SYS_io_submit "io_submit" => asynchronous::submit,
        served "as io_setup";
    SYS_io_cancel "io_cancel" => asynchronous::cancel,
        served "as io_setup: what is done cannot be cancelled (EINVAL)";
    SYS_io_getevents "io_getevents" => asynchronous::fetch,
        served "as io_setup";
    SYS_io_pgetevents "io_pgetevents" => asynchronous::fetch_masked,
        served "as io_setup";
}

/// The call's name, for the report.
pub fn name(number: usize) -> &'static str {
    if number == numbers::RING_WITH_THREAD as usize {
        return "io_uring_setup with IORING_SETUP_SQPOLL (refused: EPERM)";
    }
    let Some(row) = row(number) else {
        return "other";
    };
    let start = row.checked_sub(1).map_or(0, |before| ENDS[before]);
    &NAMES[usize::from(start)..usize::from(ENDS[row])]
}

/// Whether the call has a handler.
pub fn is_handled(number: usize) -> bool {
    row(number).is_some()
}

/// Runs a call's handler, or passes it to the kernel.
///
/// # Safety
/// The arguments are the program's, as for the system call.
#[inline]
pub unsafe fn dispatch(number: usize, a: &Arguments) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match row(number).and_then(|row| TABLE.get(row)) {
            Some(handler) => handler(a),
            None => match crate::descriptors::replacements::is_spawned_child() {
                true => other_of_child(number, a),
                false => raw::other_call(number, a),
            },
        }
    }
}

/// # Safety
/// As for [`dispatch`].
#[cold]
unsafe fn other_of_child(number: usize, a: &Arguments) -> isize {
    process::spawn::other_call(number as i64);
    // SAFETY: the caller's promise.
    unsafe { raw::other_call(number, a) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_handled_call_has_a_name() {
        let handled = (0..COUNT).filter(|number| is_handled(*number)).count();
        assert!(handled > 100, "{handled}");
        for number in (0..COUNT).filter(|number| is_handled(*number)) {
            assert_ne!(name(number), "other", "{number}");
        }
        assert_eq!(name(libc::SYS_openat as usize), "openat");
        assert!(!is_handled(libc::SYS_getppid as usize));
    }

    #[test]
    fn every_row_is_found_by_its_number() {
        for (row, (called, number, ..)) in ROWS.iter().enumerate() {
            assert_eq!(name(*number as usize), *called);
            assert!(
                std::ptr::fn_addr_eq(handler(*number), TABLE[row]),
                "{called}"
            );
        }
        assert_eq!(name(COUNT), "other");
        assert!(!is_handled(COUNT));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = (0..COUNT).filter(|n| is_handled(*n)).map(name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn without_a_handler_the_kernel_answers() {
        // SAFETY: no arguments.
        let result = unsafe { dispatch(libc::SYS_getpid as usize, &[0; 6]) };
        assert_eq!(result as u32, std::process::id());
    }
}
