//! Spools: files in which queued writes are kept until they are done.
//!
//! # Invariants
//! * What a spool says is done with the rights of who opens it. So it is taken only from a file that nobody else can write.
//! * A record is done in the file that it was queued for, wherever that has been moved to, and in no other.
//! * A forked child does not use its parent's spool.

use crate::targets::{OpenFile, device_of};
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
            return Err(Trouble::said(Errno::INVAL, "a spool has 64 KiB to 4 GiB"));
        }
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
        // What others could write would be done in the caller's name.
        let handle = files.open(at, path, flags, mode & !0o022)?;
        let file = owned(files, handle)?;
        let file = Locked::new(file, files.lock_file(handle)?).map_err(|errno| match errno {
            Errno::BUSY => Trouble::said(
                errno,
                "another process has this spool open, or this one has: close it, and its queues",
            ),
            errno => errno.into(),
        })?;
        let file = Arc::new(file);
        let attributes = files.stat_handle(handle)?;
        if attributes.uid != rustix::process::geteuid().as_raw() || attributes.mode & 0o022 != 0 {
            return Err(Trouble::said(
                Errno::PERM,
                "others can write this file, or could: what it says would be done in your name; remove it",
            ));
        }
        let ring = Ring::open_or_make(Arc::clone(&file) as Arc<dyn Target>, size);
        if ring.is_err() && attributes.size == 0 {
            // What was made of it takes no room. It is locked yet: nobody else has made one of it.
            let _ = files.truncate_handle(handle, 0);
        }
        let ring = ring.map_err(|errno| match errno {
            Errno::BADMSG => Trouble::said(errno, "this is no spool, or a damaged one"),
            errno => errno.into(),
        })?;
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

/// A file of a handle that nobody else closes.
fn owned(files: &'static FileSystem, handle: Handle) -> Result<OpenFile, Errno> {
    let file = OpenFile::of(files, handle, None);
    // The file has a hold of its own.
    files.close(handle);
    file
}

/// The file that something was queued for; nothing if it is gone.
fn open_left(files: &'static FileSystem, left: &Left) -> Result<Option<Arc<dyn Target>>, Trouble> {
    if left.file.device != device_of(files.pool_identity()) {
        let line = "this spool was filled in another pool";
        return Err(Trouble::said(Errno::XDEV, line));
    }
    let identity = (left.file.inode as u32, (left.file.inode >> 32) as u32);
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
