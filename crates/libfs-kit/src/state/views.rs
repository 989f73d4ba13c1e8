//! What all views of inodes have together, as it stands in the region; see [`crate::views`].

use super::at_hand::ThreadNumbers;
use super::inodes::{CachedInode, InodeLeaf, LEAF};
use super::overlay::OverlayEntry;
use crate::region::{AtomicOffset, HashTable, Lock, Offset, Region, ThreadSlot};
use crate::region_shared;
use arck_protocol::message::INODES_MAX;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Directories that wait to be folded ahead, at most; others are folded when the arena is full.
pub(crate) const WAITING: usize = 1 << 13;

region_shared! {
    /// What all views have together: part of the kit's auxiliary state. What every operation reads and
    /// hardly any changes stands on a line of its own; what operations change stands behind it, each lock
    /// with what it protects.
    pub struct Views {
        /// Names that differ from the verified state, of all directories.
        pub(crate) overlay: AtomicOffset<HashTable<OverlayEntry>>,
        /// Leaves of the table of cached inodes, by number.
        pub(crate) inodes: AtomicOffset<AtomicOffset<InodeLeaf>>,
        /// Moves when parts of counts of links are taken out; odd until all are that belong to
        /// one state. See [`links`](crate::views::links).
        pub(crate) counts: AtomicU64,
        /// What threads keep at hand, by their slots.
        pub(crate) thread_numbers: AtomicOffset<ThreadNumbers>,
        pub(crate) inodes_lock: Lock,
        /// How many inodes have been striped.
        pub striped: AtomicU32,
        /// Held by the thread that makes room by a fold, until what it freed can be had.
        pub(crate) credits: Lock,
        /// Threads that are giving back what folded deltas used.
        pub(crate) refreshing: AtomicU32,
        pub(crate) first_line: [AtomicU64; 2],

        /// Inodes that died uncommitted, oldest first, whose numbers can be used again once no thread
        /// is still looking at the old one; protected by `reuse_lock`.
        pub(crate) reuse_first: AtomicOffset<CachedInode>,
        pub(crate) reuse_last: AtomicOffset<CachedInode>,
        pub(crate) reuse_lock: Lock,
        pub(crate) open_hint: AtomicU32,
        pub(crate) reuse_line: [AtomicU64; 5],

        /// Inodes with a delta, linked by `dirty_next`: the number of the first, or [`LAST`](super::inodes::LAST);
        /// protected by `dirty_lock`.
        pub(crate) dirty_first: AtomicU32,
        pub(crate) dirty_lock: Lock,
        /// Directories with a delta, linked by `changed_next`: the number of the first, or
        /// [`LAST`](super::inodes::LAST); protected by `changed_lock`.
        pub(crate) changed_first: AtomicU32,
        pub(crate) changed_lock: Lock,
        /// Held by who looks at all of them.
        pub(crate) counts_lock: Lock,
        /// Held by who clears away what members of the group have left that are gone.
        pub(crate) departed_lock: Lock,
        /// Slot of the request under way that folds ahead, plus one; 0 = none. Protected by `ahead_lock`.
        pub(crate) ahead: AtomicU32,
        pub(crate) ahead_lock: Lock,
        /// Until when nobody pauses for it once more: nanoseconds of CLOCK_MONOTONIC, a hint.
        pub(crate) paced: AtomicU64,
        /// Pages of tails on which names only go, since directories that wait were asked about: a hint.
        pub(crate) removed_pages: AtomicU64,
        /// Until when the removal of a tree, of which something is folded ahead, is taken to go on: nanoseconds of
        /// CLOCK_MONOTONIC, a hint.
        pub(crate) removing: AtomicU64,
        /// The change clock when the directories were looked at for a cut last, all of them, and it came to be. 0: they were
        /// not yet.
        pub(crate) cut_at: AtomicU64,
        /// Pages in use with which all that have a delta are looked at next, when some were folded ahead.
        pub(crate) refreshed_at: AtomicU64,
        pub(crate) dirty_line: [AtomicU64; 1],

        /// Directories that wait to be folded ahead, oldest first: a ring, from place `waiting_first` to before
        /// `waiting_end`, which count on and on. Protected by `ahead_lock`.
        pub(crate) waiting: [AtomicU32; WAITING],
        pub(crate) waiting_first: AtomicU32,
        pub(crate) waiting_end: AtomicU32,
        /// What the request under way that folds ahead is about; 0 behind them. Protected by `ahead_lock`.
        pub(crate) asked: [AtomicU32; INODES_MAX],
        /// Pages of the tails of directories, about: less than none wraps.
        pub(crate) tail_pages: AtomicU32,
        pub(crate) waiting_rest: AtomicU32,
        pub(crate) waiting_line: [AtomicU64; 6],
    }
}

/// Leaves that a table for `inode_count` numbers has.
pub fn leaf_count(inode_count: u32) -> usize {
    (inode_count as usize).div_ceil(LEAF)
}

impl Views {
    /// What a state that is all zero leads to. ENOMEM.
    pub(crate) fn begin(
        &self,
        region: &Region,
        inode_count: u32,
        slot: &ThreadSlot<'_>,
    ) -> Result<(), Errno> {
        let no_memory = |_| Errno::NOMEM;
        let overlay = HashTable::create(region, slot).map_err(no_memory)?;
        let count = leaf_count(inode_count);
        let leaves = region
            .allocate_zeroed::<AtomicOffset<InodeLeaf>>(slot, count)
            .map_err(no_memory)?;
        let numbers = ThreadNumbers::create(region, slot)?;
        self.thread_numbers.store(numbers, Ordering::Release);
        self.overlay.store(overlay, Ordering::Release);
        self.inodes.store(leaves, Ordering::Release);
        Ok(())
    }

    /// As in a new region. Nobody else is inside. ENOMEM.
    pub(crate) fn begin_again(
        &self,
        region: &Region,
        inode_count: u32,
        slot: &ThreadSlot<'_>,
    ) -> Result<(), Errno> {
        self.counts.store(0, Ordering::Relaxed);
        for lock in [
            &self.inodes_lock,
            &self.credits,
            &self.reuse_lock,
            &self.dirty_lock,
            &self.changed_lock,
            &self.counts_lock,
            &self.departed_lock,
            &self.ahead_lock,
        ] {
            lock.reset();
        }
        for number in [
            &self.striped,
            &self.refreshing,
            &self.open_hint,
            &self.dirty_first,
            &self.changed_first,
            &self.ahead,
            &self.waiting_first,
            &self.waiting_end,
            &self.tail_pages,
        ] {
            number.store(0, Ordering::Relaxed);
        }
        self.paced.store(0, Ordering::Relaxed);
        self.removed_pages.store(0, Ordering::Relaxed);
        self.removing.store(0, Ordering::Relaxed);
        self.cut_at.store(0, Ordering::Relaxed);
        self.refreshed_at.store(0, Ordering::Relaxed);
        self.asked
            .iter()
            .for_each(|asked| asked.store(0, Ordering::Relaxed));
        self.reuse_first.store(Offset::NULL, Ordering::Relaxed);
        self.reuse_last.store(Offset::NULL, Ordering::Relaxed);
        self.begin(region, inode_count, slot)
    }

    /// Where the table of views begins, for who looks at that of another build.
    pub fn table(&self) -> Offset<AtomicOffset<InodeLeaf>> {
        self.inodes.load(Ordering::Acquire)
    }
}
