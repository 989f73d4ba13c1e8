//! The program's maps of files: which there are, and that each shows the pages that its file has.
//!
//! A *live* map shows the very pages of the pool: every shared one, and a private one as long as
//! it can be neither written nor executed. Other private maps are copies, which nobody has to
//! know of.
//!
//! # Invariants
//! * Every live map of this process is in the table, from before its pages are placed until they
//!   are gone. Its memory changes only under the table's lock, which is taken under the inode's
//!   lock and never the other way round.
//! * The inode of a live map has [`flag::MAPPED`], is listed as open, and stands in the session's
//!   table of maps since before its header was looked at and its pages placed: so neither it nor
//!   its pages are freed, and if it is writable no other session changes the file.
//! * Whatever changes which pages an inode has calls [`Context::remap`] before it lets go of the
//!   inode's lock, and before a page that was dropped can be used again. What cannot be done
//!   there, since it needs pages, is left to [`flag::STALE_MAPS`].
//! * A map that was ever writable has only pages of this session's own, no holes: writes to the
//!   file go to them in place, so none is ever replaced under a store through the map.
//! * Behind the end of the file there is nothing (SIGBUS), and what lies behind it in its last
//!   page is zero when the map, or that end, is new.

use crate::engine::{Attempt, Context, Need};
use crate::interface::Errno;
use arck_libfs_kit::format::{InodeNumber, PAGE_SIZE, PagePtr};
use arck_libfs_kit::memory::SharedBytes;
use arck_libfs_kit::memory::placing;
use arck_libfs_kit::views::entries::pages_of;
use arck_libfs_kit::views::{CachedInode, File, flag};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub mod counts;
pub mod map;
pub mod places;
pub mod table;

use counts::MapCounts;
use map::address_of;
pub use map::{Listing, Map, PAGE, READ, WRITE};
use places::{self as placed, Places};
pub use table::*;

impl<'a> Context<'a> {
    /// Brings all live maps up to date in file pages from `first` up to `end`: under the inode's
    /// lock, after the change is in the view.
    #[cold]
    pub fn remap(&self, inode: &'static CachedInode, first: u64, end: u64) {
        let mut table = lock();
        if inode.maps().0 > u32::from(table.has_any_of(self.session, inode)) {
            // The other processes do so when they come by.
            self.state.maps_moved.fetch_add(1, Ordering::AcqRel);
        }
        self.remap_here(&mut table, inode, first..end);
    }

    fn remap_here(&self, table: &mut Locked, inode: &'static CachedInode, pages: Range<u64>) {
        let (first, end) = (pages.start, pages.end);
        for map in table
            .iter_mut()
            .filter(|map| map.is_of(self.session, inode))
        {
            let pages = map.file_pages();
            let range = first.max(pages.start)..end.min(pages.end);
            if !range.is_empty() && self.place(inode, map, range) != Ok(true) {
                inode.set(flag::STALE_MAPS, true);
            }
        }
    }

    /// Whether processes of the group may have maps of the inode whose pages this one cannot place:
    /// what it drops of its own pages they may still show.
    pub fn is_mapped_elsewhere(&self, inode: &CachedInode) -> bool {
        let here = inode.has(flag::MAPPED) && lock().has_any_of(self.session, inode);
        inode.maps().0 > u32::from(here)
    }

    /// Places a new map and puts it into the table. Under the inode's lock, which this takes;
    /// the addresses are reserved. True if it has become part of another map, so that its opening
    /// of the inode is one too many. EACCES, ENOMEM: then nothing is in the table.
    pub fn establish(&self, inode: &'static CachedInode, new: &mut Option<Map>) -> Attempt<bool> {
        let _locked = self.lock_whole(inode);
        let mut table = lock();
        let Some(map) = new.as_mut() else {
            return Err(Errno::IO.into());
        };
        table.list(self.session, inode, Some(map.is_writable))?;
        let placed = self.place_listed(inode, map);
        if placed.is_err() {
            table.list(self.session, inode, None)?;
        }
        placed?;
        self.note_change();
        let joined = new.take().and_then(|map| table.add(map));
        Ok(joined.and_then(Arc::into_inner).is_some())
    }

    fn place_listed(&self, inode: &'static CachedInode, map: &mut Map) -> Attempt<()> {
        self.unmarked(inode, map.is_writable)?;
        let seen = self.seen(inode);
        if !self.place(inode, map, map.file_pages())? {
            // A hole, or somebody else's page, has come in between.
            return Err(Need::Again.into());
        }
        self.unmoved_since(inode, seen)
    }

    /// Makes the maps in `range` that show this inode writable, whose pages are the session's own.
    pub fn make_writable(&self, inode: &'static CachedInode, range: &Range<usize>) -> Attempt<()> {
        let _locked = self.lock_whole(inode);
        let mut table = lock();
        table.list(self.session, inode, Some(true))?;
        let made = self.unmarked(inode, true).and_then(|()| {
            for place in table.cut(range) {
                let Some(map) = table.get_mut(place) else {
                    continue;
                };
                if map.is_of(self.session, inode) && !map.is_writable {
                    map.is_writable = true;
                    // What was placed of these pages may be such that no protection makes it
                    // writable.
                    map.placed = Places::new(map.placed.len() as u64);
                    let placed = self.place(inode, map, map.file_pages());
                    if placed != Ok(true) {
                        map.is_writable = false;
                        let _ = self.place(inode, map, map.file_pages());
                        return placed.and(Err(Need::Again.into()));
                    }
                }
            }
            Ok(())
        });
        table.list(self.session, inode, None)?;
        made
    }

    /// Clears [`flag::STALE_MAPS`] if all maps can be brought up to date.
    pub fn refresh_maps(&self, inode: &'static CachedInode) -> Attempt<()> {
        let _locked = self.lock_whole(inode);
        self.unmoved(inode)?;
        inode.set(flag::STALE_MAPS, false);
        self.remap_here(&mut lock(), inode, 0..u64::MAX);
        if inode.has(flag::STALE_MAPS) {
            return Err(Need::Again.into());
        }
        Ok(())
    }

    /// That no fold is on its way which may not have seen a map that was listed, and, to write,
    /// that the file is this session's.
    fn unmarked(&self, inode: &CachedInode, to_write: bool) -> Attempt<()> {
        if to_write {
            return self.begin_change(inode).map(|_| ());
        }
        if self.header(inode.number())?.ownership().is_marked() {
            return Err(Need::Wait(inode.number()).into());
        }
        self.unmoved(inode)
    }

    /// What is to stand from a page on, and for how many pages, of those below `end`. `None`: pages
    /// of the session's own, which it has not got.
    fn wanted(
        &self,
        inode: &'static CachedInode,
        map: &Map,
        page: u64,
        end: u64,
    ) -> Attempt<(Option<u64>, u64)> {
        let size = inode.size.load(Ordering::Acquire);
        let end_of_file = pages_of(size);
        if page >= end_of_file {
            return Ok((Some(placed::NOTHING), end - page));
        }
        let file = File::of(inode)?;
        let pointer = self.data_page(file, page)?;
        if pointer.is_null() {
            let end = end.min(end_of_file);
            let data = self.next_data(file, page, end)?.unwrap_or(end);
            let pages = data.saturating_sub(page).max(1);
            return Ok(((!map.is_writable).then_some(placed::HOLE), pages));
        }
        Ok((self.wanted_page(map, page, pointer, size)?, 1))
    }

    /// The same for a page of the file that is data.
    fn wanted_page(
        &self,
        map: &Map,
        page: u64,
        pointer: PagePtr,
        size: u64,
    ) -> Attempt<Option<u64>> {
        let is_own = self.session.is_own(pointer);
        if map.is_writable && !is_own {
            // Another session's by now, or the parent's: what was mapped stays, and is kept.
            let (now, _) = map.placed.run(page - map.first);
            return Ok(placed::is_page(now).then_some(now));
        }
        let within = (size % PAGE_SIZE) as usize;
        if within != 0 && page == size / PAGE_SIZE {
            let bytes = self.session.page_bytes(pointer).ok_or(Errno::ACCESS)?;
            let mut tail = [0u8; PAGE];
            let tail = &mut tail[within..];
            bytes
                .try_copy_to(within, tail)
                .map_err(|error| error.errno())?;
            if tail.iter().any(|&byte| byte != 0) {
                if !is_own {
                    return Ok(Some(placed::COPY));
                }
                // Behind the end it is nobody's data, whoever owns the file by now.
                let zeroed = bytes.stream_zeroes(within, PAGE - within);
                arck_libfs_kit::memory::durable::drain(zeroed.ok_or(Errno::IO)?);
            }
        }
        Ok(Some(pointer.0))
    }

    /// Places pages of a map that are not as wanted; false if some could not be.
    fn place(
        &self,
        inode: &'static CachedInode,
        map: &mut Map,
        range: Range<u64>,
    ) -> Attempt<bool> {
        let per_segment = self.session.geometry().pages_per_segment();
        let mut is_fresh = true;
        let mut wanted_at = |map: &Map, page: u64| -> Attempt<(u64, u64)> {
            let (wanted, pages) = self.wanted(inode, map, page, range.end)?;
            is_fresh &= wanted.is_some();
            Ok((wanted.unwrap_or(placed::NOTHING), pages))
        };
        let mut page = range.start;
        while page < range.end {
            let (wanted, mut known) = wanted_at(map, page)?;
            let first = page - map.first;
            let (is, mut same) = map.placed.run(first);
            if is == wanted && wanted != placed::COPY {
                page += known.min(same);
                continue;
            }
            // As many as can be placed in one step.
            let mut count = known.min(same);
            while page + count < range.end && wanted != placed::COPY {
                let next = placed::further(wanted, count);
                if placed::is_page(wanted) && next.is_multiple_of(per_segment) {
                    break;
                }
                if count == known {
                    let (found, more) = wanted_at(map, page + count)?;
                    if found != next {
                        break;
                    }
                    known += more;
                }
                if count == same {
                    let (is, more) = map.placed.run(first + count);
                    if is == next {
                        break;
                    }
                    same += more;
                }
                count = known.min(same);
            }
            let pages = first..first + count;
            if let Err(errno) = self.place_run(map, &pages, wanted) {
                // Better nothing than pages that are not the file's any more.
                let address = map.start + pages.start as usize * PAGE;
                // SAFETY: the map's own range, under the table's lock.
                let _ = unsafe { placing::nothing(address, count as usize * PAGE, map.protection) };
                map.placed.set(pages, placed::NOTHING);
                return Err(errno.into());
            }
            map.placed.set(pages, wanted);
            page += count;
        }
        Ok(is_fresh)
    }

    fn place_run(&self, map: &Map, pages: &Range<u64>, wanted: u64) -> Result<(), Errno> {
        let address = map.start + pages.start as usize * PAGE;
        let count = pages.end - pages.start;
        let length = count as usize * PAGE;
        // SAFETY: the map's own range, which the program gave for it and which stays reserved
        // while it is in the table; the table's lock is held.
        unsafe {
            match wanted {
                placed::NOTHING => placing::nothing(address, length, map.protection),
                placed::HOLE => placing::zeroes(address, length, map.protection),
                placed::COPY => {
                    let (page, within) = self.last_page(map, pages.start)?;
                    let mut copy = [0u8; PAGE];
                    page.try_copy_to(0, &mut copy[..within])
                        .map_err(|error| error.errno())?;
                    let copy = SharedBytes::from_raw(NonNull::from(&mut copy).cast(), PAGE);
                    placing::copy_of(address, copy, map.protection)
                }
                page => self
                    .session
                    .place_pages(PagePtr(page), count, address, map.protection),
            }
        }
    }

    /// The file's last page, and how many of its bytes are the file's.
    fn last_page(&self, map: &Map, index: u64) -> Result<(SharedBytes<'a>, usize), Errno> {
        let inode = self.cached(map.listing.number).map_err(|_| Errno::IO)?;
        let size = inode.size.load(Ordering::Acquire);
        let pointer = self
            .data_page(File::of(inode)?, map.first + index)
            .map_err(|_| Errno::IO)?;
        let bytes = self.session.page_bytes(pointer).ok_or(Errno::ACCESS)?;
        Ok((bytes, (size % PAGE_SIZE) as usize))
    }

    /// Flushes what a program may have stored through maps in `range`; gives their inodes.
    pub fn flush_maps(&self, range: &Range<usize>) -> Vec<(InodeNumber, u32)> {
        let mut table = lock();
        let mut inodes = Vec::new();
        let mut stored = None;
        for place in table.cut(range) {
            let map = &table[place];
            if !map.is_writable || !map.listing.is_of(self.session) {
                continue;
            }
            let runs = map.placed.runs();
            for (_, first, count) in runs.filter(|&(_, value, _)| placed::is_page(value)) {
                for page in first..first + count {
                    let bytes = self.session.page_bytes(PagePtr(page));
                    if let Some(dirty) = bytes.and_then(|bytes| bytes.dirty(0, PAGE)) {
                        stored = Some(dirty.flush().join_all(stored));
                    }
                }
            }
            inodes.push((map.listing.number, map.listing.generation));
        }
        drop(table);
        arck_libfs_kit::memory::durable::drain(stored);
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    /// In a forked child: makes its parent's maps this session's. What is gone is forgotten, and
    /// shows its pages as long as the parent keeps them.
    pub fn adopt_map(&self, listing: &Listing) -> Attempt<()> {
        let inode = self.view(listing.number, listing.generation)?;
        let listed = self.list_open(inode)?;
        listing.count_in(listed.counted_in);
        let mut table = lock();
        listing
            .session
            .store(address_of(self.session), Ordering::Relaxed);
        for map in table
            .iter_mut()
            .filter(|map| map.is_of(self.session, inode))
        {
            map.is_inherited = true;
        }
        table.list(self.session, inode, None)?;
        Ok(())
    }
}
