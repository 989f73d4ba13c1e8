//! Spools: files in which queued writes are kept until they are done.
//!
//! # Invariants
//! * What a spool says is done with the rights of who opens it. So it is taken only from a file that nobody else can write.
//! * A record is done in the file that it was queued for, wherever that has been moved to, and in no other.
//! * A forked child does not use its parent's spool.

use crate::targets::OpenFile;
use crate::trouble::Trouble;
use arck_libfs_kit::Session;
use arck_queues::{Left, Locked, Replayed, Spool as Ring, Target};
use arckfs::{At, Errno, FileSystem, Handle};
use std::sync::Arc;

/// What `arck_spool_open` opens. Queues that have it keep the ring.
pub struct OpenSpool {
    ring: Arc<Ring>,
    /// The session that its file is open in.
    of: &'static Session,
}

impl OpenSpool {
    /// Opens it, or makes it with a ring of `size` bytes, and does what was left there. `mode`: of a file that is made, without what the umask takes.
    /// EBUSY, EPERM, EBADMSG, EXDEV, EINVAL, and what opening and writing files says.
    pub fn open(
        files: &'static FileSystem,
        (at, path): (At, &[u8]),
        (size, mode): (u64, u32),
    ) -> Result<(OpenSpool, Replayed), Trouble> {
        if !Ring::is_size(size) {
            return Err(why_not(Errno::INVAL));
        }
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
        // What others could write would be done in the caller's name.
        let handle = files.open(at, path, flags, mode & !0o022)?;
        let file = owned(files, handle)?;
        let file = Locked::new(file, files.lock_file(handle)?).map_err(why_not)?;
        let attributes = files.stat_handle(handle)?;
        let own = (attributes.uid, attributes.mode);
        let ring = Ring::open_own(Arc::new(file), own, size, || {
            let _ = files.truncate_handle(handle, 0);
        });
        let ring = ring.map_err(why_not)?;
        let mut failed = None;
        let replayed = ring.replay(|left| {
            open_left(files, left).map_err(|trouble| {
                let errno = trouble.errno();
                failed = Some(trouble);
                errno
            })
        });
        let replayed = replayed.map_err(|errno| failed.unwrap_or_else(|| errno.into()))?;
        let (ring, of) = (Arc::new(ring), files.session());
        Ok((OpenSpool { ring, of }, replayed))
    }

    /// What queues keep. ESTALE: it is of this process's parent.
    pub fn ring(&self) -> Result<Arc<Ring>, Trouble> {
        match self.of.has_ended() {
            true => Err(Trouble::of_parent()),
            false => Ok(Arc::clone(&self.ring)),
        }
    }
}

/// Why a spool was not opened.
fn why_not(errno: Errno) -> Trouble {
    match Ring::why_not(errno) {
        Some(line) => Trouble::said(errno, line),
        None => errno.into(),
    }
}

/// A file of a handle that nobody else closes.
fn owned(files: &'static FileSystem, handle: Handle) -> Result<OpenFile, Errno> {
    let file = OpenFile::of(files, handle, None);
    // The file has a hold of its own.
    files.close(handle);
    file
}

/// The file that something was queued for; nothing if it is gone.
fn open_left(files: &'static FileSystem, left: &Left) -> Result<Option<Arc<dyn Target>>, Trouble> {
    let identity = left.file.of_pool(files.pool_identity());
    let identity = identity.ok_or_else(|| why_not(Errno::XDEV))?;
    let found = files.open_identity(&left.name, identity);
    let found = found.map_err(|failure| {
        let why = Trouble::from(failure);
        let (length, name) = (left.length, String::from_utf8_lossy(&left.name));
        let line = format!(
            "{length} bytes were queued for {name}, which cannot be opened: {}",
            why.text()
        );
        Trouble::told(why.errno(), line)
    })?;
    let Some(handle) = found else { return Ok(None) };
    Ok(Some(Arc::new(owned(files, handle)?)))
}

/// That a path from the pool's root leads to a file; gives it as a spool notes it. EINVAL: it leads to another one. ENOENT.
pub fn expect_same<'p>(
    (files, handle): (&FileSystem, Handle),
    path: &'p [u8],
) -> Result<&'p [u8], Trouble> {
    if path.is_empty() {
        return Err(Errno::NOENT.into());
    }
    let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
    let path = &path[slashes..];
    let found = files.stat(At::Root, path, 0)?;
    let (number, generation) = files.identity(handle)?;
    match (found.inode, found.generation) == (u64::from(number), generation) {
        true => Ok(path),
        false => Err(Trouble::said(
            Errno::INVAL,
            "the path leads to another file than the queue's",
        )),
    }
}
