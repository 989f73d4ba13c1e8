//! The symbols that programs call instead of libc's: the fast layer.
//!
//! Each takes its arguments in registers exactly as libc's function does (variadic ones too: the
//! optional argument arrives in the next register, or is garbage that the handler ignores when
//! the flags say so), runs the handler and turns minus an error number into -1 and `errno`.
//!
//! Invariant: nothing here decides anything; it only translates libc's argument lists into the
//! kernel's.

use crate::calls;
use crate::handlers::{HERE, attributes};
use crate::raw;

/// A handler's result as libc functions return it.
#[inline(always)]
unsafe fn finish(result: isize) -> isize {
    if raw::failed(result) {
        return fail(-result as i32);
    }
    result
}

#[cold]
fn fail(errno: i32) -> isize {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// The handler of a system call, chosen by the table at compile time, and run.
macro_rules! call {
    ($call:ident($($argument:expr),* $(,)?)) => {{
        const HANDLER: crate::calls::Handler = crate::calls::handler(libc::$call);
        HANDLER(&crate::raw::pad([$($argument),*]))
    }};
}

/// The table of symbols. A row: names and arguments of libc's functions, the system call they are
/// answered as, and its arguments (or, in braces, what else is to be done). Its names and calls
/// are also in the tests in `documentation`.
macro_rules! symbols {
    (@answer $call:ident ($($argument:expr),* $(,)?)) => { call!($call($($argument),*)) };
    (@answer $call:ident $body:block) => { $body };
    (@one $name:ident ($($argument:ident),*) => $call:ident $answer:tt) => {
        /// # Safety
        /// As the libc function of this name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($argument: usize),*) -> isize {
            // SAFETY: the program's arguments, as for the system call.
            #[allow(unused_unsafe, reason = "some bodies are safe")]
            unsafe { crate::symbols::finish(symbols!(@answer $call $answer)) }
        }
    };
    ($($($name:ident)|+ : $arguments:tt => $call:ident $answer:tt;)*) => {
        $($(symbols!(@one $name $arguments => $call $answer);)+)*
        /// Each symbol of this module and the system call it is answered as.
        #[cfg(test)]
        pub const SYMBOLS: &[(&str, i64)] = &[$($((stringify!($name), libc::$call),)+)*];
    };
}

/// The symbols that are written out, because libc does more there than make a system call.
macro_rules! written_out {
    ($($name:ident => $call:ident;)*) => {
        #[cfg(test)]
        pub const WRITTEN_OUT: &[(&str, i64)] = &[$({
            // Only what there is compiles.
            let _ = $name as *const ();
            (stringify!($name), libc::$call)
        },)*];
    };
}

// After the macros, which they use.
pub(crate) mod execute;
pub(crate) mod load;
pub(crate) mod rings;
pub(crate) mod signal;
pub(crate) mod status;
pub(crate) mod thread;

/// An `int` as a count.
fn count(value: usize) -> usize {
    value as i32 as isize as usize
}

/// Aborts as fortified functions do when a buffer is too small.
fn check(fits: bool) {
    if !fits {
        raw::print(2, b"*** buffer overflow detected ***: terminated\n");
        std::process::abort();
    }
}

/// The mode for a system call that has room for 32 bits of a device's number: libc's functions take 64, and refuse
/// (EINVAL) what the call would cut off.
fn mode_for(mode: usize, device: usize) -> usize {
    match u32::try_from(device) {
        Ok(_) => mode,
        // Of no kind that there is, for which that is the error.
        Err(_) => libc::S_IFMT as usize,
    }
}

const NOFOLLOW: usize = libc::AT_SYMLINK_NOFOLLOW as usize;

symbols! {
    // Opening and closing.
    open | open64 | __open | __open64: (path, flags, mode) => SYS_openat(HERE, path, flags, mode);
    __open_2 | __open64_2: (path, flags) => SYS_openat(HERE, path, flags);
    openat | openat64: (at, path, flags, mode) => SYS_openat(at, path, flags, mode);
    __openat_2 | __openat64_2: (at, path, flags) => SYS_openat(at, path, flags);
    creat | creat64: (path, mode) => SYS_creat(path, mode);
    close | __close: (fd) => SYS_close(fd);
    close_range: (first, last, flags) => SYS_close_range(first, last, flags);
    closefrom: (first) => SYS_close_range((first as i32).max(0) as usize, u32::MAX as usize);

    // Data.
    read | __read: (fd, buffer, length) => SYS_read(fd, buffer, length);
    __read_chk: (fd, buffer, length, room) => SYS_read {
        check(length <= room);
        call!(SYS_read(fd, buffer, length))
    };
    write | __write: (fd, buffer, length) => SYS_write(fd, buffer, length);
    pread | pread64 | __pread64: (fd, buffer, length, offset) =>
        SYS_pread64(fd, buffer, length, offset);
    __pread_chk | __pread64_chk: (fd, buffer, length, offset, room) => SYS_pread64 {
        check(length <= room);
        call!(SYS_pread64(fd, buffer, length, offset))
    };
    pwrite | pwrite64 | __pwrite64: (fd, buffer, length, offset) =>
        SYS_pwrite64(fd, buffer, length, offset);
    readv: (fd, vector, n) => SYS_readv(fd, vector, count(n));
    writev: (fd, vector, n) => SYS_writev(fd, vector, count(n));
    preadv | preadv64: (fd, vector, n, offset) => SYS_preadv(fd, vector, count(n), offset);
    pwritev | pwritev64: (fd, vector, n, offset) => SYS_pwritev(fd, vector, count(n), offset);
    preadv2 | preadv64v2: (fd, vector, n, offset, flags) =>
        SYS_preadv2(fd, vector, count(n), offset, 0, flags);
    pwritev2 | pwritev64v2: (fd, vector, n, offset, flags) =>
        SYS_pwritev2(fd, vector, count(n), offset, 0, flags);
    lseek | lseek64 | __lseek: (fd, offset, whence) => SYS_lseek(fd, offset, whence);
    ftruncate | ftruncate64: (fd, length) => SYS_ftruncate(fd, length);
    truncate | truncate64: (path, length) => SYS_truncate(path, length);
    fsync: (fd) => SYS_fsync(fd);
    fdatasync: (fd) => SYS_fdatasync(fd);
    syncfs: (fd) => SYS_syncfs(fd);
    sync_file_range: (fd, offset, length, flags) => SYS_sync_file_range(fd, offset, length, flags);
    sync: () => SYS_sync();
    fallocate | fallocate64: (fd, mode, offset, length) => SYS_fallocate(fd, mode, offset, length);
    readahead: (fd, offset, length) => SYS_readahead(fd, offset, length);
    getdents64: (fd, buffer, length) => SYS_getdents64(fd, buffer, length);
    copy_file_range: (from, from_offset, to, to_offset, length, flags) =>
        SYS_copy_file_range(from, from_offset, to, to_offset, length, flags);
    sendfile | sendfile64: (to, from, offset, length) => SYS_sendfile(to, from, offset, length);
    splice: (from, from_offset, to, to_offset, length, flags) =>
        SYS_splice(from, from_offset, to, to_offset, length, flags);
    tee: (from, to, length, flags) => SYS_tee(from, to, length, flags);
    vmsplice: (fd, vector, n, flags) => SYS_vmsplice(fd, vector, n, flags);
    mmap | mmap64: (address, length, protection, flags, fd, offset) =>
        SYS_mmap(address, length, protection, flags, fd, offset);
    munmap: (address, length) => SYS_munmap(address, length);
    mprotect: (address, length, protection) => SYS_mprotect(address, length, protection);
    msync: (address, length, flags) => SYS_msync(address, length, flags);
    mremap: (address, length, new_length, flags, new_address) =>
        SYS_mremap(address, length, new_length, flags, new_address);
    madvise: (address, length, advice) => SYS_madvise(address, length, advice);
    mlockall: (flags) => SYS_mlockall(flags);
    munlockall: () => SYS_munlockall();
    setrlimit | setrlimit64: (resource, limit) => SYS_setrlimit(resource, limit);
    prlimit | prlimit64: (process, resource, limit, before) =>
        SYS_prlimit64(process, resource, limit, before);

    // Descriptors.
    dup: (fd) => SYS_dup(fd);
    dup2 | __dup2: (fd, target) => SYS_dup2(fd, target);
    dup3: (fd, target, flags) => SYS_dup3(fd, target, flags);
    fcntl | fcntl64 | __fcntl: (fd, command, argument) => SYS_fcntl(fd, command, argument);
    ioctl: (fd, request, argument) => SYS_ioctl(fd, request, argument);
    flock: (fd, operation) => SYS_flock(fd, operation);
    umask: (mode) => SYS_umask(mode);
    unshare: (flags) => SYS_unshare(flags);
    sigaltstack: (new, old) => SYS_sigaltstack(new, old);

    // Names.
    mkdir: (path, mode) => SYS_mkdir(path, mode);
    mkdirat: (at, path, mode) => SYS_mkdirat(at, path, mode);
    rmdir: (path) => SYS_rmdir(path);
    unlink: (path) => SYS_unlink(path);
    unlinkat: (at, path, flags) => SYS_unlinkat(at, path, flags);
    remove: (path) => SYS_unlink {
        let result = call!(SYS_unlink(path));
        if result == raw::error(libc::EISDIR) {
            call!(SYS_rmdir(path))
        } else {
            result
        }
    };
    rename: (from, to) => SYS_rename(from, to);
    renameat: (from_at, from, to_at, to) => SYS_renameat(from_at, from, to_at, to);
    renameat2: (from_at, from, to_at, to, flags) => SYS_renameat2(from_at, from, to_at, to, flags);
    link: (from, to) => SYS_link(from, to);
    linkat: (from_at, from, to_at, to, flags) => SYS_linkat(from_at, from, to_at, to, flags);
    symlink: (target, path) => SYS_symlink(target, path);
    symlinkat: (target, at, path) => SYS_symlinkat(target, at, path);
    readlink: (path, buffer, length) => SYS_readlink(path, buffer, length);
    __readlink_chk: (path, buffer, length, room) => SYS_readlink {
        check(length <= room);
        call!(SYS_readlink(path, buffer, length))
    };
    readlinkat: (at, path, buffer, length) => SYS_readlinkat(at, path, buffer, length);
    __readlinkat_chk: (at, path, buffer, length, room) => SYS_readlinkat {
        check(length <= room);
        call!(SYS_readlinkat(at, path, buffer, length))
    };
    mknod: (path, mode, device) => SYS_mknod(path, mode_for(mode, device), device);
    mknodat: (at, path, mode, device) => SYS_mknodat(at, path, mode_for(mode, device), device);
    __xmknod: (_version, path, mode, device) => SYS_mknod {
        let device = *(device as *const usize);
        call!(SYS_mknod(path, mode_for(mode, device), device))
    };
    __xmknodat: (_version, at, path, mode, device) => SYS_mknodat {
        let device = *(device as *const usize);
        call!(SYS_mknodat(at, path, mode_for(mode, device), device))
    };
    mkfifo: (path, mode) => SYS_mknod(path, (mode & 0o7777) | libc::S_IFIFO as usize);
    mkfifoat: (at, path, mode) => SYS_mknodat(at, path, (mode & 0o7777) | libc::S_IFIFO as usize);
    chdir: (path) => SYS_chdir(path);
    fchdir: (fd) => SYS_fchdir(fd);
    chroot: (path) => SYS_chroot(path);

    // Attributes.
    access: (path, mode) => SYS_access(path, mode);
    faccessat: (at, path, mode, flags) => SYS_faccessat2(at, path, mode, flags as u32 as usize);
    eaccess | euidaccess: (path, mode) =>
        SYS_faccessat2(HERE, path, mode, libc::AT_EACCESS as usize);
    chmod: (path, mode) => SYS_chmod(path, mode);
    fchmod: (fd, mode) => SYS_fchmod(fd, mode);
    fchmodat: (at, path, mode, flags) => SYS_fchmodat2 { fchmodat_here(at, path, mode, flags as u32 as usize) };
    lchmod: (path, mode) => SYS_fchmodat2 { fchmodat_here(HERE, path, mode, NOFOLLOW) };
    chown: (path, uid, gid) => SYS_chown(path, uid, gid);
    lchown: (path, uid, gid) => SYS_lchown(path, uid, gid);
    fchown: (fd, uid, gid) => SYS_fchown(fd, uid, gid);
    fchownat: (at, path, uid, gid, flags) =>
        SYS_fchownat(at, path, uid, gid, flags as u32 as usize);
    utime: (path, times) => SYS_utime(path, times);
    utimes: (path, times) => SYS_utimensat { attributes::utimes_of_libc(path, times, 0) };
    lutimes: (path, times) => SYS_utimensat { attributes::utimes_of_libc(path, times, NOFOLLOW) };
    futimes: (fd, times) => SYS_futimesat(fd, 0, times);
    futimesat: (at, path, times) => SYS_futimesat(at, path, times);
    utimensat: (at, path, times, flags) => SYS_utimensat(at, path, times, flags as u32 as usize);
    futimens: (fd, times) => SYS_utimensat(fd, 0, times);

    // Extended attributes, handles, watches: refused on the pool.
    setxattr: (a, b, c, d, e) => SYS_setxattr(a, b, c, d, e);
    lsetxattr: (a, b, c, d, e) => SYS_lsetxattr(a, b, c, d, e);
    fsetxattr: (a, b, c, d, e) => SYS_fsetxattr(a, b, c, d, e);
    getxattr: (a, b, c, d) => SYS_getxattr(a, b, c, d);
    lgetxattr: (a, b, c, d) => SYS_lgetxattr(a, b, c, d);
    fgetxattr: (a, b, c, d) => SYS_fgetxattr(a, b, c, d);
    listxattr: (a, b, c) => SYS_listxattr(a, b, c);
    llistxattr: (a, b, c) => SYS_llistxattr(a, b, c);
    flistxattr: (a, b, c) => SYS_flistxattr(a, b, c);
    removexattr: (a, b) => SYS_removexattr(a, b);
    lremovexattr: (a, b) => SYS_lremovexattr(a, b);
    fremovexattr: (a, b) => SYS_fremovexattr(a, b);
    inotify_add_watch: (a, b, c) => SYS_inotify_add_watch(a, b, c);
    name_to_handle_at: (a, b, c, d, e) => SYS_name_to_handle_at(a, b, c, d, e);
    bind: (fd, address, length) => SYS_bind(fd, address, length);
    sendmsg: (fd, message, flags) => SYS_sendmsg(fd, message, flags);
    recvmsg: (fd, message, flags) => SYS_recvmsg(fd, message, flags);
    sendmmsg: (fd, messages, n, flags) => SYS_sendmmsg(fd, messages, n, flags);
    recvmmsg: (fd, messages, n, flags, time) => SYS_recvmmsg(fd, messages, n, flags, time);
    connect | __connect: (fd, address, length) => SYS_connect(fd, address, length);
}

unsafe fn fchmodat_here(at: usize, path: usize, mode: usize, flags: usize) -> isize {
    // SAFETY: the program's arguments.
    let result = unsafe { call!(SYS_fchmodat2(at, path, mode, flags)) };
    // Kernels before 6.6 do not know the call with flags.
    if result == raw::error(libc::ENOSYS) {
        raw::error(libc::EOPNOTSUPP)
    } else {
        result
    }
}

/// Functions that return the error number itself.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_fallocate(fd: usize, offset: usize, length: usize) -> i32 {
    // SAFETY: no pointers.
    -unsafe { call!(SYS_fallocate(fd, 0, offset, length)) } as i32
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_fallocate64(fd: usize, offset: usize, length: usize) -> i32 {
    // SAFETY: no pointers.
    unsafe { posix_fallocate(fd, offset, length) }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_fadvise(
    fd: usize,
    offset: usize,
    length: usize,
    advice: usize,
) -> i32 {
    // SAFETY: no pointers.
    let result = unsafe { call!(SYS_fadvise64(fd, offset, length, advice)) };
    -result as i32
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_fadvise64(
    fd: usize,
    offset: usize,
    length: usize,
    advice: usize,
) -> i32 {
    // SAFETY: no pointers.
    unsafe { posix_fadvise(fd, offset, length, advice) }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn lockf(fd: usize, command: i32, length: i64) -> isize {
    // SAFETY: a lock structure on the stack.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_whence = libc::SEEK_CUR as i16;
        lock.l_len = length;
        lock.l_type = libc::F_WRLCK as i16;
        let operation = match command {
            libc::F_ULOCK => {
                lock.l_type = libc::F_UNLCK as i16;
                libc::F_SETLK
            }
            libc::F_LOCK => libc::F_SETLKW,
            libc::F_TLOCK => libc::F_SETLK,
            libc::F_TEST => libc::F_GETLK,
            _ => return fail(libc::EINVAL),
        };
        let result = call!(SYS_fcntl(fd, operation as usize, &raw mut lock as usize));
        if command == libc::F_TEST && result == 0 && lock.l_type != libc::F_UNLCK as i16 {
            return fail(libc::EACCES);
        }
        finish(result)
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn lockf64(fd: usize, command: i32, length: i64) -> isize {
    // SAFETY: the same function.
    unsafe { lockf(fd, command, length) }
}

/// The raw call by number.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn syscall(
    number: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    // SAFETY: the program's arguments. Calls that return twice, or not to where they were made,
    // are made by libc's function, where the dispatch takes care of them.
    unsafe {
        match number as i64 {
            libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_vfork
            | libc::SYS_fork
            | libc::SYS_rt_sigreturn => match crate::process::real_syscall() {
                Some(real) => real(number, a, b, c, d, e, f),
                None => fail(libc::ENOSYS),
            },
            _ => finish(calls::dispatch(number, &[a, b, c, d, e, f])),
        }
    }
}

written_out! {
    posix_fallocate => SYS_fallocate;
    posix_fallocate64 => SYS_fallocate;
    posix_fadvise => SYS_fadvise64;
    posix_fadvise64 => SYS_fadvise64;
    lockf => SYS_fcntl;
    lockf64 => SYS_fcntl;
}
