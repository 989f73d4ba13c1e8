//! Status, times, and what an attribute is of.

use arckfs::{At, Attributes, Errno, SetTime, Subject, Timestamp};
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
