//! Extended attributes, by path or handle.
//!
//! # Invariant
//! A handle opened with O_PATH is none for these calls, and the access mode of any other does not
//! matter: rights are those of the inode, as on Linux.

use super::*;
use crate::attributes::extended::{Wish, check_lengths, give_names, give_value};
use crate::names::by_message::Changed;
use arck_libfs_kit::format::extended::Page;
use std::cell::Cell;

impl FileSystem {
    /// getxattr: bytes of the value, which are put into `buffer` unless it is empty. ENODATA,
    /// ERANGE, EOPNOTSUPP, EACCES.
    pub fn get_extended(
        &self,
        subject: Subject<'_>,
        name: &[u8],
        buffer: &mut [u8],
    ) -> Result<usize, Failure> {
        check_lengths(name, &[])?;
        let got = self.on_subject(subject, |context, inode| {
            context.get_extended(inode, name, buffer)
        });
        match self.told(subject, Some((name, Wish::Get)), &got) {
            Some(page) => Ok(give_value(&page, name, buffer)?),
            None => got,
        }
    }

    /// listxattr: bytes of all names, each with a NUL, put into `buffer` unless it is empty.
    /// ERANGE.
    pub fn list_extended(&self, subject: Subject<'_>, buffer: &mut [u8]) -> Result<usize, Failure> {
        let got = self.on_subject(subject, |context, inode| {
            context.list_extended(inode, buffer)
        });
        match self.told(subject, None, &got) {
            Some(page) => Ok(give_names(&page, buffer)?),
            None => got,
        }
    }

    /// setxattr; `flags`: XATTR_CREATE, XATTR_REPLACE. Durable when it returns. EINVAL, EEXIST, ENODATA; E2BIG beyond 65,536 bytes; ENOSPC if
    /// all attributes do not fit in 4096 bytes (of which each takes 4 besides name and value), or
    /// the pool is full; EPERM, EACCES, EOPNOTSUPP.
    pub fn set_extended(
        &self,
        subject: Subject<'_>,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<(), Failure> {
        if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
            return Err(Errno::INVAL.into());
        }
        check_lengths(name, value)?;
        self.change_extended(subject, name, Some(value), flags)
    }

    /// removexattr. Durable when it returns. ENODATA, EPERM, EACCES, EOPNOTSUPP; ENOSPC if others
    /// are left and the pool has no page for them.
    pub fn remove_extended(&self, subject: Subject<'_>, name: &[u8]) -> Result<(), Failure> {
        check_lengths(name, &[])?;
        self.change_extended(subject, name, None, libc::XATTR_REPLACE)
    }

    /// Sets one, or takes it away (no value): by an attempt or by message, and in the other way where there is no room, or what is to be
    /// changed is out of reach.
    fn change_extended(
        &self,
        subject: Subject<'_>,
        name: &[u8],
        value: Option<&[u8]>,
        flags: i32,
    ) -> Result<(), Failure> {
        let attempt = |as_owner| {
            let sent = self.on_subject(subject, |context, inode| {
                context.set_extended(inode, name, value, flags, as_owner)
            })?;
            Ok(sent.map_or(Changed::Here(()), Changed::ByMessage))
        };
        let (was_sent, is_full) = (Cell::new(false), Cell::new(false));
        let send = |&file: &_, unseen| {
            let done = self
                .engine
                .set_extended_by_message(file, name, value, flags, unseen);
            was_sent.set(!matches!(
                done,
                Err(Errno::BUSY | Errno::ACCESS | Errno::STALE)
            ));
            is_full.set(done == Err(Errno::TOOBIG));
            match done {
                Err(Errno::TOOBIG) => Err(Errno::NOSPC),
                done => done,
            }
        };
        let done = self
            .engine
            .here_or_by_message(|| attempt(false), |file| send(file, false));
        if was_sent.get() {
            return match done {
                // Its owner has some of his own where there are no others.
                Err(Failure::Errno(Errno::NOSPC)) if !is_full.get() => {
                    attempt(true).map(|_| ()).or(done)
                }
                done => done,
            };
        }
        let wish = value.map_or(Wish::Remove, |_| Wish::Set);
        match self.out_of_reach(subject, Some((name, wish)), &done) {
            Some(file) => match send(&file, true) {
                Err(Errno::ACCESS | Errno::STALE | Errno::BUSY) => done,
                sent => Ok(sent?),
            },
            None => done,
        }
    }

    /// Attributes that are told by message, where they cannot be read in place.
    fn told<T>(
        &self,
        subject: Subject<'_>,
        wish: Option<(&[u8], Wish)>,
        got: &Result<T, Failure>,
    ) -> Option<Page> {
        let file = self.out_of_reach(subject, wish, got)?;
        self.engine.extended_by_message(file, wish.is_none()).ok()
    }

    /// What has failed since its page cannot be seen from here, or has no place where it can, or since another session has a map that keeps it
    /// from being owned; and not since it may not be done:
    /// number and generation of what the controller is to be asked for.
    fn out_of_reach<T>(
        &self,
        subject: Subject<'_>,
        wish: Option<(&[u8], Wish)>,
        done: &Result<T, Failure>,
    ) -> Option<(u32, u32)> {
        match done {
            Err(Failure::Errno(Errno::ACCESS | Errno::BUSY | Errno::NOSPC | Errno::TXTBSY)) => {
                let checked = self.on_subject(subject, |context, inode| {
                    Ok(context.check_extended(inode, wish)?)
                });
                checked.ok().flatten()
            }
            _ => None,
        }
    }

    fn on_subject<T>(
        &self,
        subject: Subject<'_>,
        attempt: impl FnMut(&Context<'_>, &'static CachedInode) -> Attempt<T>,
    ) -> Result<T, Failure> {
        match subject {
            Subject::Path(at, path, flags) => self.on_path(at, path, flags, attempt),
            Subject::Handle(handle) => {
                self.not_path_only(handle)?;
                Ok(self.on_handle(handle, attempt)?)
            }
        }
    }
}
