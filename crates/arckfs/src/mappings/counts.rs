//! How many processes of the group have live maps of an inode: in the bits of its view's flags that the kit
//! leaves to the LibFS.

use arck_libfs_kit::views::{CachedInode, LIBFS_FLAGS};
use std::sync::atomic::Ordering;

/// Where the counts stand, of which there are as many as members.
const MAPS: u32 = LIBFS_FLAGS;
const WRITABLE_MAPS: u32 = MAPS + 9;
/// No fewer than there are members.
const MANY_MAPS: u32 = 255;

/// See the module's head.
pub trait MapCounts {
    /// Processes of the group that have live maps of it, and those whose maps can be written.
    fn maps(&self) -> (u32, u32);
    /// Counts the maps of a process, which it had or has now: whether any, and any writable.
    fn count_maps(&self, had: (bool, bool), has: (bool, bool));
    /// From now on it counts as mapped by more processes than there are.
    fn keep_maps(&self, writable: bool);
}

impl MapCounts for CachedInode {
    fn maps(&self) -> (u32, u32) {
        let flags = self.flags.load(Ordering::SeqCst);
        (flags >> MAPS & 0x1ff, flags >> WRITABLE_MAPS)
    }
    fn count_maps(&self, had: (bool, bool), has: (bool, bool)) {
        let one = |is: bool, at: u32| if is { 1u32 << at } else { 0 };
        let sum = |(any, writable)| one(any, MAPS) + one(writable, WRITABLE_MAPS);
        let change = sum(has).wrapping_sub(sum(had));
        self.flags.fetch_add(change, Ordering::SeqCst);
    }
    fn keep_maps(&self, writable: bool) {
        self.count_maps((false, false), (true, writable));
        let many = if writable {
            MANY_MAPS << MAPS | MANY_MAPS << WRITABLE_MAPS
        } else {
            MANY_MAPS << MAPS
        };
        self.flags.fetch_add(many, Ordering::SeqCst);
    }
}
