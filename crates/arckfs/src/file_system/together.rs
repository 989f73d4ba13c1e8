//! Files that several sessions have mapped to be written: see [`flag::TOGETHER`].
//!
//! Invariant: a session stores to such a file through its maps alone. What writes or cuts it otherwise goes by message, so that
//! nobody replaces a page that others store to.

use super::*;
use crate::mappings::Map;
use arck_libfs_kit::engine::{Need, Stop};
use arck_libfs_kit::format::PAGE_SIZE;
use arck_libfs_kit::messages::ATTACHED_MAX;
use arck_libfs_kit::views::File;
use arck_libfs_kit::views::entries::pages_of;
use std::ops::Range;

/// Pages of holes that are filled for a map that is not to be written yet.
const HOLES: u64 = 16384;
/// How often a map is tried of which pages come and go meanwhile.
const ATTEMPTS: u32 = 100;

impl FileSystem {
    /// Whether a map that is not to be written, but may become so, shows what others write in the same way as one that is: not
    /// where nearly all of the file is a hole, which it would fill.
    fn is_worth_filling(&self, file: (u32, u32), pages: &Range<u64>) -> Result<bool, Errno> {
        self.engine.run_local(|context| {
            let inode = context.view(file.0, file.1)?;
            let end = pages.end.min(pages_of(inode.size.load(Ordering::Acquire)));
            let data = File::of(inode)?.part().pages.load(Ordering::Relaxed);
            Ok(end.saturating_sub(pages.start) <= HOLES + 2 * data)
        })
    }

    /// Places a map whose inode is listed as open: of pages that sessions have together, or of this session's own.
    pub(super) fn place(&self, map: Map) -> Result<bool, Errno> {
        let file = (map.listing.number, map.listing.generation);
        let (pages, is_writable) = (map.file_pages(), map.is_writable);
        // One that may become writable, too: its program relies on seeing what others write, as LMDB does.
        let may_be_together = map.is_shared
            && map.may_write
            && (is_writable || self.is_worth_filling(file, &pages)?);
        let mut map = Some(map);
        for _ in 0..ATTEMPTS {
            let is_together = may_be_together
                && match self.engine.bring_together(file, &pages) {
                    // Then it shows what is there, as any that is read.
                    Err(_) if !is_writable => false,
                    brought => brought?,
                };
            if let Some(map) = &mut map {
                map.is_writable = is_writable || is_together;
            }
            let mut own = pages.start;
            let placed = self.engine.run_local(|context| {
                let inode = context.view(file.0, file.1)?;
                let is = inode.has(flag::TOGETHER);
                if is_together && !is || is_writable && !is_together && is {
                    return Ok(None);
                }
                if is_writable && !is_together {
                    context.own_up_to(inode, &mut own, &pages)?;
                }
                match context.establish(inode, &mut map) {
                    // Some are to be brought that were not there.
                    Err(Stop::Need(Need::Again)) if is_together => Ok(None),
                    placed => {
                        if placed.is_err() {
                            // Whatever came in between may have changed pages that were looked at.
                            own = pages.start;
                        }
                        placed.map(Some)
                    }
                }
            })?;
            if let Some(placed) = placed {
                return Ok(placed);
            }
        }
        Err(Errno::NODEV)
    }

    /// Makes the maps in `range` writable that show these pages of a file. EACCES: another session has it mapped to be
    /// written, and owns it.
    pub(super) fn make_writable(
        &self,
        file: (u32, u32),
        pages: Range<u64>,
        range: &Range<usize>,
    ) -> Result<(), Errno> {
        for _ in 0..ATTEMPTS {
            let is_together = match self.engine.bring_together(file, &pages) {
                Err(Errno::NODEV) => return Err(Errno::ACCESS),
                brought => brought?,
            };
            let mut own = pages.start;
            let made = self.engine.run_local(|context| {
                let inode = context.view(file.0, file.1)?;
                if is_together != inode.has(flag::TOGETHER) {
                    return Ok(None);
                }
                if !is_together {
                    context.own_up_to(inode, &mut own, &pages)?;
                }
                match context.make_writable(inode, range) {
                    Err(Stop::Need(Need::Again)) if is_together => Ok(None),
                    made => {
                        if made.is_err() {
                            own = pages.start;
                        }
                        made.map(Some)
                    }
                }
            });
            match made {
                Ok(Some(())) => return Ok(()),
                Ok(None) => {}
                Err(Errno::TXTBSY) => return Err(Errno::ACCESS),
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::ACCESS)
    }

    /// Writes all of a buffer, in pieces that each fit in a message, as far as the limit on sizes lets; gives the position
    /// behind the bytes and their count. EFAULT; EFBIG: not one byte fits.
    pub(super) fn write_together(
        &self,
        file: (u32, u32),
        buffer: &[u8],
        position: Option<u64>,
        limit: u64,
    ) -> Result<(usize, u64), Errno> {
        let from = match position {
            Some(position) => position,
            None if limit == u64::MAX => 0,
            None => self.size_seen(file)?,
        };
        let room = usize::try_from(limit.saturating_sub(from)).unwrap_or(usize::MAX);
        let buffer = &buffer[..buffer.len().min(room)];
        if buffer.is_empty() {
            return Err(Errno::FBIG);
        }
        let (mut done, mut end) = (0, from);
        for piece in buffer.chunks(ATTACHED_MAX) {
            let at = position.map(|position| position + done as u64);
            match self.engine.write_mediated(file, piece, at) {
                Ok(behind) => end = behind,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
            done += piece.len();
        }
        Ok((done, end))
    }

    /// What `fallocate` is to do in a range of a file that is together, `Zero` or `Allocate`; false for one that is not. A hole
    /// that is punched is zeroes, in the pages that are there. ENOSPC.
    pub(super) fn fill_together(
        &self,
        file: (u32, u32),
        range: Range<u64>,
        zeroes: bool,
        keeps_size: bool,
    ) -> Result<bool, Errno> {
        if !self.engine.is_together(file.0) {
            return Ok(false);
        }
        let size = self.size_seen(file)?;
        let grows = range.end > size && !keeps_size;
        if grows {
            self.resize_by_message(file, range.end, Errno::TXTBSY)?;
        }
        let filled = match zeroes {
            true => self.zero_together(file, range),
            false => {
                let pages = range.start / PAGE_SIZE..range.end.div_ceil(PAGE_SIZE);
                self.engine.bring_together(file, &pages).map(|_| ())
            }
        };
        if filled.is_err() && grows {
            // As before, but for what somebody else has written behind it meanwhile.
            let _ = self.resize_by_message(file, size, Errno::TXTBSY);
        }
        filled.map(|()| true)
    }

    /// Zeroes a range of a file that is together, as far as the file reaches.
    fn zero_together(&self, file: (u32, u32), range: Range<u64>) -> Result<(), Errno> {
        let end = range.end.min(self.size_seen(file)?);
        let zeroes = vec![0; ATTACHED_MAX];
        let mut at = range.start;
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let piece = &zeroes[..left.min(ATTACHED_MAX)];
            at = self.engine.write_mediated(file, piece, Some(at))?;
        }
        Ok(())
    }
}
