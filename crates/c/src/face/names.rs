//! Names: making, removing, renaming, linking.

use crate::boundary::{Text, TextRoom};
use crate::face::paths::{expect_flags, reach};
use crate::handles::arck_handle;
use crate::making::masked;
use crate::trouble::answer;
use arckfs::Errno;
use std::ffi::{c_int, c_uint};

/// Makes a directory, as mkdirat(2). Durable when it returns. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_mkdirat(directory: arck_handle, path: Text, mode: libc::mode_t) -> c_int {
    answer(|| {
        let reached = reach(directory, path, 0)?;
        // The sticky bit comes along.
        let mode = masked(reached.place.connection, mode);
        reached
            .files()
            .make_directory(reached.at, reached.path, mode)?;
        Ok(0)
    })
}

/// Removes a name, as unlinkat(2). flags: 0 or AT_REMOVEDIR. Durable when it returns. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_unlinkat(directory: arck_handle, path: Text, flags: c_int) -> c_int {
    answer(|| {
        expect_flags(flags, libc::AT_REMOVEDIR)?;
        let reached = reach(directory, path, 0)?;
        reached.files().unlink(reached.at, reached.path, flags)?;
        Ok(0)
    })
}

/// Renames, as renameat2(2), in one step, after a crash too. flags: 0, RENAME_NOREPLACE or RENAME_EXCHANGE. Durable when it
/// returns. Blocks where a directory goes to another one that the session has not made. Errors as there; EXDEV: the directories are of
/// different connections.
#[unsafe(no_mangle)]
pub extern "C" fn arck_renameat2(
    from_directory: arck_handle,
    from: Text,
    to_directory: arck_handle,
    to: Text,
    flags: c_uint,
) -> c_int {
    answer(|| {
        let reached = reach(from_directory, from, 0)?;
        let (to_at, to) = reached.second(to_directory, to)?;
        let files = reached.files();
        files.rename(reached.at, reached.path, to_at, to, flags)?;
        Ok(0)
    })
}

/// Gives a file another name, as linkat(2). flags: AT_SYMLINK_FOLLOW, and AT_EMPTY_PATH for what the first handle has open.
/// Durable when it returns. Errors as there; EXDEV as of arck_renameat2.
#[unsafe(no_mangle)]
pub extern "C" fn arck_linkat(
    from_directory: arck_handle,
    from: Text,
    to_directory: arck_handle,
    to: Text,
    flags: c_int,
) -> c_int {
    answer(|| {
        expect_flags(flags, libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH)?;
        let reached = reach(from_directory, from, flags)?;
        let (to_at, to) = reached.second(to_directory, to)?;
        let files = reached.files();
        files.link(reached.at, reached.path, to_at, to, flags)?;
        Ok(0)
    })
}

/// Makes a symbolic link, as symlinkat(2). Durable when it returns. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_symlinkat(target: Text, directory: arck_handle, path: Text) -> c_int {
    answer(|| {
        let target = target.get()?;
        let reached = reach(directory, path, 0)?;
        reached.files().symlink(target, reached.at, reached.path)?;
        Ok(0)
    })
}

/// Where a symbolic link leads, as readlinkat(2): without a zero byte, and cut where there is no more room. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_readlinkat(
    directory: arck_handle,
    path: Text,
    target: TextRoom,
    size: usize,
) -> isize {
    answer(|| {
        let target = target.get(size)?;
        if target.is_empty() {
            return Err(Errno::INVAL.into());
        }
        let reached = reach(directory, path, 0)?;
        let read = reached
            .files()
            .read_link(reached.at, reached.path, target)?;
        Ok(read.cast_signed())
    })
}

/// Makes a file, a named pipe, a socket's name or a device, as mknodat(2). Durable when it returns. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_mknodat(
    directory: arck_handle,
    path: Text,
    mode: libc::mode_t,
    device: libc::dev_t,
) -> c_int {
    answer(|| {
        let reached = reach(directory, path, 0)?;
        let mode = mode & libc::S_IFMT | masked(reached.place.connection, mode);
        reached
            .files()
            .make_node(reached.at, reached.path, mode, device)?;
        Ok(0)
    })
}
