//! Calls that read, write and size files by descriptor.

use super::{HERE, memory, memory_later, memory_mut, mount_point, on_descriptor, on_path, outside};
use crate::backend::{Errno, Failure, FileSystem, Handle, any_maps, inside};
use crate::memory as program;
use crate::raw::{self, Arguments, blocking, error, syscall};
use std::mem::MaybeUninit;

/// The most bytes one call moves, as in the kernel.
const MOST: usize = 0x7fff_f000;

/// # Safety
/// As the system call's. The same holds for every handler below: pointers are the program's, and
/// valid as the kernel would need them.
#[inline(always)]
pub unsafe fn read(a: &Arguments) -> isize {
    // SAFETY: the program's buffer.
    unsafe {
        on_descriptor(
            libc::SYS_read,
            a[0],
            |fs, handle| Ok(fs.read(handle, memory_mut(a[1], a[2].min(MOST))?, None)? as isize),
            || blocking!(libc::SYS_read, a[0], a[1], a[2]),
        )
    }
}

#[inline(always)]
pub unsafe fn write(a: &Arguments) -> isize {
    // SAFETY: the program's buffer.
    unsafe {
        on_descriptor(
            libc::SYS_write,
            a[0],
            |fs, handle| Ok(fs.write(handle, memory(a[1], a[2].min(MOST))?, None)? as isize),
            || blocking!(libc::SYS_write, a[0], a[1], a[2]),
        )
    }
}

/// A file position as a program gives it: EINVAL if negative.
fn position(value: usize) -> Result<u64, Failure> {
    if (value as i64) < 0 {
        Err(Failure::Errno(Errno::INVAL))
    } else {
        Ok(value as u64)
    }
}

#[inline(always)]
pub unsafe fn pread64(a: &Arguments) -> isize {
    // SAFETY: the program's buffer.
    unsafe {
        on_descriptor(
            libc::SYS_pread64,
            a[0],
            |fs, handle| {
                let position = position(a[3])?;
                let buffer = memory_mut(a[1], a[2].min(MOST))?;
                Ok(fs.read(handle, buffer, Some(position))? as isize)
            },
            || blocking!(libc::SYS_pread64, a[0], a[1], a[2], a[3]),
        )
    }
}

#[inline(always)]
pub unsafe fn pwrite64(a: &Arguments) -> isize {
    // SAFETY: the program's buffer.
    unsafe {
        on_descriptor(
            libc::SYS_pwrite64,
            a[0],
            |fs, handle| {
                let position = position(a[3])?;
                let buffer = memory(a[1], a[2].min(MOST))?;
                Ok(fs.write(handle, buffer, Some(position))? as isize)
            },
            || blocking!(libc::SYS_pwrite64, a[0], a[1], a[2], a[3]),
        )
    }
}

/// Buffers in a vector at most, as in the kernel.
const VECTOR_MOST: usize = libc::UIO_MAXIOV as usize;

/// A program's vector. EINVAL, EFAULT; so too for buffers that cannot be, before any is used.
fn read_parts(
    room: &mut [MaybeUninit<libc::iovec>; VECTOR_MOST],
    address: usize,
    count: usize,
) -> Result<&[libc::iovec], Failure> {
    // SAFETY: integers and addresses.
    let parts = unsafe { program::copy_many_in(room, address, count) }?;
    for part in parts {
        if part.iov_len > isize::MAX as usize {
            return Err(Failure::Errno(Errno::INVAL));
        }
        if !super::is_possible(part.iov_base as usize, part.iov_len) {
            return Err(Failure::Errno(Errno::FAULT));
        }
    }
    Ok(parts)
}

/// The buffers of a vector that are not empty, as far as one call moves their bytes.
fn pieces(vector: &[libc::iovec]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut room = MOST;
    vector.iter().filter_map(move |part| {
        let length = part.iov_len.min(room);
        room -= length;
        (length != 0).then_some((part.iov_base as usize, length))
    })
}

/// Its frame is large, so it is not its caller's: see `stack`.
#[inline(never)]
unsafe fn read_vector(
    fs: &FileSystem,
    handle: Handle,
    a: &Arguments,
    from: Option<u64>,
) -> Result<isize, Failure> {
    let mut room = [const { MaybeUninit::uninit() }; VECTOR_MOST];
    let vector = read_parts(&mut room, a[1], a[2])?;
    if vector.is_empty() {
        // The descriptor is looked at all the same.
        return Ok(fs.read(handle, &mut [], from)? as isize);
    }
    // SAFETY: the program's buffers, for the LibFS's guarded copies.
    unsafe {
        let mut parts = pieces(vector);
        let first = parts.next();
        if parts.next().is_none() {
            let (address, length) = first.unwrap_or((1, 0));
            return Ok(fs.read(handle, memory_mut(address, length)?, from)? as isize);
        }
        // All are possible, as was looked at.
        let buffers =
            pieces(vector).map_while(|(address, length)| memory_mut(address, length).ok());
        Ok(fs.read_vector(handle, buffers, from)? as isize)
    }
}

/// Writes a vector. Small ones are gathered first, so that appends of several processes do not
/// mix either, and a line is written once. Not inlined, as [`read_vector`].
#[inline(never)]
unsafe fn write_vector(
    fs: &FileSystem,
    handle: Handle,
    a: &Arguments,
    from: Option<u64>,
    append: Option<bool>,
) -> Result<isize, Failure> {
    const GATHER: usize = 16 * 1024;
    let mut room = [const { MaybeUninit::uninit() }; VECTOR_MOST];
    let vector = read_parts(&mut room, a[1], a[2])?;
    if vector.is_empty() {
        return Ok(fs.write_as(handle, &[], from, append)? as isize);
    }
    // SAFETY: the program's buffers, for guarded copies.
    unsafe {
        if (2..=64).contains(&vector.len()) {
            let total = vector
                .iter()
                .map(|part| part.iov_len)
                .fold(0usize, usize::saturating_add);
            if total <= GATHER {
                let mut gathered = [std::mem::MaybeUninit::<u8>::uninit(); GATHER];
                let mut length = 0;
                let good = vector.iter().all(|part| {
                    let room = &mut gathered[length..length + part.iov_len];
                    length += part.iov_len;
                    program::copy_many_in(room, part.iov_base as usize, part.iov_len).is_ok()
                });
                if good {
                    let bytes = std::slice::from_raw_parts(gathered.as_ptr().cast::<u8>(), length);
                    return Ok(fs.write_as(handle, bytes, from, append)? as isize);
                }
                // Up to the bad one, then.
            }
        }
        let mut parts = pieces(vector);
        let first = parts.next();
        if parts.next().is_none() {
            let (address, length) = first.unwrap_or((1, 0));
            return Ok(fs.write_as(handle, memory(address, length)?, from, append)? as isize);
        }
        // All are possible, as was looked at.
        let buffers = pieces(vector).map_while(|(address, length)| memory(address, length).ok());
        Ok(fs.write_vector(handle, buffers, from, append)? as isize)
    }
}

pub unsafe fn readv(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_descriptor(
            libc::SYS_readv,
            a[0],
            |fs, handle| read_vector(fs, handle, a, None),
            || blocking!(libc::SYS_readv, a[0], a[1], a[2]),
        )
    }
}

pub unsafe fn writev(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_descriptor(
            libc::SYS_writev,
            a[0],
            |fs, handle| write_vector(fs, handle, a, None, None),
            || blocking!(libc::SYS_writev, a[0], a[1], a[2]),
        )
    }
}

/// Checks the flags of `preadv2` and `pwritev2`, in the kernel's order. RWF_NOWAIT and what else
/// tmpfs does not do either is EOPNOTSUPP, and so is what is not known. Gives whether to append
/// for this once.
fn check_flags(flags: usize) -> Result<Option<bool>, Failure> {
    let flags = flags as i32;
    let hints = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | RWF_NOSIGNAL;
    if flags & (libc::RWF_APPEND | libc::RWF_NOAPPEND) == libc::RWF_APPEND | libc::RWF_NOAPPEND {
        return Err(Failure::Errno(Errno::INVAL));
    }
    match flags & !hints {
        0 => Ok(None),
        libc::RWF_APPEND => Ok(Some(true)),
        libc::RWF_NOAPPEND => Ok(Some(false)),
        _ => Err(Failure::Errno(Errno::OPNOTSUPP)),
    }
}

/// No SIGPIPE, which files never cause.
const RWF_NOSIGNAL: i32 = 0x100;

pub unsafe fn preadv2(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_descriptor(
            libc::SYS_preadv2,
            a[0],
            |fs, handle| read_flagged(fs, handle, a),
            || raw::call(libc::SYS_preadv2 as usize, a),
        )
    }
}

#[inline(always)]
unsafe fn read_flagged(fs: &FileSystem, handle: Handle, a: &Arguments) -> Result<isize, Failure> {
    let from = if a[3] == usize::MAX {
        None
    } else {
        Some(position(a[3])?)
    };
    if fs.flags(handle)? & libc::O_ACCMODE & libc::O_WRONLY != 0 {
        return Err(Failure::Errno(Errno::BADF));
    }
    check_flags(a[5])?;
    // SAFETY: the caller's promise.
    unsafe { read_vector(fs, handle, a, from) }
}

pub unsafe fn pwritev2(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_descriptor(
            libc::SYS_pwritev2,
            a[0],
            |fs, handle| write_flagged(fs, handle, a),
            || raw::call(libc::SYS_pwritev2 as usize, a),
        )
    }
}

#[inline(always)]
unsafe fn write_flagged(fs: &FileSystem, handle: Handle, a: &Arguments) -> Result<isize, Failure> {
    let from = if a[3] == usize::MAX {
        None
    } else {
        Some(position(a[3])?)
    };
    let mode = fs.flags(handle)? & libc::O_ACCMODE;
    if mode == libc::O_RDONLY || mode == libc::O_ACCMODE {
        return Err(Failure::Errno(Errno::BADF));
    }
    let append = check_flags(a[5])?;
    // SAFETY: the caller's promise.
    let result = unsafe { write_vector(fs, handle, a, from, append) }?;
    if a[5] as i32 & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0 {
        fs.sync(handle)?;
    }
    Ok(result)
}

/// `preadv2`, or `pwritev2`, of a description without a number.
pub unsafe fn transfer_of(handle: Handle, a: &Arguments, writes: bool) -> isize {
    // SAFETY: the program's buffers.
    let result = inside(|fs| unsafe {
        match writes {
            true => write_flagged(fs, handle, a),
            false => read_flagged(fs, handle, a),
        }
    });
    result.unwrap_or_else(|failure| outside(failure, |_| error(libc::EIO)))
}

/// `fsync` of one.
pub fn sync_of(handle: Handle) -> isize {
    let result = inside(|fs| Ok(fs.sync(handle).map(|()| 0)?));
    result.unwrap_or_else(|failure| outside(failure, |_| error(libc::EIO)))
}

pub unsafe fn preadv(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_descriptor(
            libc::SYS_preadv,
            a[0],
            |fs, handle| read_vector(fs, handle, a, Some(position(a[3])?)),
            || raw::call(libc::SYS_preadv as usize, a),
        )
    }
}

pub unsafe fn pwritev(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_descriptor(
            libc::SYS_pwritev,
            a[0],
            |fs, handle| write_vector(fs, handle, a, Some(position(a[3])?), None),
            || raw::call(libc::SYS_pwritev as usize, a),
        )
    }
}

#[inline(always)]
pub unsafe fn lseek(a: &Arguments) -> isize {
    on_descriptor(
        libc::SYS_lseek,
        a[0],
        |fs, handle| Ok(fs.seek(handle, a[1] as i64, a[2] as i32)? as isize),
        // SAFETY: the program's arguments.
        || unsafe { syscall!(libc::SYS_lseek, a[0], a[1], a[2]) },
    )
}

pub unsafe fn ftruncate(a: &Arguments) -> isize {
    on_descriptor(
        libc::SYS_ftruncate,
        a[0],
        |fs, handle| Ok(fs.truncate_handle(handle, position(a[1])?).map(|()| 0)?),
        // SAFETY: the program's arguments.
        || unsafe { syscall!(libc::SYS_ftruncate, a[0], a[1]) },
    )
}

pub unsafe fn truncate(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        on_path(
            libc::SYS_truncate,
            HERE,
            a[0],
            |fs, at, path| fs.truncate(at, path, position(a[1])?).map(|()| 0),
            |_, path| syscall!(libc::SYS_truncate, path, a[1]),
        )
    }
}

/// What `sync_file_range` takes.
const SYNC_FLAGS: u32 = libc::SYNC_FILE_RANGE_WAIT_BEFORE
    | libc::SYNC_FILE_RANGE_WRITE
    | libc::SYNC_FILE_RANGE_WAIT_AFTER;

/// EBADF for a description of O_PATH, which the kernel tells before anything else.
fn not_path_only(fs: &FileSystem, handle: Handle) -> Result<(), Failure> {
    if fs.flags(handle)? & libc::O_PATH != 0 {
        return Err(Failure::Errno(Errno::BADF));
    }
    Ok(())
}

/// `fsync`, `fdatasync`, `syncfs` and `sync_file_range`.
///
/// # Safety
/// The system call's own.
pub unsafe fn sync_descriptor<const NUMBER: usize>(a: &Arguments) -> isize {
    on_descriptor(
        NUMBER as i64,
        a[0],
        |fs, handle| {
            if NUMBER as i64 == libc::SYS_sync_file_range {
                not_path_only(fs, handle)?;
                let (offset, length) = (position(a[1])?, position(a[2])?);
                if a[3] as u32 & !SYNC_FLAGS != 0 || offset.saturating_add(length) > i64::MAX as u64
                {
                    return Err(Failure::Errno(Errno::INVAL));
                }
            }
            Ok(fs.sync(handle).map(|()| 0)?)
        },
        // SAFETY: the program's arguments.
        || unsafe { raw::blocking_call(NUMBER, a) },
    )
}

/// `sync`: what this process has open on the pool, then the kernel's.
pub unsafe fn sync(a: &Arguments) -> isize {
    if !crate::thread::inside() {
        for descriptor in crate::descriptors::pool_descriptors() {
            // SAFETY: syncing takes no pointers.
            unsafe {
                sync_descriptor::<{ libc::SYS_fsync as usize }>(&[descriptor, 0, 0, 0, 0, 0])
            };
        }
        if any_maps() {
            let _ = inside(|fs| fs.sync_all_maps().map_err(Failure::Errno));
        }
    }
    // SAFETY: no arguments.
    unsafe { raw::call(libc::SYS_sync as usize, a) }
}

pub unsafe fn fallocate(a: &Arguments) -> isize {
    on_descriptor(
        libc::SYS_fallocate,
        a[0],
        |fs, handle| {
            not_path_only(fs, handle)?;
            let (offset, length) = (position(a[2])?, position(a[3])?);
            if length == 0 {
                return Err(Failure::Errno(Errno::INVAL));
            }
            Ok(fs
                .allocate(handle, a[1] as i32, offset, length)
                .map(|()| 0)?)
        },
        // SAFETY: the program's arguments.
        || unsafe { syscall!(libc::SYS_fallocate, a[0], a[1], a[2], a[3]) },
    )
}

/// Advice is taken note of and ignored.
///
/// # Safety
/// The system call's own.
pub unsafe fn advise<const NUMBER: usize>(a: &Arguments) -> isize {
    on_descriptor(
        NUMBER as i64,
        a[0],
        |fs, handle| {
            not_path_only(fs, handle)?;
            if NUMBER as i64 == libc::SYS_readahead {
                if fs.flags(handle)? & libc::O_WRONLY != 0 {
                    return Err(Failure::Errno(Errno::BADF));
                }
                if fs.stat_handle(handle)?.mode & libc::S_IFMT != libc::S_IFREG {
                    return Err(Failure::Errno(Errno::INVAL));
                }
            } else if (a[2] as i64) < 0 || !(0..=libc::POSIX_FADV_NOREUSE).contains(&(a[3] as i32))
            {
                return Err(Failure::Errno(Errno::INVAL));
            }
            Ok(0)
        },
        // SAFETY: the program's arguments.
        || unsafe { raw::call(NUMBER, a) },
    )
}

/// The older form of `getdents64`: records of the same length, with the kind at their end.
pub unsafe fn getdents(a: &Arguments) -> isize {
    /// More is given in several calls.
    const PIECE: usize = 32 * 1024;
    /// Where the name begins in the older form, a byte earlier; and the length, in both.
    const NAME: usize = 18;
    const LENGTH: usize = 16;
    on_descriptor(
        libc::SYS_getdents,
        a[0],
        |fs, handle| {
            let mut bytes = vec![0; PIECE];
            let before = fs.seek(handle, 0, libc::SEEK_CUR)?;
            let room = (a[2] as u32 as usize).min(PIECE);
            let filled = fs.read_directory(handle, &mut bytes[..room])?;
            let mut at = 0;
            while at + NAME + 1 < filled {
                let length = u16::from_ne_bytes([bytes[at + LENGTH], bytes[at + LENGTH + 1]]);
                let record = &mut bytes[at..filled.min(at + usize::from(length))];
                let kind = record[NAME];
                record.copy_within(NAME + 1.., NAME);
                if let Some(last) = record.last_mut() {
                    *last = kind;
                }
                at += usize::from(length).max(1);
            }
            if let Err(errno) = program::copy_slice_out(a[1], &bytes[..filled]) {
                fs.seek(handle, before as i64, libc::SEEK_SET)?;
                return Err(errno.into());
            }
            Ok(filled as isize)
        },
        // SAFETY: the program's arguments.
        || unsafe { syscall!(libc::SYS_getdents, a[0], a[1], a[2]) },
    )
}

pub unsafe fn getdents64(a: &Arguments) -> isize {
    // SAFETY: the program's buffer.
    unsafe {
        on_descriptor(
            libc::SYS_getdents64,
            a[0],
            |fs, handle| {
                Ok(fs.read_directory(handle, memory_later(a[1], a[2].min(MOST)))? as isize)
            },
            || {
                let result = syscall!(libc::SYS_getdents64, a[0], a[1], a[2]);
                mount_point::listed(a[0], a[1], a[2] as u32 as usize, result)
            },
        )
    }
}
