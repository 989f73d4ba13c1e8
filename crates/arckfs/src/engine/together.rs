//! Pages of files that several sessions have mapped to be written: [`flag::TOGETHER`]. The controller brings them to where
//! all may store to them.
//!
//! Invariant: the controller is asked to bring pages outside of operations, and under no inode's lock.

use super::Engine;
use crate::interface::Errno;
use crate::mappings;
use arck_libfs_kit::engine::{Need, Stop};
use arck_libfs_kit::format::InodeNumber;
use arck_libfs_kit::messages::{Request, Response};
use arck_libfs_kit::views::entries::pages_of;
use arck_libfs_kit::views::flag;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl Engine {
    /// The same of a file that sessions have mapped together.
    #[inline]
    pub(crate) fn is_together(&self, number: InodeNumber) -> bool {
        let known = self.kit().known(number);
        known.is_some_and(|inode| inode.has(flag::TOGETHER))
    }

    /// Has the controller bring pages of a file to where sessions have them together: `count` from the one on that is `first`;
    /// gives the one up to which that is done. EOPNOTSUPP, ETXTBSY, EACCES, ENOSPC.
    #[cold]
    fn bring_some_together(
        &self,
        (inode, generation): (InodeNumber, u32),
        first: u64,
        count: u64,
    ) -> Result<u64, Errno> {
        let request = Request::MapTogether {
            inode,
            generation,
            first,
            count,
        };
        let Response::Bytes(told) = self.session.request(&request)? else {
            return Err(Errno::PROTO);
        };
        let done = told.as_slice().try_into().map_err(|_| Errno::PROTO)?;
        Ok(u64::from_le_bytes(done))
    }

    /// Has pages of a file brought to where all may store to them that may write it, before a map of them is placed or becomes
    /// writable. False: nobody else may, and this session is to own them. EACCES, ENOSPC; ENODEV: another session has a
    /// map that it owns.
    pub(crate) fn bring_together(
        &self,
        file: (u32, u32),
        pages: &Range<u64>,
    ) -> Result<bool, Errno> {
        // The controller is to know the file.
        let asked = Cell::new(false);
        let (is_together, may_be, end) = self.run_local(|context| {
            let inode = match context.view(file.0, file.1) {
                // Whoever has it gives it up for this.
                Err(Stop::Need(Need::Recall(_))) => context.cached(file.0)?,
                viewed => viewed?,
            };
            let relaxed = Ordering::Relaxed;
            let mode = inode.mode.load(relaxed);
            let is_own = inode.uid.load(relaxed) == context.credentials.uid;
            let is_others = mode & 0o022 != 0 || !is_own;
            let end = pages_of(inode.size.load(Ordering::Acquire));
            let has_name = !inode.has(flag::UNLINKED) && !inode.has(flag::LINKABLE);
            if is_others && has_name && inode.has(flag::UNCOMMITTED) && !asked.replace(true) {
                return Err(Need::Commit([inode.holder.load(relaxed), 0]).into());
            }
            Ok((inode.has(flag::TOGETHER), is_others, end))
        })?;
        if !is_together && !may_be {
            return Ok(false);
        }
        let mut first = pages.start;
        loop {
            match self.bring_some_together(file, first, pages.end - first) {
                Ok(done) if done > first && done < pages.end.min(end) => first = done,
                Ok(_) => return Ok(true),
                Err(Errno::OPNOTSUPP) => return Ok(false),
                // There is none for segments that hold nothing else.
                Err(Errno::NOSPC) if !is_together && first == pages.start => return Ok(false),
                Err(Errno::TXTBSY) => return Err(Errno::NODEV),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// The controller has said so; a newer view may say otherwise.
    pub(crate) fn is_no_more_together(&self, number: InodeNumber) {
        if let Some(inode) = self.kit().known(number) {
            inode.set(flag::TOGETHER, false);
        }
    }

    /// Brings what writable maps of a file lack, if it is together. Whether it is.
    #[cold]
    pub(crate) fn complete_together(&self, file: (InodeNumber, u32)) -> bool {
        if !self.is_together(file.0) {
            return false;
        }
        let is_stale = self
            .kit()
            .known(file.0)
            .is_some_and(|inode| inode.has(flag::STALE_MAPS));
        let wanting: Vec<Range<u64>> = mappings::lock()
            .iter()
            .filter(|map| map.is_writable && is_stale)
            .filter(|map| map.listing.number == file.0 && map.listing.is_of(self.session))
            .map(mappings::Map::file_pages)
            .collect();
        for pages in wanting {
            // What there is no room for is as behind the end.
            let _ = self.bring_together(file, &pages);
        }
        true
    }
}
