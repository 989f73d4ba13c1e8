//! libc's `errno`.
//!
//! Invariant: it is that of the thread that calls.

use arckfs::Errno;

/// Tells libc's `errno` of this thread.
pub fn set(errno: Errno) {
    // SAFETY: libc's own variable of this thread.
    unsafe { *libc::__errno_location() = errno.raw_os_error() };
}
