//! Extended attributes: not served. On the pool they answer as file systems without the feature do,
//! so that programs fall back.

use super::{HERE, on_descriptor, on_path};
use crate::raw::{self, Arguments, error};

/// A refusal by path in the first argument: the path is looked up, so that a missing file is
/// still ENOENT.
///
/// # Safety
/// The system call's own.
pub unsafe fn refuse_path<const NUMBER: usize, const ERRNO: i32>(a: &Arguments) -> isize {
    // SAFETY: the program's arguments, unchanged but for the path.
    unsafe {
        on_path(
            NUMBER as i64,
            HERE,
            a[0],
            |fs, at, path| fs.stat(at, path, 0).map(|_| error(ERRNO)),
            |_, path| raw::call(NUMBER, &[path, a[1], a[2], a[3], a[4], a[5]]),
        )
    }
}

/// A refusal by descriptor.
///
/// # Safety
/// The system call's own.
pub unsafe fn refuse_descriptor<const NUMBER: usize, const ERRNO: i32>(a: &Arguments) -> isize {
    on_descriptor(
        NUMBER as i64,
        a[0],
        |_, _| Ok(error(ERRNO)),
        // SAFETY: the program's arguments, unchanged.
        || unsafe { raw::call(NUMBER, a) },
    )
}

/// `listxattr` and its kin answer that there are none.
///
/// # Safety
/// The system call's own.
pub unsafe fn none_path<const NUMBER: usize>(a: &Arguments) -> isize {
    // SAFETY: as for `refuse_path`; a "refusal" of 0 is an empty list.
    unsafe { refuse_path::<NUMBER, 0>(a) }
}

/// The same by descriptor.
///
/// # Safety
/// The system call's own.
pub unsafe fn none_descriptor<const NUMBER: usize>(a: &Arguments) -> isize {
    // SAFETY: as for `refuse_descriptor`.
    unsafe { refuse_descriptor::<NUMBER, 0>(a) }
}
