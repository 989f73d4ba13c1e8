//! Open files: opening, reading, writing, sizes.

use crate::boundary::{Bytes, Room, Text, Vectors};
use crate::face::paths::{expect_flags, reach};
use crate::handles::{self, arck_handle};
use crate::making::masked;
use crate::trouble::{Trouble, answer};
use arckfs::{Errno, FileSystem, Handle};
use std::ffi::c_int;

/// Bytes of one read or write at most: what the kernel's call does.
const AT_ONCE: usize = 0x7fff_f000;

/// A position or a size of C's. EINVAL if it is negative.
fn natural(number: libc::off_t) -> Result<u64, Trouble> {
    u64::try_from(number).map_err(|_| Errno::INVAL.into())
}

#[inline(always)]
fn on_file<T>(
    handle: i64,
    work: impl FnOnce(&FileSystem, Handle) -> Result<T, Errno>,
) -> Result<T, Trouble> {
    let place = handles::place(handle)?;
    Ok(work(place.files, place.file()?)?)
}

fn cut_to<T>(most: usize, buffer: &[T]) -> usize {
    buffer.len().min(most)
}

/// Opens a file or a directory, as openat(2); gives a handle.
///
/// directory: of a connection (its root) or of an open directory. An absolute path begins at the pool's root: "a" and "/a" are the
/// same there. flags: O_* as of openat(2), O_TMPFILE too; O_CLOEXEC is of no effect. mode counts where a file is made, without what the
/// umask takes (arck_umask).
///
/// A file that was made is durable when this returns. Does not block, but for another session that has the directory. Errors as of
/// openat(2); EXDEV: the path leads out of the pool; ENXIO: it leads to a named pipe, a socket or a device, which are not opened
/// here; ENFILE: too many files are open.
#[unsafe(no_mangle)]
pub extern "C" fn arck_openat(
    directory: arck_handle,
    path: Text,
    flags: c_int,
    mode: libc::mode_t,
) -> arck_handle {
    answer(|| {
        let reached = reach(directory, path, 0)?;
        let makes = flags & (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) != 0;
        let mode = match makes {
            true => masked(reached.place.connection, mode),
            false => 0,
        };
        let files = reached.files();
        let handle = files.open(reached.at, reached.path, flags | libc::O_CLOEXEC, mode)?;
        handles::add_file(reached.place.root, handle, files)
    })
}

/// Another handle of the same open file, as dup(2): offset and flags are common to both. EBADF, ESTALE, ENFILE.
#[unsafe(no_mangle)]
pub extern "C" fn arck_dup(file: arck_handle) -> arck_handle {
    answer(|| {
        let place = handles::place(file)?;
        let handle = place.file()?;
        place.files.retain(handle)?;
        handles::add_file(place.root, handle, place.files)
    })
}

/// Reads from the file's offset on, as read(2); 0 is its end.
///
/// Does not block, but for another session that has the file. Takes no lock that a writer waits for. EBADF: not open, or not for
/// reading. EISDIR. ESTALE: opened before a fork. EINVAL: size is more than SSIZE_MAX. EFAULT: buffer is NULL. EIO.
#[unsafe(no_mangle)]
pub extern "C" fn arck_read(file: arck_handle, buffer: Room, size: usize) -> isize {
    answer(|| {
        let buffer = buffer.get(size)?;
        let length = cut_to(AT_ONCE, buffer);
        let read = on_file(file, |files, handle| {
            files.read(handle, &mut buffer[..length], None)
        });
        Ok(read?.cast_signed())
    })
}

/// Reads from a position on, as pread(2). As arck_read; EINVAL for a negative offset.
#[unsafe(no_mangle)]
pub extern "C" fn arck_pread(
    file: arck_handle,
    buffer: Room,
    size: usize,
    offset: libc::off_t,
) -> isize {
    answer(|| {
        let buffer = buffer.get(size)?;
        let length = cut_to(AT_ONCE, buffer);
        let position = natural(offset)?;
        let read = on_file(file, |files, handle| {
            files.read(handle, &mut buffer[..length], Some(position))
        });
        Ok(read?.cast_signed())
    })
}

/// Reads into several buffers, as readv(2): at most 1024. As arck_read.
#[unsafe(no_mangle)]
pub extern "C" fn arck_readv(file: arck_handle, buffers: Vectors, count: c_int) -> isize {
    answer(|| {
        let buffers = buffers.empty(count)?;
        let read = on_file(file, |files, handle| {
            files.read_vector(handle, buffers, None)
        });
        Ok(read?.cast_signed())
    })
}

/// Writes at the file's offset, as write(2), or at its end with O_APPEND.
///
/// Durable when it returns, in a pool on persistent memory; in a pool on an ordinary file system arck_fsync makes it so. Other
/// threads and programs see all of it or nothing. Does not block, but for another session that has the file. Fewer bytes than
/// were given are written where the pool is full. EBADF: not open, or not for writing. ESTALE: opened before a fork.
/// ENOSPC, EFBIG, EIO; EINVAL: size is more than SSIZE_MAX. EFAULT: buffer is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn arck_write(file: arck_handle, buffer: Bytes, size: usize) -> isize {
    answer(|| {
        let buffer = buffer.get(size)?;
        let length = cut_to(AT_ONCE, buffer);
        let written = on_file(file, |files, handle| {
            files.write(handle, &buffer[..length], None)
        });
        Ok(written?.cast_signed())
    })
}

/// Writes at a position, as pwrite(2). As arck_write; EINVAL for a negative offset.
#[unsafe(no_mangle)]
pub extern "C" fn arck_pwrite(
    file: arck_handle,
    buffer: Bytes,
    size: usize,
    offset: libc::off_t,
) -> isize {
    answer(|| {
        let buffer = buffer.get(size)?;
        let length = cut_to(AT_ONCE, buffer);
        let position = natural(offset)?;
        let written = on_file(file, |files, handle| {
            files.write(handle, &buffer[..length], Some(position))
        });
        Ok(written?.cast_signed())
    })
}

/// Writes several buffers as one, as writev(2): at most 1024. As arck_write.
#[unsafe(no_mangle)]
pub extern "C" fn arck_writev(file: arck_handle, buffers: Vectors, count: c_int) -> isize {
    answer(|| {
        let buffers = buffers.full(count)?;
        let written = on_file(file, |files, handle| {
            files.write_vector(handle, buffers, None, None)
        });
        Ok(written?.cast_signed())
    })
}

/// Moves the file's offset, as lseek(2), SEEK_DATA and SEEK_HOLE too; gives the new one. EBADF, ESTALE, EINVAL, ENXIO.
#[unsafe(no_mangle)]
pub extern "C" fn arck_lseek(file: arck_handle, offset: libc::off_t, whence: c_int) -> libc::off_t {
    answer(|| {
        let moved = on_file(file, |files, handle| files.seek(handle, offset, whence))?;
        libc::off_t::try_from(moved).map_err(|_| Errno::OVERFLOW.into())
    })
}

/// Cuts or lengthens an open file, as ftruncate(2). Durable when it returns. EBADF, ESTALE, EFBIG; EINVAL: a negative length, or not
/// open for writing.
#[unsafe(no_mangle)]
pub extern "C" fn arck_ftruncate(file: arck_handle, length: libc::off_t) -> c_int {
    answer(|| {
        let length = natural(length)?;
        on_file(file, |files, handle| files.truncate_handle(handle, length))?;
        Ok(0)
    })
}

/// Cuts or lengthens a file, as truncate(2). Durable when it returns. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_truncateat(
    directory: arck_handle,
    path: Text,
    length: libc::off_t,
) -> c_int {
    answer(|| {
        let length = natural(length)?;
        let reached = reach(directory, path, 0)?;
        reached.files().truncate(reached.at, reached.path, length)?;
        Ok(0)
    })
}

/// Gives a file room, or takes it away, as fallocate(2), with all of its modes that Arck has (else EOPNOTSUPP). Blocks where
/// room has to be asked for. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_fallocate(
    file: arck_handle,
    mode: c_int,
    offset: libc::off_t,
    length: libc::off_t,
) -> c_int {
    answer(|| {
        let (offset, length) = (natural(offset)?, natural(length)?);
        on_file(file, |files, handle| {
            files.allocate(handle, mode, offset, length)
        })?;
        Ok(0)
    })
}

/// Makes all that was written to a file durable, as fsync(2). What calls have written is already, but in a pool on an ordinary file
/// system; there this blocks. EBADF, ESTALE, EIO.
#[unsafe(no_mangle)]
pub extern "C" fn arck_fsync(file: arck_handle) -> c_int {
    answer(|| {
        on_file(file, FileSystem::sync)?;
        Ok(0)
    })
}

/// As arck_fsync.
#[unsafe(no_mangle)]
pub extern "C" fn arck_fdatasync(file: arck_handle) -> c_int {
    answer(|| {
        on_file(file, FileSystem::sync)?;
        Ok(0)
    })
}

/// The flags of an open file, as F_GETFL of fcntl(2). EBADF, ESTALE.
#[unsafe(no_mangle)]
pub extern "C" fn arck_getfl(file: arck_handle) -> c_int {
    answer(|| on_file(file, FileSystem::flags))
}

/// Sets O_APPEND, O_NONBLOCK, O_NOATIME and O_DIRECT of an open file, as F_SETFL of fcntl(2). EBADF, ESTALE.
#[unsafe(no_mangle)]
pub extern "C" fn arck_setfl(file: arck_handle, flags: c_int) -> c_int {
    answer(|| {
        on_file(file, |files, handle| files.set_flags(handle, flags))?;
        Ok(0)
    })
}

/// Whether a file may be read, written, executed or is there, as faccessat(2). flags: AT_EACCESS, AT_SYMLINK_NOFOLLOW,
/// AT_EMPTY_PATH. EACCES and others, as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_faccessat(
    directory: arck_handle,
    path: Text,
    mode: c_int,
    flags: c_int,
) -> c_int {
    answer(|| {
        let known = libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
        expect_flags(flags, known)?;
        expect_flags(mode, libc::R_OK | libc::W_OK | libc::X_OK)?;
        let reached = reach(directory, path, flags)?;
        reached
            .files()
            .access(reached.at, reached.path, mode, flags)?;
        Ok(0)
    })
}
