//! The table of calls: number, name, handler. It drives the net under libc, `syscall(2)` by its
//! libc function, and the names in the report; the symbols call the same handlers directly.
//!
//! Invariant: a number without a handler goes to the kernel unchanged.

use crate::handlers::{attributes, control, data, extended, locks, mapping, names, transfer};
use crate::raw::{self, Arguments};
use crate::{process, signals};

/// Numbers from here on have no handler.
pub const COUNT: usize = 512;

pub type Handler = unsafe fn(&Arguments) -> isize;

struct Call {
    name: &'static str,
    handler: Option<Handler>,
}

macro_rules! calls {
    ($($number:ident $name:literal => $handler:expr;)*) => {
        static TABLE: [Call; COUNT] = {
            let mut table = [const { Call { name: "other", handler: None } }; COUNT];
            $(table[libc::$number as usize] = Call { name: $name, handler: Some($handler) };)*
            table
        };
    };
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
    SYS_mprotect "mprotect" => mapping::mprotect;
    SYS_munmap "munmap" => mapping::munmap;
    SYS_rt_sigaction "rt_sigaction" => signals::rt_sigaction;
    SYS_rt_sigprocmask "rt_sigprocmask" => signals::rt_sigprocmask;
    SYS_ioctl "ioctl" => control::ioctl;
    SYS_pread64 "pread64" => data::pread64;
    SYS_pwrite64 "pwrite64" => data::pwrite64;
    SYS_readv "readv" => data::readv;
    SYS_writev "writev" => data::writev;
    SYS_access "access" => attributes::access;
    SYS_mremap "mremap" => mapping::mremap;
    SYS_msync "msync" => mapping::msync;
    SYS_madvise "madvise" => mapping::madvise;
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
    SYS_getdents "getdents" => data::past_descriptor::<{ libc::SYS_getdents as usize }>;
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
    SYS_umask "umask" => control::umask;
    SYS_rt_sigsuspend "rt_sigsuspend" => signals::with_mask::<{ libc::SYS_rt_sigsuspend as usize }, 0>;
    SYS_utime "utime" => attributes::utime;
    SYS_mknod "mknod" => names::mknod;
    SYS_uselib "uselib" => names::past_path::<{ libc::SYS_uselib as usize }>;
    SYS_statfs "statfs" => attributes::statfs;
    SYS_fstatfs "fstatfs" => attributes::fstatfs;
    SYS_chroot "chroot" => names::past_path::<{ libc::SYS_chroot as usize }>;
    SYS_sync "sync" => data::sync;
    SYS_acct "acct" => names::past_path::<{ libc::SYS_acct as usize }>;
    SYS_swapon "swapon" => names::past_path::<{ libc::SYS_swapon as usize }>;
    SYS_readahead "readahead" => data::advise::<{ libc::SYS_readahead as usize }>;
    SYS_setxattr "setxattr" => extended::refuse_path::<{ libc::SYS_setxattr as usize }, EOPNOTSUPP>;
    SYS_lsetxattr "lsetxattr" => extended::refuse_path::<{ libc::SYS_lsetxattr as usize }, EOPNOTSUPP>;
    SYS_fsetxattr "fsetxattr" => extended::refuse_descriptor::<{ libc::SYS_fsetxattr as usize }, EOPNOTSUPP>;
    SYS_getxattr "getxattr" => extended::refuse_path::<{ libc::SYS_getxattr as usize }, EOPNOTSUPP>;
    SYS_lgetxattr "lgetxattr" => extended::refuse_path::<{ libc::SYS_lgetxattr as usize }, EOPNOTSUPP>;
    SYS_fgetxattr "fgetxattr" => extended::refuse_descriptor::<{ libc::SYS_fgetxattr as usize }, EOPNOTSUPP>;
    SYS_listxattr "listxattr" => extended::none_path::<{ libc::SYS_listxattr as usize }>;
    SYS_llistxattr "llistxattr" => extended::none_path::<{ libc::SYS_llistxattr as usize }>;
    SYS_flistxattr "flistxattr" => extended::none_descriptor::<{ libc::SYS_flistxattr as usize }>;
    SYS_removexattr "removexattr" => extended::refuse_path::<{ libc::SYS_removexattr as usize }, EOPNOTSUPP>;
    SYS_lremovexattr "lremovexattr" => extended::refuse_path::<{ libc::SYS_lremovexattr as usize }, EOPNOTSUPP>;
    SYS_fremovexattr "fremovexattr" => extended::refuse_descriptor::<{ libc::SYS_fremovexattr as usize }, EOPNOTSUPP>;
    SYS_getdents64 "getdents64" => data::getdents64;
    SYS_fadvise64 "fadvise64" => data::advise::<{ libc::SYS_fadvise64 as usize }>;
    SYS_exit_group "exit_group" => process::exit_group;
    SYS_utimes "utimes" => attributes::utimes;
    SYS_inotify_add_watch "inotify_add_watch" => extended::refuse_second::<{ libc::SYS_inotify_add_watch as usize }, { libc::ENOSYS }>;
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
    SYS_pselect6 "pselect6" => signals::pselect6;
    SYS_ppoll "ppoll" => signals::with_mask::<{ libc::SYS_ppoll as usize }, 3>;
    SYS_splice "splice" => transfer::splice;
    SYS_tee "tee" => transfer::tee;
    SYS_vmsplice "vmsplice" => transfer::vmsplice;
    SYS_sync_file_range "sync_file_range" => data::sync_descriptor::<{ libc::SYS_sync_file_range as usize }>;
    SYS_utimensat "utimensat" => attributes::utimensat;
    SYS_epoll_pwait "epoll_pwait" => signals::with_mask::<{ libc::SYS_epoll_pwait as usize }, 4>;
    SYS_fallocate "fallocate" => data::fallocate;
    SYS_dup3 "dup3" => control::dup3;
    SYS_preadv "preadv" => data::preadv;
    SYS_pwritev "pwritev" => data::pwritev;
    SYS_name_to_handle_at "name_to_handle_at" => extended::refuse_at::<{ libc::SYS_name_to_handle_at as usize }, EOPNOTSUPP>;
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
    SYS_epoll_pwait2 "epoll_pwait2" => signals::with_mask::<{ libc::SYS_epoll_pwait2 as usize }, 4>;
    SYS_fchmodat2 "fchmodat2" => attributes::fchmodat2;
}

/// The call's name, for the report.
pub fn name(number: usize) -> &'static str {
    TABLE.get(number).map_or("other", |call| call.name)
}

/// Whether the call has a handler.
pub fn is_handled(number: usize) -> bool {
    TABLE.get(number).is_some_and(|call| call.handler.is_some())
}

/// Runs a call's handler, or passes it to the kernel.
///
/// # Safety
/// The arguments are the program's, as for the system call.
#[inline]
pub unsafe fn dispatch(number: usize, a: &Arguments) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match TABLE.get(number).and_then(|call| call.handler) {
            Some(handler) => handler(a),
            None => raw::other_call(number, a),
        }
    }
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
