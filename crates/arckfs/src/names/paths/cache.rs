//! The path cache of ArckFS: what each thread remembers of directory parts, and where.
//!
//! Invariant: a thread's entries are changed by that thread alone; what they say counts as long as
//! [`paths`](super) finds the headers as they say.

use super::key::{Key, Limits};
use crate::state::levels::{Level, StoredLevel};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zerocopy::FromZeros;

/// Words of eight bytes for the directory part; it is shorter than that.
const WORDS: usize = 12;
/// What an entry has room for.
pub const LIMITS: Limits = Limits {
    bytes: WORDS * 8,
    levels: 10,
};
/// Entries of a thread; a power of two.
const ENTRIES: usize = 32;
/// Threads that have entries: slots with higher numbers walk. They are found by groups, so that a process
/// of few threads touches little memory for all the others.
const THREADS: usize = 1024;
const GROUP: usize = 32;

#[derive(FromZeros)]
pub struct Entry {
    /// Bytes of the directory part; 0 = free.
    length: AtomicU32,
    /// Levels in use.
    depth: AtomicU32,
    /// [`paths`](crate::state::AuxiliaryState::paths) before the walk.
    pub version: AtomicU64,
    /// The change clock when the headers were found as they are noted here.
    pub clock: AtomicU64,
    words: [AtomicU64; WORDS],
    levels: [StoredLevel; LIMITS.levels],
}

impl Entry {
    #[inline(always)]
    fn is_of(&self, key: &Key<'_>) -> bool {
        self.length.load(Ordering::Relaxed) as usize == key.path.len()
            && self.levels[0].identity() == key.directory
            && key.fits(&self.words)
    }

    /// Those on the way to the last, and the last one.
    #[inline(always)]
    pub fn levels(&self) -> Option<(&[StoredLevel], &StoredLevel)> {
        let depth = self.depth.load(Ordering::Relaxed) as usize;
        let (last, above) = self.levels.get(..depth)?.split_last()?;
        Some((above, last))
    }

    /// Forgets what it was of; what is to be remembered is noted from then on.
    pub fn begin(&self) {
        self.length.store(0, Ordering::Relaxed);
        self.depth.store(0, Ordering::Relaxed);
    }

    /// One directory more. False: there is no room.
    pub fn note(&self, level: Level) -> bool {
        let depth = self.depth.load(Ordering::Relaxed);
        let Some(place) = self.levels.get(depth as usize) else {
            return false;
        };
        place.store(level);
        self.depth.store(depth + 1, Ordering::Relaxed);
        true
    }

    /// Is this key's, by what was noted since [`Entry::begin`].
    pub fn end(&self, key: Key<'_>, version: u64) {
        let relaxed = Ordering::Relaxed;
        key.store(&self.words);
        self.version.store(version, relaxed);
        self.clock.store(0, relaxed);
        self.length.store(key.path.len() as u32, relaxed);
    }
}

/// Entries of one thread; all zeroes at first.
#[derive(FromZeros)]
pub struct ThreadPaths {
    /// The entry used last.
    last: AtomicU32,
    entries: [Entry; ENTRIES],
}

impl ThreadPaths {
    /// The entry that a key has, and whether it is this key's now.
    #[inline(always)]
    pub fn entry(&self, key: &Key<'_>) -> (&Entry, bool) {
        let last = self.last.load(Ordering::Relaxed) as usize % ENTRIES;
        let entry = &self.entries[last];
        if entry.is_of(key) {
            return (entry, true);
        }
        let place = (key.hash() >> 32) as usize % ENTRIES;
        let entry = &self.entries[place];
        self.last.store(place as u32, Ordering::Relaxed);
        (entry, entry.is_of(key))
    }
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
    pub fn of_thread(&self, slot: usize) -> Option<&ThreadPaths> {
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
    fn an_entry_is_of_one_key() {
        let cache = PathCache::default();
        let paths = cache.of_thread(0).unwrap();
        let key = |directory, path| Key::new(directory, path, LIMITS).unwrap();
        let level = |number| Level {
            number,
            generation: 7,
            ..Level::default()
        };
        let stored = key((1, 7), b"twelve/bytes");
        let (entry, is_there) = paths.entry(&stored);
        assert!(!is_there);
        entry.begin();
        assert!(entry.note(level(1)) && entry.note(level(2)));
        assert!(!paths.entry(&stored).1, "not before it is whole");
        entry.end(stored, 3);
        assert!(paths.entry(&stored).1);
        let (above, last) = entry.levels().unwrap();
        assert_eq!((above.len(), last.identity()), (1, (2, 7)));
        for (directory, path) in [
            ((1, 7), &b"twelve/byteS"[..]),
            ((1, 7), b"twelve/byte"),
            ((1, 7), b"twelve/bytes\0"),
            ((2, 7), b"twelve/bytes"),
            ((1, 8), b"twelve/bytes"),
        ] {
            assert!(!paths.entry(&key(directory, path)).1, "{path:?}");
        }
        entry.begin();
        assert!((0..LIMITS.levels).all(|number| entry.note(level(number as u32))));
        assert!(!entry.note(level(0)), "no more room");
    }
}
