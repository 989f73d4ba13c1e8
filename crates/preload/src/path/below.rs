//! Paths below the mount point, by their names alone.

use crate::settings::{self, PATH_MAX};

/// Room for a path, all zeroes, that is not on the stack.
pub fn room() -> Box<[u8; PATH_MAX]> {
    // By way of a vector, which is not made on the stack first.
    match vec![0; PATH_MAX].into_boxed_slice().try_into() {
        Ok(room) => room,
        Err(_) => unreachable!(),
    }
}

/// What follows the mount prefix, without leading slashes; `.` for the prefix itself.
#[inline(always)]
pub fn strip(rest: &[u8]) -> &[u8] {
    let mut rest = rest;
    while let Some(after) = rest.strip_prefix(b"/") {
        rest = after;
    }
    if rest.is_empty() { b"." } else { rest }
}

/// The part of an absolute path below the mount prefix, or `None` if it is not below it.
pub fn below_mount(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(settings::MOUNT.get())?;
    (settings::MOUNT.is_set() && matches!(rest.first(), None | Some(b'/'))).then(|| strip(rest))
}
