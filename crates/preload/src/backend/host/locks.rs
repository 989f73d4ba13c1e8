//! Locks, as the kernel keeps them.

use super::*;

impl FileSystem {
    pub fn receive_lock_file(&self, handle: Handle) -> Result<Received, Errno> {
        let file = self.file(handle)?;
        let duplicate = || {
            // SAFETY: another descriptor of a file of ours.
            let file = unsafe { syscall!(libc::SYS_fcntl, file, libc::F_DUPFD_CLOEXEC, 0) };
            // SAFETY: just opened, and nobody else's.
            check(file).map(|file| ((), vec![unsafe { OwnedFd::from_raw_fd(file as i32) }]))
        };
        Received::by(duplicate).map(|((), received)| received)
    }
    /// Whoever takes it over opens the same file of the host's.
    pub fn keep_lock(&self, _handle: Handle, _file: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }
    pub fn received_again(&self, _handle: Handle) -> Result<(), Errno> {
        Ok(())
    }
    pub fn identity(&self, handle: Handle) -> Result<(u32, u32), Errno> {
        let file = self.file(handle)?;
        let found = crate::raw::identity_of(file as usize).ok_or(Errno::BADF)?;
        Ok((found[1] as u32, found[0] as u32))
    }
}
