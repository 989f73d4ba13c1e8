//! Extended attributes: names and values beside an inode, in the namespace `user` alone.
//!
//! # Invariants
//! * All attributes of an inode stand in one page; a change fills another page and commits it by
//!   one store in the branch, after the page is durable. So a crash, or a fold, sees all of the
//!   old attributes or all of the new.
//! * `CachedInode::attributes` is what the branch's word says, and keeps the delta's page from
//!   being used for anything else. It changes under the inode's lock, with the word.
//! * Nothing in a page is believed: another session may have written it (`extended::Page`).

use super::Attributing;
use super::credentials::{Capability, Credentials};
use crate::interface::Errno;
use arck_libfs_kit::engine::{Attempt, Expected, Need, Published, Stop};
use arck_libfs_kit::format::extended::{NAME_MAX, NONE, PREFIX, Page, VALUE_MAX};
use arck_libfs_kit::format::{FileKind, InodeNumber, PagePtr};
use arck_libfs_kit::memory::durable as order;
use arck_libfs_kit::views::times::now;
use arck_libfs_kit::views::{CachedInode, flag};
use std::sync::atomic::Ordering;

/// What is to be done to an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    Get,
    Set,
    Remove,
}

/// That there can be a name and a value like these, before the inode is looked for. ERANGE, E2BIG.
pub fn check_lengths(name: &[u8], value: &[u8]) -> Result<(), Errno> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Errno::RANGE);
    }
    if value.len() > VALUE_MAX {
        return Err(Errno::TOOBIG);
    }
    Ok(())
}

/// As Linux and tmpfs answer: who may do this to an attribute of this name, and which names there
/// are. EINVAL, EOPNOTSUPP, ENODATA; EPERM, EACCES.
fn check(who: &Credentials, inode: &CachedInode, name: &[u8], wish: Wish) -> Result<(), Errno> {
    let refused = |otherwise| match wish {
        Wish::Get => Errno::NODATA,
        Wish::Set | Wish::Remove => otherwise,
    };
    let wanted = if wish == Wish::Get { 4 } else { 2 };
    if name.starts_with(b"system.") {
        return Err(Errno::OPNOTSUPP);
    }
    let trusted = name.starts_with(b"trusted.");
    if trusted || name.starts_with(b"security.") {
        // Of these there are none, and none can be made.
        return Err(
            if !who.may(Capability::SysAdmin) && (trusted || wish != Wish::Get) {
                refused(Errno::PERM)
            } else if name.ends_with(b".") {
                Errno::INVAL
            } else if wish == Wish::Set {
                Errno::OPNOTSUPP
            } else {
                Errno::NODATA
            },
        );
    }
    let user = name.starts_with(PREFIX.as_bytes());
    if user {
        let directory = inode.is_directory();
        if !directory && inode.kind() != Some(FileKind::File) {
            return Err(refused(Errno::PERM));
        }
        let sticky = directory && inode.mode.load(Ordering::Relaxed) & 0o1000 != 0;
        if sticky && wish != Wish::Get {
            who.check_owner(inode)?;
        }
    }
    who.check(inode, wanted)?;
    if !user {
        Err(Errno::OPNOTSUPP)
    } else if name.len() == PREFIX.len() {
        Err(Errno::INVAL)
    } else {
        Ok(())
    }
}

/// Copies a text of attributes out: its length, which is all that is asked for if `buffer` is
/// empty. ERANGE if it does not fit.
fn give(buffer: &mut [u8], text: &[u8]) -> Result<usize, Errno> {
    if buffer.is_empty() {
        return Ok(text.len());
    }
    let place = buffer.get_mut(..text.len()).ok_or(Errno::RANGE)?;
    place.copy_from_slice(text);
    Ok(text.len())
}

/// getxattr, of all attributes of an inode. ENODATA, ERANGE.
pub fn give_value(page: &Page, name: &[u8], buffer: &mut [u8]) -> Result<usize, Errno> {
    give(buffer, page.get(name).ok_or(Errno::NODATA)?)
}

/// listxattr, of the same. ERANGE.
pub fn give_names(page: &Page, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut names = Vec::new();
    for (name, _) in page.entries() {
        names.extend_from_slice(name);
        names.push(0);
    }
    give(buffer, &names)
}

impl Attributing<'_> {
    /// getxattr. ENODATA, ERANGE; see [`check`].
    pub fn get_extended(
        &self,
        inode: &CachedInode,
        name: &[u8],
        buffer: &mut [u8],
    ) -> Attempt<usize> {
        check(self.credentials, inode, name, Wish::Get)?;
        Ok(give_value(&self.read_extended(inode)?, name, buffer)?)
    }

    /// listxattr: names, each with a NUL behind it. ERANGE.
    pub fn list_extended(&self, inode: &CachedInode, buffer: &mut [u8]) -> Attempt<usize> {
        Ok(give_names(&self.read_extended(inode)?, buffer)?)
    }

    /// What [`Attributing::get_extended`] and [`Attributing::set_extended`] check first of a name; of no name in particular, nobody is kept from
    /// listing them. Gives number and generation, unless only this session knows the inode. See [`check`].
    pub fn check_extended(
        &self,
        inode: &CachedInode,
        wish: Option<(&[u8], Wish)>,
    ) -> Result<Option<(InodeNumber, u32)>, Errno> {
        if let Some((name, wish)) = wish {
            check(self.credentials, inode, name, wish)?;
        }
        let is_known = !inode.has(flag::UNCOMMITTED);
        Ok(is_known.then(|| (inode.number(), inode.generation())))
    }

    /// setxattr, or (with no value) removexattr, for which `flags` are XATTR_REPLACE. What is given is
    /// of what, its number and generation, that is to be done by message, unless `as_owner`. EEXIST, ENODATA, ENOSPC; see [`check`].
    pub fn set_extended(
        &self,
        inode: &'static CachedInode,
        name: &[u8],
        value: Option<&[u8]>,
        flags: i32,
        as_owner: bool,
    ) -> Attempt<Option<(InodeNumber, u32)>> {
        let wish = value.map_or(Wish::Remove, |_| Wish::Set);
        check(self.credentials, inode, name, wish)?;
        let sent = match as_owner {
            true => None,
            false => self.by_message(inode),
        };
        if sent.is_none() {
            self.change_extended(inode, name, value, flags)?;
        }
        Ok(sent)
    }

    /// All attributes in this session's view.
    fn read_extended(&self, inode: &CachedInode) -> Attempt<Page> {
        let seen = self.seen(inode);
        let owned = self.owns(inode);
        let _locked = owned.then(|| inode.lock.read());
        let page = self.copy_extended(inode);
        // Not even a failure counts if it was found in a mixture of states.
        self.unmoved_since(inode, seen)?;
        page
    }

    /// The page of an inode's attributes; what it gives counts only if the header has not moved.
    fn copy_extended(&self, inode: &CachedInode) -> Attempt<Page> {
        let mut page = Page::default();
        let pointer = match inode.attributes.load(Ordering::Acquire) {
            NONE => PagePtr::NULL,
            0 if inode.has(flag::UNCOMMITTED) => PagePtr::NULL,
            0 => match self.verified(inode.number())? {
                Some((copy, verified)) if copy.generation == inode.generation() => {
                    verified.attributes
                }
                _ => return Err(Need::Again.into()),
            },
            page => PagePtr(u64::from(page)),
        };
        if !pointer.is_null() {
            let bytes = self.session.page_bytes(pointer);
            let bytes = bytes.ok_or_else(|| self.lost(inode))?;
            bytes
                .try_copy_to(0, &mut page.0)
                .map_err(|error| error.errno())?;
        }
        Ok(page)
    }

    /// Sets an attribute, or takes it away; `flags`: XATTR_CREATE, XATTR_REPLACE.
    fn change_extended(
        &self,
        inode: &'static CachedInode,
        name: &[u8],
        value: Option<&[u8]>,
        flags: i32,
    ) -> Attempt<()> {
        let _locked = self.lock_whole(inode);
        let expected = self.begin_change(inode)?;
        let old = self.copy_extended(inode)?;
        self.unmoved(inode)?;
        match old.get(name) {
            Some(_) if flags & libc::XATTR_CREATE != 0 => return Err(Errno::EXIST.into()),
            None if flags & libc::XATTR_REPLACE != 0 => return Err(Errno::NODATA.into()),
            _ => {}
        }
        let new = old.with(name, value).ok_or(Errno::NOSPC)?;
        let attributes = if new.is_empty() {
            NONE
        } else {
            self.take_page_of_extended()?
        };
        let done = self.publish_extended(inode, &expected, &new, attributes);
        match &done {
            Ok(()) => {
                let before = inode.attributes.swap(attributes, Ordering::AcqRel);
                self.release_extended(before);
            }
            // Nothing leads to the page, or only what a fold has ended.
            Err(Unpublished::Before(_)) => self.release_extended(attributes),
            // Who knows what leads where: both pages stay taken as long as the delta is there.
            Err(Unpublished::Unknown(_)) => inode.attributes.store(attributes, Ordering::Release),
        }
        done.map_err(|unpublished| match unpublished {
            Unpublished::Before(stop) | Unpublished::Unknown(stop) => stop,
        })
    }

    /// A free page that a branch can name.
    fn take_page_of_extended(&self) -> Attempt<u32> {
        let data = &self.session.state().data;
        loop {
            let page = data.take(self.session, self.slot())?;
            match u32::try_from(page.0) {
                Ok(page) if page != NONE => return Ok(page),
                // The last page of the largest pool has no name there: it stays taken.
                _ => {}
            }
        }
    }

    fn publish_extended(
        &self,
        inode: &'static CachedInode,
        expected: &Expected,
        new: &Page,
        attributes: u32,
    ) -> Result<(), Unpublished> {
        let time = now();
        self.expect_reached()?;
        let mut branch = self.branch(inode, expected)?;
        let filled = if attributes == NONE {
            None
        } else {
            let page = PagePtr(u64::from(attributes));
            let bytes = self.session.page_bytes(page).ok_or(Errno::IO)?;
            let filled = bytes.try_stream(0, &new.0).map_err(|error| error.errno())?;
            Some(filled.describing())
        };
        let line = branch.line_0();
        line.put_changed(time)?;
        let (branch, (stamped, filled)) = branch.begun_with((line.flush()?, filled));
        let (before, word, stored) = branch.set_attributes(attributes, &stamped, filled)?;
        let committed = order::fence(stored);
        let published = Published {
            offset: branch.offset_of_attributes(),
            word,
            before,
            length: 8,
        };
        match self.confirm(&[(inode, *expected)], published, committed) {
            Ok(_) => {}
            Err(Stop::Need(fix)) => return Err(Unpublished::Before(fix.into())),
            Err(stop) => return Err(Unpublished::Unknown(stop)),
        }
        inode.has_times(None, time, &stamped);
        Ok(())
    }
}

/// Why a change did not succeed.
enum Unpublished {
    /// Its page is in use nowhere.
    Before(Stop),
    /// Its page may be in use.
    Unknown(Stop),
}

impl<T: Into<Stop>> From<T> for Unpublished {
    fn from(stop: T) -> Unpublished {
        Unpublished::Before(stop.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An inode of user 1 and group 1, and whether user `uid` may.
    fn may(mode: u32, uid: u32, name: &str, wish: Wish) -> Result<(), Errno> {
        let inode = CachedInode::new(7, 1);
        inode.mode.store(mode, Ordering::Relaxed);
        inode.uid.store(1, Ordering::Relaxed);
        inode.gid.store(1, Ordering::Relaxed);
        let who = Credentials::of_user(uid);
        check(&who, &inode, name.as_bytes(), wish)
    }

    const FILE: u32 = libc::S_IFREG;
    const DIRECTORY: u32 = libc::S_IFDIR;

    #[test]
    fn reading_needs_the_bit_for_reading_and_setting_that_for_writing() {
        for (mode, uid, get, set) in [
            (FILE | 0o600, 1, Ok(()), Ok(())),
            (FILE | 0o600, 2, Err(Errno::ACCESS), Err(Errno::ACCESS)),
            (FILE | 0o604, 2, Ok(()), Err(Errno::ACCESS)),
            (FILE | 0o602, 2, Err(Errno::ACCESS), Ok(())),
            // Its owner may change the mode, and has to first.
            (FILE | 0o066, 1, Err(Errno::ACCESS), Err(Errno::ACCESS)),
            (FILE, 0, Ok(()), Ok(())),
            (DIRECTORY | 0o602, 2, Err(Errno::ACCESS), Ok(())),
            (DIRECTORY | 0o1777, 2, Ok(()), Err(Errno::PERM)),
            (DIRECTORY | 0o1777, 1, Ok(()), Ok(())),
            (DIRECTORY | 0o1777, 0, Ok(()), Ok(())),
            (FILE | 0o1777, 2, Ok(()), Ok(())),
        ] {
            assert_eq!(may(mode, uid, "user.a", Wish::Get), get, "{mode:o} {uid}");
            assert_eq!(may(mode, uid, "user.a", Wish::Set), set, "{mode:o} {uid}");
            assert_eq!(
                may(mode, uid, "user.a", Wish::Remove),
                set,
                "{mode:o} {uid}"
            );
        }
    }

    #[test]
    fn links_and_special_files_have_none() {
        for kind in [
            libc::S_IFLNK,
            libc::S_IFIFO,
            libc::S_IFSOCK,
            libc::S_IFCHR,
            libc::S_IFBLK,
        ] {
            for uid in [0, 1] {
                let mode = kind | 0o777;
                assert_eq!(may(mode, uid, "user.a", Wish::Get), Err(Errno::NODATA));
                assert_eq!(may(mode, uid, "user.a", Wish::Set), Err(Errno::PERM));
                assert_eq!(may(mode, uid, "user.a", Wish::Remove), Err(Errno::PERM));
            }
        }
    }

    #[test]
    fn other_namespaces_are_empty() {
        use Errno as E;
        for (name, uid, get, set, remove) in [
            ("trusted.a", 1, E::NODATA, E::PERM, E::PERM),
            ("trusted.a", 0, E::NODATA, E::OPNOTSUPP, E::NODATA),
            ("trusted.", 0, E::INVAL, E::INVAL, E::INVAL),
            ("security.a", 1, E::NODATA, E::PERM, E::PERM),
            ("security.a", 0, E::NODATA, E::OPNOTSUPP, E::NODATA),
            ("security.", 1, E::INVAL, E::PERM, E::PERM),
            (
                "system.posix_acl_access",
                1,
                E::OPNOTSUPP,
                E::OPNOTSUPP,
                E::OPNOTSUPP,
            ),
            ("system.x", 0, E::OPNOTSUPP, E::OPNOTSUPP, E::OPNOTSUPP),
            ("other.x", 1, E::OPNOTSUPP, E::OPNOTSUPP, E::OPNOTSUPP),
            ("other.x", 2, E::ACCESS, E::ACCESS, E::ACCESS),
            ("user", 1, E::OPNOTSUPP, E::OPNOTSUPP, E::OPNOTSUPP),
            ("user.", 1, E::INVAL, E::INVAL, E::INVAL),
        ] {
            for (wish, errno) in [(Wish::Get, get), (Wish::Set, set), (Wish::Remove, remove)] {
                let found = may(FILE | 0o600, uid, name, wish);
                assert_eq!(found, Err(errno), "{name} {uid} {wish:?}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_not_given() {
        let mut buffer = [9; 4];
        assert_eq!(give(&mut [], b"12345"), Ok(5));
        assert_eq!(give(&mut buffer, b"12345"), Err(Errno::RANGE));
        assert_eq!(buffer, [9; 4]);
        assert_eq!(give(&mut buffer, b"123"), Ok(3));
        assert_eq!(buffer, *b"123\x09");
        assert_eq!(give(&mut buffer, b""), Ok(0));
    }
}
