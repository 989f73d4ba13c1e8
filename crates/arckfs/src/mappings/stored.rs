//! What programs have stored through writable maps, which nobody sees happen: it is flushed when they say so.
//!
//! Invariant: an inode that has, or had since it was flushed last, a writable map in any process of the group has
//! [`flag::STORED`]. Where stores are not flushed at all, nothing is looked at.

use super::counts::MapCounts;
use super::map::PAGE;
use super::places as placed;
use super::{Mapping, lock};
use arck_libfs_kit::engine::Attempt;
use arck_libfs_kit::format::{InodeNumber, PagePtr};
use arck_libfs_kit::memory::durable;
use arck_libfs_kit::views::entries::pages_of;
use arck_libfs_kit::views::{CachedInode, File, flag};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Pages that are flushed in one attempt, so that a fold does not wait for a large file.
const AT_ONCE: u64 = 4096;

impl Mapping<'_> {
    /// The inodes of this process's writable maps in a range of addresses. `flush`: after what may have been stored
    /// through these was flushed, which is durable then.
    pub fn stored_in(&self, range: &Range<usize>, flush: bool) -> Vec<InodeNumber> {
        let mut table = lock();
        let mut inodes = Vec::new();
        let mut stored = None;
        for place in table.cut(range) {
            let map = &table[place];
            if !map.is_writable || !map.listing.is_of(self.session) {
                continue;
            }
            inodes.push(map.listing.number);
            let runs = map.placed.runs().filter(|_| flush);
            for (_, first, count) in runs.filter(|&(_, value, _)| placed::is_page(value)) {
                for page in first..first + count {
                    let bytes = self.session.page_bytes(PagePtr(page));
                    if let Some(dirty) = bytes.and_then(|bytes| bytes.dirty(0, PAGE)) {
                        stored = Some(dirty.flush().join_all(stored));
                    }
                }
            }
        }
        drop(table);
        durable::drain(stored);
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    /// Whether a file's pages are to be flushed, from the first one on. What is stored from now on counts for the
    /// next time that this is asked.
    pub fn take_stored(&self, inode: &'static CachedInode) -> bool {
        if !inode.has(flag::STORED) {
            return false;
        }
        // Before the pages are looked at: a map that is made meanwhile sets it again.
        inode.set(flag::STORED, false);
        if inode.maps().1 != 0 {
            inode.set(flag::STORED, true);
        }
        true
    }

    /// Flushes what may have been stored through maps to a file's pages from page `*next` on, some of it; it is
    /// durable then. `None` in `next`: there is no more.
    pub fn flush_stored(&self, inode: &'static CachedInode, next: &mut Option<u64>) -> Attempt<()> {
        let Some(from) = *next else { return Ok(()) };
        let seen = self.seen(inode);
        let file = File::of(inode)?;
        let end = pages_of(inode.size.load(Ordering::Acquire));
        let (mut page, last) = (from, from.saturating_add(AT_ONCE).min(end));
        let mut stored = None;
        while page < last
            && let Some(data) = self.next_data(file, page, last)?
        {
            let pointer = self.data_page(file, data)?;
            // What was stored to is the session's own, or was mapped by several together.
            if let Some(dirty) = self
                .session
                .page_bytes(pointer)
                .and_then(|bytes| bytes.dirty(0, PAGE))
            {
                stored = Some(dirty.flush().join_all(stored));
            }
            page = data + 1;
        }
        durable::drain(stored);
        self.unmoved_since(inode, seen)?;
        *next = (last < end).then_some(last);
        Ok(())
    }
}
