//! Status, modes, owners, times, and what a pool has left.

use crate::boundary::{StatisticsRoom, StatusRoom, Text, Times, Zeroable};
use crate::face::paths::{expect_flags, reach};
use crate::handles::{self, arck_handle};
use crate::trouble::{Trouble, answer};
use arckfs::{At, Attributes, Errno, SetTime, Timestamp};
use std::ffi::c_int;

/// Pages of a pool have so many bytes.
const PAGE: u64 = 4096;

fn status_of(attributes: &Attributes, device: u64) -> libc::stat {
    let mut status = libc::stat::zero();
    status.st_dev = device;
    status.st_ino = attributes.inode;
    status.st_mode = attributes.mode;
    status.st_nlink = attributes.links.into();
    status.st_uid = attributes.uid;
    status.st_gid = attributes.gid;
    status.st_rdev = attributes.device.into();
    status.st_size = attributes.size.cast_signed();
    status.st_blksize = PAGE.cast_signed();
    status.st_blocks = attributes.blocks.cast_signed();
    status.st_atime = attributes.accessed.seconds;
    status.st_atime_nsec = attributes.accessed.nanoseconds.into();
    status.st_mtime = attributes.modified.seconds;
    status.st_mtime_nsec = attributes.modified.nanoseconds.into();
    status.st_ctime = attributes.changed.seconds;
    status.st_ctime_nsec = attributes.changed.nanoseconds.into();
    status
}

/// The status of what a handle has open, as fstat(2); of a connection, that of the pool's root.
///
/// st_dev is a number of the pool. Does not block, but for another session that has the file. EBADF, ESTALE, EFAULT.
#[unsafe(no_mangle)]
pub extern "C" fn arck_fstat(file: arck_handle, status: StatusRoom) -> c_int {
    answer(|| {
        status.expected()?;
        let place = handles::place(file)?;
        let attributes = match place.at {
            At::Directory(handle) => place.files.stat_handle(handle)?,
            root => place.files.stat(root, b"", 0)?,
        };
        status.put(status_of(&attributes, place.files.pool_identity()[0]))?;
        Ok(0)
    })
}

/// The status of a file, as fstatat(2). flags: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. As arck_fstat, and errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_fstatat(
    directory: arck_handle,
    path: Text,
    status: StatusRoom,
    flags: c_int,
) -> c_int {
    answer(|| {
        status.expected()?;
        let known = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT;
        expect_flags(flags, known)?;
        let reached = reach(directory, path, flags)?;
        let files = reached.files();
        let attributes = files.stat(reached.at, reached.path, flags)?;
        status.put(status_of(&attributes, files.pool_identity()[0]))?;
        Ok(0)
    })
}

/// How large the pool is and what is free, as fstatvfs(3). file: a connection, or anything that is open in it. What the session has
/// changed is folded before: blocks for that. EBADF, ESTALE, EFAULT, EIO.
#[unsafe(no_mangle)]
pub extern "C" fn arck_fstatvfs(file: arck_handle, statistics: StatisticsRoom) -> c_int {
    answer(|| {
        statistics.expected()?;
        let place = handles::place(file)?;
        let told = place.files.statistics()?;
        let mut facts = libc::statvfs::zero();
        facts.f_bsize = PAGE;
        facts.f_frsize = PAGE;
        facts.f_blocks = told.pages;
        facts.f_bfree = told.pages_free;
        facts.f_bavail = told.pages_free;
        facts.f_files = told.inodes;
        facts.f_ffree = told.inodes_free;
        facts.f_favail = told.inodes_free;
        facts.f_fsid = told.id;
        facts.f_flag = libc::ST_NODEV;
        facts.f_namemax = told.name_max.into();
        statistics.put(facts)?;
        Ok(0)
    })
}

/// Changes permission bits, as fchmod(2). Durable when it returns. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_fchmod(file: arck_handle, mode: libc::mode_t) -> c_int {
    answer(|| {
        let place = handles::place(file)?;
        place
            .files
            .change_mode_handle(place.file()?, mode & 0o7777)?;
        Ok(0)
    })
}

/// Changes permission bits, as fchmodat(2). flags: AT_SYMLINK_NOFOLLOW (EOPNOTSUPP for a symbolic link), AT_EMPTY_PATH. Durable when
/// it returns. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_fchmodat(
    directory: arck_handle,
    path: Text,
    mode: libc::mode_t,
    flags: c_int,
) -> c_int {
    answer(|| {
        expect_flags(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
        let reached = reach(directory, path, flags)?;
        let files = reached.files();
        files.change_mode(reached.at, reached.path, mode & 0o7777, flags)?;
        Ok(0)
    })
}

/// Changes owner and group, as fchownat(2); -1 leaves one as it is. flags: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. Blocks: the
/// controller does it. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_fchownat(
    directory: arck_handle,
    path: Text,
    owner: libc::uid_t,
    group: libc::gid_t,
    flags: c_int,
) -> c_int {
    answer(|| {
        expect_flags(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
        let reached = reach(directory, path, flags)?;
        let files = reached.files();
        files.change_owner(reached.at, reached.path, owner, group, flags)?;
        Ok(0)
    })
}

fn time_of(time: libc::timespec) -> Result<SetTime, Trouble> {
    let nanoseconds = match time.tv_nsec {
        libc::UTIME_NOW => return Ok(SetTime::Now),
        libc::UTIME_OMIT => return Ok(SetTime::Omit),
        nanoseconds => u32::try_from(nanoseconds).map_err(|_| Errno::INVAL)?,
    };
    if nanoseconds >= 1_000_000_000 {
        return Err(Errno::INVAL.into());
    }
    Ok(SetTime::At(Timestamp {
        seconds: time.tv_sec,
        nanoseconds,
    }))
}

fn times_of(times: Times) -> Result<(SetTime, SetTime), Trouble> {
    match times.get() {
        None => Ok((SetTime::Now, SetTime::Now)),
        Some([accessed, modified]) => Ok((time_of(accessed)?, time_of(modified)?)),
    }
}

/// Sets the times of access and of change, as futimens(3): times is an array of two, or NULL for now; UTIME_NOW and UTIME_OMIT
/// count. Durable when it returns. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_futimens(file: arck_handle, times: Times) -> c_int {
    answer(|| {
        let (accessed, modified) = times_of(times)?;
        let place = handles::place(file)?;
        let handle = place.file()?;
        place.files.set_times_handle(handle, accessed, modified)?;
        Ok(0)
    })
}

/// The same by a path, as utimensat(2). flags: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
#[unsafe(no_mangle)]
pub extern "C" fn arck_utimensat(
    directory: arck_handle,
    path: Text,
    times: Times,
    flags: c_int,
) -> c_int {
    answer(|| {
        expect_flags(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
        let (accessed, modified) = times_of(times)?;
        let reached = reach(directory, path, flags)?;
        let files = reached.files();
        files.set_times(reached.at, reached.path, accessed, modified, flags)?;
        Ok(0)
    })
}
