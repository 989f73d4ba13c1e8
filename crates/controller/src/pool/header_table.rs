//! The table of headers in its file: allocated ahead of the numbers that are granted.
//!
//! # Invariant
//! * No header is stored to before its place is allocated in the backing; what stands in the table when the pool is
//!   opened is made sure of, and not filled.

use crate::pool::files::{Pool, allocate, resized};
use crate::pool::filling::{HUGE, HugePages};
use arck_core_state::InodeNumber;
use arck_core_state::superblock::Durability;
use rustix::io::Errno;
use std::sync::atomic::AtomicBool;

/// Headers are allocated in the backing this many bytes at a time.
const HEADER_STEP: u64 = 64 << 10;

impl Pool {
    /// Makes sure that the header table is allocated up to and including entry `number`.
    /// ENOSPC.
    pub fn allocate_headers(&mut self, number: InodeNumber) -> std::result::Result<(), Errno> {
        let wanted = (u64::from(number) + 1) * 64;
        if wanted <= self.headers_allocated {
            return Ok(());
        }
        // What is there when the pool is opened is only made sure of.
        let huge_pages = self.huge_pages().filter(|_| self.headers_allocated != 0);
        let step = huge_pages.as_ref().map_or(HEADER_STEP, |_| HUGE);
        let end = wanted
            .next_multiple_of(step)
            .min(self.geometry().header_table_size());
        let (file, from) = (&self.headers_file, self.headers_allocated);
        self.with_room(|| match &huge_pages {
            Some(huge_pages) => {
                let never = AtomicBool::new(false);
                huge_pages
                    .fill(file, 0, from..end, &never)
                    .map(|()| resized(file))
            }
            None => allocate(file, from, end - from),
        })?;
        self.headers_allocated = end;
        Ok(())
    }

    /// Those that files of this pool are made of, where that is worth while: in memory, and not in a small pool.
    pub fn huge_pages(&self) -> Option<HugePages> {
        let is_large = self.geometry().segment_size >= HUGE;
        (self.durability() == Durability::Volatile && is_large).then(|| self.spares().huge_pages())
    }

    /// One past the last byte of the header table that was ever written.
    pub fn headers_end(&self) -> u64 {
        let mut end = 0;
        let mut at = 0;
        while let Ok(data) = rustix::fs::seek(&self.headers_file, rustix::fs::SeekFrom::Data(at)) {
            match rustix::fs::seek(&self.headers_file, rustix::fs::SeekFrom::Hole(data)) {
                Ok(hole) if hole > data => {
                    end = hole;
                    at = hole;
                }
                _ => break,
            }
        }
        end.min(self.geometry().header_table_size())
    }
}
