//! Paths that programs pass.

use crate::error::{of_errno, told};
use arckfs::Errno;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// From the pool's root. Only what was given as no bytes at all leads nowhere.
pub fn inside(path: &Path) -> io::Result<&[u8]> {
    let given = path.as_os_str().as_bytes();
    if given.is_empty() {
        return Err(of_errno(Errno::NOENT));
    }
    if given.contains(&0) {
        return Err(told(Errno::INVAL, "a path has no zero bytes"));
    }
    let slashes = given.iter().take_while(|&&byte| byte == b'/').count();
    Ok(&given[slashes..])
}
