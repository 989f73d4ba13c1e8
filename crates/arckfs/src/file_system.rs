//! The operations, one method per family of system calls.
//!
//! Signatures only at this point: bodies come with the indexes.

use crate::interface::*;

/// One session with a controller and everything this process knows of the pool.
pub struct FileSystem {
    _private: (),
}

/// Flags of the path-taking calls, with the kernel's own values (`AT_*`).
pub type AtFlags = i32;

impl FileSystem {
    /// Opens a session. Blocks until the controller answers (bounded).
    pub fn connect(options: &ConnectOptions) -> Result<FileSystem, ConnectError> { todo!() }
    /// In a forked child: forgets the parent's session without touching it (no message, no
    /// unmapping of what the parent shares); the child then calls `connect` for its own.
    pub fn abandon_after_fork(self) { todo!() }
    /// The pool's uuid as two words.
    pub fn pool_identity(&self) -> [u64; 2] { todo!() }

    // ---- descriptions
    /// `flags` are `O_*` as given by the program; `mode` is already masked by the umask.
    pub fn open(&self, at: At, path: &[u8], flags: i32, mode: u32) -> Result<Handle, Failure> { todo!() }
    /// One more reference (`dup`).
    pub fn retain(&self, handle: Handle) { todo!() }
    /// One reference less; the last one closes.
    pub fn close(&self, handle: Handle) { todo!() }
    /// Moves flags and offset of a description into memory shared with other processes, so that
    /// a forked child and its parent keep one offset. Idempotent.
    /// # Safety
    /// `memory` stays mapped, and shared, as long as the handle is open.
    pub unsafe fn externalize(&self, handle: Handle, memory: *const ExternalDescription) { todo!() }
    /// The other side: opens a description that another process externalized.
    /// ESTALE if the inode is gone.
    /// # Safety
    /// As for [`FileSystem::externalize`].
    pub unsafe fn adopt(&self, memory: *const ExternalDescription) -> Result<Handle, Errno> { todo!() }
    /// As `F_GETFL`.
    pub fn flags(&self, handle: Handle) -> i32 { todo!() }
    /// As `F_SETFL`: O_APPEND, O_NONBLOCK, O_NOATIME, O_DIRECT; others are ignored.
    pub fn set_flags(&self, handle: Handle, flags: i32) -> Result<(), Errno> { todo!() }

    // ---- data; a `None` position means the description's offset, which then advances
    pub fn read(&self, handle: Handle, buffer: &mut [u8], position: Option<u64>) -> Result<usize, Errno> { todo!() }
    pub fn write(&self, handle: Handle, buffer: &[u8], position: Option<u64>) -> Result<usize, Errno> { todo!() }
    /// `whence` as the kernel's, with SEEK_DATA and SEEK_HOLE.
    pub fn seek(&self, handle: Handle, offset: i64, whence: i32) -> Result<u64, Errno> { todo!() }
    pub fn truncate_handle(&self, handle: Handle, size: u64) -> Result<(), Errno> { todo!() }
    pub fn truncate(&self, at: At, path: &[u8], size: u64) -> Result<(), Failure> { todo!() }
    /// `mode` as `fallocate(2)`'s; EOPNOTSUPP for what is not served.
    pub fn allocate(&self, handle: Handle, mode: i32, offset: u64, length: u64) -> Result<(), Errno> { todo!() }
    /// Durable already in `dax` and `volatile` mode; in `paged` mode folds and writes back.
    pub fn sync(&self, handle: Handle) -> Result<(), Errno> { todo!() }

    // ---- attributes
    pub fn stat_handle(&self, handle: Handle) -> Result<Attributes, Errno> { todo!() }
    /// `flags`: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
    pub fn stat(&self, at: At, path: &[u8], flags: AtFlags) -> Result<Attributes, Failure> { todo!() }
    /// `mode`: R_OK | W_OK | X_OK or F_OK; `flags`: AT_EACCESS, AT_SYMLINK_NOFOLLOW.
    pub fn access(&self, at: At, path: &[u8], mode: i32, flags: AtFlags) -> Result<(), Failure> { todo!() }
    pub fn change_mode(&self, at: At, path: &[u8], mode: u32, flags: AtFlags) -> Result<(), Failure> { todo!() }
    pub fn change_mode_handle(&self, handle: Handle, mode: u32) -> Result<(), Errno> { todo!() }
    /// `u32::MAX` leaves an id as it is.
    pub fn change_owner(&self, at: At, path: &[u8], uid: u32, gid: u32, flags: AtFlags) -> Result<(), Failure> { todo!() }
    pub fn change_owner_handle(&self, handle: Handle, uid: u32, gid: u32) -> Result<(), Errno> { todo!() }
    pub fn set_times(&self, at: At, path: &[u8], accessed: SetTime, modified: SetTime, flags: AtFlags) -> Result<(), Failure> { todo!() }
    pub fn set_times_handle(&self, handle: Handle, accessed: SetTime, modified: SetTime) -> Result<(), Errno> { todo!() }
    pub fn statistics(&self) -> Result<Statistics, Errno> { todo!() }

    // ---- names
    pub fn make_directory(&self, at: At, path: &[u8], mode: u32) -> Result<(), Failure> { todo!() }
    /// `flags`: AT_REMOVEDIR.
    pub fn unlink(&self, at: At, path: &[u8], flags: AtFlags) -> Result<(), Failure> { todo!() }
    /// `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE; EINVAL for others.
    pub fn rename(&self, from_at: At, from: &[u8], to_at: At, to: &[u8], flags: u32) -> Result<(), Failure> { todo!() }
    /// `flags`: AT_SYMLINK_FOLLOW, AT_EMPTY_PATH.
    pub fn link(&self, from_at: At, from: &[u8], to_at: At, to: &[u8], flags: AtFlags) -> Result<(), Failure> { todo!() }
    pub fn symlink(&self, target: &[u8], at: At, path: &[u8]) -> Result<(), Failure> { todo!() }
    /// Number of bytes placed in `buffer` (truncated silently, as readlink does).
    pub fn read_link(&self, at: At, path: &[u8], buffer: &mut [u8]) -> Result<usize, Failure> { todo!() }
    /// S_IFREG and S_IFIFO nodes; EPERM for devices. Named sockets and pipes are stored as nodes
    /// but cannot be opened (ENXIO) until a later version.
    pub fn make_node(&self, at: At, path: &[u8], mode: u32, device: u64) -> Result<(), Failure> { todo!() }
    /// Fills `buffer` with `linux_dirent64` records from the description's position on; 0 = end.
    /// EINVAL if the buffer is too small for the next entry.
    pub fn read_directory(&self, handle: Handle, buffer: &mut [u8]) -> Result<usize, Errno> { todo!() }
    /// The absolute path (mount prefix included) by which a directory, or a file, is reached now;
    /// for getcwd and /proc/self/fd. ENOENT if it was removed.
    pub fn path_of(&self, handle: Handle) -> Result<Vec<u8>, Errno> { todo!() }

    // ---- advisory locks; never waits: EAGAIN when in conflict (the caller retries for F_SETLKW)
    pub fn lock(&self, handle: Handle, request: LockRequest) -> Result<(), Errno> { todo!() }
    /// As F_GETLK: the first conflicting lock (with the holder's process id), if any.
    pub fn conflicting_lock(&self, handle: Handle, request: LockRequest) -> Result<Option<(LockRequest, i32)>, Errno> { todo!() }
}
