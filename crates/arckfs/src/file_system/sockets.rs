//! Unix sockets with a name on the pool: what is said through them is the kernel's.
//!
//! Invariant: the name is made before the socket is bound to it, and goes again if that fails.

use super::*;
use arck_libfs_kit::forks::Received;
use std::os::fd::BorrowedFd;

impl FileSystem {
    /// Makes a socket's name, and binds the socket to it. `mode` is already masked by the umask; `given`: the path as the
    /// program gave it, which its peers are told. EADDRINUSE if there is something of that name; else as
    /// [`make_node`](Self::make_node), and what the kernel and the controller tell of binding. Blocks.
    pub fn bind_socket(
        &self,
        (at, path): (At, &[u8]),
        mode: u32,
        given: &[u8],
        socket: BorrowedFd<'_>,
    ) -> Result<(), Failure> {
        let creation = Creation {
            kind: FileKind::Socket,
            mode: mode & 0o7777,
            target: b"",
            device: 0,
            opens: false,
            owner: self.engine.credentials.owner(),
            groups: &self.engine.credentials.groups,
        };
        let made = match self.make(at, path, creation) {
            Err(Failure::Errno(Errno::EXIST)) => return Err(Errno::ADDRINUSE.into()),
            other => other?,
        };
        let bound = self
            .let_be_created(made)
            .and_then(|()| self.engine.session.bind_socket(made, given, socket));
        if let Err(errno) = bound {
            let is_there = self.stat(at, path, libc::AT_SYMLINK_NOFOLLOW);
            if is_there.is_ok_and(|found| found.inode == u64::from(made.0)) {
                // Nobody can have been connected by it.
                let _ = self.unlink(at, path, 0);
            }
            return Err(errno.into());
        }
        Ok(())
    }

    /// One descriptor, by whose name in `/proc` one connects to the socket that a path leads to. EACCES for who may not
    /// write it, ECONNREFUSED if nothing is bound to it, or it is no socket. Blocks.
    pub fn find_socket(&self, at: At, path: &[u8]) -> Result<Received, Failure> {
        let found = self.on_path(at, path, 0, |context, inode| {
            context.credentials.check(inode, 2)?;
            if inode.kind() != Some(FileKind::Socket) {
                return Err(Errno::CONNREFUSED.into());
            }
            Ok((inode.number(), inode.generation()))
        })?;
        match self.engine.session.find_socket(found) {
            // The controller does not know it, as nothing was ever bound to it; or it has been removed meanwhile.
            Err(Errno::STALE) => Err(Errno::CONNREFUSED.into()),
            found => Ok(found?),
        }
    }
}
