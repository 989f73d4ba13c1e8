//! Extended attributes, by path or handle.
//!
//! # Invariant
//! A handle opened with O_PATH is none for these calls, and the access mode of any other does not
//! matter: rights are those of the inode, as on Linux.

use super::*;
use crate::attributes::extended::check_lengths;

impl FileSystem {
    /// getxattr: bytes of the value, which are put into `buffer` unless it is empty. ENODATA,
    /// ERANGE, EOPNOTSUPP, EACCES.
    pub fn get_extended(
        &self,
        subject: Subject<'_>,
        name: &[u8],
        buffer: &mut [u8],
    ) -> Result<usize, Failure> {
        check_lengths(name, &[])?;
        self.on_subject(subject, |context, inode| {
            context.get_extended(inode, name, buffer)
        })
    }

    /// listxattr: bytes of all names, each with a NUL, put into `buffer` unless it is empty.
    /// ERANGE.
    pub fn list_extended(&self, subject: Subject<'_>, buffer: &mut [u8]) -> Result<usize, Failure> {
        self.on_subject(subject, |context, inode| {
            context.list_extended(inode, buffer)
        })
    }

    /// setxattr; `flags`: XATTR_CREATE, XATTR_REPLACE. Durable when it returns. EINVAL, EEXIST, ENODATA; E2BIG beyond 65,536 bytes; ENOSPC if
    /// all attributes do not fit in 4096 bytes (of which each takes 4 besides name and value), or
    /// the pool is full; EPERM, EACCES, EOPNOTSUPP.
    pub fn set_extended(
        &self,
        subject: Subject<'_>,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<(), Failure> {
        if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
            return Err(Errno::INVAL.into());
        }
        check_lengths(name, value)?;
        self.on_subject(subject, |context, inode| {
            context.set_extended(inode, name, value, flags)
        })
    }

    /// removexattr. Durable when it returns. ENODATA, EPERM, EACCES, EOPNOTSUPP; ENOSPC if others
    /// are left and the pool has no page for them.
    pub fn remove_extended(&self, subject: Subject<'_>, name: &[u8]) -> Result<(), Failure> {
        check_lengths(name, &[])?;
        self.on_subject(subject, |context, inode| {
            context.remove_extended(inode, name)
        })
    }

    fn on_subject<T>(
        &self,
        subject: Subject<'_>,
        attempt: impl FnMut(&Context<'_>, &'static CachedInode) -> Attempt<T>,
    ) -> Result<T, Failure> {
        match subject {
            Subject::Path(at, path, flags) => self.on_path(at, path, flags, attempt),
            Subject::Handle(handle) => {
                self.not_path_only(handle)?;
                Ok(self.on_handle(handle, attempt)?)
            }
        }
    }
}
