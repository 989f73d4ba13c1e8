//! Open files.

use crate::error::of_errno;
use crate::map::{Map, MapAccess};
use crate::metadata::Metadata;
use crate::paths::inside;
use crate::session::Session;
use arckfs::{Errno, FileSystem, Handle, masked};
use std::fs::Permissions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// A file that is open, as `std::fs::File`. Dropped, it is closed. All threads may use it; its position is one, which `read`,
/// `write` and `seek` move, each in one step.
///
/// There is no buffer, and no system call: wrap it into `std::io::BufReader` or `BufWriter` for many small reads and writes all the
/// same, which saves the look at the file's state that each call makes. There is no descriptor either: it has no `AsFd`.
///
/// What is written is durable when the call returns, and others see it; in a pool on a file system of blocks (mode `paged`) it is
/// durable when [`sync_all`](File::sync_all) returns. After a crash a write that had not returned may be there in part.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let served = arck_test_pool::TestPool::new(32 << 20);
/// # let files = arck::Pool::new(served.path()).files()?;
/// use std::io::{Read, Seek, SeekFrom, Write};
///
/// let mut file = files.options().read(true).write(true).create(true).open("numbers")?;
/// file.write_all(b"0123456789")?;
/// file.write_at(b"ab", 4)?;
/// file.seek(SeekFrom::End(-6))?;
/// let mut rest = String::new();
/// file.read_to_string(&mut rest)?;
/// assert_eq!(rest, "ab6789");
/// assert_eq!(file.metadata()?.len(), 10);
/// # drop(file);
/// # files.close()
/// # }
/// ```
pub struct File {
    session: Arc<Session>,
    /// That of the process that opened it.
    of: &'static arck_libfs_kit::Session,
    handle: Handle,
}

impl File {
    pub(crate) fn open(
        session: &Arc<Session>,
        path: &Path,
        flags: i32,
        mode: u32,
    ) -> io::Result<File> {
        let mode = match flags & libc::O_CREAT {
            0 => 0,
            _ => masked(mode & 0o7777),
        };
        let path = inside(path)?;
        let (handle, of) = session.run(|file_system| {
            let flags = flags | libc::O_CLOEXEC;
            let handle = file_system.open(arckfs::At::Root, path, flags, mode)?;
            Ok((handle, file_system.session()))
        })?;
        Ok(File::opened(session, of, handle))
    }

    /// What was opened in a session, that of the process being `of`.
    pub(crate) fn opened(
        session: &Arc<Session>,
        of: &'static arck_libfs_kit::Session,
        handle: Handle,
    ) -> File {
        File {
            session: Arc::clone(session),
            of,
            handle,
        }
    }

    /// Another file, in the same session.
    pub(crate) fn beside(&self, path: &Path, flags: i32) -> io::Result<File> {
        File::open(&self.session, path, flags, 0)
    }

    #[inline]
    pub(crate) fn run<T>(
        &self,
        work: impl FnOnce(&FileSystem, Handle) -> Result<T, Errno>,
    ) -> io::Result<T> {
        self.session
            .run_in(self.of, |file_system| work(file_system, self.handle))
    }

    /// The same for who wants the number alone.
    #[inline]
    pub(crate) fn ask<T>(
        &self,
        work: impl FnOnce(&FileSystem, Handle) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if self.is_of_parent() {
            return Err(Errno::STALE);
        }
        let file_system = self.session.here().map_err(|_| Errno::IO)?;
        work(file_system, self.handle)
    }

    /// This process is a forked child of the one that opened it.
    #[inline]
    pub(crate) fn is_of_parent(&self) -> bool {
        self.of.has_ended()
    }

    /// Reads at an offset in bytes, wherever the position is, which stays; gives how many bytes, 0 at the file's end.
    ///
    /// # Errors
    /// EBADF: it was not opened to read. `IsADirectory`. EIO: another session has cut the file meanwhile, or spoilt it.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.run(|file_system, handle| file_system.read(handle, buffer, Some(offset)))
    }

    /// Writes at an offset in bytes, wherever the position is, which stays; gives how many bytes, all of them unless there is no room. What
    /// lies between the file's end and the offset is zeroes. Durable as [`File`] says.
    ///
    /// # Errors
    /// EBADF: it was not opened to write. `StorageFull`; `FileTooLarge`.
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        self.run(|file_system, handle| file_system.write(handle, buffer, Some(offset)))
    }

    /// What the file is like by now.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.run(|file_system, handle| file_system.stat_handle(handle))
            .map(Metadata)
    }

    /// Cuts the file to a size in bytes, or lengthens it with zeroes, which take no room. Durable as [`File`] says. Maps of what is cut off
    /// show nothing there ([`Map`]).
    ///
    /// # Errors
    /// `InvalidInput`: it was not opened to write. `FileTooLarge`.
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        self.run(|file_system, handle| file_system.truncate_handle(handle, size))
    }

    /// Sets permission bits. Errors: `PermissionDenied` (EPERM) for who is not the file's owner.
    pub fn set_permissions(&self, permissions: &Permissions) -> io::Result<()> {
        let mode = permissions.mode() & 0o7777;
        self.run(|file_system, handle| file_system.change_mode_handle(handle, mode))
    }

    /// All that was written to the file, by calls and through maps, is durable when this returns. Blocks in pools on a file system of
    /// blocks; elsewhere only what was stored through maps is left to do.
    pub fn sync_all(&self) -> io::Result<()> {
        self.run(FileSystem::sync)
    }

    /// As [`sync_all`](File::sync_all).
    pub fn sync_data(&self) -> io::Result<()> {
        self.sync_all()
    }

    /// Maps `length` bytes of the file from an offset on, which is a multiple of 4096: see [`Map`]. The file may be closed
    /// afterwards.
    ///
    /// # Errors
    /// `InvalidInput`: no bytes, an offset that is no such multiple, or more than the file has. `PermissionDenied`: it was not opened to read,
    /// or not to write. ENODEV: no regular file, or another session has a map to write it, and no other user may write the file. `OutOfMemory`, `StorageFull`.
    pub fn map(&self, offset: u64, length: usize, access: MapAccess) -> io::Result<Map> {
        let size = self.metadata()?.len();
        if offset.saturating_add(length as u64) > size {
            let text =
                format!("{length} bytes from {offset} on are more than the file has, {size}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let made = self.session.here()?;
        if self.of.has_ended() {
            return Err(of_errno(Errno::STALE));
        }
        Map::new(
            Arc::clone(&self.session),
            made,
            self.handle,
            offset,
            length,
            access,
        )
    }

    /// Another one of the same open file, with one position for both.
    ///
    /// # Errors
    /// ESTALE in a forked child.
    pub fn try_clone(&self) -> io::Result<File> {
        self.run(|file_system, handle| file_system.retain(handle))?;
        Ok(File {
            session: Arc::clone(&self.session),
            of: self.of,
            handle: self.handle,
        })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A parent's stays open there.
        let _ = self.run(|file_system, handle| {
            file_system.close(handle);
            Ok(())
        });
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File")
            .field("handle", &self.handle.0)
            .finish()
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.run(|file_system, handle| file_system.read(handle, buffer, None))
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for &File {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.run(|file_system, handle| file_system.write(handle, buffer, None))
    }

    /// There is nothing to do.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for File {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self).write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (offset, whence) = match to {
            SeekFrom::Start(offset) => {
                let offset = i64::try_from(offset).map_err(|_| of_errno(Errno::INVAL))?;
                (offset, libc::SEEK_SET)
            }
            SeekFrom::Current(offset) => (offset, libc::SEEK_CUR),
            SeekFrom::End(offset) => (offset, libc::SEEK_END),
        };
        self.run(|file_system, handle| file_system.seek(handle, offset, whence))
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        File::read_at(self, buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        File::write_at(self, buffer, offset)
    }
}
