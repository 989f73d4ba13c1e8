//! Extended attributes.

use crate::boundary::{Bytes, Room, Text, TextRoom};
use crate::face::paths::{Reached, expect_flags, reach};
use crate::handles::arck_handle;
use crate::trouble::{Trouble, answer};
use arckfs::Subject;
use std::ffi::c_int;

/// What an attribute is of.
fn subject<'p>(directory: i64, path: Text, flags: c_int) -> Result<Reached<'p>, Trouble> {
    expect_flags(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
    reach(directory, path, flags)
}

/// The value of an extended attribute, as getxattr(2) and fgetxattr(2); gives its length, which alone is told where size is 0.
///
/// flags: AT_SYMLINK_NOFOLLOW; AT_EMPTY_PATH with "" for what the handle has open. Names begin with "user." ENODATA: there is
/// none; ERANGE: no room for it; EOPNOTSUPP; and errors of fstatat(2).
#[unsafe(no_mangle)]
pub extern "C" fn arck_getxattrat(
    directory: arck_handle,
    path: Text,
    flags: c_int,
    name: Text,
    value: Room,
    size: usize,
) -> isize {
    answer(|| {
        let (name, value) = (name.get()?, value.get(size)?);
        let reached = subject(directory, path, flags)?;
        let subject = Subject::Path(reached.at, reached.path, flags);
        let read = reached.files().get_extended(subject, name, value)?;
        Ok(read.cast_signed())
    })
}

/// Sets an extended attribute, as setxattr(2). flags as of arck_getxattrat; how: 0, XATTR_CREATE or XATTR_REPLACE. Durable when it
/// returns. ENOSPC: all attributes of a file have 4 KiB together. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_setxattrat(
    directory: arck_handle,
    path: Text,
    flags: c_int,
    name: Text,
    value: Bytes,
    size: usize,
    how: c_int,
) -> c_int {
    answer(|| {
        let (name, value) = (name.get()?, value.get(size)?);
        let reached = subject(directory, path, flags)?;
        let subject = Subject::Path(reached.at, reached.path, flags);
        reached.files().set_extended(subject, name, value, how)?;
        Ok(0)
    })
}

/// The names of extended attributes, each with a zero byte, as listxattr(2); gives their length together, which alone is told where
/// size is 0. As arck_getxattrat.
#[unsafe(no_mangle)]
pub extern "C" fn arck_listxattrat(
    directory: arck_handle,
    path: Text,
    flags: c_int,
    names: TextRoom,
    size: usize,
) -> isize {
    answer(|| {
        let names = names.get(size)?;
        let reached = subject(directory, path, flags)?;
        let subject = Subject::Path(reached.at, reached.path, flags);
        let read = reached.files().list_extended(subject, names)?;
        Ok(read.cast_signed())
    })
}

/// Takes an extended attribute away, as removexattr(2). Durable when it returns. As arck_getxattrat.
#[unsafe(no_mangle)]
pub extern "C" fn arck_removexattrat(
    directory: arck_handle,
    path: Text,
    flags: c_int,
    name: Text,
) -> c_int {
    answer(|| {
        let name = name.get()?;
        let reached = subject(directory, path, flags)?;
        let subject = Subject::Path(reached.at, reached.path, flags);
        reached.files().remove_extended(subject, name)?;
        Ok(0)
    })
}
