//! Private copies of parts of files: what a private map shows that may be written, or whose file is read by message alone.
//!
//! Invariant: a hole takes no memory, whether this process sees where it is or not.

use super::*;
use crate::mappings::{PAGE, READ, WRITE};
use arck_libfs_kit::format::PAGE_SIZE;
use arck_libfs_kit::memory::placing::{self, Protection};
use arck_libfs_kit::views::File;
use arck_libfs_kit::views::entries::pages_of;
use std::cell::Cell;
use std::ops::Range;

/// Bytes that are read at once of what may be holes.
const SPARSE_PIECE: usize = 1 << 20;

impl FileSystem {
    /// Fills a range with a copy of a part of the file. Holes are passed over.
    ///
    /// # Safety
    /// The range is reserved.
    pub(super) unsafe fn copy_into(
        &self,
        handle: Handle,
        address: usize,
        length: usize,
        offset: u64,
        size: u64,
        protection: Protection,
    ) -> Result<(), Errno> {
        let pages = pages_of(size).saturating_sub(offset / PAGE_SIZE);
        let filled = length.min(usize::try_from(pages).map_or(length, |n| n.saturating_mul(PAGE)));
        // SAFETY: a part of the range each; the memory is written before anybody knows of it.
        unsafe {
            if filled != 0 {
                placing::zeroes(address, filled, READ | WRITE)?;
                let buffer = std::slice::from_raw_parts_mut(address as *mut u8, filled);
                let mut done = 0;
                while let Some((data, is_known)) = self.data_in(handle, offset, done..filled)? {
                    let from = offset + data.start as u64;
                    let read = match is_known {
                        true => self.read(handle, &mut buffer[data.clone()], Some(from))?,
                        false => self.read_sparse(handle, &mut buffer[data.clone()], from)?,
                    };
                    if read == 0 {
                        break;
                    }
                    done = data.start + read;
                }
                if protection != READ | WRITE {
                    placing::protect(address, filled, protection)?;
                }
            }
            if filled != length {
                placing::nothing(address + filled, length - filled, protection)?;
            }
        }
        Ok(())
    }

    /// Reads a part of what may be holes into memory that is zero: what is zero there takes none.
    fn read_sparse(
        &self,
        handle: Handle,
        buffer: &mut [u8],
        position: u64,
    ) -> Result<usize, Errno> {
        let length = buffer.len().min(SPARSE_PIECE);
        let mut piece = vec![0; length];
        let read = self.read(handle, &mut piece, Some(position))?;
        for (target, page) in buffer.chunks_mut(PAGE).zip(piece[..read].chunks(PAGE)) {
            if page.iter().any(|&byte| byte != 0) {
                target[..page.len()].copy_from_slice(page);
            }
        }
        Ok(read)
    }

    /// The next data in a range of bytes that begins at an offset of the file; false where nobody knows whether there is any.
    fn data_in(
        &self,
        handle: Handle,
        offset: u64,
        range: Range<usize>,
    ) -> Result<Option<(Range<usize>, bool)>, Errno> {
        let is_known = Cell::new(true);
        let seek = |from: usize, data| {
            let from = offset + from as u64;
            let found = self.on_handle(handle, |context, inode| {
                context.seek_data(File::of(inode)?, from, data)
            });
            match found {
                Ok(at) => Ok(Some(
                    usize::try_from(at - offset).map_or(range.end, |at| at.min(range.end)),
                )),
                Err(Errno::NXIO) => Ok(None),
                Err(errno) => Err(errno),
            }
        };
        let seek = |from: usize, data| match seek(from, data) {
            // Where it lies is seen by who can map it.
            Err(Errno::ACCESS | Errno::BUSY | Errno::NOSPC) => {
                is_known.set(false);
                Ok(Some(if data { from } else { range.end }))
            }
            found => found,
        };
        let mut from = range.start;
        while from < range.end
            && let Some(start) = seek(from, true)?
            && start < range.end
        {
            // The file may change meanwhile.
            match seek(start, false)? {
                Some(end) if end > start => return Ok(Some((start..end, is_known.get()))),
                _ => from = start + 1,
            }
        }
        Ok(None)
    }
}
