//! Granted inode numbers, as they stand in the region; see [`crate::numbers`].

use crate::region::{AtomicOffset, Lock};
use crate::region_shared;
use arck_protocol::message::{InodeRun, RUNS_MAX};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Runs in the stock: those of a grant, as it comes, and a few that are left of the one before.
pub(crate) const STOCK: usize = 256;
const _: () = assert!(STOCK > RUNS_MAX);
/// Runs in a piece of those put aside; with its header a kilobyte.
pub(crate) const PIECE: usize = 126;

region_shared! {
    /// Numbers that follow each other: the first (low half), and how many (high half).
    pub struct Run {
        word: AtomicU64,
    }

    /// Numbers that are put aside.
    pub struct Piece {
        pub(crate) next: AtomicOffset<Piece>,
        pub(crate) count: AtomicU32,
        pub(crate) reserved: AtomicU32,
        pub(crate) runs: [Run; PIECE],
    }

    /// In the auxiliary state.
    pub struct Numbers {
        pub(crate) lock: Lock,
        /// Runs in the stock.
        pub(crate) count: AtomicU32,
        /// Slot of the request under way plus one; 0 = none.
        pub(crate) pending: AtomicU32,
        /// Numbers in the stock and put aside.
        pub(crate) left: AtomicU32,
        /// So many left are few: more are asked for.
        pub(crate) few: AtomicU32,
        pub(crate) reserved: AtomicU32,
        /// The first piece of what is put aside.
        pub(crate) aside: AtomicOffset<Piece>,
        pub(crate) stock: [Run; STOCK],
    }
}

impl Run {
    pub(crate) fn get(&self) -> InodeRun {
        let word = self.word.load(Ordering::Relaxed);
        InodeRun {
            first: word as u32,
            count: (word >> 32) as u32,
        }
    }

    pub(crate) fn set(&self, run: InodeRun) {
        let word = u64::from(run.first) | u64::from(run.count) << 32;
        self.word.store(word, Ordering::Relaxed);
    }
}
