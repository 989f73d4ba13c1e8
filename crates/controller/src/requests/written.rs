//! What all changes of a file's contents by message have in common.
//!
//! Invariant: whoever writes a file without being its owner leaves it as its owner's write would have.

use crate::pool::clock::now;
use crate::state::change::Change;
use arck_core_state::geometry::FILE_SIZE_MAX;
use arck_core_state::{Inode, PAGE_BYTES, PAGE_SIZE, PagePtr, cast};
use arck_verifier::Credentials;
use rustix::io::Errno;
use std::ops::Range;

/// Where in a page a position of the file is, or that it ends before or behind it.
pub(super) fn within(page: u64, position: u64) -> usize {
    position.saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE) as usize
}

/// Where bytes come into a file.
pub(super) struct Place<'b> {
    /// The file's end before.
    size: u64,
    position: u64,
    pub(super) end: u64,
    bytes: &'b [u8],
}

impl<'b> Place<'b> {
    /// At a position, or at the end. EFBIG.
    pub(super) fn of(
        size: u64,
        position: Option<u64>,
        bytes: &'b [u8],
    ) -> Result<Place<'b>, Errno> {
        let position = position.unwrap_or(size);
        let end = position.saturating_add(bytes.len() as u64);
        if end > FILE_SIZE_MAX {
            return Err(Errno::FBIG);
        }
        Ok(Place {
            size,
            position,
            end,
            bytes,
        })
    }

    /// The pages that change: the last one, of which what lies behind the end is zero from now on, and those written.
    pub(super) fn pages(&self) -> impl Iterator<Item = u64> + use<> {
        let last = self.size / PAGE_SIZE;
        let written = self.position / PAGE_SIZE..=(self.end - 1) / PAGE_SIZE;
        let is_cleared = self.position > self.size && !self.size.is_multiple_of(PAGE_SIZE);
        let last = (is_cleared && !written.contains(&last)).then_some(last);
        last.into_iter().chain(written)
    }

    /// What comes into a page, and where in it.
    pub(super) fn part(&self, page: u64) -> (usize, &'b [u8]) {
        let (from, to) = (within(page, self.position), within(page, self.end));
        if from >= to {
            return (from, &[]);
        }
        let skipped = cast::index(page * PAGE_SIZE + from as u64 - self.position);
        (from, &self.bytes[skipped..skipped + to - from])
    }

    /// Of a page, what lies between the file's end before and the bytes.
    pub(super) fn gap(&self, page: u64) -> Range<usize> {
        within(page, self.size)..within(page, self.position.max(self.size))
    }
}

/// What a new page of the controller's own has in it: durable before anything leads to it, by the first fence of the change.
pub(super) fn fill(
    change: &mut Change<'_>,
    page: PagePtr,
    content: &[u8; PAGE_BYTES],
) -> Result<(), Errno> {
    let (segment, at) = change.state.pool.to_write(page)?;
    let bytes = segment.bytes();
    let stored = bytes.stream(at, content).ok_or(Errno::IO)?;
    change.state.journal.await_fence(stored);
    let range = bytes.slice(at, content.len()).ok_or(Errno::IO)?;
    change.state.pool.write_back(range)
}

/// The rest of a change by `who`.
pub(super) fn changed(change: &mut Change<'_>, mut inode: Inode, who: &Credentials) {
    if let Some(mode) = arck_verifier::mode_after_write(who, &inode) {
        inode.mode = (inode.mode & !0o7777) | mode;
    }
    inode.modified = now();
    inode.changed = inode.modified;
    change.set_inode(inode);
}
