//! Calls that make, remove and look up names.

use super::{HERE, masked, memory_later, on_path, only, outside, pipes};
use crate::backend::{At, Errno, Failure, FileSystem, inside, minus};
use crate::path::{self, Place, Scratch, descriptor_named, place};
use crate::raw::{self, Arguments, blocking, error, syscall};
use crate::{descriptors, directory, memory, report};

/// # Safety
/// As the system call's. The same holds for every handler below: pointers are the program's, and
/// valid as the kernel would need them.
#[inline(always)]
pub unsafe fn openat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments, passed on or used as documented for the call.
    unsafe {
        let flags = a[2] as i32;
        let mut scratch = Scratch::new();
        match place(a[0], a[1], &mut scratch) {
            Place::Kernel => {
                if let Some(descriptor) = path::descriptor_of(a[1])
                    && let Some(opened) = pipes::open_again(descriptor, flags)
                {
                    return opened;
                }
                descriptors::before_kernel_opens();
                descriptors::kernel_opened(blocking!(libc::SYS_openat, a[0], a[1], a[2], a[3]))
            }
            Place::Error(error) => match named_descriptor(error, a[1]) {
                // A file without a name is at least the same description.
                Some(descriptor) => {
                    descriptors::duplicate(descriptor, 0, flags & libc::O_CLOEXEC != 0)
                }
                None => error,
            },
            Place::Pool(at, path) => {
                report::served(libc::SYS_openat);
                match descriptors::open(at, path, flags, masked(a[3]) & 0o7777) {
                    Ok(descriptor) => descriptor,
                    Err(failure) => outside(failure, |host| {
                        descriptors::kernel_opened(syscall!(
                            libc::SYS_openat,
                            HERE,
                            host,
                            a[2],
                            a[3]
                        ))
                    }),
                }
            }
        }
    }
}

/// The pool descriptor that a path like `/dev/stdin` stands for, when the path of the file behind
/// it is not known (ENOENT).
///
/// # Safety
/// The string stays as it is.
pub unsafe fn named_descriptor(error: isize, path: usize) -> Option<usize> {
    if error != raw::error(libc::ENOENT) {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { memory::text(path) }?;
    descriptor_named(path.bytes).filter(|descriptor| descriptors::is_pool(*descriptor))
}

pub unsafe fn open(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { openat(&[HERE, a[0], a[1], a[2], 0, 0]) }
}

pub unsafe fn creat(a: &Arguments) -> isize {
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    // SAFETY: the same call in its newer form.
    unsafe { openat(&[HERE, a[0], flags as usize, a[1], 0, 0]) }
}

/// Flags that openat2 takes.
const OPEN_FLAGS: i32 = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_NOCTTY
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_ASYNC
    | libc::O_DIRECT
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_CLOEXEC
    | libc::O_PATH
    | libc::O_TMPFILE
    | LARGE_FILE;
/// The kernel's O_LARGEFILE.
const LARGE_FILE: i32 = 0o100_000;
const RESOLVE_FLAGS: u64 = libc::RESOLVE_NO_XDEV
    | libc::RESOLVE_NO_MAGICLINKS
    | libc::RESOLVE_NO_SYMLINKS
    | libc::RESOLVE_BENEATH
    | libc::RESOLVE_IN_ROOT
    | libc::RESOLVE_CACHED;

/// Reads and checks a `struct open_how`, as the kernel does before it looks at the path.
fn read_how(address: usize, size: usize) -> Result<[u64; 3], Errno> {
    const KNOWN: usize = size_of::<[u64; 3]>();
    if size < KNOWN {
        return Err(Errno::INVAL);
    }
    if size > 4096 {
        return Err(Errno::TOOBIG);
    }
    let mut room = Box::<[u8]>::new_uninit_slice(4096);
    // SAFETY: bytes.
    let bytes = unsafe { memory::copy_many_in(&mut room, address, size) }?;
    if bytes[KNOWN..].iter().any(|&byte| byte != 0) {
        return Err(Errno::TOOBIG);
    }
    // SAFETY: integers.
    let how = unsafe { memory::copy_in::<[u64; 3]>(bytes.as_ptr() as usize) }?;
    let [flags, mode, resolve] = how;
    let known = flags & !(OPEN_FLAGS as u32 as u64) == 0 && resolve & !RESOLVE_FLAGS == 0;
    let confined = libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT;
    let flags = flags as i32;
    let nameless = flags & libc::O_TMPFILE & !libc::O_DIRECTORY != 0;
    let creates = flags & libc::O_CREAT != 0 || nameless;
    let allowed = if creates { 0o7777 } else { 0 };
    let path = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    if !known
        || resolve & confined == confined
        || mode & !allowed != 0
        || (nameless
            && (flags & libc::O_TMPFILE != libc::O_TMPFILE
                || flags & libc::O_ACCMODE == libc::O_RDONLY))
        || flags & (libc::O_CREAT | libc::O_DIRECTORY) == libc::O_CREAT | libc::O_DIRECTORY
        || (flags & libc::O_PATH != 0 && flags & !path != 0)
    {
        return Err(Errno::INVAL);
    }
    if resolve & libc::RESOLVE_CACHED != 0 && (creates || flags & libc::O_TRUNC != 0) {
        return Err(Errno::AGAIN);
    }
    Ok(how)
}

/// Whether relative paths begin in the pool.
fn is_pool_directory(descriptor: usize) -> bool {
    if descriptor as i32 == libc::AT_FDCWD {
        crate::settings::ready() && !crate::thread::inside() && directory::is_on_pool()
    } else {
        descriptors::is_pool(descriptor)
    }
}

pub unsafe fn openat2(a: &Arguments) -> isize {
    let kernel = |directory: usize, path: usize| {
        descriptors::before_kernel_opens();
        // SAFETY: the program's arguments, or a host path.
        descriptors::kernel_opened(unsafe {
            syscall!(libc::SYS_openat2, directory, path, a[2], a[3])
        })
    };
    let mut scratch = Scratch::new();
    // SAFETY: the program's path.
    let place = match unsafe { place(a[0], a[1], &mut scratch) } {
        // In the pool, the path is read from there.
        Place::Kernel if !is_pool_directory(a[0]) => return kernel(a[0], a[1]),
        Place::Error(error) => return error,
        place => place,
    };
    let [flags, mode, resolve] = match read_how(a[2], a[3]) {
        Ok(how) => how,
        Err(errno) => return minus(errno),
    };
    // SAFETY: as above; it was read a moment ago.
    let Some(memory::Text { bytes: given, .. }) = (unsafe { memory::text(a[1]) }) else {
        return error(libc::EFAULT);
    };
    let (at, path) = match place {
        _ if given.first() == Some(&b'/') => {
            if resolve & libc::RESOLVE_BENEATH != 0 {
                return error(libc::EXDEV);
            }
            if resolve & libc::RESOLVE_IN_ROOT != 0 {
                // Absolute paths begin at the directory too.
                let mut rest = given;
                while let Some(after) = rest.strip_prefix(b"/") {
                    rest = after;
                }
                let rest = if rest.is_empty() { b"." } else { rest };
                match descriptors::lookup(a[0]) {
                    descriptors::Descriptor::Pool(handle) => (At::Directory(handle), rest),
                    descriptors::Descriptor::Error(error) => return error,
                    descriptors::Descriptor::Kernel => match directory::current() {
                        Some(Ok(handle)) if a[0] as i32 == libc::AT_FDCWD => {
                            (At::Directory(handle), rest)
                        }
                        _ => return kernel(a[0], a[1]),
                    },
                }
            } else {
                // The pool is a mount of its own.
                let crosses = resolve & libc::RESOLVE_NO_XDEV != 0;
                match place {
                    Place::Pool(..) if crosses => return error(libc::EXDEV),
                    Place::Pool(at, path) => (at, path),
                    _ => return kernel(a[0], a[1]),
                }
            }
        }
        Place::Pool(at, path) => (at, path),
        _ => return kernel(a[0], a[1]),
    };
    report::served(libc::SYS_openat2);
    let mode = masked(mode as usize) & 0o7777;
    match descriptors::open_within(at, path, flags as i32, mode, resolve) {
        Ok(descriptor) => descriptor,
        Err(Failure::Outside(_)) if resolve & libc::RESOLVE_NO_XDEV != 0 => error(libc::EXDEV),
        // What is not there is in no cache.
        Err(Failure::Errno(Errno::NOENT))
            if resolve & libc::RESOLVE_CACHED != 0 && !given.is_empty() =>
        {
            error(libc::EAGAIN)
        }
        Err(failure) => outside(failure, |host| kernel(HERE, host)),
    }
}

pub unsafe fn mkdirat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_path(
            libc::SYS_mkdirat,
            a[0],
            a[1],
            |fs, at, path| {
                fs.make_directory(at, path, masked(a[2]) & 0o7777)
                    .map(|()| 0)
            },
            |at, path| syscall!(libc::SYS_mkdirat, at, path, a[2]),
        )
    }
}

pub unsafe fn mkdir(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { mkdirat(&[HERE, a[0], a[1], 0, 0, 0]) }
}

pub unsafe fn mknodat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_path(
            libc::SYS_mknodat,
            a[0],
            a[1],
            |fs, at, path| {
                let kind = a[2] as u32 & libc::S_IFMT;
                let kind = if kind == 0 { libc::S_IFREG } else { kind };
                let mode = kind | (masked(a[2]) & 0o7777);
                fs.make_node(at, path, mode, a[3] as u64).map(|()| 0)
            },
            |at, path| syscall!(libc::SYS_mknodat, at, path, a[2], a[3]),
        )
    }
}

pub unsafe fn mknod(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { mknodat(&[HERE, a[0], a[1], a[2], 0, 0]) }
}

pub unsafe fn unlinkat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_path(
            libc::SYS_unlinkat,
            a[0],
            a[1],
            |fs, at, path| {
                only(a[2], libc::AT_REMOVEDIR)?;
                if at == At::Root && path == b"." && a[2] as i32 & libc::AT_REMOVEDIR != 0 {
                    return Err(Failure::Errno(Errno::BUSY));
                }
                fs.unlink(at, path, a[2] as i32).map(|()| 0)
            },
            |at, path| syscall!(libc::SYS_unlinkat, at, path, a[2]),
        )
    }
}

pub unsafe fn unlink(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { unlinkat(&[HERE, a[0], 0, 0, 0, 0]) }
}

pub unsafe fn rmdir(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { unlinkat(&[HERE, a[0], libc::AT_REMOVEDIR as usize, 0, 0, 0]) }
}

/// A call that names two files. One on the pool and one elsewhere is EXDEV, as between any two
/// file systems; so is a path that leads out of the pool.
unsafe fn on_two(
    number: i64,
    a: &Arguments,
    pool: impl FnOnce(&'static FileSystem, At, &[u8], At, &[u8]) -> Result<(), Failure>,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let (mut first, mut second) = (Scratch::new(), Scratch::new());
    // SAFETY: both paths are the program's.
    unsafe {
        match (
            place(a[0], a[1], &mut first),
            place(a[2], a[3], &mut second),
        ) {
            (Place::Kernel, Place::Kernel) => kernel(),
            (Place::Error(error), _) | (_, Place::Error(error)) => error,
            // What cannot be looked up at all is told before where it lies.
            (Place::Pool(at, path), Place::Kernel) => one_of_two((at, path), (a[2], a[3])),
            (Place::Kernel, Place::Pool(at, path)) => one_of_two((at, path), (a[0], a[1])),
            (Place::Pool(from_at, from), Place::Pool(to_at, to)) => {
                report::served(number);
                match inside(|fs| pool(fs, from_at, from, to_at, to)) {
                    Ok(()) => 0,
                    Err(failure) => outside(failure, |_| error(libc::EXDEV)),
                }
            }
        }
    }
}

/// The error of a call on a file of the pool and one of the kernel's.
///
/// # Safety
/// The second path is the program's.
#[cold]
unsafe fn one_of_two(pool: (At, &[u8]), kernel: (usize, usize)) -> isize {
    let nofollow = libc::AT_SYMLINK_NOFOLLOW;
    let flags = nofollow | libc::AT_EMPTY_PATH;
    // SAFETY: the program's path; nothing is changed.
    let outer = unsafe { syscall!(libc::SYS_faccessat2, kernel.0, kernel.1, 0, flags) };
    let inner = match inside(|fs| fs.stat(pool.0, pool.1, nofollow)) {
        Err(Failure::Errno(errno)) => -(errno.raw_os_error() as isize),
        _ => 0,
    };
    let told = [
        libc::EFAULT,
        libc::EBADF,
        libc::ENAMETOOLONG,
        libc::ENOTDIR,
        libc::ELOOP,
    ];
    let first = |result: isize| told.iter().any(|&errno| result == error(errno));
    [outer, inner]
        .into_iter()
        .find(|&result| first(result))
        .unwrap_or(error(libc::EXDEV))
}

pub unsafe fn renameat2(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_two(
            libc::SYS_renameat2,
            a,
            |fs, from_at, from, to_at, to| fs.rename(from_at, from, to_at, to, a[4] as u32),
            || syscall!(libc::SYS_renameat2, a[0], a[1], a[2], a[3], a[4]),
        )
    }
}

pub unsafe fn renameat(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { renameat2(&[a[0], a[1], a[2], a[3], 0, 0]) }
}

pub unsafe fn rename(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { renameat2(&[HERE, a[0], HERE, a[1], 0, 0]) }
}

pub unsafe fn linkat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        // The way to name a file of O_TMPFILE.
        if a[4] as i32 & libc::AT_SYMLINK_FOLLOW != 0
            && let Some(text) = memory::text(a[1])
            && let Some(descriptor) = descriptor_named(text.bytes)
            && descriptors::is_pool(descriptor)
        {
            let empty = c"".as_ptr() as usize;
            return linkat(&[
                descriptor,
                empty,
                a[2],
                a[3],
                libc::AT_EMPTY_PATH as usize,
                0,
            ]);
        }
        on_two(
            libc::SYS_linkat,
            a,
            |fs, from_at, from, to_at, to| {
                only(a[4], libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH)?;
                fs.link(from_at, from, to_at, to, a[4] as i32)
            },
            || syscall!(libc::SYS_linkat, a[0], a[1], a[2], a[3], a[4]),
        )
    }
}

pub unsafe fn link(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { linkat(&[HERE, a[0], HERE, a[1], 0, 0]) }
}

pub unsafe fn symlinkat(a: &Arguments) -> isize {
    // SAFETY: the target is a NUL-terminated string if not null.
    unsafe {
        on_path(
            libc::SYS_symlinkat,
            a[1],
            a[2],
            |fs, at, path| {
                let target = memory::text(a[0]).ok_or(Errno::FAULT)?.bytes;
                if target.is_empty() {
                    return Err(Failure::Errno(Errno::NOENT));
                }
                fs.symlink(target, at, path).map(|()| 0)
            },
            |at, path| syscall!(libc::SYS_symlinkat, a[0], at, path),
        )
    }
}

pub unsafe fn symlink(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { symlinkat(&[a[0], HERE, a[1], 0, 0, 0]) }
}

pub unsafe fn readlinkat(a: &Arguments) -> isize {
    let pass = |at, path| {
        // SAFETY: the program's arguments.
        unsafe { syscall!(libc::SYS_readlinkat, at, path, a[2], a[3]) }
    };
    if memory::is_nowhere(a[1]) || crate::thread::inside() || !crate::settings::ready() {
        return pass(a[0], a[1]);
    }
    // SAFETY: the path is NUL-terminated, the buffer as long as its length says.
    unsafe {
        let Some(memory::Text { bytes: path, .. }) = memory::text(a[1]) else {
            return error(libc::EFAULT);
        };
        if a[3] as i32 <= 0 {
            return error(libc::EINVAL);
        }
        if path.first() == Some(&b'/') && matches!(path.get(1), Some(b'd' | b'p')) {
            if path == b"/proc/self/cwd" && directory::is_on_pool() {
                let mut buffer = crate::path::room();
                return match directory::name(&mut buffer[..]) {
                    Some(length) if length > 0 => {
                        copy_out(&buffer[..length as usize - 1], a[2], a[3])
                    }
                    Some(failed) => match directory::current() {
                        Some(Ok(handle)) if failed == error(libc::ENOENT) => {
                            match inside(|fs| Ok(fs.stat_handle(handle)?.inode)) {
                                Ok(inode) => copy_out(&path::of_nameless(inode), a[2], a[3]),
                                Err(failure) => outside(failure, |_| failed),
                            }
                        }
                        _ => failed,
                    },
                    None => pass(a[0], a[1]),
                };
            }
            if let Some(executable) = crate::process::identity::executable(path) {
                return copy_out(executable, a[2], a[3]);
            }
            // This library's own descriptors are listed there, and their links can be read. `/dev/stdin`
            // is a link to one of these.
            let is_link = !path.starts_with(b"/dev/std");
            if let Some(descriptor) =
                descriptor_named(path).filter(|named| is_link && !descriptors::is_reserved(*named))
            {
                return super::on_descriptor(
                    libc::SYS_readlinkat,
                    descriptor,
                    |fs, handle| {
                        let path = match fs.path_of(handle) {
                            Err(Errno::NOENT) => path::of_nameless(fs.stat_handle(handle)?.inode),
                            found => found?,
                        };
                        Ok(copy_out(&path, a[2], a[3]))
                    },
                    || pass(a[0], a[1]),
                );
            }
        }
        if path.is_empty() && descriptors::is_pool(a[0]) {
            return super::on_descriptor(
                libc::SYS_readlinkat,
                a[0],
                |fs, handle| {
                    let buffer = memory_later(a[2], a[3] as i32 as usize);
                    fs.read_link(At::Directory(handle), b"", buffer)
                        .map(|n| n as isize)
                },
                || error(libc::EBADF),
            );
        }
        on_path(
            libc::SYS_readlinkat,
            a[0],
            a[1],
            |fs, at, path| {
                fs.read_link(at, path, memory_later(a[2], a[3] as i32 as usize))
                    .map(|n| n as isize)
            },
            pass,
        )
    }
}

/// As much of a text as there is room for. EFAULT.
fn copy_out(text: &[u8], address: usize, length: usize) -> isize {
    let n = text.len().min(length);
    // SAFETY: the caller's promise.
    match memory::copy_slice_out(address, &text[..n]) {
        Ok(()) => n as isize,
        Err(errno) => minus(errno),
    }
}

pub unsafe fn readlink(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { readlinkat(&[HERE, a[0], a[1], a[2], 0, 0]) }
}

pub unsafe fn chdir(a: &Arguments) -> isize {
    let kernel = |path: usize| {
        // SAFETY: the program's argument, or a host path.
        let result = unsafe { syscall!(libc::SYS_chdir, path) };
        if result == 0 && crate::settings::ready() {
            directory::leave();
        }
        result
    };
    let mut scratch = Scratch::new();
    // SAFETY: the program's path.
    match unsafe { place(HERE, a[0], &mut scratch) } {
        Place::Kernel => kernel(a[0]),
        Place::Error(error) => error,
        Place::Pool(at, path) => {
            report::served(libc::SYS_chdir);
            let opened = inside(|fs| {
                let flags = libc::O_PATH | libc::O_DIRECTORY;
                let handle = fs.open(at, path, flags, 0)?;
                let may = fs.access(At::Directory(handle), b".", libc::X_OK, 0);
                if may.is_err() {
                    fs.close(handle);
                }
                may.map(|()| handle)
            });
            match opened {
                Ok(handle) => {
                    directory::change(handle);
                    0
                }
                Err(failure) => outside(failure, kernel),
            }
        }
    }
}

pub unsafe fn fchdir(a: &Arguments) -> isize {
    super::on_descriptor(
        libc::SYS_fchdir,
        a[0],
        |fs, handle| {
            let attributes = fs.stat_handle(handle)?;
            if attributes.mode & libc::S_IFMT != libc::S_IFDIR {
                return Err(Failure::Errno(Errno::NOTDIR));
            }
            fs.access(At::Directory(handle), b".", libc::X_OK, 0)?;
            fs.retain(handle)?;
            directory::change(handle);
            Ok(0)
        },
        || {
            // SAFETY: the program's argument.
            let result = unsafe { syscall!(libc::SYS_fchdir, a[0]) };
            if result == 0 && crate::settings::ready() && !crate::thread::inside() {
                directory::leave();
            }
            result
        },
    )
}

pub unsafe fn getcwd(a: &Arguments) -> isize {
    // SAFETY: the program's buffer.
    unsafe {
        if crate::thread::inside() || !directory::is_on_pool() {
            return syscall!(libc::SYS_getcwd, a[0], a[1]);
        }
        report::served(libc::SYS_getcwd);
        let mut buffer = crate::path::room();
        let most = buffer.len().min(a[1]);
        match directory::name(&mut buffer[..most]) {
            Some(length) if length > 0 => copy_out(&buffer[..length as usize], a[0], a[1]),
            Some(failed) if failed == error(libc::ERANGE) && most < a[1] => {
                error(libc::ENAMETOOLONG)
            }
            Some(failed) => failed,
            None => syscall!(libc::SYS_getcwd, a[0], a[1]),
        }
    }
}
