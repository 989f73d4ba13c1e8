//! Calls on descriptors themselves: close, dup, fcntl, ioctl; and the umask.

use super::attributes::store;
use super::{locks, on_descriptor};
use crate::backend::{Attributes, Errno, Failure, Handle, inside, minus};
use crate::descriptors::replacements::Count;
use crate::descriptors::{self, Descriptor, is_pool, is_reserved, lookup, replacements};
use crate::raw::{self, Arguments, blocking, error, syscall};
use crate::{lock_files, memory, process, report, rings, settings, thread};
use std::sync::atomic::Ordering;

/// # Safety
/// As the system call's. The same holds for every handler below.
#[inline(always)]
pub unsafe fn close(a: &Arguments) -> isize {
    let descriptor = a[0] as u32 as usize;
    if !thread::inside()
        && let Some(result) = descriptors::close(descriptor)
    {
        report::served(libc::SYS_close);
        return result;
    }
    // SAFETY: the program's descriptor.
    let result = unsafe { syscall!(libc::SYS_close, descriptor) };
    if result == 0 {
        descriptors::kernel_closed(descriptor);
        rings::closed(descriptor, descriptor);
    }
    result
}

pub unsafe fn close_range(a: &Arguments) -> isize {
    let (first, last) = (a[0] as u32 as usize, a[1] as u32 as usize);
    let unshares = a[2] & libc::CLOSE_RANGE_UNSHARE as usize != 0;
    let known = (libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC) as usize;
    if thread::inside() || !settings::ready() || first > last || a[2] & !known != 0 {
        // SAFETY: the program's arguments.
        return unsafe { syscall!(libc::SYS_close_range, a[0], a[1], a[2]) };
    }
    if unshares && process::sharing::has_threads() {
        return error(libc::EPERM);
    }
    let result = descriptors::close_range(first, last, a[2]);
    rings::closed(first, last);
    result
}

pub unsafe fn dup(a: &Arguments) -> isize {
    let before = replacements::count();
    match lookup(a[0]) {
        Descriptor::Pool(_) => {
            report::served(libc::SYS_dup);
            descriptors::duplicate(a[0] as u32 as usize, 0, false)
        }
        Descriptor::Error(error) => error,
        Descriptor::Kernel => kernels_duplicate(a[0], before, || {
            descriptors::before_kernel_opens();
            // SAFETY: the program's argument.
            descriptors::kernel_opened(unsafe { syscall!(libc::SYS_dup, a[0]) })
        }),
    }
}

/// A duplicate of what the kernel has under a number that was looked up after `before`; EBADF, so
/// that the call is made again, if that may have been no more than the placeholder of something
/// that was just put there.
fn kernels_duplicate(source: usize, before: Count, duplicate: impl FnOnce() -> isize) -> isize {
    let result = duplicate();
    // It may also have been opened anew on the pool meanwhile.
    let still_kernels = lookup(source) == Descriptor::Kernel;
    if raw::failed(result) || still_kernels && !before.has_moved_over_kernels() {
        return result;
    }
    raw::close(result);
    descriptors::kernel_closed(result as usize);
    error(libc::EBADF)
}

pub unsafe fn dup2(a: &Arguments) -> isize {
    if a[0] as i32 == a[1] as i32 {
        return match lookup(a[0]) {
            Descriptor::Pool(_) => a[0] as i32 as isize,
            Descriptor::Error(error) => error,
            // SAFETY: the program's arguments.
            Descriptor::Kernel => unsafe { syscall!(libc::SYS_dup2, a[0], a[1]) },
        };
    }
    // SAFETY: the same call in its newer form.
    unsafe { dup3(&[a[0], a[1], 0, 0, 0, 0]) }
}

pub unsafe fn dup3(a: &Arguments) -> isize {
    let (source, target, flags) = (a[0] as u32 as usize, a[1] as u32 as usize, a[2] as i32);
    if thread::inside() || source == target || flags & !libc::O_CLOEXEC != 0 {
        if is_reserved(source) {
            return error(libc::EBADF);
        }
        // SAFETY: the program's arguments.
        return unsafe { syscall!(libc::SYS_dup3, a[0], a[1], a[2]) };
    }
    if is_pool(source) {
        report::served(libc::SYS_dup3);
    }
    let result = descriptors::duplicate_onto(source, target, flags != 0);
    rings::closed(target, target);
    result
}

pub unsafe fn fcntl(a: &Arguments) -> isize {
    let before = replacements::count();
    match lookup(a[0]) {
        Descriptor::Error(error) => error,
        Descriptor::Pool(handle) => {
            report::served(libc::SYS_fcntl);
            pool_fcntl(a, handle)
        }
        // SAFETY: the program's arguments.
        Descriptor::Kernel => unsafe { kernels_fcntl(a, before) },
    }
}

/// # Safety
/// As the system call's.
unsafe fn kernels_fcntl(a: &Arguments, before: Count) -> isize {
    match a[1] as i32 {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => kernels_duplicate(a[0], before, || {
            descriptors::before_kernel_opens_from(a[2] as u32 as usize);
            // SAFETY: no pointers.
            let result = unsafe { syscall!(libc::SYS_fcntl, a[0], a[1], a[2]) };
            match a[2] {
                0 => descriptors::kernel_opened(result),
                _ => result,
            }
        }),
        libc::F_GETLK | libc::F_OFD_GETLK => {
            // What a placeholder tells must not replace the question.
            // SAFETY: integers.
            let Ok(mut lock) = (unsafe { memory::copy_in::<libc::flock>(a[2]) }) else {
                // SAFETY: the program's arguments.
                return unsafe { syscall!(libc::SYS_fcntl, a[0], a[1], a[2]) };
            };
            // SAFETY: our structure.
            let result = unsafe { syscall!(libc::SYS_fcntl, a[0], a[1], &raw mut lock) };
            if before.has_moved_over_kernels() {
                return error(libc::EBADF);
            }
            if raw::failed(result) {
                return result;
            }
            memory::copy_out(a[2], &lock).map_or_else(minus, |()| result)
        }
        // SAFETY: the program's arguments.
        _ => unsafe { blocking!(libc::SYS_fcntl, a[0], a[1], a[2]) },
    }
}

fn pool_fcntl(a: &Arguments, handle: Handle) -> isize {
    let descriptor = a[0] as u32 as usize;
    let command = a[1] as i32;
    // What has a lock file is open for reading or writing.
    if locks::is_command(command) && lock_files::is_known(handle) {
        return locks::control(descriptor, handle, command, a[2]);
    }
    let of_descriptor = matches!(
        command,
        libc::F_DUPFD
            | libc::F_DUPFD_CLOEXEC
            | libc::F_GETFD
            | libc::F_SETFD
            | libc::F_GETFL
            | F_CREATED_QUERY
    );
    let flags = match super::flags_of(handle) {
        Ok(flags) if flags & libc::O_PATH != 0 && !of_descriptor => return error(libc::EBADF),
        Ok(flags) => flags,
        Err(error) => return error,
    };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => descriptors::duplicate(
            descriptor,
            a[2] as u32 as usize,
            command == libc::F_DUPFD_CLOEXEC,
        ),
        libc::F_GETFD => isize::from(descriptors::close_on_exec(descriptor)),
        libc::F_SETFD => {
            descriptors::set_close_on_exec(descriptor, a[2] as i32 & libc::FD_CLOEXEC != 0);
            0
        }
        libc::F_GETFL if flags & libc::O_PATH != 0 => flags as isize,
        // A 64-bit process always has large files, and the kernel says so.
        libc::F_GETFL => flags as isize | 0o100_000,
        libc::F_SETFL => match inside(|fs| Ok(fs.set_flags(handle, a[2] as i32)?)) {
            Ok(()) => 0,
            Err(Failure::Errno(errno)) => minus(errno),
            Err(Failure::Outside(_)) => error(libc::EIO),
        },
        _ if locks::is_command(command) => locks::control(descriptor, handle, command, a[2]),
        libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => error(libc::EBADF),
        libc::F_GETLEASE => libc::F_UNLCK as isize,
        // No signals are ever sent for a file of the pool; the owner is accepted and forgotten.
        F_SETSIG if a[2] as u32 > SIGNALS => error(libc::EINVAL),
        libc::F_SETOWN | libc::F_GETOWN | F_SETSIG | F_GETSIG => 0,
        // As a file of tmpfs that was not made by memfd_create.
        libc::F_ADD_SEALS | libc::F_GET_SEALS => match kind_of(handle) {
            Ok(libc::S_IFREG) if command == libc::F_GET_SEALS => libc::F_SEAL_SEAL as isize,
            Ok(libc::S_IFREG) => error(libc::EPERM),
            Ok(_) => error(libc::EINVAL),
            Err(error) => error,
        },
        libc::F_NOTIFY => match kind_of(handle) {
            Ok(libc::S_IFDIR) => error(libc::EINVAL),
            Ok(_) => error(libc::ENOTDIR),
            Err(error) => error,
        },
        F_CREATED_QUERY => match inside(|fs| Ok(fs.is_made_by(handle)?)) {
            Ok(made) => isize::from(made),
            Err(Failure::Errno(errno)) => minus(errno),
            Err(Failure::Outside(_)) => error(libc::EIO),
        },
        // Of whatever else is open it is not the same description.
        F_DUPFD_QUERY => match lookup(a[2]) {
            Descriptor::Pool(other) => isize::from(other == handle),
            Descriptor::Error(error) => error,
            // SAFETY: no pointers.
            Descriptor::Kernel => match unsafe { syscall!(libc::SYS_fcntl, a[2], libc::F_GETFD) } {
                failed if raw::failed(failed) => failed,
                _ => 0,
            },
        },
        _ => error(libc::EINVAL),
    }
}

/// What kind of file is open, as in its mode; or minus an error number.
fn kind_of(handle: Handle) -> Result<u32, isize> {
    inside(|fs| Ok(fs.stat_handle(handle)?.mode & libc::S_IFMT)).map_err(|failure| match failure {
        Failure::Errno(errno) => minus(errno),
        Failure::Outside(_) => error(libc::EIO),
    })
}

const F_DUPFD_QUERY: i32 = 1027;
const F_CREATED_QUERY: i32 = 1028;
/// How many signals there are.
const SIGNALS: u32 = 64;
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;
const FIOCLEX: usize = 0x5451;
const FIONCLEX: usize = 0x5450;
const FICLONE: usize = 0x4004_9409;
const FICLONERANGE: usize = 0x4020_940d;

const FIOASYNC: usize = 0x5452;
const FIOQSIZE: usize = 0x5460;
const FIBMAP: usize = 1;
const FIGETBSZ: usize = 2;
const FIEMAP: usize = 0xc020_660b;
const FIDEDUPERANGE: usize = 0xc018_9436;
/// Flags of an inode (lsattr, chattr), in either width that programs ask for.
const GETFLAGS: usize = 0x8008_6601;
const SETFLAGS: usize = 0x4008_6602;
const FSGETXATTR: usize = 0x801c_581f;
const FSSETXATTR: usize = 0x401c_5820;

/// `struct fsxattr`: flags, hints, projects.
type FileAttributes = [u32; 7];

/// Flags of inodes, as far as a pool has any: none are set, and none can be.
fn inode_flags(request: usize, address: usize, of: &Attributes) -> Result<isize, Failure> {
    let may_have = of.mode & libc::S_IFMT;
    if may_have != libc::S_IFREG && may_have != libc::S_IFDIR {
        return Err(Failure::Errno(Errno::NOTTY));
    }
    let wanted: FileAttributes = match request {
        GETFLAGS => return store(address, 0u32),
        FSGETXATTR => return store(address, FileAttributes::default()),
        SETFLAGS => {
            // SAFETY: any four bytes are a number.
            let flags = unsafe { memory::copy_in::<u32>(address)? };
            [flags, 0, 0, 0, 0, 0, 0]
        }
        // SAFETY: integers.
        _ => unsafe { memory::copy_in(address)? },
    };
    let user = rustix::process::geteuid().as_raw();
    match wanted == FileAttributes::default() {
        _ if user != of.uid && user != 0 => Err(Failure::Errno(Errno::PERM)),
        true => Ok(0),
        false => Err(Failure::Errno(Errno::OPNOTSUPP)),
    }
}

pub unsafe fn ioctl(a: &Arguments) -> isize {
    let request = a[1] as u32 as usize;
    // SAFETY: the program's arguments.
    unsafe {
        on_descriptor(
            libc::SYS_ioctl,
            a[0],
            |fs, handle| match request {
                _ if fs.flags(handle)? & libc::O_PATH != 0 => Err(Failure::Errno(Errno::BADF)),
                FICLONE | FICLONERANGE | FIDEDUPERANGE | FIEMAP => {
                    Err(Failure::Errno(Errno::OPNOTSUPP))
                }
                GETFLAGS | SETFLAGS | FSGETXATTR | FSSETXATTR => {
                    inode_flags(request, a[2], &fs.stat_handle(handle)?)
                }
                FIGETBSZ => store(a[2], 4096u32),
                FIBMAP => Err(Failure::Errno(Errno::INVAL)),
                FIOCLEX | FIONCLEX => {
                    descriptors::set_close_on_exec(a[0] as u32 as usize, request == FIOCLEX);
                    Ok(0)
                }
                FIOQSIZE => {
                    let of = fs.stat_handle(handle)?;
                    match of.mode & libc::S_IFMT {
                        libc::S_IFREG | libc::S_IFDIR => store(a[2], of.blocks * 512),
                        _ => Err(Failure::Errno(Errno::NOTTY)),
                    }
                }
                _ if request == libc::FIONREAD as usize => {
                    let of = fs.stat_handle(handle)?;
                    if of.mode & libc::S_IFMT != libc::S_IFREG {
                        return Err(Failure::Errno(Errno::NOTTY));
                    }
                    let at = fs.seek(handle, 0, libc::SEEK_CUR)? as i64;
                    store(a[2], (of.size as i64 - at).clamp(0, i32::MAX.into()) as i32)
                }
                // Nothing is waited for.
                _ if request == libc::FIONBIO as usize => Ok(0),
                // SAFETY: an integer.
                FIOASYNC => match memory::copy_in::<i32>(a[2])? {
                    0 => Ok(0),
                    _ => Err(Failure::Errno(Errno::NOTTY)),
                },
                _ => Err(Failure::Errno(Errno::NOTTY)),
            },
            || {
                if request == FICLONE && is_pool(a[2]) {
                    return error(libc::EXDEV);
                }
                syscall!(libc::SYS_ioctl, a[0], a[1], a[2])
            },
        )
    }
}

/// A call by which the kernel gives the program a number: the lowest that is free, as all do.
///
/// # Safety
/// The program's arguments of that call.
pub unsafe fn opens<const NUMBER: usize>(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        if thread::inside() {
            return raw::call(NUMBER, a);
        }
        descriptors::before_kernel_opens();
        descriptors::kernel_opened(raw::other_call(NUMBER, a))
    }
}

/// The same with two numbers, which are put where argument `AT` says.
///
/// # Safety
/// As for [`opens`].
pub unsafe fn opens_two<const NUMBER: usize, const AT: usize>(a: &Arguments) -> isize {
    // SAFETY: the caller's promise; what the kernel has written there is copied, guarded, since the
    // program's other threads may unmap it.
    unsafe {
        if thread::inside() {
            return raw::call(NUMBER, a);
        }
        descriptors::before_kernel_opens_two();
        let result = raw::other_call(NUMBER, a);
        if !raw::failed(result)
            && let Ok(opened) = memory::copy_in::<[i32; 2]>(a[AT])
        {
            for number in opened {
                descriptors::kernel_opened(number as isize);
            }
        }
        result
    }
}

pub unsafe fn umask(a: &Arguments) -> isize {
    settings::UMASK.store(a[0] as u32 & 0o777, Ordering::Relaxed);
    // SAFETY: no pointers.
    unsafe { syscall!(libc::SYS_umask, a[0]) }
}
