//! Where a path of C's leads: the rules that all calls by a path share.

use crate::boundary::Text;
use crate::handles::{self, Place};
use crate::trouble::Trouble;
use arckfs::{At, Errno, FileSystem};
use std::ffi::c_int;

/// A path, with where it begins.
pub struct Reached<'p> {
    pub place: Place,
    pub at: At,
    pub path: &'p [u8],
}

/// Where a path begins: absolute ones at the pool's root. ENOENT for an empty one, unless `flags` have AT_EMPTY_PATH.
fn begin(path: &[u8], at: At, flags: c_int) -> Result<(At, &[u8]), Trouble> {
    match path {
        [] if flags & libc::AT_EMPTY_PATH == 0 => Err(Errno::NOENT.into()),
        [b'/', ..] => {
            let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
            Ok((At::Root, &path[slashes..]))
        }
        _ => Ok((at, path)),
    }
}

/// EINVAL for flags that are not among those which a call knows.
pub fn expect_flags(flags: c_int, known: c_int) -> Result<(), Trouble> {
    match flags & !known {
        0 => Ok(()),
        _ => Err(Errno::INVAL.into()),
    }
}

/// Where a call by a path begins. EBADF, ENOENT, EFAULT.
#[inline]
pub fn reach<'p>(at: i64, path: Text, flags: c_int) -> Result<Reached<'p>, Trouble> {
    let path = path.get()?;
    let place = handles::place(at)?;
    let (at, path) = begin(path, place.at, flags)?;
    Ok(Reached { place, at, path })
}

impl Reached<'_> {
    #[inline]
    pub fn files(&self) -> &'static FileSystem {
        self.place.files
    }

    /// Where a second path of the same call begins. EXDEV.
    pub fn second<'p>(&self, at: i64, path: Text) -> Result<(At, &'p [u8]), Trouble> {
        let (path, at) = (path.get()?, self.place.other(at)?);
        match (path, at) {
            // As on Linux, what is wrong with the first path is told before that there is no second one.
            ([], At::Directory(_)) => Ok((at, path)),
            _ => begin(path, at, 0),
        }
    }
}
