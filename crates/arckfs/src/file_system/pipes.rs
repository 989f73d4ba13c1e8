//! Named pipes: what is read and written there is the kernel's.
//!
//! Invariant: a pipe is opened for who may open its inode so, here and by the controller.

use super::*;
use arck_libfs_kit::messages::Access;
use arck_libfs_kit::session::OpenedPipe;
use std::os::fd::BorrowedFd;

impl FileSystem {
    /// A handle of the inode of a named pipe, by a descriptor of the kernel's that may be one of its FIFO: for its
    /// attributes; nothing is read or written by it. Blocks. EBADF if that is another file, ESTALE if the inode is gone.
    pub fn pipe_of(
        &self,
        descriptor: BorrowedFd<'_>,
        inode: (InodeNumber, u32),
    ) -> Result<Handle, Errno> {
        self.engine.session.expect_pipe(inode, descriptor)?;
        let listed = self.engine.run_local(|context| {
            let inode = context.view(inode.0, inode.1)?;
            context.list_open(inode)
        })?;
        let opened = self.engine.new_description(listed, libc::O_RDONLY);
        if opened.is_err() {
            self.engine.kit().unlist_open(listed)?;
        }
        opened
    }

    /// A named pipe that is to be opened anew, by such a descriptor. The same errors, and those of opening.
    pub fn pipe_again(
        &self,
        descriptor: BorrowedFd<'_>,
        inode: (InodeNumber, u32),
        flags: i32,
    ) -> Result<NamedPipe, Errno> {
        self.engine.session.expect_pipe(inode, descriptor)?;
        self.engine.run_local(|context| {
            let view = context.view(inode.0, inode.1)?;
            context.may_open(view, flags)?;
            Ok(NamedPipe { inode, flags })
        })
    }

    /// Opens a named pipe: a descriptor of the kernel's, with the access mode and O_NONBLOCK of its flags. Who has to
    /// wait for the other end is told by what. Blocks, but not for that. ENXIO for writing without waiting
    /// where nobody reads, EINVAL for neither reading nor writing, ESTALE if it is gone, ENFILE, EBUSY.
    pub fn open_pipe(&self, pipe: &NamedPipe) -> Result<OpenedPipe, Errno> {
        let access = match pipe.flags & ACCESS_MODE {
            libc::O_RDONLY => Access::Read,
            libc::O_WRONLY => Access::Write,
            libc::O_RDWR => Access::ReadWrite,
            _ => return Err(Errno::INVAL),
        };
        // Where it fails, the controller says whether it knows the inode.
        let _ = self.let_be_created(pipe.inode);
        let waits = pipe.flags & libc::O_NONBLOCK == 0;
        self.engine.session.open_pipe(pipe.inode, access, waits)
    }
}
