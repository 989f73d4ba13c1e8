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
//!   anything there, and (b) [`AuxiliaryState::paths`] has not moved, so that this session
//!   removed or renamed no directory and changed the mode of none: see [`AuxiliaryState::paths_change`].
//! * Only inodes that are shared or owned by this session are on the way: what another session
//!   owns is recalled at every call.
//! * Each thread has entries of its own, found by its slot, and shares no line with others.
//!   Everything is atomic, so that a slot that changes hands does no harm: an entry is used only
//!   if it fits as a whole.

use crate::engine::{Attempt, Context, Need, Stop};
use crate::state::AuxiliaryState;
use arck_libfs_kit::format::{FileKind, InodeNumber, PAGE_SIZE, directory};
use arck_libfs_kit::views::Directory;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zerocopy::FromZeros;

/// Words of eight bytes for the directory part; it is shorter than that.
const WORDS: usize = 12;
/// Most directories on the way, the first and the last included.
const LEVELS: usize = 10;
/// Entries of a thread; a power of two.
const ENTRIES: usize = 32;
/// Threads that have entries: slots with higher numbers walk. They are found by groups, so that a process
/// of few threads touches little memory for all the others.
const THREADS: usize = 1024;
const GROUP: usize = 32;

/// A directory on the way and what its header said.
#[derive(FromZeros)]
struct Level {
    number: AtomicU32,
    generation: AtomicU32,
    sequence: AtomicU64,
    ownership: AtomicU64,
    fold: AtomicU64,
}

#[derive(FromZeros)]
struct Entry {
    /// Bytes of the directory part; 0 = free.
    length: AtomicU32,
    /// Levels in use.
    depth: AtomicU32,
    /// [`AuxiliaryState::paths`] before the walk.
    version: AtomicU64,
    words: [AtomicU64; WORDS],
    levels: [Level; LEVELS],
}

/// Entries of one thread; all zeroes at first.
#[derive(FromZeros)]
struct ThreadPaths {
    /// The entry used last.
    last: AtomicU32,
    entries: [Entry; ENTRIES],
}

/// The path cache of a session in this process.
pub struct PathCache {
    threads: [OnceLock<Box<Group>>; THREADS / GROUP],
}

type Group = [OnceLock<Box<ThreadPaths>>; GROUP];

impl Default for PathCache {
    fn default() -> Self {
        PathCache {
            threads: [const { OnceLock::new() }; THREADS / GROUP],
        }
    }
}

impl PathCache {
    /// Those of the thread with this slot; made when it comes for the first time, unless memory is short.
    #[inline]
    fn of_thread(&self, slot: usize) -> Option<&ThreadPaths> {
        let group = self.threads.get(slot / GROUP)?;
        let group = match group.get() {
            Some(group) => group,
            None => group.get_or_init(|| Box::new([const { OnceLock::new() }; GROUP])),
        };
        match group[slot % GROUP].get() {
            Some(paths) => Some(paths),
            None => begin(&group[slot % GROUP]),
        }
    }
}

#[cold]
fn begin(place: &OnceLock<Box<ThreadPaths>>) -> Option<&ThreadPaths> {
    let made = ThreadPaths::new_box_zeroed().ok()?;
    Some(place.get_or_init(|| made))
}

/// The directory part of a path and where it begins.
#[derive(Clone, Copy)]
struct Key<'p> {
    path: &'p [u8],
    /// The starting directory's number and generation.
    directory: (u32, u32),
}

/// The words of a path: whole ones, then the last eight bytes again, which overlap them; of one
/// shorter than a word, its bytes alone. Read where they stand: a copy put together from smaller
/// pieces would be waited for.
#[inline(always)]
fn words(path: &[u8]) -> impl Iterator<Item = u64> {
    let (chunks, rest) = path.as_chunks::<8>();
    let last = match path.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last),
        None => rest
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    chunks
        .iter()
        .map(|chunk| u64::from_le_bytes(*chunk))
        .chain([last])
}

impl<'p> Key<'p> {
    #[inline]
    fn new(directory: (u32, u32), path: &'p [u8]) -> Option<Key<'p>> {
        (!path.is_empty() && path.len() < WORDS * 8).then_some(Key { path, directory })
    }

    #[cold]
    fn place(&self) -> usize {
        let mut hash = u64::from(self.directory.0) ^ (self.path.len() as u64) << 32;
        for word in words(self.path) {
            hash = (hash ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
        (hash >> 32) as usize % ENTRIES
    }

    #[inline(always)]
    fn fits(&self, entry: &Entry) -> bool {
        let relaxed = Ordering::Relaxed;
        let first = &entry.levels[0];
        entry.length.load(relaxed) as usize == self.path.len()
            && first.number.load(relaxed) == self.directory.0
            && first.generation.load(relaxed) == self.directory.1
            && entry
                .words
                .iter()
                .zip(words(self.path))
                .all(|(word, wanted)| word.load(relaxed) == wanted)
    }
}

/// The directory part of a path and its last component, if both are there and plain.
#[inline]
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    let (directory, name) = (&path[..slash], &path[slash + 1..]);
    (!name.is_empty() && directory.last() != Some(&b'/')).then_some((directory, name))
}

impl<'a> Context<'a> {
    /// The directory that the directory part of `path` leads to, and the rest of the path, if it
    /// is remembered or is walked through directories alone. `None`: walk it. `creating`: the rest is
    /// to be made there, if it is not there.
    #[inline]
    pub fn remembered<'p>(
        &self,
        directory: (u32, u32),
        path: &'p [u8],
        creating: bool,
    ) -> Attempt<Option<(Directory, &'p [u8])>> {
        let Some((prefix, name)) = split(path) else {
            return Ok(None);
        };
        let Some(key) = Key::new(directory, prefix) else {
            return Ok(None);
        };
        let thread = usize::from(self.slot().holder().thread);
        let Some(paths) = self.paths.of_thread(thread) else {
            return Ok(None);
        };
        let version = self.state.paths.load(Ordering::Acquire);
        let last = paths.last.load(Ordering::Relaxed) as usize % ENTRIES;
        let mut entry = &paths.entries[last];
        if !key.fits(entry) {
            let place = key.place();
            entry = &paths.entries[place];
            paths.last.store(place as u32, Ordering::Relaxed);
        }
        if key.fits(entry)
            && let Some(found) = self
                .still_leads(entry, version)
                .map_err(|stop| self.to_create(stop, name, creating))?
        {
            return Ok(Some((found, name)));
        }
        let found = self.remember(entry, key, version);
        let found = found.map_err(|stop| self.to_create(stop, name, creating))?;
        Ok(found.map(|found| (found, name)))
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
            match self.dentry(directory, name)? {
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

impl AuxiliaryState {
    /// To be called before and after this session takes a directory away from where it was, or
    /// changes who may search it: whatever is remembered counts no more.
    pub fn paths_change(&self) {
        self.paths.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_entries_of_their_own() {
        let cache = PathCache::default();
        let first = cache.of_thread(GROUP - 1).unwrap();
        let second = cache.of_thread(GROUP).unwrap();
        assert!(!std::ptr::eq(first, second));
        first.entries[0].length.store(1, Ordering::Relaxed);
        assert_eq!(second.entries[0].length.load(Ordering::Relaxed), 0);
        let again = cache.of_thread(GROUP - 1).unwrap();
        assert!(std::ptr::eq(first, again));
        assert!(cache.of_thread(THREADS - 1).is_some());
        assert!(cache.of_thread(THREADS).is_none());
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

    #[test]
    fn keys_tell_paths_apart() {
        let entry = Entry::new_zeroed();
        let store = |path: &[u8]| {
            let key = Key::new((1, 7), path).unwrap();
            for (word, value) in entry.words.iter().zip(words(key.path)) {
                word.store(value, Ordering::Relaxed);
            }
            entry.length.store(key.path.len() as u32, Ordering::Relaxed);
            entry.levels[0].number.store(1, Ordering::Relaxed);
            entry.levels[0].generation.store(7, Ordering::Relaxed);
        };
        store(b"twelve/bytes");
        assert!(Key::new((1, 7), b"twelve/bytes").unwrap().fits(&entry));
        for (directory, path) in [
            ((1, 7), &b"twelve/byteS"[..]),
            ((1, 7), b"twelve/byte"),
            ((1, 7), b"twelve/bytes\0"),
            ((2, 7), b"twelve/bytes"),
            ((1, 8), b"twelve/bytes"),
        ] {
            assert!(!Key::new(directory, path).unwrap().fits(&entry), "{path:?}");
        }
        assert!(Key::new((1, 7), b"").is_none());
        assert!(Key::new((1, 7), &[b'x'; WORDS * 8 - 1]).is_some());
        assert!(Key::new((1, 7), &[b'x'; WORDS * 8]).is_none());
    }
}
