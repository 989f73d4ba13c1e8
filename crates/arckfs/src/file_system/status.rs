//! Attributes of inodes and of the pool.

use super::*;
use crate::attributes::Changed;
use crate::names::by_message;
use arck_libfs_kit::engine::Need;
use arck_libfs_kit::format::Mediation;
use arck_libfs_kit::messages::Request;

impl FileSystem {
    pub fn stat_handle(&self, handle: Handle) -> Result<Attributes, Errno> {
        let mut attributes = Attributes::default();
        self.on_handle(handle, |context, inode| {
            attributes = context.attributes(inode)?;
            Ok(())
        })?;
        Ok(attributes)
    }

    /// `flags`: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
    pub fn stat(&self, at: At, path: &[u8], flags: AtFlags) -> Result<Attributes, Failure> {
        // Not as the answer of an attempt, which is copied at each of the doors that it comes through.
        let mut attributes = Attributes::default();
        self.on_path(at, path, flags, |context, inode| {
            attributes = context.attributes(inode)?;
            Ok(())
        })?;
        Ok(attributes)
    }

    /// Whether sessions change a file or a directory by messages, or by turns as its owner. EINVAL for what is neither.
    pub fn mediation(&self, at: At, path: &[u8]) -> Result<Mediation, Failure> {
        Ok(self.how_shared(at, path)?.0)
    }

    /// Whether several sessions may have writable shared maps of a file, whose pages none of them owns then. EINVAL for what is neither
    /// a file nor a directory.
    pub fn is_together(&self, at: At, path: &[u8]) -> Result<bool, Failure> {
        Ok(self.how_shared(at, path)?.1)
    }

    fn how_shared(&self, at: At, path: &[u8]) -> Result<(Mediation, bool), Failure> {
        self.on_path(at, path, 0, |context, inode| match inode.kind() {
            Some(FileKind::File | FileKind::Directory) => {
                let verified = context.verified(inode.number())?;
                Ok(verified.map_or((Mediation::Auto, false), |(_, inode)| {
                    (inode.mediation(), inode.is_together())
                }))
            }
            _ => Err(Errno::INVAL.into()),
        })
    }

    /// Says so, durably, of a file or a directory; for its owner and for root. EPERM; EINVAL for what is neither.
    pub fn set_mediation(&self, at: At, path: &[u8], mediation: Mediation) -> Result<(), Failure> {
        let (inode, generation) = self.on_path(at, path, 0, |_, inode| match inode.kind() {
            // The controller knows it once the directory is folded in which it was made.
            Some(FileKind::File | FileKind::Directory) if inode.has(flag::UNCOMMITTED) => {
                Err(Need::Commit([inode.holder.load(Ordering::Relaxed), 0]).into())
            }
            Some(FileKind::File | FileKind::Directory) => Ok((inode.number(), inode.generation())),
            _ => Err(Errno::INVAL.into()),
        })?;
        let request = Request::SetMediation {
            inode,
            generation,
            mediation: mediation as u32,
        };
        Ok(self.engine.session.ask(&request)?)
    }

    /// `mode`: R_OK | W_OK | X_OK or F_OK; `flags`: AT_EACCESS, AT_SYMLINK_NOFOLLOW.
    pub fn access(&self, at: At, path: &[u8], mode: i32, flags: AtFlags) -> Result<(), Failure> {
        self.on_path(at, path, flags, |context, inode| {
            let wanted = mode as u32 & 7;
            Ok(match flags & libc::AT_EACCESS {
                0 => context.credentials.check_real(inode, wanted),
                _ => context.credentials.check(inode, wanted),
            }?)
        })
    }

    pub fn change_mode(
        &self,
        at: At,
        path: &[u8],
        mode: u32,
        flags: AtFlags,
    ) -> Result<(), Failure> {
        let attempt = || {
            self.on_path(at, path, flags, |context, inode| {
                if inode.kind() == Some(FileKind::Link) {
                    return Err(Errno::OPNOTSUPP.into());
                }
                context.set_mode(inode, mode)
            })
        };
        self.set(attempt)
    }

    pub fn change_mode_handle(&self, handle: Handle, mode: u32) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        self.set(|| self.on_handle(handle, |context, inode| context.set_mode(inode, mode)))
    }

    /// Sets attributes, by an attempt or by message.
    fn set<E: From<Errno>>(
        &self,
        mut attempt: impl FnMut() -> Result<Changed, E>,
    ) -> Result<(), E> {
        let attempt = || {
            Ok(match attempt()? {
                Changed::Here => by_message::Changed::Here(()),
                Changed::ByMessage(inode, set) => by_message::Changed::ByMessage((inode, set)),
            })
        };
        let send = |&(inode, set): &_| self.engine.set_by_message(inode, set);
        self.engine.here_or_by_message(attempt, send)
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
        let change = || {
            self.on_handle(handle, |context, inode| {
                owner_change(context, inode, uid, gid)
            })
        };
        let changed = match change() {
            // What has lost its name before the controller knew of it is made known to it only by a name.
            Err(Errno::AGAIN) => {
                self.let_be_created(self.engine.description(handle)?.identity()?)?;
                change()
            }
            changed => changed,
        };
        self.finish_owner_change(changed?, uid, gid)
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
        let attempt = || {
            self.on_path(at, path, flags, |context, inode| {
                context.set_times(inode, accessed, modified)
            })
        };
        self.set(attempt)
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
        let attempt = || {
            self.on_handle(handle, |context, inode| {
                context.set_times(inode, accessed, modified)
            })
        };
        self.set(attempt)
    }

    /// What the session has changed is folded before: only then the controller can tell what is free
    /// in the segments that were granted. Blocks for that.
    pub fn statistics(&self) -> Result<Statistics, Errno> {
        if self.engine.kit().has_dirty() {
            // What fails is not told: the numbers are those from before then. Twice, since what was
            // deleted is told with the next answer.
            let _ = self
                .engine
                .kit()
                .fold_all()
                .and_then(|()| self.engine.kit().fold_all());
        }
        Ok(self.statistics_of_fold())
    }

    /// The same as it was when the session's changes were last folded. Does not block.
    pub fn statistics_of_fold(&self) -> Statistics {
        let session = self.engine.session;
        let header = &session.control().header;
        Statistics {
            pages: session.geometry().page_count(),
            pages_free: header.pages_free.load(Ordering::Acquire),
            inodes: u64::from(session.geometry().inode_count),
            inodes_free: header.inodes_free.load(Ordering::Acquire),
            name_max: 255,
            id: self.pool_identity()[0],
        }
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
    if inode.has(flag::UNCOMMITTED) {
        // The controller does not know it yet.
        return Err(Need::Commit([inode.holder.load(Ordering::Relaxed), 0]).into());
    }
    Ok(Some(inode.number()))
}
