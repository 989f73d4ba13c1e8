//! The public face: one session and its operations, one method per family of system calls.

use crate::attributes;
use crate::births::Birth;
use crate::descriptions::Externals;
use crate::engine::{Attempt, Context, Credentials, Engine, Fix, Stop};
use crate::inodes;
use crate::interface::*;
use crate::listing;
use crate::names::Renamed;
use crate::state::{CachedInode, Description, flag};
use crate::walk::{Last, Place, Start};
use crate::write::Position;
use arck_core_state::geometry::PATH_MAX;
use arck_core_state::superblock::Durability;
use arck_core_state::{FileKind, InodeNumber, ROOT_INODE};
use arck_libfs_kit::{Session, ownership, thread};
use arck_protocol::message::{LockHolder, LockMode, LockRange};
use arck_protocol::{InodeList, Request, Response};
use std::sync::atomic::Ordering;

/// One session with a controller and everything this process knows of the pool.
pub struct FileSystem {
    engine: Engine,
    externals: Externals,
    mount: Vec<u8>,
}

/// Flags of the path-taking calls, with the kernel's own values (`AT_*`).
pub type AtFlags = i32;

const ACCESS_MODE: i32 = libc::O_ACCMODE;
/// Attempts after which an append may be cut where pages run out.
const WHOLE_APPEND_ATTEMPTS: u32 = 32;
/// Flags that `F_SETFL` may change.
const SETTABLE: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME | libc::O_DIRECT;

impl FileSystem {
    /// Opens a session. Blocks until the controller answers (bounded).
    pub fn connect(options: &ConnectOptions) -> Result<FileSystem, ConnectError> {
        let failed = |error: arck_libfs_kit::ConnectError| ConnectError {
            message: error.to_string(),
            errno: error.errno(),
        };
        let session = Session::connect(&options.pool).map_err(failed)?;
        let state = inodes::create_state(session).map_err(|errno| ConnectError {
            message: format!("{}: preparing the session: {errno}", options.pool.display()),
            errno,
        })?;
        Ok(FileSystem {
            engine: Engine {
                session,
                state,
                credentials: Credentials::of_process(),
            },
            externals: Externals::default(),
            mount: options.mount.clone(),
        })
    }

    /// Ends the session: all its work is folded when this returns.
    pub fn disconnect(self) -> Result<(), Errno> {
        self.engine.session.goodbye()
    }

    /// In a forked child: forgets the parent's session without touching it (no message, no
    /// unmapping of what the parent shares); the child then calls `connect` for its own.
    pub fn abandon_after_fork(self) {
        thread::forget_all();
        std::mem::forget(self);
    }

    /// The pool's uuid as two words.
    pub fn pool_identity(&self) -> [u64; 2] {
        let uuid = u128::from_le_bytes(self.engine.session.welcome().uuid);
        [uuid as u64, (uuid >> 64) as u64]
    }

    /// The session underneath, for benchmarks and tests.
    pub fn session(&self) -> &'static Session {
        self.engine.session
    }

    fn start<'p>(&'p self, at: At) -> Result<Start<'p>, Errno> {
        let directory = match at {
            At::Root => {
                let header = self.engine.session.header(ROOT_INODE).ok_or(Errno::IO)?;
                (ROOT_INODE, header.generation())
            }
            At::Directory(handle) => {
                let description = self.engine.description(handle)?;
                identity(description)
            }
        };
        Ok(Start {
            directory,
            mount: &self.mount,
            creating: false,
        })
    }

    /// As [`FileSystem::start`], for calls to which an empty path is nothing: ENOENT. At the root
    /// it is the mount point itself.
    fn start_of<'p>(&'p self, at: At, path: &[u8]) -> Result<Start<'p>, Errno> {
        if path.is_empty() && at != At::Root {
            return Err(Errno::NOENT);
        }
        self.start(at)
    }

    /// Runs attempts on the inode of a handle.
    fn on_handle<T>(
        &self,
        handle: Handle,
        mut attempt: impl FnMut(&Context<'_>, &'static CachedInode) -> Attempt<T>,
    ) -> Result<T, Errno> {
        let (number, generation) = identity(self.engine.description(handle)?);
        self.engine.run_local(|context| {
            let inode = context.view(number, generation)?;
            attempt(context, inode)
        })
    }

    /// EBADF for a handle opened with O_PATH.
    fn not_path_only(&self, handle: Handle) -> Result<(), Errno> {
        let description = self.engine.description(handle)?;
        if self.engine.flags_of(description, &self.externals) & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        Ok(())
    }

    /// Runs attempts on the inode that a path leads to (or a handle, for AT_EMPTY_PATH).
    fn on_path<T>(
        &self,
        at: At,
        path: &[u8],
        flags: AtFlags,
        mut attempt: impl FnMut(&Context<'_>, &'static CachedInode) -> Attempt<T>,
    ) -> Result<T, Failure> {
        let start = self.start(at)?;
        let empty = path.is_empty();
        if empty && flags & libc::AT_EMPTY_PATH == 0 && at != At::Root {
            return Err(Errno::NOENT.into());
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        self.engine.run(|context| {
            let inode = if empty {
                context.view(start.directory.0, start.directory.1)?
            } else {
                context.resolve(start, path, follow)?
            };
            attempt(context, inode)
        })
    }

    // ---- descriptions

    /// `flags` are `O_*` as given by the program; `mode` is already masked by the umask.
    pub fn open(&self, at: At, path: &[u8], flags: i32, mode: u32) -> Result<Handle, Failure> {
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            return Err(Errno::OPNOTSUPP.into());
        }
        if flags & ACCESS_MODE == ACCESS_MODE {
            return Err(Errno::INVAL.into());
        }
        let create = flags & libc::O_CREAT != 0 && flags & libc::O_PATH == 0;
        let exclusive = create && flags & libc::O_EXCL != 0;
        let follow = flags & libc::O_NOFOLLOW == 0 && !exclusive;
        if create && flags & libc::O_DIRECTORY != 0 {
            return Err(Errno::INVAL.into());
        }
        let start = Start {
            creating: create,
            ..self.start_of(at, path)?
        };
        let (inode, created) = self.engine.run(|context| {
            let (inode, created) = context.walk(start, path, follow, |place| {
                context.open_place(place, create, exclusive, mode)
            })?;
            if !created {
                context.may_open(inode, flags)?;
            }
            context.list_open(inode)?;
            Ok((inode, created))
        })?;
        let opened = self.finish_open(inode, created, flags);
        if opened.is_err() {
            self.engine.unlist_open(inode.number())?;
        }
        Ok(opened?)
    }

    fn finish_open(
        &self,
        inode: &'static CachedInode,
        created: bool,
        flags: i32,
    ) -> Result<Handle, Errno> {
        // An empty file too, for its times.
        if flags & libc::O_TRUNC != 0
            && flags & libc::O_PATH == 0
            && !created
            && inode.kind() == Some(FileKind::File)
        {
            let (number, generation) = (inode.number(), inode.generation());
            self.engine.run_local(|context| {
                let inode = context.view(number, generation)?;
                context.resize(inode, 0)
            })?;
        }
        let kept = if flags & libc::O_PATH != 0 {
            flags & (libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
        } else {
            let once = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY;
            flags & !(once | libc::O_CLOEXEC)
        };
        self.engine.new_description(inode, kept)
    }

    /// One more reference (`dup`).
    pub fn retain(&self, handle: Handle) {
        if let Ok(description) = self.engine.description(handle) {
            description.references.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// One reference less; the last one closes.
    pub fn close(&self, handle: Handle) {
        let Ok(description) = self.engine.description(handle) else {
            return;
        };
        let (number, _) = identity(description);
        if let Ok(true) = self.engine.release_description(handle, &self.externals) {
            // Fails only where the session itself is lost; then the controller cleans up.
            let _ = self.engine.unlist_open(number);
        }
    }

    /// Moves flags and offset of a description into memory shared with other processes, so that
    /// a forked child and its parent keep one offset. Idempotent.
    /// # Safety
    /// `memory` stays mapped, and shared, as long as the handle is open.
    pub unsafe fn externalize(&self, handle: Handle, memory: *const ExternalDescription) {
        let Ok(description) = self.engine.description(handle) else {
            return;
        };
        if description.external.load(Ordering::Acquire) != 0 {
            return;
        }
        // SAFETY: mapped by the caller's promise; all fields are atomics.
        let shared = unsafe { &*memory };
        let identity = self.pool_identity();
        shared.pool[0].store(identity[0], Ordering::Relaxed);
        shared.pool[1].store(identity[1], Ordering::Relaxed);
        shared.inode.store(
            u64::from(description.inode.load(Ordering::Relaxed)),
            Ordering::Relaxed,
        );
        shared.generation.store(
            u64::from(description.generation.load(Ordering::Relaxed)),
            Ordering::Relaxed,
        );
        shared.flags.store(
            u64::from(description.flags.load(Ordering::Relaxed)),
            Ordering::Relaxed,
        );
        shared.offset.store(
            description.offset.load(Ordering::Relaxed),
            Ordering::Relaxed,
        );
        shared
            .magic
            .store(ExternalDescription::MAGIC, Ordering::Release);
        description
            .external
            .store(self.externals.add(memory), Ordering::Release);
    }

    /// Folds what a handle's inode, and the directory that it is born in, have unfolded, so that
    /// another session can open it. Before a fork or exec.
    pub fn hand_over(&self, handle: Handle) -> Result<(), Errno> {
        let (number, _) = identity(self.engine.description(handle)?);
        ownership::commit(self.engine.session, &[number], false)
    }

    /// The other side: opens a description that another process externalized.
    /// ESTALE if the inode is gone.
    /// # Safety
    /// As for [`FileSystem::externalize`].
    pub unsafe fn adopt(&self, memory: *const ExternalDescription) -> Result<Handle, Errno> {
        // SAFETY: mapped by the caller's promise; all fields are atomics.
        let shared = unsafe { &*memory };
        let pool = [
            shared.pool[0].load(Ordering::Relaxed),
            shared.pool[1].load(Ordering::Relaxed),
        ];
        if shared.magic.load(Ordering::Acquire) != ExternalDescription::MAGIC
            || pool != self.pool_identity()
        {
            return Err(Errno::STALE);
        }
        let number =
            u32::try_from(shared.inode.load(Ordering::Relaxed)).map_err(|_| Errno::STALE)?;
        let generation =
            u32::try_from(shared.generation.load(Ordering::Relaxed)).map_err(|_| Errno::STALE)?;
        let inode = self.engine.run_local(|context| {
            let inode = context.view(number, generation)?;
            context.list_open(inode)?;
            Ok(inode)
        })?;
        let flags = shared.flags.load(Ordering::Relaxed) as i32;
        let handle = self.engine.new_description(inode, flags)?;
        let description = self.engine.description(handle)?;
        description
            .external
            .store(self.externals.add(memory), Ordering::Release);
        Ok(handle)
    }

    /// As `F_GETFL`.
    pub fn flags(&self, handle: Handle) -> i32 {
        match self.engine.description(handle) {
            Ok(description) => self.engine.flags_of(description, &self.externals),
            Err(_) => 0,
        }
    }

    /// As `F_SETFL`: O_APPEND, O_NONBLOCK, O_NOATIME, O_DIRECT; others are ignored.
    pub fn set_flags(&self, handle: Handle, flags: i32) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        let description = self.engine.description(handle)?;
        let old = self.engine.flags_of(description, &self.externals);
        let new = old & !SETTABLE | flags & SETTABLE;
        self.engine.store_flags(description, &self.externals, new);
        Ok(())
    }

    fn usable(&self, handle: Handle, write: bool) -> Result<(&'static Description, i32), Errno> {
        let description = self.engine.description(handle)?;
        let flags = self.engine.flags_of(description, &self.externals);
        let wrong = if write {
            libc::O_RDONLY
        } else {
            libc::O_WRONLY
        };
        if flags & libc::O_PATH != 0 || flags & ACCESS_MODE == wrong {
            return Err(Errno::BADF);
        }
        Ok((description, flags))
    }

    // ---- data; a `None` position means the description's offset, which then advances

    /// Reads; EISDIR for a directory, EBADF if not open for reading.
    pub fn read(
        &self,
        handle: Handle,
        buffer: &mut [u8],
        position: Option<u64>,
    ) -> Result<usize, Errno> {
        let (description, _) = self.usable(handle, false)?;
        let (number, generation) = identity(description);
        let mut read_at = |position| {
            self.engine.run_local(|context| {
                let inode = context.view(number, generation)?;
                if inode.is_directory() {
                    return Err(Errno::ISDIR.into());
                }
                context.read_at(inode, buffer, position)
            })
        };
        match position {
            Some(position) => read_at(position),
            None => {
                let cell = self.engine.offset_cell(description, &self.externals)?;
                let offset = cell.get();
                let read = read_at(offset)?;
                cell.set(offset + read as u64);
                Ok(read)
            }
        }
    }

    /// Writes; short only if the pool is full or the file at its largest (ENOSPC, EFBIG if
    /// nothing could be written). Durable on return in `dax` and `volatile` mode.
    pub fn write(
        &self,
        handle: Handle,
        buffer: &[u8],
        position: Option<u64>,
    ) -> Result<usize, Errno> {
        let (description, flags) = self.usable(handle, true)?;
        let (number, generation) = identity(description);
        let append = flags & libc::O_APPEND != 0;
        let write_all = |position: Position| -> Result<(usize, u64), Errno> {
            let mut done = 0;
            let mut place = position;
            let mut end = match position {
                Position::At(at) => at,
                Position::End => 0,
            };
            loop {
                // An append is made whole if it can be: only a pool that is about full gives
                // pages so slowly.
                let mut attempts = 0;
                let step = self.engine.run_local(|context| {
                    attempts += 1;
                    let in_parts = !append || attempts > WHOLE_APPEND_ATTEMPTS;
                    let inode = context.view(number, generation)?;
                    context.write_at(inode, &buffer[done..], place, in_parts)
                });
                match step {
                    Ok((written, at)) => {
                        done += written;
                        end = at + written as u64;
                        if done == buffer.len() || written == 0 {
                            return Ok((done, end));
                        }
                        place = match position {
                            Position::At(_) => Position::At(end),
                            Position::End => Position::End,
                        };
                    }
                    Err(errno) if done == 0 => return Err(errno),
                    Err(_) => return Ok((done, end)),
                }
            }
        };
        match position {
            // pwrite on a descriptor with O_APPEND appends, as on Linux.
            Some(position) => {
                let place = if append {
                    Position::End
                } else {
                    Position::At(position)
                };
                Ok(write_all(place)?.0)
            }
            None => {
                let cell = self.engine.offset_cell(description, &self.externals)?;
                let place = if append {
                    Position::End
                } else {
                    Position::At(cell.get())
                };
                let (written, end) = write_all(place)?;
                if written != 0 {
                    cell.set(end);
                }
                Ok(written)
            }
        }
    }

    /// `whence` as the kernel's, with SEEK_DATA and SEEK_HOLE.
    pub fn seek(&self, handle: Handle, offset: i64, whence: i32) -> Result<u64, Errno> {
        let description = self.engine.description(handle)?;
        if self.engine.flags_of(description, &self.externals) & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        // The positions of a directory are nothing but what a listing has told.
        let of_file = || {
            self.on_handle(handle, |_, inode| match inode.is_directory() {
                true => Err(Errno::INVAL.into()),
                false => Ok(inode.size.load(Ordering::Acquire)),
            })
        };
        let cell = self.engine.offset_cell(description, &self.externals)?;
        let base = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => cell.get() as i64,
            libc::SEEK_END => of_file()? as i64,
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                of_file()?;
                let from = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
                let found = self.on_handle(handle, |context, inode| {
                    context.seek_data(inode, from, whence == libc::SEEK_DATA)
                })?;
                cell.set(found);
                return Ok(found);
            }
            _ => return Err(Errno::INVAL),
        };
        let target = base
            .checked_add(offset)
            .filter(|&at| at >= 0)
            .ok_or(Errno::INVAL)?;
        cell.set(target as u64);
        if target == 0 {
            self.engine.drop_listing(description)?;
        }
        Ok(target as u64)
    }

    /// ftruncate: EINVAL if not open for writing.
    pub fn truncate_handle(&self, handle: Handle, size: u64) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        self.usable(handle, true).map_err(|_| Errno::INVAL)?;
        self.on_handle(handle, |context, inode| context.resize(inode, size))
    }

    pub fn truncate(&self, at: At, path: &[u8], size: u64) -> Result<(), Failure> {
        self.on_path(at, path, 0, |context, inode| {
            match inode.kind() {
                Some(FileKind::File) => {}
                Some(FileKind::Directory) => return Err(Errno::ISDIR.into()),
                _ => return Err(Errno::INVAL.into()),
            }
            context.credentials.check(inode, 2)?;
            if inode.size.load(Ordering::Acquire) == size {
                // Unlike ftruncate, this leaves the times alone.
                return Ok(());
            }
            context.resize(inode, size)
        })
    }

    /// `mode` as `fallocate(2)`'s; EOPNOTSUPP for what is not served.
    pub fn allocate(
        &self,
        handle: Handle,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        let end = offset
            .checked_add(length)
            .filter(|_| length != 0)
            .ok_or(Errno::INVAL)?;
        if mode != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        self.usable(handle, true)?;
        let size = self.on_handle(handle, |_, inode| Ok(inode.size.load(Ordering::Acquire)))?;
        if end > size {
            self.truncate_handle(handle, end)?;
        }
        let mut from = offset;
        while from < end {
            from = self.on_handle(handle, |context, inode| {
                context.allocate_step(inode, from, end)
            })?;
        }
        Ok(())
    }

    /// Durable already in `dax` and `volatile` mode; in `paged` mode folds and writes back.
    pub fn sync(&self, handle: Handle) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        let (number, _) = identity(self.engine.description(handle)?);
        if self.engine.session.durability() != Durability::Paged {
            return Ok(());
        }
        let inodes = InodeList::new(&[number]).ok_or(Errno::IO)?;
        self.engine.session.ask(&Request::Sync { inodes })
    }

    // ---- attributes

    pub fn stat_handle(&self, handle: Handle) -> Result<Attributes, Errno> {
        self.on_handle(handle, |_, inode| Ok(attributes::of(inode)))
    }

    /// `flags`: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
    pub fn stat(&self, at: At, path: &[u8], flags: AtFlags) -> Result<Attributes, Failure> {
        self.on_path(at, path, flags, |_, inode| Ok(attributes::of(inode)))
    }

    /// `mode`: R_OK | W_OK | X_OK or F_OK; `flags`: AT_EACCESS, AT_SYMLINK_NOFOLLOW.
    pub fn access(&self, at: At, path: &[u8], mode: i32, flags: AtFlags) -> Result<(), Failure> {
        self.on_path(at, path, flags, |context, inode| {
            Ok(context.credentials.check(inode, mode as u32 & 7)?)
        })
    }

    pub fn change_mode(
        &self,
        at: At,
        path: &[u8],
        mode: u32,
        flags: AtFlags,
    ) -> Result<(), Failure> {
        self.on_path(at, path, flags, |context, inode| {
            if inode.kind() == Some(FileKind::Link) {
                return Err(Errno::OPNOTSUPP.into());
            }
            context.set_mode(inode, mode)
        })
    }

    pub fn change_mode_handle(&self, handle: Handle, mode: u32) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        self.on_handle(handle, |context, inode| context.set_mode(inode, mode))
    }

    /// `u32::MAX` leaves an id as it is.
    pub fn change_owner(
        &self,
        at: At,
        path: &[u8],
        uid: u32,
        gid: u32,
        flags: AtFlags,
    ) -> Result<(), Failure> {
        let change = self.on_path(at, path, flags, |context, inode| {
            owner_change(context, inode, uid, gid)
        })?;
        Ok(self.finish_owner_change(change, uid, gid)?)
    }

    pub fn change_owner_handle(&self, handle: Handle, uid: u32, gid: u32) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        let change = self.on_handle(handle, |context, inode| {
            owner_change(context, inode, uid, gid)
        })?;
        self.finish_owner_change(change, uid, gid)
    }

    fn finish_owner_change(
        &self,
        number: Option<InodeNumber>,
        uid: u32,
        gid: u32,
    ) -> Result<(), Errno> {
        let Some(inode) = number else { return Ok(()) };
        self.engine
            .session
            .ask(&Request::SetOwner { inode, uid, gid })
    }

    pub fn set_times(
        &self,
        at: At,
        path: &[u8],
        accessed: SetTime,
        modified: SetTime,
        flags: AtFlags,
    ) -> Result<(), Failure> {
        if (accessed, modified) == (SetTime::Omit, SetTime::Omit) {
            // Nothing is looked at, as on Linux.
            return Ok(());
        }
        self.on_path(at, path, flags, |context, inode| {
            context.set_times(inode, accessed, modified)
        })
    }

    pub fn set_times_handle(
        &self,
        handle: Handle,
        accessed: SetTime,
        modified: SetTime,
    ) -> Result<(), Errno> {
        if (accessed, modified) == (SetTime::Omit, SetTime::Omit) {
            self.engine.description(handle)?;
            return Ok(());
        }
        self.not_path_only(handle)?;
        self.on_handle(handle, |context, inode| {
            context.set_times(inode, accessed, modified)
        })
    }

    pub fn statistics(&self) -> Result<Statistics, Errno> {
        let session = self.engine.session;
        let header = &session.control().header;
        Ok(Statistics {
            pages: session.geometry().page_count(),
            pages_free: header.pages_free.load(Ordering::Acquire),
            inodes: u64::from(session.geometry().inode_count),
            inodes_free: header.inodes_free.load(Ordering::Acquire),
            name_max: 255,
            id: self.pool_identity()[0],
        })
    }

    // ---- names

    fn make(&self, at: At, path: &[u8], birth: Birth<'_>) -> Result<(), Failure> {
        let start = self.start_of(at, path)?;
        self.engine.run(|context| {
            context.walk(start, trim_end(path), false, |place| {
                let Last::Name(name) = place.last else {
                    return Err(Errno::EXIST.into());
                };
                if path.ends_with(b"/") && birth.kind != FileKind::Directory {
                    return Err(context.only_a_directory(place.directory, name));
                }
                context.create_name(place.directory, name, birth)?;
                Ok(())
            })
        })
    }

    pub fn make_directory(&self, at: At, path: &[u8], mode: u32) -> Result<(), Failure> {
        self.make(
            at,
            path,
            Birth {
                kind: FileKind::Directory,
                mode: mode & 0o1777,
                target: b"",
            },
        )
    }

    /// `flags`: AT_REMOVEDIR.
    pub fn unlink(&self, at: At, path: &[u8], flags: AtFlags) -> Result<(), Failure> {
        let start = self.start_of(at, path)?;
        let directory = flags & libc::AT_REMOVEDIR != 0;
        self.engine.run(|context| {
            context.walk(start, trim_end(path), false, |place| match place.last {
                Last::Name(name) if directory => context.remove_directory(place.directory, name),
                Last::Name(name) => {
                    if path.ends_with(b"/") {
                        if !place.directory.is_directory() {
                            return Err(Errno::NOTDIR.into());
                        }
                        let found = context.lookup(place.directory, name)?;
                        let dentry = found.dentry.ok_or(Errno::NOENT)?;
                        let errno = if dentry.kind == FileKind::Directory {
                            Errno::ISDIR
                        } else {
                            Errno::NOTDIR
                        };
                        return Err(errno.into());
                    }
                    context.unlink_name(place.directory, name)
                }
                Last::Dot if directory => Err(Errno::INVAL.into()),
                Last::DotDot if directory => Err(Errno::NOTEMPTY.into()),
                _ => Err(Errno::ISDIR.into()),
            })
        })
    }

    /// `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE; EINVAL for others.
    pub fn rename(
        &self,
        from_at: At,
        from: &[u8],
        to_at: At,
        to: &[u8],
        flags: u32,
    ) -> Result<(), Failure> {
        use crate::names::{EXCHANGE, NOREPLACE};
        if flags & !(NOREPLACE | EXCHANGE) != 0 || flags == NOREPLACE | EXCHANGE {
            return Err(Errno::INVAL.into());
        }
        let from_start = self.start_of(from_at, from)?;
        let to_start = self.start(to_at)?;
        let renamed = self.engine.run(|context| {
            // Neither name is followed, whatever stands behind it.
            context.walk(from_start, trim_end(from), false, |source| {
                if to.is_empty() && to_at != At::Root {
                    return Err(Errno::NOENT.into());
                }
                context.walk(to_start, trim_end(to), false, |target| {
                    let Last::Name(from_name) = source.last else {
                        return Err(Errno::BUSY.into());
                    };
                    let Last::Name(to_name) = target.last else {
                        return Err(match flags & NOREPLACE {
                            0 => Errno::BUSY,
                            _ => Errno::EXIST,
                        }
                        .into());
                    };
                    let renamed = context.rename_name(
                        (source.directory, from_name, from.ends_with(b"/")),
                        (target.directory, to_name, to.ends_with(b"/")),
                        flags,
                    )?;
                    Ok(match renamed {
                        Renamed::Done => None,
                        Renamed::ByController { from, to } => {
                            Some((from, from_name.to_vec(), to, to_name.to_vec()))
                        }
                    })
                })
            })
        })?;
        let Some((from, from_name, to, to_name)) = renamed else {
            return Ok(());
        };
        let owned = [from, to];
        let owned = if from == to { &owned[..1] } else { &owned[..] };
        ownership::acquire_missing(self.engine.session, owned)?;
        ownership::commit(self.engine.session, owned, false)?;
        Ok(self.engine.session.ask(&Request::MoveDirectory {
            from,
            from_name,
            to,
            to_name,
            flags,
        })?)
    }

    /// `flags`: AT_SYMLINK_FOLLOW, AT_EMPTY_PATH.
    pub fn link(
        &self,
        from_at: At,
        from: &[u8],
        to_at: At,
        to: &[u8],
        flags: AtFlags,
    ) -> Result<(), Failure> {
        let empty = from.is_empty() && flags & libc::AT_EMPTY_PATH != 0;
        let from_start = if empty {
            self.start(from_at)?
        } else {
            self.start_of(from_at, from)?
        };
        let to_start = self.start(to_at)?;
        let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
        self.engine.run(|context| {
            let target = if empty {
                context.view(from_start.directory.0, from_start.directory.1)?
            } else {
                context.resolve(from_start, from, follow)?
            };
            if to.is_empty() && to_at != At::Root {
                return Err(Errno::NOENT.into());
            }
            context.walk(to_start, trim_end(to), false, |place| {
                let Last::Name(name) = place.last else {
                    return Err(Errno::EXIST.into());
                };
                if to.ends_with(b"/") {
                    return Err(context.only_a_directory(place.directory, name));
                }
                context.add_link(target, place.directory, name)
            })
        })
    }

    pub fn symlink(&self, target: &[u8], at: At, path: &[u8]) -> Result<(), Failure> {
        if target.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if target.len() > PATH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        self.make(
            at,
            path,
            Birth {
                kind: FileKind::Link,
                mode: 0o777,
                target,
            },
        )
    }

    /// Number of bytes placed in `buffer` (truncated silently, as readlink does). With an empty
    /// path: of the link that `at` has open.
    pub fn read_link(&self, at: At, path: &[u8], buffer: &mut [u8]) -> Result<usize, Failure> {
        let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
        let otherwise = match path.is_empty() && at != At::Root {
            true => Errno::NOENT,
            false => Errno::INVAL,
        };
        self.on_path(at, path, flags, |context, inode| {
            if inode.kind() != Some(FileKind::Link) {
                return Err(otherwise.into());
            }
            context.read_at(inode, buffer, 0)
        })
    }

    /// S_IFREG, S_IFIFO and S_IFSOCK nodes; EPERM for devices. Named sockets and pipes are
    /// stored as nodes but cannot be opened (ENXIO) until a later version.
    pub fn make_node(&self, at: At, path: &[u8], mode: u32, _device: u64) -> Result<(), Failure> {
        let kind = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => FileKind::File,
            libc::S_IFIFO => FileKind::Pipe,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR | libc::S_IFBLK => return Err(Errno::PERM.into()),
            _ => return Err(Errno::INVAL.into()),
        };
        self.make(
            at,
            path,
            Birth {
                kind,
                mode: mode & 0o7777,
                target: b"",
            },
        )
    }

    /// Fills `buffer` with `linux_dirent64` records from the description's position on; 0 = end.
    /// EINVAL if the buffer is too small for the next entry, ENOENT if the directory was removed.
    pub fn read_directory(&self, handle: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        let description = self.engine.description(handle)?;
        // What is open for writing alone is no directory, which is found out below.
        if self.engine.flags_of(description, &self.externals) & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        let cell = self.engine.offset_cell(description, &self.externals)?;
        if description.listing.load(Ordering::Acquire).is_null() {
            let listing = self.on_handle(handle, |context, inode| {
                if !inode.is_directory() {
                    return Err(Errno::NOTDIR.into());
                }
                if inode.has(flag::UNLINKED) {
                    return Err(Errno::NOENT.into());
                }
                context.snapshot(inode)
            })?;
            self.engine.keep_listing(description, &listing)?;
        }
        let region = self.engine.session.region();
        let end = description.listing_end.load(Ordering::Relaxed);
        let listing = description.listing.load(Ordering::Acquire);
        let mut position = cell.get();
        let mut used = 0;
        let mut bytes = [0u8; listing::ENTRY_HEADER + 255];
        while position < end {
            let length = bytes.len().min((end - position) as usize);
            let from = arck_libfs_kit::region::Offset::from_raw(listing.raw() + position);
            region.read_bytes(from, &mut bytes[..length]);
            let entry = listing::first_entry(&bytes[..length]).ok_or(Errno::IO)?;
            let next = position + entry.length as u64;
            match listing::put_dirent(buffer, used, &entry, next) {
                Some(length) => used += length,
                None if used == 0 => return Err(Errno::INVAL),
                None => break,
            }
            position = next;
        }
        cell.set(position);
        Ok(used)
    }

    /// The absolute path (mount prefix included) by which a directory, or a file, is reached now;
    /// for getcwd and /proc/self/fd. ENOENT if it was removed.
    pub fn path_of(&self, handle: Handle) -> Result<Vec<u8>, Errno> {
        let (number, generation) = identity(self.engine.description(handle)?);
        let path = self.engine.run_local(|context| {
            let mut names: Vec<Vec<u8>> = Vec::new();
            let mut at = context.view(number, generation)?;
            while at.number() != ROOT_INODE {
                if at.has(flag::UNLINKED) || names.len() > PATH_MAX / 2 {
                    return Err(Errno::NOENT.into());
                }
                if !at.is_directory() && at.parent.load(Ordering::Relaxed) == 0 {
                    return Err(Errno::NOENT.into());
                }
                let parent = context.parent(at)?;
                names.push(context.name_of(parent, at.number())?.ok_or(Errno::NOENT)?);
                at = parent;
            }
            Ok(names)
        })?;
        let mut absolute = self.mount.clone();
        for name in path.iter().rev() {
            absolute.push(b'/');
            absolute.extend_from_slice(name);
        }
        if absolute.is_empty() {
            absolute.push(b'/');
        }
        Ok(absolute)
    }

    // ---- advisory locks; never waits: EAGAIN when in conflict (the caller retries for F_SETLKW)

    fn range(&self, handle: Handle, request: LockRequest) -> Result<LockRange, Errno> {
        let description = self.engine.description(handle)?;
        let process = rustix::process::getpid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        let (family, owner) = match request.owner {
            LockOwner::Process => (0, u64::from(process)),
            LockOwner::Description => (1, handle.0.get()),
            LockOwner::Flock => (2, handle.0.get()),
        };
        Ok(LockRange {
            inode: identity(description).0,
            mode: match request.kind {
                LockKind::Shared => LockMode::Shared,
                LockKind::Exclusive => LockMode::Exclusive,
                LockKind::Unlock => LockMode::Unlock,
            },
            start: request.start,
            end: request.end,
            holder: LockHolder {
                family,
                owner,
                process,
            },
        })
    }

    /// Takes, changes or drops a lock.
    pub fn lock(&self, handle: Handle, request: LockRequest) -> Result<(), Errno> {
        let range = self.range(handle, request)?;
        self.engine.session.ask(&Request::Lock { range })
    }

    /// As F_GETLK: the first conflicting lock (with the holder's process id), if any.
    pub fn conflicting_lock(
        &self,
        handle: Handle,
        request: LockRequest,
    ) -> Result<Option<(LockRequest, i32)>, Errno> {
        let range = self.range(handle, request)?;
        match self.engine.session.request(&Request::TestLock { range })? {
            Response::Done => Ok(None),
            Response::Conflict(found) => Ok(Some((
                LockRequest {
                    kind: match found.mode {
                        LockMode::Exclusive => LockKind::Exclusive,
                        _ => LockKind::Shared,
                    },
                    start: found.start,
                    end: found.end,
                    owner: match found.holder.family {
                        0 => LockOwner::Process,
                        1 => LockOwner::Description,
                        _ => LockOwner::Flock,
                    },
                },
                found.holder.process as i32,
            ))),
            _ => Err(Errno::PROTO),
        }
    }

    /// Drops every lock that the process holds on the handle's inode (POSIX: at any close).
    pub fn drop_process_locks(&self, handle: Handle) -> Result<(), Errno> {
        let request = LockRequest {
            kind: LockKind::Unlock,
            start: 0,
            end: u64::MAX,
            owner: LockOwner::Process,
        };
        let range = self.range(handle, request)?;
        self.engine.session.ask(&Request::DropLocks {
            inode: range.inode,
            holder: range.holder,
        })
    }
}

fn identity(description: &Description) -> (InodeNumber, u32) {
    (
        description.inode.load(Ordering::Relaxed),
        description.generation.load(Ordering::Relaxed),
    )
}

fn trim_end(path: &[u8]) -> &[u8] {
    let end = path
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    if end == 0 {
        &path[..path.len().min(1)]
    } else {
        &path[..end]
    }
}

/// The inode whose owner the controller is to change; `None` if nothing changes.
fn owner_change(
    context: &Context<'_>,
    inode: &'static CachedInode,
    uid: u32,
    gid: u32,
) -> Attempt<Option<InodeNumber>> {
    if !context.check_owner_change(inode, uid, gid)? {
        return Ok(None);
    }
    if inode.has(flag::UNBORN) {
        // The controller does not know it yet.
        return Err(Fix::Commit([inode.parent.load(Ordering::Relaxed), 0]).into());
    }
    Ok(Some(inode.number()))
}

impl<'a> Context<'a> {
    /// Opens, or makes, what a walk ended at. True: it was made.
    fn open_place(
        &self,
        place: &Place<'_>,
        create: bool,
        exclusive: bool,
        mode: u32,
    ) -> Attempt<(&'static CachedInode, bool)> {
        let Last::Name(name) = place.last else {
            if exclusive {
                return Err(Errno::EXIST.into());
            }
            return if create {
                Err(Errno::ISDIR.into())
            } else {
                Ok((place.directory, false))
            };
        };
        if !place.directory.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        self.credentials.check(place.directory, 1)?;
        if create && place.slash {
            return Err(Errno::ISDIR.into());
        }
        match self.dentry(place.directory, name)? {
            Some(_) if exclusive => Err(Errno::EXIST.into()),
            Some(dentry) => {
                let inode = self.view(dentry.inode, dentry.generation)?;
                if place.slash && !inode.is_directory() {
                    return Err(Errno::NOTDIR.into());
                }
                if create && inode.is_directory() {
                    return Err(Errno::ISDIR.into());
                }
                let holder = place.directory.number();
                if !inode.is_directory()
                    && !inode.has(flag::UNBORN)
                    && inode.parent.load(Ordering::Relaxed) != holder
                {
                    // One of the directories that hold it, so that its path can be told.
                    inode.parent.store(holder, Ordering::Relaxed);
                }
                Ok((inode, false))
            }
            None if !create => Err(Errno::NOENT.into()),
            None => {
                let birth = Birth {
                    kind: FileKind::File,
                    mode: mode & 0o7777,
                    target: b"",
                };
                match self.create_absent(place.directory, name, birth) {
                    // Somebody else was faster.
                    Err(Stop::Failure(Failure::Errno(Errno::EXIST))) if !exclusive => {
                        Err(Fix::Again.into())
                    }
                    other => Ok((other?, true)),
                }
            }
        }
    }

    /// Why `name` with a slash behind it is not made, where it would not be a directory.
    fn only_a_directory(&self, directory: &'static CachedInode, name: &[u8]) -> Stop {
        if !directory.is_directory() {
            return Errno::NOTDIR.into();
        }
        match self.lookup(directory, name) {
            Ok(found) if found.dentry.is_some() => Errno::EXIST.into(),
            Ok(_) => Errno::NOENT.into(),
            Err(stop) => stop,
        }
    }

    /// Makes a name in a directory. EEXIST.
    pub fn create_name(
        &self,
        directory: &'static CachedInode,
        name: &[u8],
        birth: Birth<'_>,
    ) -> Attempt<&'static CachedInode> {
        if !directory.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        if self.dentry(directory, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.create_absent(directory, name, birth)
    }

    /// As [`Context::create_name`], for a name that was not there a moment ago.
    fn create_absent(
        &self,
        directory: &'static CachedInode,
        name: &[u8],
        birth: Birth<'_>,
    ) -> Attempt<&'static CachedInode> {
        self.may_change_names(directory)?;
        let _locked = directory.lock.write(self.slot().holder());
        let expected = self.begin_change(directory)?;
        let found = self.lookup(directory, name)?;
        if found.dentry.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.may_change_names(directory)?;
        self.give_birth(directory, &expected, name, &found, birth)
    }

    /// Permission and type checks of open.
    fn may_open(&self, inode: &CachedInode, flags: i32) -> Attempt<()> {
        if flags & libc::O_PATH != 0 {
            if flags & libc::O_DIRECTORY != 0 && !inode.is_directory() {
                return Err(Errno::NOTDIR.into());
            }
            return Ok(());
        }
        let write = flags & ACCESS_MODE != libc::O_RDONLY;
        match inode.kind().ok_or(Errno::IO)? {
            FileKind::Link if flags & libc::O_DIRECTORY != 0 => return Err(Errno::NOTDIR.into()),
            FileKind::Link => return Err(Errno::LOOP.into()),
            FileKind::Directory if write || flags & libc::O_TRUNC != 0 => {
                return Err(Errno::ISDIR.into());
            }
            FileKind::Directory => {}
            _ if flags & libc::O_DIRECTORY != 0 => return Err(Errno::NOTDIR.into()),
            FileKind::File => {}
            FileKind::Pipe | FileKind::Socket => return Err(Errno::NXIO.into()),
        }
        let mut wanted = if write { 2 } else { 0 };
        if flags & ACCESS_MODE != libc::O_WRONLY {
            wanted |= 4;
        }
        if flags & libc::O_TRUNC != 0 {
            wanted |= 2;
        }
        self.credentials.check(inode, wanted)?;
        if flags & libc::O_NOATIME != 0 {
            self.credentials.check_owner(inode)?;
        }
        Ok(())
    }

    /// SEEK_DATA or SEEK_HOLE from `from`: ENXIO beyond the end.
    fn seek_data(&self, inode: &CachedInode, from: u64, data: bool) -> Attempt<u64> {
        let seen = self.seen(inode);
        let size = inode.size.load(Ordering::Acquire);
        if from >= size {
            return Err(Errno::NXIO.into());
        }
        let mut at = from;
        while at < size {
            let hole = self.data_page(inode, at / 4096)?.is_null();
            if hole != data {
                self.unmoved_since(inode, seen)?;
                return Ok(at);
            }
            at = (at / 4096 + 1) * 4096;
        }
        self.unmoved_since(inode, seen)?;
        if data {
            Err(Errno::NXIO.into())
        } else {
            Ok(size)
        }
    }
}
