//! Calls that tell and change attributes.

use super::{HERE, is_empty, on_descriptor, on_path, only, pipes};
use crate::backend::{
    At, Attributes, Errno, Failure, FileSystem, Handle, SetTime, Statistics, Timestamp, device,
    minus,
};
use crate::memory::{copy_in, copy_out};
use crate::raw::{Arguments, error, syscall};

/// Where a call that knows AT_EMPTY_PATH leads to the descriptor itself.
#[inline(always)]
pub fn means_descriptor(directory: usize, path: usize, flags: usize) -> bool {
    flags as i32 & libc::AT_EMPTY_PATH != 0 && directory as i32 != libc::AT_FDCWD && is_empty(path)
}

/// Of calls that work on a descriptor of O_PATH too.
const EMPTY: i32 = libc::AT_EMPTY_PATH;

fn at_itself(handle: Handle) -> At {
    At::Directory(handle)
}

fn fill_stat(attributes: &Attributes) -> libc::stat {
    // SAFETY: a plain structure of integers; zero is a valid value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = device();
    stat.st_ino = attributes.inode;
    stat.st_mode = attributes.mode;
    stat.st_nlink = attributes.links.into();
    stat.st_uid = attributes.uid;
    stat.st_gid = attributes.gid;
    stat.st_rdev = attributes.device.into();
    stat.st_size = attributes.size as i64;
    stat.st_blksize = 4096;
    stat.st_blocks = attributes.blocks as i64;
    stat.st_atime = attributes.accessed.seconds;
    stat.st_atime_nsec = attributes.accessed.nanoseconds.into();
    stat.st_mtime = attributes.modified.seconds;
    stat.st_mtime_nsec = attributes.modified.nanoseconds.into();
    stat.st_ctime = attributes.changed.seconds;
    stat.st_ctime_nsec = attributes.changed.nanoseconds.into();
    stat
}

/// A call's answer in the program's memory. EFAULT.
#[inline(always)]
pub fn store<T: Copy>(address: usize, value: T) -> Result<isize, Failure> {
    Ok(copy_out(address, &value).map(|()| 0)?)
}

/// # Safety
/// As the system call's. The same holds for every handler below.
#[inline(always)]
pub unsafe fn newfstatat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        if a[3] as i32 & !STAT_FLAGS != 0 {
            // The kernel refuses it whatever the path is.
            return syscall!(libc::SYS_newfstatat, a[0], a[1], a[2], a[3]);
        }
        if means_descriptor(a[0], a[1], a[3]) {
            let told = |fs: &FileSystem, handle| store(a[2], fill_stat(&fs.stat_handle(handle)?));
            return on_descriptor(libc::SYS_newfstatat, a[0], told, || {
                let result = syscall!(libc::SYS_newfstatat, a[0], a[1], a[2], a[3]);
                pipes::after_stat(result, a[2], a[0], told)
            });
        }
        let result = on_path(
            libc::SYS_newfstatat,
            a[0],
            a[1],
            |fs, at, path| store(a[2], fill_stat(&fs.stat(at, path, a[3] as i32)?)),
            |at, path| syscall!(libc::SYS_newfstatat, at, path, a[2], a[3]),
        );
        if result == error(libc::ENOENT)
            && let Some(descriptor) = super::names::named_descriptor(result, a[1])
        {
            return fstat(&[descriptor, a[2], 0, 0, 0, 0]);
        }
        result
    }
}

pub unsafe fn stat(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { newfstatat(&[HERE, a[0], a[1], 0, 0, 0]) }
}

pub unsafe fn lstat(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { newfstatat(&[HERE, a[0], a[1], libc::AT_SYMLINK_NOFOLLOW as usize, 0, 0]) }
}

#[inline(always)]
pub unsafe fn fstat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        let told = |fs: &FileSystem, handle| store(a[1], fill_stat(&fs.stat_handle(handle)?));
        on_descriptor(libc::SYS_fstat, a[0], told, || {
            let result = syscall!(libc::SYS_fstat, a[0], a[1]);
            pipes::after_stat(result, a[1], a[0], told)
        })
    }
}

fn fill_statx(attributes: &Attributes, mask: u32) -> libc::statx {
    // SAFETY: a plain structure of integers; zero is a valid value.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    let time = |time: Timestamp| {
        // SAFETY: as above.
        let mut filled: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        filled.tv_sec = time.seconds;
        filled.tv_nsec = time.nanoseconds;
        filled
    };
    statx.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    // As tmpfs: these two are told to be there only if one of them was asked for.
    let changes = libc::STATX_MTIME | libc::STATX_CTIME;
    if mask & changes == 0 {
        statx.stx_mask &= !changes;
    }
    statx.stx_blksize = 4096;
    statx.stx_nlink = attributes.links;
    statx.stx_uid = attributes.uid;
    statx.stx_gid = attributes.gid;
    statx.stx_mode = attributes.mode as u16;
    statx.stx_ino = attributes.inode;
    statx.stx_size = attributes.size;
    statx.stx_blocks = attributes.blocks;
    statx.stx_atime = time(attributes.accessed);
    statx.stx_btime = time(attributes.created);
    statx.stx_ctime = time(attributes.changed);
    statx.stx_mtime = time(attributes.modified);
    statx.stx_rdev_major = libc::major(attributes.device.into());
    statx.stx_rdev_minor = libc::minor(attributes.device.into());
    statx.stx_dev_major = libc::major(device());
    statx.stx_dev_minor = libc::minor(device());
    statx
}

/// What calls that tell attributes take.
const STAT_FLAGS: i32 = libc::AT_SYMLINK_NOFOLLOW
    | libc::AT_NO_AUTOMOUNT
    | libc::AT_EMPTY_PATH
    | libc::AT_STATX_SYNC_TYPE;

/// The flag of a mask that nothing may ask for yet.
const STATX_RESERVED: usize = 1 << 31;

pub unsafe fn statx(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        let flags = a[2] as i32;
        if flags & !STAT_FLAGS != 0
            || flags & libc::AT_STATX_SYNC_TYPE == libc::AT_STATX_SYNC_TYPE
            || a[3] & STATX_RESERVED != 0
        {
            return syscall!(libc::SYS_statx, a[0], a[1], a[2], a[3], a[4]);
        }
        let fill_statx = |attributes: &Attributes| fill_statx(attributes, a[3] as u32);
        if means_descriptor(a[0], a[1], a[2]) {
            let told = |fs: &FileSystem, handle| store(a[4], fill_statx(&fs.stat_handle(handle)?));
            return on_descriptor(libc::SYS_statx, a[0], told, || {
                let result = syscall!(libc::SYS_statx, a[0], a[1], a[2], a[3], a[4]);
                pipes::after_statx(result, a[4], a[0], told)
            });
        }
        on_path(
            libc::SYS_statx,
            a[0],
            a[1],
            |fs, at, path| store(a[4], fill_statx(&fs.stat(at, path, a[2] as i32)?)),
            |at, path| syscall!(libc::SYS_statx, at, path, a[2], a[3], a[4]),
        )
    }
}

pub unsafe fn faccessat2(a: &Arguments) -> isize {
    const FLAGS: i32 = libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    // SAFETY: the program's arguments.
    unsafe {
        if a[2] as i32 & !7 != 0 || a[3] as i32 & !FLAGS != 0 {
            return error(libc::EINVAL);
        }
        let empty = means_descriptor(a[0], a[1], a[3]);
        if empty {
            return on_descriptor(
                libc::SYS_faccessat2,
                a[0],
                |fs, handle| {
                    fs.access(At::Directory(handle), b"", a[2] as i32, a[3] as i32)
                        .map(|()| 0)
                },
                || syscall!(libc::SYS_faccessat2, a[0], a[1], a[2], a[3]),
            );
        }
        on_path(
            libc::SYS_faccessat2,
            a[0],
            a[1],
            |fs, at, path| fs.access(at, path, a[2] as i32, a[3] as i32).map(|()| 0),
            |at, path| {
                if a[3] == 0 {
                    syscall!(libc::SYS_faccessat, at, path, a[2])
                } else {
                    syscall!(libc::SYS_faccessat2, at, path, a[2], a[3])
                }
            },
        )
    }
}

pub unsafe fn faccessat(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { faccessat2(&[a[0], a[1], a[2], 0, 0, 0]) }
}

pub unsafe fn access(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { faccessat2(&[HERE, a[0], a[1], 0, 0, 0]) }
}

/// What calls that change a mode or an owner take.
const CHANGE_FLAGS: i32 = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;

pub unsafe fn fchmodat2(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        if a[3] as i32 & !CHANGE_FLAGS != 0 {
            return error(libc::EINVAL);
        }
        if means_descriptor(a[0], a[1], a[3]) && crate::descriptors::is_pool(a[0]) {
            return on_descriptor(
                libc::SYS_fchmodat2,
                a[0],
                |fs, handle| {
                    fs.change_mode(at_itself(handle), b"", a[2] as u32 & 0o7777, EMPTY)
                        .map(|()| 0)
                },
                || error(libc::EBADF),
            );
        }
        on_path(
            libc::SYS_fchmodat2,
            a[0],
            a[1],
            |fs, at, path| {
                let flags = a[3] as i32;
                let is_itself = path.is_empty() && matches!(at, At::Inode(..));
                if is_itself || flags & libc::AT_SYMLINK_NOFOLLOW != 0 {
                    let mode = fs.stat(at, path, flags)?.mode;
                    if mode & libc::S_IFMT == libc::S_IFLNK {
                        return Err(Failure::Errno(Errno::OPNOTSUPP));
                    }
                }
                fs.change_mode(at, path, a[2] as u32 & 0o7777, flags)
                    .map(|()| 0)
            },
            |at, path| {
                if a[3] == 0 {
                    syscall!(libc::SYS_fchmodat, at, path, a[2])
                } else {
                    syscall!(libc::SYS_fchmodat2, at, path, a[2], a[3])
                }
            },
        )
    }
}

pub unsafe fn fchmodat(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { fchmodat2(&[a[0], a[1], a[2], 0, 0, 0]) }
}

pub unsafe fn chmod(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { fchmodat2(&[HERE, a[0], a[1], 0, 0, 0]) }
}

pub unsafe fn fchmod(a: &Arguments) -> isize {
    let change = |fs: &FileSystem, handle| {
        let mode = a[1] as u32 & 0o7777;
        Ok(fs.change_mode_handle(handle, mode).map(|()| 0)?)
    };
    on_descriptor(libc::SYS_fchmod, a[0], change, || {
        // SAFETY: the program's arguments.
        let kernel = || unsafe { syscall!(libc::SYS_fchmod, a[0], a[1]) };
        pipes::on_pipe(a[0], change).unwrap_or_else(kernel)
    })
}

pub unsafe fn fchownat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        if a[4] as i32 & !CHANGE_FLAGS != 0 {
            return error(libc::EINVAL);
        }
        if means_descriptor(a[0], a[1], a[4]) && crate::descriptors::is_pool(a[0]) {
            return on_descriptor(
                libc::SYS_fchownat,
                a[0],
                |fs, handle| {
                    fs.change_owner(at_itself(handle), b"", a[2] as u32, a[3] as u32, EMPTY)
                        .map(|()| 0)
                },
                || error(libc::EBADF),
            );
        }
        on_path(
            libc::SYS_fchownat,
            a[0],
            a[1],
            |fs, at, path| {
                fs.change_owner(at, path, a[2] as u32, a[3] as u32, a[4] as i32)
                    .map(|()| 0)
            },
            |at, path| syscall!(libc::SYS_fchownat, at, path, a[2], a[3], a[4]),
        )
    }
}

pub unsafe fn chown(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { fchownat(&[HERE, a[0], a[1], a[2], 0, 0]) }
}

pub unsafe fn lchown(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe {
        fchownat(&[
            HERE,
            a[0],
            a[1],
            a[2],
            libc::AT_SYMLINK_NOFOLLOW as usize,
            0,
        ])
    }
}

pub unsafe fn fchown(a: &Arguments) -> isize {
    let change = |fs: &FileSystem, handle| {
        let (user, group) = (a[1] as u32, a[2] as u32);
        Ok(fs.change_owner_handle(handle, user, group).map(|()| 0)?)
    };
    on_descriptor(libc::SYS_fchown, a[0], change, || {
        // SAFETY: the program's arguments.
        let kernel = || unsafe { syscall!(libc::SYS_fchown, a[0], a[1], a[2]) };
        pipes::on_pipe(a[0], change).unwrap_or_else(kernel)
    })
}

/// The two times of `utimensat`; null means now.
fn read_times(address: usize) -> Result<[SetTime; 2], Failure> {
    let mut times = [SetTime::Now; 2];
    if address != 0 {
        // SAFETY: integers.
        let given = unsafe { copy_in::<[libc::timespec; 2]>(address) }?;
        for (time, given) in times.iter_mut().zip(given) {
            *time = match given.tv_nsec {
                libc::UTIME_NOW => SetTime::Now,
                libc::UTIME_OMIT => SetTime::Omit,
                0..=999_999_999 => SetTime::At(Timestamp {
                    seconds: given.tv_sec,
                    nanoseconds: given.tv_nsec as u32,
                }),
                _ => return Err(Failure::Errno(Errno::INVAL)),
            };
        }
    }
    Ok(times)
}

fn set_times(
    fs: &FileSystem,
    handle: Handle,
    [accessed, modified]: [SetTime; 2],
) -> Result<isize, Failure> {
    Ok(fs
        .set_times_handle(handle, accessed, modified)
        .map(|()| 0)?)
}

pub unsafe fn utimensat(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        if a[1] != 0 && means_descriptor(a[0], a[1], a[3]) {
            return on_descriptor(
                libc::SYS_utimensat,
                a[0],
                |fs, handle| {
                    let [accessed, modified] = read_times(a[2])?;
                    fs.set_times(at_itself(handle), b"", accessed, modified, EMPTY)
                        .map(|()| 0)
                },
                || syscall!(libc::SYS_utimensat, a[0], a[1], a[2], a[3]),
            );
        }
        // A null path means the descriptor, without any flag.
        if a[1] == 0 && a[0] as i32 != libc::AT_FDCWD {
            if a[3] != 0 && crate::descriptors::is_pool(a[0]) {
                // A bad address is told before.
                return match read_times(a[2]) {
                    Err(Failure::Errno(Errno::FAULT)) => error(libc::EFAULT),
                    Ok([SetTime::Omit, SetTime::Omit]) => 0,
                    _ => error(libc::EINVAL),
                };
            }
            let set = |fs: &FileSystem, handle| set_times(fs, handle, read_times(a[2])?);
            return on_descriptor(libc::SYS_utimensat, a[0], set, || {
                let kernel = || syscall!(libc::SYS_utimensat, a[0], a[1], a[2], a[3]);
                match a[3] {
                    0 => pipes::on_pipe(a[0], set).unwrap_or_else(kernel),
                    _ => kernel(),
                }
            });
        }
        on_path(
            libc::SYS_utimensat,
            a[0],
            a[1],
            |fs, at, path| {
                let flags = a[3] as i32;
                let [accessed, modified] = match read_times(a[2]) {
                    Err(Failure::Errno(Errno::INVAL)) => {
                        // Only what is there has times that can be wrong.
                        only(a[3], libc::AT_SYMLINK_NOFOLLOW | EMPTY)?;
                        fs.stat(at, path, flags)?;
                        return Err(Failure::Errno(Errno::INVAL));
                    }
                    other => other?,
                };
                if (accessed, modified) != (SetTime::Omit, SetTime::Omit) {
                    only(a[3], libc::AT_SYMLINK_NOFOLLOW | EMPTY)?;
                }
                fs.set_times(at, path, accessed, modified, flags)
                    .map(|()| 0)
            },
            |at, path| syscall!(libc::SYS_utimensat, at, path, a[2], a[3]),
        )
    }
}

/// Times in microseconds (`timeval`) as the newer form takes them.
fn from_microseconds(address: usize) -> Result<[libc::timespec; 2], isize> {
    // SAFETY: integers.
    let given = unsafe { copy_in::<[libc::timeval; 2]>(address) }.map_err(minus)?;
    if given
        .iter()
        .any(|time| !(0..1_000_000).contains(&time.tv_usec))
    {
        return Err(error(libc::EINVAL));
    }
    Ok(given.map(in_nanoseconds))
}

pub unsafe fn futimesat(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form, times converted.
    unsafe {
        if a[2] == 0 {
            return utimensat(&[a[0], a[1], 0, 0, 0, 0]);
        }
        match from_microseconds(a[2]) {
            Ok(times) => utimensat(&[a[0], a[1], times.as_ptr() as usize, 0, 0, 0]),
            Err(error) => error,
        }
    }
}

pub unsafe fn utimes(a: &Arguments) -> isize {
    // SAFETY: the same call in its newer form.
    unsafe { futimesat(&[HERE, a[0], a[1], 0, 0, 0]) }
}

/// `utimes` and `lutimes` of libc, which leaves it to the kernel to look at the path before it
/// looks at the times.
///
/// # Safety
/// As the system call's.
pub unsafe fn utimes_of_libc(path: usize, times: usize, flags: usize) -> isize {
    let mut converted = [libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    }; 2];
    if times != 0 {
        // SAFETY: integers.
        match unsafe { copy_in::<[libc::timeval; 2]>(times) } {
            Ok(given) => converted = given.map(in_nanoseconds),
            Err(errno) => return minus(errno),
        }
    }
    let converted = if times == 0 {
        0
    } else {
        converted.as_ptr() as usize
    };
    let arguments = [HERE, path, converted, flags, 0, 0];
    // SAFETY: the caller's promise; the times are our own.
    unsafe { utimensat(&arguments) }
}

fn in_nanoseconds(time: libc::timeval) -> libc::timespec {
    libc::timespec {
        tv_sec: time.tv_sec,
        tv_nsec: time.tv_usec.wrapping_mul(1000),
    }
}

pub unsafe fn utime(a: &Arguments) -> isize {
    // SAFETY: the newer form; `utimbuf` is two seconds values.
    unsafe {
        if a[1] == 0 {
            return utimensat(&[HERE, a[0], 0, 0, 0, 0]);
        }
        let given = match copy_in::<[i64; 2]>(a[1]) {
            Ok(given) => given,
            Err(errno) => return minus(errno),
        };
        let times = given.map(|seconds| libc::timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        });
        utimensat(&[HERE, a[0], times.as_ptr() as usize, 0, 0, 0])
    }
}

fn fill_statfs(statistics: &Statistics) -> libc::statfs {
    // SAFETY: a plain structure of integers; zero is a valid value.
    let mut statfs: libc::statfs = unsafe { std::mem::zeroed() };
    statfs.f_type = i64::from(u32::from_le_bytes(*b"ARCK"));
    statfs.f_bsize = 4096;
    statfs.f_frsize = 4096;
    statfs.f_blocks = statistics.pages;
    statfs.f_bfree = statistics.pages_free;
    statfs.f_bavail = statistics.pages_free;
    statfs.f_files = statistics.inodes;
    statfs.f_ffree = statistics.inodes_free;
    statfs.f_namelen = statistics.name_max.into();
    // SAFETY: `fsid_t` is two 32-bit words.
    statfs.f_fsid = unsafe { std::mem::transmute::<u64, libc::fsid_t>(statistics.id) };
    statfs
}

pub unsafe fn statfs(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_path(
            libc::SYS_statfs,
            HERE,
            a[0],
            |fs, at, path| {
                fs.stat(at, path, 0)?;
                store(a[1], fill_statfs(&fs.statistics()?))
            },
            |_, path| syscall!(libc::SYS_statfs, path, a[1]),
        )
    }
}

pub unsafe fn fstatfs(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_descriptor(
            libc::SYS_fstatfs,
            a[0],
            |fs, handle| {
                // `rm` and `find` ask it of each directory that they go through, for the file system's
                // kind: they do not wait for a fold.
                let mode = fs.stat_handle(handle)?.mode;
                let statistics = match mode & libc::S_IFMT {
                    libc::S_IFDIR => fs.statistics_of_fold(),
                    _ => fs.statistics()?,
                };
                store(a[1], fill_statfs(&statistics))
            },
            || syscall!(libc::SYS_fstatfs, a[0], a[1]),
        )
    }
}
