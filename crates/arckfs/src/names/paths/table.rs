//! The table of FPFS: one from full paths of directories to where they led, for all threads of all processes of
//! a session (Trio, section 5).
//!
//! It holds the paths of deep trees, of many directories: more than [`cache`](super::cache) has room for, longer, and
//! deeper. A process that joins a group finds what the others have walked.
//!
//! # Invariants
//! * An entry's `sequence` is odd while somebody changes it, who has made it so by comparing and exchanging. A reader
//!   loads it, reads, and loads it again; equal and even means that what was read is one entry. Readers store nothing.
//! * Who dies while he changes one leaves it odd: it is of no use from then on, until the auxiliary state is built
//!   anew, as it is when somebody dies inside.
//! * What an entry says counts as long as [`paths`](super) finds the headers as they say.

use super::key::{Key, Limits};
use crate::state::full_paths::{ENTRIES, FullPath, LEVELS, WORDS};
use crate::state::levels::Level;
use arck_libfs_kit::region::{AtomicOffset, Offset, Region};
use std::sync::atomic::{Ordering, fence};

/// What an entry has room for.
pub const LIMITS: Limits = Limits {
    bytes: WORDS * 8,
    levels: LEVELS + 1,
};

/// The table of a session, in this process.
pub struct FullPaths {
    /// Who walks ([`Credentials::searcher`](crate::attributes::credentials::Credentials::searcher)). Members of a group may have
    /// other capabilities, and what one may search another may not: each finds what those like him have walked.
    pub who: u64,
    pub region: &'static Region,
    pub table: &'static AtomicOffset<FullPath>,
}

/// Directories on the way to one, the start included and the one itself not.
pub struct Way {
    levels: [Level; LEVELS],
    depth: usize,
}

impl Default for Way {
    fn default() -> Self {
        Way {
            levels: [Level::default(); LEVELS],
            depth: 0,
        }
    }
}

impl Way {
    pub fn levels(&self) -> &[Level] {
        &self.levels[..self.depth]
    }
    /// False: there is no room.
    pub fn note(&mut self, level: Level) -> bool {
        let Some(place) = self.levels.get_mut(self.depth) else {
            return false;
        };
        *place = level;
        self.depth += 1;
        true
    }
}

/// An entry that was found, as it was.
pub struct Found {
    entry: &'static FullPath,
    sequence: u64,
    pub version: u64,
    pub clock: u64,
    /// Number and generation of the directory.
    pub end: (u32, u32),
}

impl FullPaths {
    /// The two places that a path can have.
    fn places(&self, hash: u64) -> impl Iterator<Item = &'static FullPath> + use<> {
        let place = (hash >> 32) as usize % ENTRIES;
        let (region, table) = (self.region, self.table.load(Ordering::Acquire).raw());
        [place, place ^ 1].into_iter().filter_map(move |place| {
            let offset = table + (place * size_of::<FullPath>()) as u64;
            region
                .try_get(Offset::from_raw(offset))
                .filter(|_| table != 0)
        })
    }

    /// The number by which a path of this process's is found.
    #[inline]
    pub fn hash(&self, key: &Key<'_>) -> u64 {
        key.hash() ^ self.who
    }

    /// The entry of a path.
    pub fn find(&self, key: &Key<'_>, hash: u64) -> Option<Found> {
        let relaxed = Ordering::Relaxed;
        self.places(hash).find_map(|entry| {
            let sequence = entry.sequence.load(Ordering::Acquire);
            let is_it = sequence.is_multiple_of(2)
                && entry.hash.load(relaxed) == hash
                && entry.length.load(relaxed) as usize == key.path.len()
                && entry.start.load() == key.directory
                && key.fits(&entry.words);
            let found = is_it.then(|| Found {
                entry,
                sequence,
                version: entry.version.load(relaxed),
                clock: entry.clock.load(relaxed),
                end: entry.end.load(),
            })?;
            found.stands().then_some(found)
        })
    }

    /// Remembers where a path led. Does nothing where somebody else is at it.
    pub fn put(
        &self,
        key: &Key<'_>,
        hash: u64,
        way: &Way,
        end: (u32, u32),
        version: u64,
        clock: u64,
    ) {
        let relaxed = Ordering::Relaxed;
        // Its own, or one that counts no more; else the one that was not found right for longer.
        let value = |entry: &FullPath| {
            let is_its_own = entry.hash.load(relaxed) == hash;
            let counts = entry.length.load(relaxed) != 0 && entry.version.load(relaxed) == version;
            (counts && !is_its_own, entry.clock.load(relaxed))
        };
        let Some(entry) = self.places(hash).min_by_key(|entry| value(entry)) else {
            return;
        };
        let sequence = entry.sequence.load(relaxed);
        let Some(_writing) = Writing::begin(entry, sequence) else {
            return;
        };
        entry.hash.store(hash, relaxed);
        entry.length.store(key.path.len() as u32, relaxed);
        entry.version.store(version, relaxed);
        entry.clock.store(clock, relaxed);
        key.store(&entry.words);
        entry.start.store(key.directory);
        entry.end.store(end);
        entry.depth.store(way.levels().len() as u32, relaxed);
        for (place, level) in entry.levels.iter().zip(way.levels()) {
            place.store(*level);
        }
    }
}

impl Found {
    /// Whether the entry is as it was when it was found.
    fn stands(&self) -> bool {
        fence(Ordering::Acquire);
        self.entry.sequence.load(Ordering::Relaxed) == self.sequence
    }

    /// The way to the directory. `None`: it has been changed meanwhile.
    pub fn way(&self) -> Option<Way> {
        let mut way = Way::default();
        let depth = self.entry.depth.load(Ordering::Relaxed) as usize;
        for level in self.entry.levels.get(..depth)? {
            way.note(level.load());
        }
        self.stands().then_some(way)
    }

    /// The headers are, at this change clock, as they were: the next one who comes need not look at them.
    pub fn renew(&self, clock: u64) {
        if let Some(_writing) = Writing::begin(self.entry, self.sequence) {
            self.entry.clock.store(clock, Ordering::Relaxed);
        }
    }
}

/// Somebody changes an entry; ends with this.
struct Writing {
    entry: &'static FullPath,
    sequence: u64,
}

impl Writing {
    /// `None`: it is not as it was, or somebody else is at it.
    fn begin(entry: &'static FullPath, sequence: u64) -> Option<Writing> {
        let taken = entry.sequence.compare_exchange(
            sequence,
            sequence | 1,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        (sequence.is_multiple_of(2) && taken.is_ok()).then(|| {
            // What is stored behind this is not seen before it.
            fence(Ordering::Release);
            Writing { entry, sequence }
        })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.entry
            .sequence
            .store(self.sequence.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConnectOptions, FileSystem, Resolver};
    use arck_test_pool::TestPool;
    use std::sync::atomic::AtomicUsize;

    const KEYS: u32 = 24;

    fn of_key(key: u32, at: u32) -> Level {
        Level {
            number: key * 100 + at,
            generation: key,
            sequence: u64::from(key) << 32 | u64::from(at),
            ownership: !u64::from(key),
            fold: u64::from(key * at),
        }
    }

    fn put(paths: &FullPaths, key: &Key<'_>, hash: u64, number: u32) {
        let mut way = Way::default();
        let depth = 1 + number % LEVELS as u32;
        assert!((0..depth).all(|at| way.note(of_key(number, at))));
        let version = u64::from(number);
        paths.put(key, hash, &way, (number, !number), version, version * 2);
    }

    /// Whether it is there, as it was put.
    fn is_there(paths: &FullPaths, key: &Key<'_>, hash: u64, number: u32) -> bool {
        let Some(found) = paths.find(key, hash) else {
            return false;
        };
        assert_eq!(found.end, (number, !number));
        assert_eq!(found.version, u64::from(number));
        if let Some(way) = found.way() {
            assert_eq!(way.levels().len() as u32, 1 + number % LEVELS as u32);
            for (at, level) in (0..).zip(way.levels()) {
                assert_eq!(*level, of_key(number, at));
            }
        }
        true
    }

    fn path(number: u32) -> String {
        format!("{number}/").repeat(1 + number as usize * 3)
    }

    fn with_table(body: impl FnOnce(&FullPaths)) {
        let pool = TestPool::new(64 << 20);
        let connected = FileSystem::connect(&ConnectOptions {
            pool: pool.path(),
            mount: b"/arck".to_vec(),
            group: Vec::new(),
            resolver: Resolver::FullPaths,
        });
        let session = connected.expect("a session");
        let region = session.session().region();
        let state = crate::state::AuxiliaryState::find(session.session()).expect("its state");
        body(&FullPaths {
            who: 0,
            region,
            table: &state.full_paths,
        });
    }

    #[test]
    fn two_of_one_place_are_both_found() {
        with_table(|paths| {
            let names = [path(1), path(2), path(3)];
            let keys = [1, 2, 3].map(|number: u32| Key {
                path: names[number as usize - 1].as_bytes(),
                directory: (1, 1),
            });
            let hash = 5 << 32;
            assert!(!is_there(paths, &keys[0], hash, 1));
            put(paths, &keys[0], hash, 1);
            put(paths, &keys[1], hash | 1 << 32, 2);
            assert!(is_there(paths, &keys[0], hash, 1));
            assert!(is_there(paths, &keys[1], hash | 1 << 32, 2));
            // Another path of that number, and from another directory, is another.
            let other = Key {
                directory: (1, 2),
                ..keys[0]
            };
            assert!(paths.find(&other, hash).is_none());
            assert!(paths.find(&keys[2], hash).is_none());
            // A third takes the place of one of them; what is put once more is there once.
            put(paths, &keys[2], hash, 3);
            assert!(is_there(paths, &keys[2], hash, 3));
            let left = [
                is_there(paths, &keys[0], hash, 1),
                is_there(paths, &keys[1], hash | 1 << 32, 2),
            ];
            assert_eq!(left.iter().filter(|there| **there).count(), 1, "{left:?}");
        });
    }

    #[test]
    fn what_was_found_is_renewed_unless_it_has_been_changed() {
        with_table(|paths| {
            let name = path(7);
            let key = Key {
                path: name.as_bytes(),
                directory: (1, 1),
            };
            put(paths, &key, key.hash(), 7);
            let found = paths.find(&key, key.hash()).expect("it");
            let again = paths.find(&key, key.hash()).expect("it");
            found.renew(40);
            assert_eq!(paths.find(&key, key.hash()).expect("it").clock, 40);
            again.renew(30);
            assert_eq!(paths.find(&key, key.hash()).expect("it").clock, 40);
            assert!(again.way().is_none());
            // Who dies meanwhile leaves one that nobody finds, or changes.
            found.entry.sequence.fetch_or(1, Ordering::Relaxed);
            put(paths, &key, key.hash(), 7);
            let other = paths
                .places(key.hash())
                .find(|entry| !std::ptr::eq(*entry, found.entry));
            let is_beside = other.is_some_and(|entry| entry.length.load(Ordering::Relaxed) != 0);
            assert_eq!(paths.find(&key, key.hash()).is_some(), is_beside);
        });
    }

    /// Threads put paths of a few numbers into two places, and find whole ones only.
    #[test]
    fn what_is_found_is_one_entry() {
        with_table(|paths| {
            let names: Vec<String> = (0..KEYS).map(path).collect();
            let found = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for thread in 0..4u32 {
                    let (names, found) = (&names, &found);
                    scope.spawn(move || {
                        for round in 0..60_000u32 {
                            let number = (round.wrapping_mul(7) + thread * 5) % KEYS;
                            let key = Key {
                                path: names[number as usize].as_bytes(),
                                directory: (1, 1),
                            };
                            let hash = 1 << 40 | u64::from(number % 2);
                            match is_there(paths, &key, hash, number) {
                                true => _ = found.fetch_add(1, Ordering::Relaxed),
                                false => put(paths, &key, hash, number),
                            }
                        }
                    });
                }
            });
            assert!(found.into_inner() > 1_000);
        });
    }
}
