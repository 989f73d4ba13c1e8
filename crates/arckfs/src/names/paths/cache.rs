//! The path cache: what each thread remembers of directory parts, and where.
//!
//! Invariant: a thread's entries are changed by that thread alone; what they say counts as long as
//! [`paths`](super) finds the headers as they say.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zerocopy::FromZeros;

/// Words of eight bytes for the directory part; it is shorter than that.
const WORDS: usize = 12;
/// The same in bytes.
pub(super) const BYTES: usize = WORDS * 8;
/// Most directories on the way, the first and the last included.
pub(super) const LEVELS: usize = 10;
/// Entries of a thread; a power of two.
pub(super) const ENTRIES: usize = 32;
/// Threads that have entries: slots with higher numbers walk. They are found by groups, so that a process
/// of few threads touches little memory for all the others.
const THREADS: usize = 1024;
const GROUP: usize = 32;

/// A directory on the way and what its header said.
#[derive(FromZeros)]
pub(super) struct Level {
    pub(super) number: AtomicU32,
    pub(super) generation: AtomicU32,
    pub(super) sequence: AtomicU64,
    pub(super) ownership: AtomicU64,
    pub(super) fold: AtomicU64,
}

#[derive(FromZeros)]
pub(super) struct Entry {
    /// Bytes of the directory part; 0 = free.
    pub(super) length: AtomicU32,
    /// Levels in use.
    pub(super) depth: AtomicU32,
    /// [`paths`](crate::state::AuxiliaryState::paths) before the walk.
    pub(super) version: AtomicU64,
    pub(super) words: [AtomicU64; WORDS],
    pub(super) levels: [Level; LEVELS],
}

/// Entries of one thread; all zeroes at first.
#[derive(FromZeros)]
pub(super) struct ThreadPaths {
    /// The entry used last.
    pub(super) last: AtomicU32,
    pub(super) entries: [Entry; ENTRIES],
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
    pub(super) fn of_thread(&self, slot: usize) -> Option<&ThreadPaths> {
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
pub(super) struct Key<'p> {
    pub(super) path: &'p [u8],
    /// The starting directory's number and generation.
    pub(super) directory: (u32, u32),
}

/// The words of a path: whole ones, then the last eight bytes again, which overlap them; of one
/// shorter than a word, its bytes alone. Read where they stand: a copy put together from smaller
/// pieces would be waited for.
#[inline(always)]
pub(super) fn words(path: &[u8]) -> impl Iterator<Item = u64> {
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
    pub(super) fn new(directory: (u32, u32), path: &'p [u8]) -> Option<Key<'p>> {
        (!path.is_empty() && path.len() < BYTES).then_some(Key { path, directory })
    }

    #[cold]
    pub(super) fn place(&self) -> usize {
        let mut hash = u64::from(self.directory.0) ^ (self.path.len() as u64) << 32;
        for word in words(self.path) {
            hash = (hash ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
        (hash >> 32) as usize % ENTRIES
    }

    #[inline(always)]
    pub(super) fn fits(&self, entry: &Entry) -> bool {
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
