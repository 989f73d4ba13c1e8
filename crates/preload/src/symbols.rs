//! The symbols that programs call instead of libc's: the fast layer.
//!
//! Each takes its arguments in registers exactly as libc's function does (variadic ones too: the
//! optional argument arrives in the next register, or is garbage that the handler ignores when
//! the flags say so), runs the handler and turns minus an error number into -1 and `errno`.
//!
//! Invariant: nothing here decides anything; it only translates libc's argument lists into the
//! kernel's.

mod execute;
mod load;
mod signal;
mod status;

use crate::calls;
use crate::handlers::{HERE, attributes, control, data, extended, locks, mapping, names, transfer};
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

macro_rules! symbols {
    (@one $name:ident ($($argument:ident),*) => $body:expr) => {
        /// # Safety
        /// As the libc function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: usize),*) -> isize {
            // SAFETY: the program's arguments, as for the system call.
            #[allow(unused_unsafe, reason = "some bodies are safe")]
            unsafe { crate::symbols::finish($body) }
        }
    };
    ($($($name:ident)|+ : $arguments:tt => $body:expr;)*) => {
        $($(symbols!(@one $name $arguments => $body);)+)*
    };
}
use symbols;

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

const NOFOLLOW: usize = libc::AT_SYMLINK_NOFOLLOW as usize;

symbols! {
    // Opening and closing.
    open | open64 | __open | __open64: (path, flags, mode) =>
        names::openat(&[HERE, path, flags, mode, 0, 0]);
    __open_2 | __open64_2: (path, flags) => names::openat(&[HERE, path, flags, 0, 0, 0]);
    openat | openat64: (at, path, flags, mode) => names::openat(&[at, path, flags, mode, 0, 0]);
    __openat_2 | __openat64_2: (at, path, flags) => names::openat(&[at, path, flags, 0, 0, 0]);
    creat | creat64: (path, mode) => names::creat(&[path, mode, 0, 0, 0, 0]);
    close | __close: (fd) => control::close(&[fd, 0, 0, 0, 0, 0]);
    close_range: (first, last, flags) => control::close_range(&[first, last, flags, 0, 0, 0]);
    closefrom: (first) => {
        let first = (first as i32).max(0) as usize;
        control::close_range(&[first, u32::MAX as usize, 0, 0, 0, 0])
    };

    // Data.
    read | __read: (fd, buffer, length) => data::read(&[fd, buffer, length, 0, 0, 0]);
    __read_chk: (fd, buffer, length, room) => {
        check(length <= room);
        data::read(&[fd, buffer, length, 0, 0, 0])
    };
    write | __write: (fd, buffer, length) => data::write(&[fd, buffer, length, 0, 0, 0]);
    pread | pread64 | __pread64: (fd, buffer, length, offset) =>
        data::pread64(&[fd, buffer, length, offset, 0, 0]);
    __pread_chk | __pread64_chk: (fd, buffer, length, offset, room) => {
        check(length <= room);
        data::pread64(&[fd, buffer, length, offset, 0, 0])
    };
    pwrite | pwrite64 | __pwrite64: (fd, buffer, length, offset) =>
        data::pwrite64(&[fd, buffer, length, offset, 0, 0]);
    readv: (fd, vector, n) => data::readv(&[fd, vector, count(n), 0, 0, 0]);
    writev: (fd, vector, n) => data::writev(&[fd, vector, count(n), 0, 0, 0]);
    preadv | preadv64: (fd, vector, n, offset) =>
        data::preadv(&[fd, vector, count(n), offset, 0, 0]);
    pwritev | pwritev64: (fd, vector, n, offset) =>
        data::pwritev(&[fd, vector, count(n), offset, 0, 0]);
    preadv2 | preadv64v2: (fd, vector, n, offset, flags) =>
        data::preadv2(&[fd, vector, count(n), offset, 0, flags]);
    pwritev2 | pwritev64v2: (fd, vector, n, offset, flags) =>
        data::pwritev2(&[fd, vector, count(n), offset, 0, flags]);
    lseek | lseek64 | __lseek: (fd, offset, whence) => data::lseek(&[fd, offset, whence, 0, 0, 0]);
    ftruncate | ftruncate64: (fd, length) => data::ftruncate(&[fd, length, 0, 0, 0, 0]);
    truncate | truncate64: (path, length) => data::truncate(&[path, length, 0, 0, 0, 0]);
    fsync: (fd) => data::sync_descriptor::<{ libc::SYS_fsync as usize }>(&[fd, 0, 0, 0, 0, 0]);
    fdatasync: (fd) =>
        data::sync_descriptor::<{ libc::SYS_fdatasync as usize }>(&[fd, 0, 0, 0, 0, 0]);
    syncfs: (fd) => data::sync_descriptor::<{ libc::SYS_syncfs as usize }>(&[fd, 0, 0, 0, 0, 0]);
    sync_file_range: (fd, offset, length, flags) =>
        data::sync_descriptor::<{ libc::SYS_sync_file_range as usize }>(
            &[fd, offset, length, flags, 0, 0]);
    sync: () => data::sync(&[0; 6]);
    fallocate | fallocate64: (fd, mode, offset, length) =>
        data::fallocate(&[fd, mode, offset, length, 0, 0]);
    readahead: (fd, offset, length) =>
        data::advise::<{ libc::SYS_readahead as usize }>(&[fd, offset, length, 0, 0, 0]);
    getdents64: (fd, buffer, length) => data::getdents64(&[fd, buffer, length, 0, 0, 0]);
    copy_file_range: (from, from_offset, to, to_offset, length, flags) =>
        transfer::copy_file_range(&[from, from_offset, to, to_offset, length, flags]);
    sendfile | sendfile64: (to, from, offset, length) =>
        transfer::sendfile(&[to, from, offset, length, 0, 0]);
    splice: (from, from_offset, to, to_offset, length, flags) =>
        transfer::splice(&[from, from_offset, to, to_offset, length, flags]);
    tee: (from, to, length, flags) =>
        transfer::tee(&[from, to, length, flags, 0, 0]);
    vmsplice: (fd, vector, n, flags) =>
        transfer::vmsplice(&[fd, vector, n, flags, 0, 0]);
    mmap | mmap64: (address, length, protection, flags, fd, offset) =>
        mapping::mmap(&[address, length, protection, flags, fd, offset]);
    munmap: (address, length) => mapping::munmap(&[address, length, 0, 0, 0, 0]);
    mprotect: (address, length, protection) =>
        mapping::mprotect(&[address, length, protection, 0, 0, 0]);
    msync: (address, length, flags) => mapping::msync(&[address, length, flags, 0, 0, 0]);
    mremap: (address, length, new_length, flags, new_address) =>
        mapping::mremap(&[address, length, new_length, flags, new_address, 0]);
    madvise: (address, length, advice) => mapping::madvise(&[address, length, advice, 0, 0, 0]);

    // Descriptors.
    dup: (fd) => control::dup(&[fd, 0, 0, 0, 0, 0]);
    dup2 | __dup2: (fd, target) => control::dup2(&[fd, target, 0, 0, 0, 0]);
    dup3: (fd, target, flags) => control::dup3(&[fd, target, flags, 0, 0, 0]);
    fcntl | fcntl64 | __fcntl: (fd, command, argument) =>
        control::fcntl(&[fd, command, argument, 0, 0, 0]);
    ioctl: (fd, request, argument) => control::ioctl(&[fd, request, argument, 0, 0, 0]);
    flock: (fd, operation) => locks::flock(&[fd, operation, 0, 0, 0, 0]);
    umask: (mode) => control::umask(&[mode, 0, 0, 0, 0, 0]);

    // Names.
    mkdir: (path, mode) => names::mkdir(&[path, mode, 0, 0, 0, 0]);
    mkdirat: (at, path, mode) => names::mkdirat(&[at, path, mode, 0, 0, 0]);
    rmdir: (path) => names::rmdir(&[path, 0, 0, 0, 0, 0]);
    unlink: (path) => names::unlink(&[path, 0, 0, 0, 0, 0]);
    unlinkat: (at, path, flags) => names::unlinkat(&[at, path, flags, 0, 0, 0]);
    remove: (path) => {
        let result = names::unlink(&[path, 0, 0, 0, 0, 0]);
        if result == raw::error(libc::EISDIR) {
            names::rmdir(&[path, 0, 0, 0, 0, 0])
        } else {
            result
        }
    };
    rename: (from, to) => names::rename(&[from, to, 0, 0, 0, 0]);
    renameat: (from_at, from, to_at, to) => names::renameat(&[from_at, from, to_at, to, 0, 0]);
    renameat2: (from_at, from, to_at, to, flags) =>
        names::renameat2(&[from_at, from, to_at, to, flags, 0]);
    link: (from, to) => names::link(&[from, to, 0, 0, 0, 0]);
    linkat: (from_at, from, to_at, to, flags) =>
        names::linkat(&[from_at, from, to_at, to, flags, 0]);
    symlink: (target, path) => names::symlink(&[target, path, 0, 0, 0, 0]);
    symlinkat: (target, at, path) => names::symlinkat(&[target, at, path, 0, 0, 0]);
    readlink: (path, buffer, length) => names::readlink(&[path, buffer, length, 0, 0, 0]);
    __readlink_chk: (path, buffer, length, room) => {
        check(length <= room);
        names::readlink(&[path, buffer, length, 0, 0, 0])
    };
    readlinkat: (at, path, buffer, length) => names::readlinkat(&[at, path, buffer, length, 0, 0]);
    __readlinkat_chk: (at, path, buffer, length, room) => {
        check(length <= room);
        names::readlinkat(&[at, path, buffer, length, 0, 0])
    };
    mknod: (path, mode, device) => names::mknod(&[path, mode, device, 0, 0, 0]);
    mknodat: (at, path, mode, device) => names::mknodat(&[at, path, mode, device, 0, 0]);
    __xmknod: (_version, path, mode, device) =>
        names::mknod(&[path, mode, *(device as *const usize), 0, 0, 0]);
    __xmknodat: (_version, at, path, mode, device) =>
        names::mknodat(&[at, path, mode, *(device as *const usize), 0, 0]);
    mkfifo: (path, mode) =>
        names::mknod(&[path, (mode & 0o7777) | libc::S_IFIFO as usize, 0, 0, 0, 0]);
    mkfifoat: (at, path, mode) =>
        names::mknodat(&[at, path, (mode & 0o7777) | libc::S_IFIFO as usize, 0, 0, 0]);
    chdir: (path) => names::chdir(&[path, 0, 0, 0, 0, 0]);
    fchdir: (fd) => names::fchdir(&[fd, 0, 0, 0, 0, 0]);
    chroot: (path) => names::past_path::<{ libc::SYS_chroot as usize }>(&[path, 0, 0, 0, 0, 0]);

    // Attributes.
    access: (path, mode) => attributes::access(&[path, mode, 0, 0, 0, 0]);
    faccessat: (at, path, mode, flags) =>
        attributes::faccessat2(&[at, path, mode, flags as u32 as usize, 0, 0]);
    eaccess | euidaccess: (path, mode) =>
        attributes::faccessat2(&[HERE, path, mode, libc::AT_EACCESS as usize, 0, 0]);
    chmod: (path, mode) => attributes::chmod(&[path, mode, 0, 0, 0, 0]);
    fchmod: (fd, mode) => attributes::fchmod(&[fd, mode, 0, 0, 0, 0]);
    fchmodat: (at, path, mode, flags) => fchmodat_here(at, path, mode, flags as u32 as usize);
    lchmod: (path, mode) => fchmodat_here(HERE, path, mode, NOFOLLOW);
    chown: (path, uid, gid) => attributes::chown(&[path, uid, gid, 0, 0, 0]);
    lchown: (path, uid, gid) => attributes::lchown(&[path, uid, gid, 0, 0, 0]);
    fchown: (fd, uid, gid) => attributes::fchown(&[fd, uid, gid, 0, 0, 0]);
    fchownat: (at, path, uid, gid, flags) =>
        attributes::fchownat(&[at, path, uid, gid, flags as u32 as usize, 0]);
    utime: (path, times) => attributes::utime(&[path, times, 0, 0, 0, 0]);
    utimes: (path, times) => attributes::utimes(&[path, times, 0, 0, 0, 0]);
    lutimes: (path, times) => attributes::lutimes(&[path, times, 0, 0, 0, 0]);
    futimes: (fd, times) => attributes::futimesat(&[fd, 0, times, 0, 0, 0]);
    futimesat: (at, path, times) => attributes::futimesat(&[at, path, times, 0, 0, 0]);
    utimensat: (at, path, times, flags) =>
        attributes::utimensat(&[at, path, times, flags as u32 as usize, 0, 0]);
    futimens: (fd, times) => attributes::utimensat(&[fd, 0, times, 0, 0, 0]);

    // Extended attributes, handles, watches: refused on the pool.
    setxattr: (a, b, c, d, e) => calls::dispatch(libc::SYS_setxattr as usize, &[a, b, c, d, e, 0]);
    lsetxattr: (a, b, c, d, e) => calls::dispatch(libc::SYS_lsetxattr as usize, &[a, b, c, d, e, 0]);
    fsetxattr: (a, b, c, d, e) => calls::dispatch(libc::SYS_fsetxattr as usize, &[a, b, c, d, e, 0]);
    getxattr: (a, b, c, d) => calls::dispatch(libc::SYS_getxattr as usize, &[a, b, c, d, 0, 0]);
    lgetxattr: (a, b, c, d) => calls::dispatch(libc::SYS_lgetxattr as usize, &[a, b, c, d, 0, 0]);
    fgetxattr: (a, b, c, d) => calls::dispatch(libc::SYS_fgetxattr as usize, &[a, b, c, d, 0, 0]);
    listxattr: (a, b, c) => calls::dispatch(libc::SYS_listxattr as usize, &[a, b, c, 0, 0, 0]);
    llistxattr: (a, b, c) => calls::dispatch(libc::SYS_llistxattr as usize, &[a, b, c, 0, 0, 0]);
    flistxattr: (a, b, c) => calls::dispatch(libc::SYS_flistxattr as usize, &[a, b, c, 0, 0, 0]);
    removexattr: (a, b) => calls::dispatch(libc::SYS_removexattr as usize, &[a, b, 0, 0, 0, 0]);
    lremovexattr: (a, b) => calls::dispatch(libc::SYS_lremovexattr as usize, &[a, b, 0, 0, 0, 0]);
    fremovexattr: (a, b) => calls::dispatch(libc::SYS_fremovexattr as usize, &[a, b, 0, 0, 0, 0]);
    inotify_add_watch: (a, b, c) =>
        calls::dispatch(libc::SYS_inotify_add_watch as usize, &[a, b, c, 0, 0, 0]);
    name_to_handle_at: (a, b, c, d, e) =>
        extended::refuse_at::<{ libc::SYS_name_to_handle_at as usize }, { libc::EOPNOTSUPP }>(
            &[a, b, c, d, e, 0]);
}

unsafe fn fchmodat_here(at: usize, path: usize, mode: usize, flags: usize) -> isize {
    // SAFETY: the program's arguments.
    let result = unsafe { attributes::fchmodat2(&[at, path, mode, flags, 0, 0]) };
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate(fd: usize, offset: usize, length: usize) -> i32 {
    // SAFETY: no pointers.
    -unsafe { data::fallocate(&[fd, 0, offset, length, 0, 0]) } as i32
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate64(fd: usize, offset: usize, length: usize) -> i32 {
    // SAFETY: no pointers.
    unsafe { posix_fallocate(fd, offset, length) }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fadvise(
    fd: usize,
    offset: usize,
    length: usize,
    advice: usize,
) -> i32 {
    // SAFETY: no pointers.
    let result = unsafe {
        data::advise::<{ libc::SYS_fadvise64 as usize }>(&[fd, offset, length, advice, 0, 0])
    };
    -result as i32
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
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
#[unsafe(no_mangle)]
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
        let result = control::fcntl(&[fd, operation as usize, &raw mut lock as usize, 0, 0, 0]);
        if command == libc::F_TEST && result == 0 && lock.l_type != libc::F_UNLCK as i16 {
            return fail(libc::EACCES);
        }
        finish(result)
    }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockf64(fd: usize, command: i32, length: i64) -> isize {
    // SAFETY: the same function.
    unsafe { lockf(fd, command, length) }
}

/// The raw call by number.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
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
    // are made by libc's function, where the net takes care of them.
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
