//! The path cache: where the directory part of a path led a moment ago.
//!
//! Programs use the same few directories again and again. A walk that went through directories
//! alone (no symbolic link, no `.` or `..`) is remembered with the header of every directory on
//! the way as it was; while none of them has changed, the next walk along it is one comparison
//! of bytes and of those headers (the idea of one table from full paths, as in Trio's FPFS, kept
//! as a cache beside the tree).
//!
//! # Invariants
//! * An entry holds while (a) every header on its way, that of the last directory included, has
//!   the sequence, ownership and fold number that it had, so that no other session changed
//!   anything there, and (b) [`AuxiliaryState::paths`](crate::state::AuxiliaryState::paths) has not moved, so that this session
//!   removed or renamed no directory and changed the mode of none: see
//!   [`AuxiliaryState::paths_change`](crate::state::AuxiliaryState::paths_change).
//! * Only inodes that are shared or owned by this session are on the way: what another session
//!   owns is recalled at every call.
//! * Each thread has entries of its own, found by its slot, and shares no line with others.
//!   Everything is atomic, so that a slot that changes hands does no harm: an entry is used only
//!   if it fits as a whole.

pub mod cache;

use super::Context;
use arck_libfs_kit::engine::{Attempt, Need, Stop};
use arck_libfs_kit::format::{FileKind, InodeNumber, PAGE_SIZE, directory};
use arck_libfs_kit::views::Directory;
use cache::{BYTES, ENTRIES, Entry, Key, LEVELS, Level, words};
use std::sync::atomic::Ordering;

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

/// As much of a directory part as one entry has room for: the longest that ends before a slash, or all of it. `None`:
/// its first name is too long.
fn first_piece(prefix: &[u8]) -> Option<&[u8]> {
    // Besides the names' there is the level of the directory in which they begin.
    let within = prefix.get(..BYTES).unwrap_or(prefix);
    let slashes = within.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    let mut ends = slashes.map(|(at, _)| at).chain([prefix.len()]);
    let fits = |&(names, end): &(usize, usize)| names + 2 <= LEVELS && end < BYTES;
    let last = ends.by_ref().enumerate().take_while(fits).last();
    last.map(|(_, end)| &prefix[..end])
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
        let found = match Key::new(directory, prefix) {
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
        let (mut from, mut left) = (directory, prefix);
        loop {
            let piece = first_piece(left).unwrap_or_else(|| first_name(left));
            let found = match Key::new(from, piece) {
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

    /// The directory that one has, by a name, which is looked up. `None` as for [`Context::remember`].
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
        let thread = usize::from(self.slot().holder().thread);
        let Some(paths) = self.resolution.paths.of_thread(thread) else {
            return Ok(None);
        };
        let version = self.state.paths.load(Ordering::Acquire);
        let last = paths.last.load(Ordering::Relaxed) as usize % ENTRIES;
        let mut entry = &paths.entries[last];
        let mut fits = key.fits(entry);
        if !fits {
            let place = key.place();
            entry = &paths.entries[place];
            paths.last.store(place as u32, Ordering::Relaxed);
            fits = key.fits(entry);
        }
        if fits && let Some(found) = self.still_leads(entry, version)? {
            return Ok(Some(found));
        }
        match first_piece(key.path) {
            Some(piece) if piece.len() == key.path.len() => self.remember(entry, key, version),
            _ => self.in_pieces(key.directory, key.path),
        }
    }

    /// The directory that an entry leads to, if nothing on the way has changed.
    #[inline]
    fn still_leads(&self, entry: &Entry, version: u64) -> Attempt<Option<Directory>> {
        let relaxed = Ordering::Relaxed;
        let depth = entry.depth.load(relaxed) as usize;
        let Some((last, _)) = entry.levels.get(..depth).and_then(<[Level]>::split_last) else {
            return Ok(None);
        };
        if entry.version.load(relaxed) != version {
            return Ok(None);
        }
        for level in &entry.levels[..depth] {
            let header = self.header(level.number.load(relaxed))?;
            if header.sequence.load(Ordering::Acquire) != level.sequence.load(relaxed)
                || header.ownership().0 != level.ownership.load(relaxed)
                || header.fold() != level.fold.load(relaxed)
            {
                return Ok(None);
            }
        }
        let view = self.view_to_change(last.number.load(relaxed), last.generation.load(relaxed))?;
        Ok(Directory::of(view).ok())
    }

    /// Walks a directory part and remembers where it led. `None`: something on the way is no
    /// directory, or may not be searched, or is not to be remembered.
    fn remember(&self, entry: &Entry, key: Key<'_>, version: u64) -> Attempt<Option<Directory>> {
        let relaxed = Ordering::Relaxed;
        entry.length.store(0, relaxed);
        let start = self.view(key.directory.0, key.directory.1)?;
        let Ok(mut directory) = Directory::of(start) else {
            return Ok(None);
        };
        let mut depth = 0;
        let mut names = key.path.split(|&byte| byte == b'/');
        loop {
            // As it was before anything is looked up in it.
            let Some(level) = entry.levels.get(depth) else {
                return Ok(None);
            };
            let expected = directory.expected();
            let owner = expected.ownership.session();
            if owner != 0 && owner != self.session.number() {
                return Ok(None);
            }
            level.number.store(directory.number(), relaxed);
            level.generation.store(directory.generation(), relaxed);
            level
                .sequence
                .store(directory.sequence.load(Ordering::Acquire), relaxed);
            level.ownership.store(expected.ownership.0, relaxed);
            level.fold.store(expected.fold, relaxed);
            depth += 1;
            let Some(name) = names.next() else {
                break;
            };
            if name.is_empty()
                || name == b"."
                || name == b".."
                || self.credentials.check(&directory, 1).is_err()
            {
                return Ok(None);
            }
            match self.kit.dentry(directory, name)? {
                Some(dentry) if dentry.kind == FileKind::Directory => {
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
                _ => return Ok(None),
            }
        }
        for (word, value) in entry.words.iter().zip(words(key.path)) {
            word.store(value, relaxed);
        }
        entry.depth.store(depth as u32, relaxed);
        entry.version.store(version, relaxed);
        entry.length.store(key.path.len() as u32, relaxed);
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
    fn long_and_deep_parts_come_in_pieces() {
        let long = "n".repeat(BYTES - 1);
        let too_long = "n".repeat(BYTES);
        let deep = ["d"; LEVELS - 1].join("/");
        let cases = [
            ("a/b/c".to_owned(), Some("a/b/c".to_owned())),
            (long.clone(), Some(long.clone())),
            (too_long.clone(), None),
            (format!("{long}/a"), Some(long.clone())),
            (format!("a/{long}/b"), Some("a".to_owned())),
            (format!("a/{too_long}"), Some("a".to_owned())),
            (deep.clone(), Some(deep.clone())),
            (format!("{deep}/e/f"), Some(deep)),
        ];
        for (part, expected) in cases {
            let piece = first_piece(part.as_bytes());
            assert_eq!(piece, expected.as_deref().map(str::as_bytes), "{part}");
        }
    }

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
