//! Resolvers: where the directory part of a path led a moment ago.
//!
//! Programs use the same directories again and again. A walk that went through directories
//! alone (no symbolic link, no `.` or `..`) is remembered with the header of every directory on
//! the way as it was; while none of them has changed, the next walk along it is one comparison
//! of bytes, and of those headers.
//!
//! Where it is remembered is the [resolver], which a session chooses ([`Resolver`](crate::Resolver)): ArckFS's is a small
//! [cache](cache) of each thread; FPFS's is one [table](table) of full paths for all (Trio, section 5). All else of
//! ArckFS is FPFS's as well.
//!
//! # Invariants
//! * What is remembered holds while (a) every header on its way, that of the last directory excepted, has
//!   the sequence, ownership and fold number that it had, so that no other session changed
//!   anything there, and (b) [`AuxiliaryState::paths`](crate::state::AuxiliaryState::paths) has not moved, so that this session
//!   removed or renamed no directory and changed the mode of none: see
//!   [`AuxiliaryState::paths_change`](crate::state::AuxiliaryState::paths_change). The last directory is looked at by who is led to it.
//! * While the change clock stands, no header changes: what was found right at an even one is so as long as it stands
//!   ([`LiveHeader`](arck_libfs_kit::format::LiveHeader)'s module), and (a) need not be looked at.
//! * Only inodes that are shared or owned by this session are on the way: what another session
//!   owns is recalled at every call.
//! * Each thread has entries of ArckFS's own, found by its slot, and shares no line with others.
//!   Everything is atomic, so that a slot that changes hands does no harm: an entry is used only
//!   if it fits as a whole.

pub mod cache;
mod key;
pub mod resolver;
pub mod table;

use super::Context;
use crate::state::levels::{Level, StoredLevel};
use arck_libfs_kit::engine::{Attempt, Need, Stop};
use arck_libfs_kit::format::{FileKind, InodeNumber, PAGE_SIZE, directory};
use arck_libfs_kit::views::Directory;
use cache::{Entry, ThreadPaths};
use key::Key;
use resolver::Paths;
use std::sync::atomic::Ordering;
use table::{Found, FullPaths, Way};

/// The directory part of a path and its last component, if both are there and plain.
#[inline]
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = last_slash(path)?;
    let (directory, name) = (&path[..slash], &path[slash + 1..]);
    (!name.is_empty() && directory.last() != Some(&b'/')).then_some((directory, name))
}

/// Where the last slash stands: eight bytes at a time, since names are long.
#[inline]
fn last_slash(path: &[u8]) -> Option<usize> {
    const LOW: u64 = u64::from_le_bytes([0x7f; 8]);
    const SLASHES: u64 = u64::from_le_bytes([b'/'; 8]);
    let (rest, chunks) = path.as_rchunks::<8>();
    for (place, chunk) in chunks.iter().enumerate().rev() {
        let different = u64::from_le_bytes(*chunk) ^ SLASHES;
        // The high bit of each byte in which they do not differ, and nothing else.
        let same = !(((different & LOW) + LOW) | different | LOW);
        if same != 0 {
            return Some(rest.len() + place * 8 + 7 - same.leading_zeros() as usize / 8);
        }
    }
    rest.iter().rposition(|&byte| byte == b'/')
}

/// The first name of a directory part.
fn first_name(prefix: &[u8]) -> &[u8] {
    let end = prefix.iter().position(|&byte| byte == b'/');
    &prefix[..end.unwrap_or(prefix.len())]
}

impl Context<'_> {
    /// The directory that the directory part of `path` leads to, and the rest of the path, if it
    /// is remembered or is walked through directories alone. `None`: walk it. `creating`: the rest is
    /// to be made there, if it is not there.
    #[inline(always)]
    pub fn remembered<'p>(
        &self,
        directory: (u32, u32),
        path: &'p [u8],
        creating: bool,
    ) -> Attempt<Option<(Directory, &'p [u8])>> {
        let Some((prefix, name)) = split(path) else {
            return Ok(None);
        };
        let found = match Key::new(directory, prefix, self.resolution.paths.limits()) {
            Some(key) => self.directory_of(key),
            None => self.in_pieces(directory, prefix),
        };
        let found = found.map_err(|stop| self.to_create(stop, name, creating))?;
        Ok(found.map(|found| (found, name)))
    }

    /// A directory part that is too long for one entry, or too deep: as one part behind the other, each of which is
    /// remembered. So what is deeper costs an entry more, and nothing is walked but a name for which no entry has room.
    #[cold]
    fn in_pieces(&self, directory: (u32, u32), prefix: &[u8]) -> Attempt<Option<Directory>> {
        let limits = self.resolution.paths.limits();
        let (mut from, mut left) = (directory, prefix);
        loop {
            let piece = limits.first_piece(left);
            let piece = piece.unwrap_or_else(|| first_name(left));
            let found = match Key::new(from, piece, limits) {
                Some(key) => self.directory_of(key),
                None if piece.is_empty() => return Ok(None),
                None => self.one_step(from, piece, piece.len() == left.len()),
            };
            let Some(rest) = left.get(piece.len() + 1..) else {
                return found;
            };
            // On the way: it is not going to be changed.
            let found = found.map_err(|stop| self.to_create(stop, b"", false))?;
            let Some(found) = found else {
                return Ok(None);
            };
            if self.credentials.check(&found, 1).is_err() {
                return Ok(None);
            }
            from = (found.number(), found.generation());
            left = rest;
        }
    }

    /// The directory that one has, by a name, which is looked up. `None` as for [`Context::walk_on`].
    fn one_step(
        &self,
        (number, generation): (u32, u32),
        name: &[u8],
        is_last: bool,
    ) -> Attempt<Option<Directory>> {
        let Ok(directory) = Directory::of(self.view(number, generation)?) else {
            return Ok(None);
        };
        let owner = directory.expected().ownership.session();
        let is_anothers = owner != 0 && owner != self.session.number();
        if is_anothers || self.credentials.check(&directory, 1).is_err() {
            return Ok(None);
        }
        let dentry = self.kit.dentry(directory, name)?;
        let Some(dentry) = dentry.filter(|dentry| dentry.kind == FileKind::Directory) else {
            return Ok(None);
        };
        let (number, generation) = (dentry.inode, dentry.generation);
        let viewed = match is_last {
            false => self.view(number, generation),
            true => self.view_to_change(number, generation),
        };
        let viewed = self.or_ask(viewed, directory, name, number)?;
        Ok(Directory::of(viewed).ok())
    }

    /// The directory to which a part leads that one entry has room for.
    #[inline(always)]
    fn directory_of(&self, key: Key<'_>) -> Attempt<Option<Directory>> {
        let cache = match &self.resolution.paths {
            Paths::Threads(cache) => cache,
            Paths::Table(table) => return self.by_table(table, key),
        };
        let thread = usize::from(self.slot().holder().thread);
        let Some(paths) = cache.of_thread(thread) else {
            return Ok(None);
        };
        let version = self.state.paths.load(Ordering::Acquire);
        if let Some(entry) = paths.find(&key)
            && entry.version.load(Ordering::Relaxed) == version
            && let Some((above, last)) = entry.levels()
            && self.still_leads(above, entry)?
            && let Some(found) = self.reached(last.identity(), true)?
        {
            return Ok(Some(found));
        }
        match cache::LIMITS.first_piece(key.path) {
            Some(piece) if piece.len() == key.path.len() => self.remember(paths, key, version),
            _ => self.in_pieces(key.directory, key.path),
        }
    }

    /// A directory that was reached, by who is going to change it or not. `None`: who walks to it has to show the
    /// controller the way.
    #[inline(always)]
    fn reached(
        &self,
        (number, generation): (u32, u32),
        to_change: bool,
    ) -> Attempt<Option<Directory>> {
        let viewed = match to_change {
            true => self.view_to_change(number, generation),
            false => self.view(number, generation),
        };
        match viewed {
            Ok(view) => Ok(Directory::of(view).ok()),
            Err(Stop::Need(Need::Admit(_, false))) => Ok(None),
            // A recall is asked for once in a call, so that it must not be lost.
            Err(stop) => Err(stop),
        }
    }

    /// Whether nothing on the way has changed.
    #[inline(always)]
    fn still_leads(&self, above: &[StoredLevel], entry: &Entry) -> Attempt<bool> {
        let clock = self.session.change_clock().load(Ordering::Acquire);
        if entry.clock.load(Ordering::Relaxed) == clock {
            return Ok(true);
        }
        let stands = self.stand(above.iter().map(StoredLevel::load))?;
        if stands && clock.is_multiple_of(2) {
            entry.clock.store(clock, Ordering::Relaxed);
        }
        Ok(stands)
    }

    /// Whether the headers of these directories are as they were.
    #[inline]
    fn stand(&self, levels: impl Iterator<Item = Level>) -> Attempt<bool> {
        for level in levels {
            let header = self.header(level.number)?;
            if header.sequence.load(Ordering::Acquire) != level.sequence
                || header.ownership().0 != level.ownership
                || header.fold() != level.fold
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Walks a directory part and has the thread remember where it led. `None` as for [`Context::walk_on`].
    fn remember(
        &self,
        paths: &ThreadPaths,
        key: Key<'_>,
        version: u64,
    ) -> Attempt<Option<Directory>> {
        let entry = paths.begin(&key);
        let start = self.view(key.directory.0, key.directory.1)?;
        let Ok(start) = Directory::of(start) else {
            return Ok(None);
        };
        let names = key.path.split(|&byte| byte == b'/');
        let found = self.walk_on(start, names, |level| entry.note(level))?;
        if let Some(directory) = found
            && entry.note(Level::of(&directory))
        {
            entry.end(key, version);
        }
        Ok(found)
    }

    /// The directory of a path, by FPFS's table.
    fn by_table(&self, table: &FullPaths, key: Key<'_>) -> Attempt<Option<Directory>> {
        let version = self.state.paths.load(Ordering::Acquire);
        let clock = self.session.change_clock().load(Ordering::Acquire);
        let hash = table.hash(&key);
        if let Some(found) = table.find(&key, hash)
            && found.version == version
        {
            let stands = found.clock == clock || self.stands(&found, clock)?;
            if stands && let Some(directory) = self.reached(found.end, true)? {
                return Ok(Some(directory));
            }
        }
        self.learn(table, key, (version, clock))
    }

    /// Whether what the table says is still so. Who comes next at this change clock finds it noted.
    fn stands(&self, found: &Found, clock: u64) -> Attempt<bool> {
        let Some(way) = found.way() else {
            return Ok(false);
        };
        let stands = self.stand(way.levels().iter().copied())?;
        if stands && clock.is_multiple_of(2) {
            found.renew(clock);
        }
        Ok(stands)
    }

    /// Walks to a directory that the table does not know, from the nearest above it that it knows, and puts it there.
    /// `None` as for [`Context::walk_on`].
    #[cold]
    fn learn(
        &self,
        table: &FullPaths,
        key: Key<'_>,
        (version, clock): (u64, u64),
    ) -> Attempt<Option<Directory>> {
        if table::LIMITS.first_piece(key.path).map(<[u8]>::len) != Some(key.path.len()) {
            return self.in_pieces(key.directory, key.path);
        }
        let mut known = key.path;
        let (from, mut way, rest) = loop {
            let Some(slash) = known.iter().rposition(|&byte| byte == b'/') else {
                let start = self.view(key.directory.0, key.directory.1)?;
                break (Directory::of(start).ok(), Way::default(), key.path);
            };
            known = &known[..slash];
            let above = Key { path: known, ..key };
            if let Some(found) = table.find(&above, table.hash(&above))
                && found.version == version
                && let Some(way) = found.way()
                && self.stand(way.levels().iter().copied())?
                && let Some(from) = self.reached(found.end, false)?
            {
                break (Some(from), way, &key.path[slash + 1..]);
            }
        };
        let Some(from) = from else {
            return Ok(None);
        };
        let names = rest.split(|&byte| byte == b'/');
        let found = self.walk_on(from, names, |level| way.note(level))?;
        if let Some(directory) = found {
            let end = (directory.number(), directory.generation());
            let clock = if clock.is_multiple_of(2) { clock } else { 0 };
            table.put(&key, table.hash(&key), &way, end, version, clock);
        }
        Ok(found)
    }

    /// Walks on from a directory, through directories alone; each that something is looked up in is handed to `note` as
    /// it was before. `None`: something on the way is no directory, or may not be searched, or is not to be remembered.
    fn walk_on<'n>(
        &self,
        from: Directory,
        names: impl Iterator<Item = &'n [u8]> + Clone,
        mut note: impl FnMut(Level) -> bool,
    ) -> Attempt<Option<Directory>> {
        let mut directory = from;
        let mut names = names;
        while let Some(name) = names.next() {
            let owner = directory.expected().ownership.session();
            if owner != 0 && owner != self.session.number()
                || !note(Level::of(&directory))
                || name.is_empty()
                || name == b"."
                || name == b".."
                || self.credentials.check(&directory, 1).is_err()
            {
                return Ok(None);
            }
            let dentry = self.kit.dentry(directory, name)?;
            let Some(dentry) = dentry.filter(|dentry| dentry.kind == FileKind::Directory) else {
                return Ok(None);
            };
            let (number, generation) = (dentry.inode, dentry.generation);
            let viewed = match names.clone().next() {
                Some(_) => self.view(number, generation),
                None => self.view_to_change(number, generation),
            };
            let viewed = self.or_ask(viewed, directory, name, number)?;
            directory = match Directory::of(viewed) {
                Ok(directory) => directory,
                Err(_) => return Ok(None),
            };
        }
        Ok(Some(directory))
    }

    /// What has to happen first, where the directory of a name is another session's: it is taken
    /// over if the name is to be made and, as far as can be seen from here, will be. A guess: what
    /// is there after all is opened all the same.
    #[cold]
    pub fn to_create(&self, stop: Stop, name: &[u8], creating: bool) -> Stop {
        match stop {
            Stop::Need(Need::TakeOver(number)) if !(creating && self.may_make(number, name)) => {
                Need::Recall(number).into()
            }
            other => other,
        }
    }

    fn may_make(&self, number: InodeNumber, name: &[u8]) -> bool {
        let Ok(Some((_, verified))) = self.session.verified(number) else {
            return false;
        };
        let buckets = (verified.size / PAGE_SIZE).max(1);
        let hash = self.hash(name);
        verified.kind() == Some(FileKind::Directory)
            && self
                .cached(number)
                .is_ok_and(|inode| self.credentials.check(inode, 3).is_ok())
            && directory::lookup(self.session, verified.root, buckets, hash, name)
                .is_ok_and(|found| found.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_slash_is_found_wherever_it_stands() {
        for length in 0..40usize {
            let mut path = vec![b'.'; length];
            assert_eq!(last_slash(&path), None, "{length} bytes");
            for last in 0..length {
                path[..last].fill(b'/');
                path[last] = b'/';
                path[last + 1..].fill(b'.');
                assert_eq!(last_slash(&path), Some(last), "{length} bytes");
                path[..last].fill(b'0');
                assert_eq!(last_slash(&path), Some(last), "{length} bytes");
            }
        }
    }

    #[test]
    fn paths_are_split_where_they_are_plain() {
        for (path, expected) in [
            (&b"a/b"[..], Some((&b"a"[..], &b"b"[..]))),
            (b"a/b/c", Some((b"a/b", b"c"))),
            (b"a", None),
            (b"a/", None),
            (b"a//b", None),
        ] {
            assert_eq!(split(path), expected, "{path:?}");
        }
    }
}
