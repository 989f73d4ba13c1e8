//! Reading a small file as a whole, without a lock.
//!
//! Invariant: what was read counts only if the file has not moved or ended meanwhile: its pages may be
//! another's.

use crate::need::{Attempt, Need};
use crate::views::{File, Viewing};
use arck_core_state::PAGE_SIZE;
use rustix::io::Errno;
use std::sync::atomic::{Ordering, fence};

impl Viewing<'_> {
    /// Reads all of a file whose view is up to date; gives its length. EFBIG if there is no room for it.
    #[inline]
    pub fn read_whole(&self, file: File, bytes: &mut [u8]) -> Attempt<usize> {
        let seen = self.seen(&file);
        let read = self.read_as_it_is(file, bytes);
        // Not even a failure counts if it was found in a mixture of states, or of files.
        fence(Ordering::Acquire);
        self.unmoved_since(&file, seen)?;
        match self.seen(&file) == seen {
            true => read,
            false => Err(Need::Again.into()),
        }
    }

    #[inline]
    fn read_as_it_is(&self, file: File, bytes: &mut [u8]) -> Attempt<usize> {
        let size = file.size.load(Ordering::Acquire);
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let parts = bytes.get_mut(..size).ok_or(Errno::FBIG)?;
        for (page, part) in (0..).zip(parts.chunks_mut(PAGE_SIZE as usize)) {
            let page = self.data_page(file, page)?;
            if page.is_null() {
                part.fill(0);
                continue;
            }
            let Some(bytes) = self.session.page_bytes(page) else {
                return Err(self.lost(&file));
            };
            bytes.try_copy_to(0, part).map_err(|error| error.errno())?;
        }
        Ok(size)
    }
}
