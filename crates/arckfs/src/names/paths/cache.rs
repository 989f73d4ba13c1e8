//! The path cache of ArckFS: what each thread remembers of directory parts, and where.
//!
//! Invariant: a thread's entries are changed by that thread alone; what they say counts as long as
//! [`paths`](super) finds the headers as they say.

use super::key::{Key, Limits};
use crate::state::levels::{Level, StoredLevel};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use zerocopy::FromZeros;

/// Words of eight bytes for the directory part; it is shorter than that.
const WORDS: usize = 12;
/// What an entry has room for.
pub const LIMITS: Limits = Limits {
    bytes: WORDS * 8,
    levels: 10,
};
/// Entries of a thread, by sets of those that one key may have: as many pieces of one path are remembered
/// together, whatever their hashes are. Both are powers of two.
const ENTRIES: usize = 32;
const WAYS: usize = 4;
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
    fn begin(&self) {
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
    /// The way of each set that goes to the next key which has none.
    turns: [AtomicU8; ENTRIES / WAYS],
    /// Of each entry, a part of its key's hash: who looks for a key reads entries that may be its own alone.
    tags: [AtomicU16; ENTRIES],
    entries: [Entry; ENTRIES],
}

impl ThreadPaths {
    /// The entry that is this key's.
    #[inline(always)]
    pub fn find(&self, key: &Key<'_>) -> Option<&Entry> {
        let last = self.last.load(Ordering::Relaxed) as usize % ENTRIES;
        let entry = &self.entries[last];
        if entry.is_of(key) {
            return Some(entry);
        }
        let (set, tag) = place(key);
        for place in set * WAYS..(set + 1) * WAYS {
            let entry = &self.entries[place];
            if self.tags[place].load(Ordering::Relaxed) == tag && entry.is_of(key) {
                self.last.store(place as u32, Ordering::Relaxed);
                return Some(entry);
            }
        }
        None
    }

    /// The entry in which a key is to be remembered, which forgets what it was of.
    pub fn begin(&self, key: &Key<'_>) -> &Entry {
        let entry = self.find(key).unwrap_or_else(|| {
            let (set, tag) = place(key);
            let turn = self.turns[set].load(Ordering::Relaxed);
            self.turns[set].store(turn.wrapping_add(1), Ordering::Relaxed);
            let place = set * WAYS + usize::from(turn) % WAYS;
            self.tags[place].store(tag, Ordering::Relaxed);
            self.last.store(place as u32, Ordering::Relaxed);
            &self.entries[place]
        });
        entry.begin();
        entry
    }
}

/// A key's set, and its tag there.
#[inline(always)]
fn place(key: &Key<'_>) -> (usize, u16) {
    let hash = key.hash();
    (
        (hash >> 32) as usize % (ENTRIES / WAYS),
        (hash >> 48) as u16,
    )
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

    fn level(number: u32) -> Level {
        Level {
            number,
            generation: 7,
            ..Level::default()
        }
    }

    #[test]
    fn four_keys_are_remembered_whatever_their_hashes_are() {
        let cache = PathCache::default();
        let paths = cache.of_thread(0).unwrap();
        let names: Vec<String> = (0..1000).map(|number| format!("name-{number}")).collect();
        let keys = names
            .iter()
            .map(|name| Key::new((1, 7), name.as_bytes(), LIMITS));
        let keys: Vec<Key<'_>> = keys.map(Option::unwrap).collect();
        let of_one = keys.iter().filter(|key| place(key).0 == place(&keys[0]).0);
        // The pieces of a path of thirty names, and one more.
        let of_one: Vec<Key<'_>> = of_one.copied().take(4 + 1).collect();
        assert_eq!(of_one.len(), 4 + 1);
        for key in &of_one {
            assert!(paths.find(key).is_none());
            let entry = paths.begin(key);
            assert!(entry.note(level(1)));
            entry.end(*key, 3);
            assert!(paths.find(key).is_some());
        }
        let there = |key: &Key<'_>| paths.find(key).is_some();
        assert!(of_one[1..].iter().all(there));
        assert!(!there(&of_one[0]), "the eldest went");
        // What is remembered anew has the place that it had.
        for key in &of_one[1..] {
            let entry = paths.begin(key);
            assert!(entry.note(level(1)));
            entry.end(*key, 4);
        }
        assert!(of_one[1..].iter().all(there));
    }

    #[test]
    fn an_entry_is_of_one_key() {
        let cache = PathCache::default();
        let paths = cache.of_thread(0).unwrap();
        let key = |directory, path| Key::new(directory, path, LIMITS).unwrap();
        let stored = key((1, 7), b"twelve/bytes");
        assert!(paths.find(&stored).is_none());
        let entry = paths.begin(&stored);
        assert!(entry.note(level(1)) && entry.note(level(2)));
        assert!(paths.find(&stored).is_none(), "not before it is whole");
        entry.end(stored, 3);
        assert!(paths.find(&stored).is_some());
        let (above, last) = entry.levels().unwrap();
        assert_eq!((above.len(), last.identity()), (1, (2, 7)));
        for (directory, path) in [
            ((1, 7), &b"twelve/byteS"[..]),
            ((1, 7), b"twelve/byte"),
            ((1, 7), b"twelve/bytes\0"),
            ((2, 7), b"twelve/bytes"),
            ((1, 8), b"twelve/bytes"),
        ] {
            assert!(paths.find(&key(directory, path)).is_none(), "{path:?}");
        }
        let entry = paths.begin(&stored);
        assert!((0..LIMITS.levels).all(|number| entry.note(level(number as u32))));
        assert!(!entry.note(level(0)), "no more room");
    }
}
