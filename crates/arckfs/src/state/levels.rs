//! The directories on the way of a path, and what their headers said.

use arck_libfs_kit::region_shared;
use arck_libfs_kit::views::Directory;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zerocopy::FromZeros;

/// A directory on the way and what its header said before anything was looked up in it.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Level {
    pub number: u32,
    pub generation: u32,
    pub sequence: u64,
    pub ownership: u64,
    pub fold: u64,
}

impl Level {
    #[inline]
    pub fn of(directory: &Directory) -> Level {
        let expected = directory.expected();
        Level {
            number: directory.number(),
            generation: directory.generation(),
            sequence: directory.sequence.load(Ordering::Acquire),
            ownership: expected.ownership.0,
            fold: expected.fold,
        }
    }
}

region_shared! {
    /// Which inode it is: number and generation.
    #[derive(FromZeros)]
    pub struct Identity {
        number: AtomicU32,
        generation: AtomicU32,
    }

    /// A level where others may look.
    #[derive(FromZeros)]
    pub struct StoredLevel {
        identity: Identity,
        sequence: AtomicU64,
        ownership: AtomicU64,
        fold: AtomicU64,
    }
}

impl Identity {
    #[inline]
    pub fn store(&self, (number, generation): (u32, u32)) {
        self.number.store(number, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
    }

    #[inline]
    pub fn load(&self) -> (u32, u32) {
        let relaxed = Ordering::Relaxed;
        (self.number.load(relaxed), self.generation.load(relaxed))
    }
}

impl StoredLevel {
    #[inline]
    pub fn store(&self, level: Level) {
        let relaxed = Ordering::Relaxed;
        self.identity.store((level.number, level.generation));
        self.sequence.store(level.sequence, relaxed);
        self.ownership.store(level.ownership, relaxed);
        self.fold.store(level.fold, relaxed);
    }

    #[inline]
    pub fn load(&self) -> Level {
        let relaxed = Ordering::Relaxed;
        let (number, generation) = self.identity();
        Level {
            number,
            generation,
            sequence: self.sequence.load(relaxed),
            ownership: self.ownership.load(relaxed),
            fold: self.fold.load(relaxed),
        }
    }

    /// Number and generation.
    #[inline]
    pub fn identity(&self) -> (u32, u32) {
        self.identity.load()
    }
}
