//! Names: making, removing, renaming, linking, listing.

use super::*;

impl FileSystem {
    pub fn make_directory(&self, at: At, path: &[u8], mode: u32) -> Result<(), Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        // SAFETY: a NUL-terminated path.
        done(unsafe { syscall!(libc::SYS_mkdirat, directory, path.as_ptr(), mode) })
    }
    pub fn unlink(&self, at: At, path: &[u8], flags: AtFlags) -> Result<(), Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        // SAFETY: a NUL-terminated path.
        done(unsafe { syscall!(libc::SYS_unlinkat, directory, path.as_ptr(), flags) })
    }
    pub fn rename(
        &self,
        from_at: At,
        from: &[u8],
        to_at: At,
        to: &[u8],
        flags: u32,
    ) -> Result<(), Failure> {
        let (from, to) = (self.locate(from_at, from)?, self.locate(to_at, to)?);
        // SAFETY: NUL-terminated paths.
        done(unsafe {
            syscall!(
                libc::SYS_renameat2,
                from.0,
                from.1.as_ptr(),
                to.0,
                to.1.as_ptr(),
                flags
            )
        })
    }
    pub fn link(
        &self,
        from_at: At,
        from: &[u8],
        to_at: At,
        to: &[u8],
        flags: AtFlags,
    ) -> Result<(), Failure> {
        let (from, to) = (self.locate(from_at, from)?, self.locate(to_at, to)?);
        // SAFETY: NUL-terminated paths.
        done(unsafe {
            syscall!(
                libc::SYS_linkat,
                from.0,
                from.1.as_ptr(),
                to.0,
                to.1.as_ptr(),
                flags
            )
        })
    }
    pub fn symlink(&self, target: &[u8], at: At, path: &[u8]) -> Result<(), Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        let target = CString::new(target).map_err(|_| Errno::INVAL)?;
        // SAFETY: NUL-terminated strings.
        done(unsafe {
            syscall!(
                libc::SYS_symlinkat,
                target.as_ptr(),
                directory,
                path.as_ptr()
            )
        })
    }
    pub fn read_link(&self, at: At, path: &[u8], buffer: &mut [u8]) -> Result<usize, Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        // SAFETY: a NUL-terminated path and the buffer.
        Ok(check(unsafe {
            syscall!(
                libc::SYS_readlinkat,
                directory,
                path.as_ptr(),
                buffer.as_mut_ptr(),
                buffer.len()
            )
        })
        .map(|n| n as usize)?)
    }
    pub fn make_node(&self, at: At, path: &[u8], mode: u32, device: u64) -> Result<(), Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        // SAFETY: a NUL-terminated path.
        done(unsafe { syscall!(libc::SYS_mknodat, directory, path.as_ptr(), mode, device) })
    }
    pub fn read_directory(&self, handle: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the buffer.
        check(unsafe {
            syscall!(
                libc::SYS_getdents64,
                self.file(handle)?,
                buffer.as_mut_ptr(),
                buffer.len()
            )
        })
        .map(|n| n as usize)
    }
    pub fn path_of(&self, handle: Handle) -> Result<Vec<u8>, Errno> {
        Ok([MOUNT.get(), &self.below(handle)?[..]].concat())
    }
}
