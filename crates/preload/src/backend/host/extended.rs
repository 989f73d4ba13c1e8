//! Extended attributes, by paths below the descriptor of a directory.

use super::*;

impl FileSystem {
    /// An extended attribute's call on whatever a subject names: `call` of its number and of the
    /// path or descriptor. `numbers`: of a path, of one that is a link itself, of a descriptor.
    fn on_subject(
        &self,
        subject: Subject<'_>,
        numbers: [i64; 3],
        call: impl FnOnce(i64, isize) -> isize,
    ) -> Result<usize, Failure> {
        let result = match subject {
            Subject::Handle(handle) => call(numbers[2], self.file(handle)?),
            Subject::Path(at, path, flags) => {
                let Located(directory, path) = self.locate(at, path)?;
                // These calls take no directory.
                let mut full = format!("/proc/self/fd/{directory}/").into_bytes();
                full.extend_from_slice(path.to_bytes_with_nul());
                let link = usize::from(flags & libc::AT_SYMLINK_NOFOLLOW != 0);
                call(numbers[link], full.as_ptr() as isize)
            }
        };
        Ok(check(result)? as usize)
    }
    pub fn get_extended(
        &self,
        subject: Subject<'_>,
        name: &[u8],
        buffer: &mut [u8],
    ) -> Result<usize, Failure> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let numbers = [libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_fgetxattr];
        self.on_subject(subject, numbers, |number, which| {
            // SAFETY: a NUL-terminated path or a descriptor, a NUL-terminated name, the buffer.
            unsafe {
                syscall!(
                    number,
                    which,
                    name.as_ptr(),
                    buffer.as_mut_ptr(),
                    buffer.len()
                )
            }
        })
    }
    pub fn list_extended(&self, subject: Subject<'_>, buffer: &mut [u8]) -> Result<usize, Failure> {
        let numbers = [
            libc::SYS_listxattr,
            libc::SYS_llistxattr,
            libc::SYS_flistxattr,
        ];
        self.on_subject(subject, numbers, |number, which| {
            // SAFETY: a NUL-terminated path or a descriptor, and the buffer.
            unsafe { syscall!(number, which, buffer.as_mut_ptr(), buffer.len()) }
        })
    }
    pub fn set_extended(
        &self,
        subject: Subject<'_>,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<(), Failure> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let numbers = [libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr];
        let set = |number, which| {
            // SAFETY: a NUL-terminated path or a descriptor, a NUL-terminated name, the value.
            unsafe {
                syscall!(
                    number,
                    which,
                    name.as_ptr(),
                    value.as_ptr(),
                    value.len(),
                    flags
                )
            }
        };
        self.on_subject(subject, numbers, set).map(drop)
    }
    pub fn remove_extended(&self, subject: Subject<'_>, name: &[u8]) -> Result<(), Failure> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let numbers = [
            libc::SYS_removexattr,
            libc::SYS_lremovexattr,
            libc::SYS_fremovexattr,
        ];
        let remove = |number, which| {
            // SAFETY: a NUL-terminated path or a descriptor, and a NUL-terminated name.
            unsafe { syscall!(number, which, name.as_ptr()) }
        };
        self.on_subject(subject, numbers, remove).map(drop)
    }
}
