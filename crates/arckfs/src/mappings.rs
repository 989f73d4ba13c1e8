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
//! * Whatever changes which pages an inode has calls [`Placing::remap`] before it lets go of the
//!   inode's lock, and before a page that was dropped can be used again. What cannot be done
//!   there, since it needs pages, is left to [`flag::STALE_MAPS`].
//! * A map that was ever writable has only pages of this session's own, no holes: writes to the
//!   file go to them in place, so none is ever replaced under a store through the map.
//! * Behind the end of the file there is nothing (SIGBUS), and what lies behind it in its last
//!   page is zero when the map, or that end, is new.

use crate::interface::Errno;
use crate::state::AuxiliaryState;
use arck_libfs_kit::changing::Changing;
use arck_libfs_kit::engine::{Attempt, Need};
use arck_libfs_kit::views::{CachedInode, flag};
use std::cell::Cell;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub mod counts;
pub mod map;
pub mod places;
pub mod placing;
pub mod stored;
pub mod table;
pub mod up_to_date;

use counts::MapCounts;
use map::address_of;
pub use map::{Listing, Map, PAGE, READ, WRITE};
use places::Places;
use placing::Placing;
pub use table::*;
use up_to_date::UpToDate;

/// An attempt, as what knows which maps show an inode.
pub struct Mapping<'a> {
    pub changing: &'a Changing<'a>,
    pub state: &'static AuxiliaryState,
    pub up_to_date: &'a UpToDate,
}

impl<'a> Deref for Mapping<'a> {
    type Target = Changing<'a>;
    #[inline(always)]
    fn deref(&self) -> &Changing<'a> {
        self.changing
    }
}

impl<'a> Mapping<'a> {
    /// Brings all live maps up to date, as [`Placing::remap`].
    #[cold]
    pub fn remap(&self, inode: &'static CachedInode, first: u64, end: u64) {
        self.placing().remap(inode, first, end);
    }

    fn placing(&self) -> Placing<'_, 'a> {
        Placing {
            viewing: self,
            state: self.state,
            up_to_date: self.up_to_date,
            refused: Cell::new(None),
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
        if map.is_writable {
            inode.set(flag::STORED, true);
        }
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
        self.unmarked(inode, map.is_writable && !inode.has(flag::TOGETHER))?;
        let seen = self.seen(inode);
        if !self.placing().place(inode, map, map.file_pages())? {
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
        inode.set(flag::STORED, true);
        let made = self
            .unmarked(inode, !inode.has(flag::TOGETHER))
            .and_then(|()| {
                for place in table.cut(range) {
                    let Some(map) = table.get_mut(place) else {
                        continue;
                    };
                    if map.is_of(self.session, inode) && !map.is_writable {
                        map.is_writable = true;
                        // What was placed of these pages may be such that no protection makes it
                        // writable.
                        map.placed = Places::new(map.placed.len() as u64);
                        let placed = self.placing().place(inode, map, map.file_pages());
                        if placed != Ok(true) {
                            map.is_writable = false;
                            let _ = self.placing().place(inode, map, map.file_pages());
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
        let lacked = self.placing().remap_here(&mut lock(), inode, 0..u64::MAX);
        // What sessions have together the controller is asked for elsewhere; there may be no room for it.
        if inode.has(flag::STALE_MAPS) && !inode.has(flag::TOGETHER) {
            return Err(lacked.unwrap_or(Need::Again).into());
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
