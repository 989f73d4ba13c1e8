//! Placing: the pages of a file are put where its maps show them.

use super::counts::MapCounts;
use super::map::{Map, PAGE};
use super::places as placed;
use super::table::{Locked, lock};
use super::up_to_date::UpToDate;
use crate::interface::Errno;
use crate::state::AuxiliaryState;
use arck_libfs_kit::engine::{Attempt, Need, Stop};
use arck_libfs_kit::format::{PAGE_SIZE, PagePtr};
use arck_libfs_kit::memory::{SharedBytes, placing};
use arck_libfs_kit::views::entries::pages_of;
use arck_libfs_kit::views::{CachedInode, File, Viewing, flag};
use std::cell::Cell;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// An attempt, as what sees which pages a file has.
pub struct Placing<'v, 'a> {
    pub viewing: &'v Viewing<'a>,
    pub state: &'static AuxiliaryState,
    pub up_to_date: &'v UpToDate,
    /// The page of a segment that this session is not sent to write, which is not asked for again.
    pub refused: Cell<Option<PagePtr>>,
}

impl Placing<'_, '_> {
    /// Brings all live maps up to date in file pages from `first` up to `end`: under the inode's
    /// lock, after the change is in the view.
    pub fn remap(&self, inode: &'static CachedInode, first: u64, end: u64) {
        let mut table = lock();
        if inode.maps().0 > u32::from(table.has_any_of(self.viewing.session, inode)) {
            // The other processes do so when they come by.
            self.state.maps_moved.fetch_add(1, Ordering::AcqRel);
        }
        if self.remap_here(&mut table, inode, first..end).is_some() {
            self.up_to_date.lacks_pages();
        }
    }

    /// The same of the maps of this process. Gives what is lacked, if something is, for which maps are stale.
    pub fn remap_here(
        &self,
        table: &mut Locked,
        inode: &'static CachedInode,
        pages: Range<u64>,
    ) -> Option<Need> {
        let (first, end) = (pages.start, pages.end);
        let mut lacked = None;
        for map in table
            .iter_mut()
            .filter(|map| map.is_of(self.viewing.session, inode))
        {
            let pages = map.file_pages();
            let range = first.max(pages.start)..end.min(pages.end);
            if range.is_empty() {
                continue;
            }
            let placed = self.place(inode, map, range);
            if placed != Ok(true) {
                inode.set(flag::STALE_MAPS, true);
            }
            if placed == Ok(false) && inode.has(flag::TOGETHER) {
                // The controller is asked for what is not there.
                lacked = Some(Need::Again);
            }
            if let Err(Stop::Need(need)) = placed {
                lacked = Some(need);
            }
        }
        lacked
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
        let pointer = self.viewing.data_page(file, page)?;
        if pointer.is_null() {
            let end = end.min(end_of_file);
            let data = self.viewing.next_data(file, page, end)?.unwrap_or(end);
            let pages = data.saturating_sub(page).max(1);
            return Ok(((!map.is_writable).then_some(placed::HOLE), pages));
        }
        Ok((self.wanted_page(inode, map, page, pointer)?, 1))
    }

    /// Whether a page is where sessions can store to it, of which this is one.
    fn can_write_together(&self, page: PagePtr) -> bool {
        let session = self.viewing.session;
        let geometry = session.geometry();
        let segment = |page| geometry.contains(page).then(|| geometry.segment_of(page));
        let was_refused = self.refused.get().map(segment);
        if was_refused == Some(segment(page)) {
            return false;
        }
        let can = session.can_write_together(page);
        if !can {
            self.refused.set(Some(page));
        }
        can
    }

    /// The same for a page of the file that is data.
    fn wanted_page(
        &self,
        inode: &'static CachedInode,
        map: &Map,
        page: u64,
        pointer: PagePtr,
    ) -> Attempt<Option<u64>> {
        let size = inode.size.load(Ordering::Acquire);
        let session = self.viewing.session;
        let is_together = map.is_writable && inode.has(flag::TOGETHER);
        let is_own = session.is_own(pointer) || is_together && self.can_write_together(pointer);
        if is_together && !is_own {
            // It is to be brought there.
            return Ok(None);
        }
        if map.is_writable && !is_own {
            // Another session's by now, or the parent's: what was mapped stays, and is kept.
            let (now, _) = map.placed.run(page - map.first);
            return Ok(placed::is_page(now).then_some(now));
        }
        let within = (size % PAGE_SIZE) as usize;
        if within != 0 && page == size / PAGE_SIZE {
            let bytes = self.viewing.session.page_bytes(pointer);
            let bytes = bytes.ok_or_else(|| self.viewing.lost(inode))?;
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
    pub fn place(
        &self,
        inode: &'static CachedInode,
        map: &mut Map,
        range: Range<u64>,
    ) -> Attempt<bool> {
        let per_segment = self.viewing.session.geometry().pages_per_segment();
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
                // Where the controller would not show the page, it is asked to lay it where this session may look.
                return Err(match (errno, self.viewing.lost(inode)) {
                    (Errno::ACCESS, Stop::Need(need)) => need.into(),
                    _ => errno.into(),
                });
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
                page => {
                    self.viewing
                        .session
                        .place_pages(PagePtr(page), count, address, map.protection)
                }
            }
        }
    }

    /// The file's last page, and how many of its bytes are the file's.
    fn last_page(&self, map: &Map, index: u64) -> Result<(SharedBytes<'static>, usize), Errno> {
        let inode = self
            .viewing
            .cached(map.listing.number)
            .map_err(|_| Errno::IO)?;
        let size = inode.size.load(Ordering::Acquire);
        let pointer = self
            .viewing
            .data_page(File::of(inode)?, map.first + index)
            .map_err(|_| Errno::IO)?;
        let bytes = self
            .viewing
            .session
            .page_bytes(pointer)
            .ok_or(Errno::ACCESS)?;
        Ok((bytes, (size % PAGE_SIZE) as usize))
    }
}
