//! Status, permission bits of what is made, times, extended attributes.

use crate::errors::Refusal;
use arckfs::{At, Attributes, Errno, FileSystem, SetTime, Subject, Timestamp};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// As `os.stat_result` is made from: ten numbers, and the others by their names.
pub fn status<'py>(
    py: Python<'py>,
    attributes: &Attributes,
    device: u64,
) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
    let Attributes {
        accessed,
        modified,
        changed,
        ..
    } = *attributes;
    let ten = (
        attributes.mode,
        attributes.inode,
        device,
        attributes.links,
        attributes.uid,
        attributes.gid,
        attributes.size,
        accessed.seconds,
        modified.seconds,
        changed.seconds,
    );
    let others = PyDict::new(py);
    let times = [
        ("st_atime", "st_atime_ns", accessed),
        ("st_mtime", "st_mtime_ns", modified),
        ("st_ctime", "st_ctime_ns", changed),
    ];
    for (seconds, nanoseconds, time) in times {
        others.set_item(
            seconds,
            time.seconds as f64 + f64::from(time.nanoseconds) / 1e9,
        )?;
        let whole = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
        others.set_item(nanoseconds, whole)?;
    }
    others.set_item("st_blksize", 4096)?;
    others.set_item("st_blocks", attributes.blocks)?;
    others.set_item("st_rdev", attributes.device)?;
    Ok((ten.into_pyobject(py)?, others))
}

/// A time in nanoseconds since the epoch, as a call is to set it.
pub fn time(nanoseconds: i128) -> Result<SetTime, Errno> {
    let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000));
    let rest = nanoseconds.rem_euclid(1_000_000_000);
    Ok(SetTime::At(Timestamp {
        seconds: seconds.map_err(|_| Errno::OVERFLOW)?,
        nanoseconds: u32::try_from(rest).map_err(|_| Errno::OVERFLOW)?,
    }))
}

/// Permission bits without those that the process's umask takes from what is made. The kernel tells
/// it here: to ask by `umask` is to change it, for all threads.
pub fn masked(mode: u32) -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))
        .and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
    // Where nothing tells it: what is nobody's but the user's.
    mode & !mask.unwrap_or(0o077)
}

/// What an extended attribute is of.
pub fn subject(path: &[u8], follow: bool) -> Subject<'_> {
    Subject::Path(At::Root, path, follow_flag(follow))
}

/// `AT_*`.
pub fn follow_flag(follow: bool) -> i32 {
    match follow {
        true => 0,
        false => libc::AT_SYMLINK_NOFOLLOW,
    }
}

/// Bytes that a call gives into a buffer, whose length it is asked for first. They may become more meanwhile.
fn whole(mut call: impl FnMut(&mut [u8]) -> Result<usize, Refusal>) -> Result<Vec<u8>, Refusal> {
    loop {
        let length = call(&mut [])?;
        let mut buffer = vec![0; length];
        if length == 0 {
            return Ok(buffer);
        }
        match call(&mut buffer) {
            Err(Refusal::Errno(Errno::RANGE)) => {}
            other => {
                buffer.truncate(other?);
                return Ok(buffer);
            }
        }
    }
}

pub fn extended(
    file_system: &FileSystem,
    subject: Subject<'_>,
    name: &[u8],
) -> Result<Vec<u8>, Refusal> {
    whole(|buffer| Ok(file_system.get_extended(subject, name, buffer)?))
}

/// Names of extended attributes.
pub fn extended_names(
    file_system: &FileSystem,
    subject: Subject<'_>,
) -> Result<Vec<std::ffi::OsString>, Refusal> {
    use std::os::unix::ffi::OsStringExt;
    let all = whole(|buffer| Ok(file_system.list_extended(subject, buffer)?))?;
    let names = all.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    Ok(names
        .map(|name| std::ffi::OsString::from_vec(name.to_vec()))
        .collect())
}
