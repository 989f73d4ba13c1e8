//! Spools: files of a pool in which writes are kept that were queued, until they are done.
//!
//! # Invariants
//! * One process has a spool open at a time: it holds the lock of the file.
//! * What a spool says is done with the rights of who opens it. So it is taken only from a file that nobody else can write.
//! * A record is done in the file that it was queued for, wherever that has been moved to, and in no other.

use crate::error::{errno, of_errno, told};
use crate::file::File;
use crate::files::Files;
use crate::paths::inside;
use crate::queue::{OpenFile, Queue};
use arck_queues::{Left, Locked, QueueOptions, Queues, Replayed, Target};
use arckfs::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file in which queued writes are kept: what [`Files::spool`] gives. It may be dropped while queues have it, which keep it open.
#[derive(Clone, Debug)]
pub struct Spool {
    spool: Arc<arck_queues::Spool>,
}

impl Files {
    /// Opens a spool, for [`File::spooled_queue`], and does what was queued there and is not done, since the program was killed or the machine
    /// failed: in the order of submission, each write in the file that it was queued for, wherever that is by now. What is for a
    /// file that is gone, or that refuses it for ever, is dropped. If there is no such file, or it has no bytes, a spool of `size` bytes is made, mode 0600, all of it in memory of the pool: as many as are
    /// queued at once, and at least twice the longest. Blocks until all is done.
    ///
    /// # Errors
    /// `ResourceBusy`: another process has it open, or this one has. `PermissionDenied` (EPERM): others can write the file, and could have
    /// anything done so. EBADMSG: it is no spool, or a damaged one. EXDEV: it was filled in another pool. `InvalidInput`: a size
    /// that there is not ([`arck_queues::Spool::SIZE_MIN`] to `SIZE_MAX`). Or what opening and writing a file says to which something was
    /// queued: then what is not done is still there, and opening it again goes on.
    ///
    /// A program that is killed while a forked child of it lives on has its spools locked until that child has ended, or runs another program.
    pub fn spool(&self, path: impl AsRef<Path>, size: u64) -> io::Result<(Spool, Replayed)> {
        let path = path.as_ref();
        let why_not = |errno| match arck_queues::Spool::why_not(errno) {
            Some(text) => told(errno, format!("{}: {text}", path.display())),
            None => of_errno(errno),
        };
        if !arck_queues::Spool::is_size(size) {
            return Err(why_not(Errno::INVAL));
        }
        let mut options = self.options();
        options.read(true).write(true).create(true).mode(0o600);
        let file = options.open(path)?;
        let lock = file.run(|file_system, handle| file_system.lock_file(handle))?;
        let target = OpenFile::new(file.try_clone()?)?;
        let target = Arc::new(Locked::new(target, lock).map_err(why_not)?);
        let metadata = file.metadata()?;
        let own = (metadata.uid(), metadata.permissions().mode());
        let spool = arck_queues::Spool::open_own(target, own, size, || {
            let _ = file.set_len(0);
        });
        let spool = spool.map_err(why_not)?;
        let mut failed = None;
        let replayed = spool.replay(|left| {
            let opened = self.open_left(left);
            opened.map_err(|error| {
                let errno = Errno::from_raw_os_error(crate::errno(&error).unwrap_or(libc::EIO));
                failed = Some(error);
                errno
            })
        });
        let replayed = replayed.map_err(|errno| failed.unwrap_or_else(|| of_errno(errno)))?;
        let spool = Spool {
            spool: Arc::new(spool),
        };
        Ok((spool, replayed))
    }

    /// The file that something was queued for; nothing if it is gone.
    fn open_left(&self, left: &Left) -> io::Result<Option<Arc<dyn Target>>> {
        let named = PathBuf::from(OsStr::from_bytes(&left.name));
        let pool = self.session.here()?.pool_identity();
        let Some(identity) = left.file.of_pool(pool) else {
            let why = arck_queues::Spool::why_not(Errno::XDEV).unwrap_or_default();
            return Err(told(Errno::XDEV, why));
        };
        let found = self.session.run(|file_system| {
            let found = file_system.open_identity(&left.name, identity)?;
            Ok(found.map(|handle| File::opened(&self.session, file_system.session(), handle)))
        });
        let found = found.map_err(|error| {
            let number = Errno::from_raw_os_error(errno(&error).unwrap_or(libc::EIO));
            let text = format!(
                "{} bytes were queued for {}, which cannot be opened: {error}",
                left.length,
                named.display()
            );
            told(number, text)
        })?;
        let Some(found) = found else { return Ok(None) };
        Ok(Some(Arc::new(OpenFile::new(found)?)))
    }
}

impl File {
    /// A queue of requests on this file, which it keeps open, whose writes and appends are durable when they are queued: they are in the spool when
    /// `submit` returns, and are done after a crash, in their order, when the spool is opened again ([`Files::spool`]). They cannot be
    /// cancelled, and have no deadlines. `path` is where the file is found then, if it is not moved. See
    /// [`queues`](crate::queues).
    ///
    /// # Errors
    /// As [`File::queue`]. `InvalidInput`: the path leads to another file; or this is the spool itself. `InvalidFilename`: the path is too
    /// long.
    pub fn spooled_queue(
        &self,
        queues: &Queues,
        options: QueueOptions,
        spool: &Spool,
        path: impl AsRef<Path>,
    ) -> io::Result<Queue> {
        let path = path.as_ref();
        let name = inside(path)?;
        let named = OpenFile::new(self.beside(path, libc::O_PATH)?)?;
        let own = OpenFile::new(self.try_clone()?)?;
        if named.identity() != own.identity() {
            let text = format!("{} is another file", path.display());
            return Err(told(Errno::INVAL, text));
        }
        Queue::open(
            self.try_clone()?,
            queues,
            options,
            Some((&spool.spool, name)),
        )
    }
}
