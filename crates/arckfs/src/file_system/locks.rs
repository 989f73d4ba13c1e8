//! Advisory locks, which the kernel keeps: see [`FileSystem::lock_file`].

use super::*;
use arck_libfs_kit::forks::Received;
use arck_libfs_kit::messages::Access;

impl FileSystem {
    /// What stands for the handle's file in the kernel's advisory locks: an open file description of its
    /// own, of a file that all who lock the inode lock, in the mode that the handle was opened in. Whoever
    /// wants a lock of the file asks the kernel for that lock there: what is the process's (`fcntl`) is
    /// dropped as soon as the process closes any of them, as with files of the kernel's; what is the
    /// description's (`flock`, OFD) when the last descriptor of this one is closed. It can neither be
    /// written nor read to any use. Blocks. EBADF for a handle that is open for neither reading nor writing;
    /// ENOLCK if there are too many.
    pub fn lock_file(&self, handle: Handle) -> Result<OwnedFd, Errno> {
        let file = self.receive_lock_file(handle)?;
        file.place(|files| files.into_iter().next())
            .ok_or(Errno::PROTO)
    }

    /// The same, one descriptor, which forked children do not have before it is [placed](Received::place).
    pub fn receive_lock_file(&self, handle: Handle) -> Result<Received, Errno> {
        let description = self.engine.description(handle)?;
        let flags = self.engine.flags_of(description, &self.externals);
        let access = match flags & libc::O_ACCMODE {
            _ if flags & libc::O_PATH != 0 => return Err(Errno::BADF),
            libc::O_RDONLY => Access::Read,
            libc::O_WRONLY => Access::Write,
            libc::O_RDWR => Access::ReadWrite,
            _ => return Err(Errno::BADF),
        };
        let (inode, generation) = self.identity(handle)?;
        self.engine.session.lock_file(inode, generation, access)
    }

    /// Number and generation of a handle's inode: what they name is locked by one lock file. EBADF.
    pub fn identity(&self, handle: Handle) -> Result<(u32, u32), Errno> {
        self.engine.description(handle)?.identity()
    }
}
