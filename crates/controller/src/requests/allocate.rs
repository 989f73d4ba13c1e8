//! `fallocate` by message: for who may write a file, or could when he opened it, and cannot own it.
//!
//! # Invariants
//! * The file ends where it did: who wants it longer has said so before, and what others write behind that is not touched.
//! * One message does so many pages, each whole.
//! * What is known not to fit is not begun.

use crate::core::Core;
use crate::fold::reply::Reply;
use crate::requests::write_by_message::Pages;
use crate::requests::write_together::Together;
use crate::requests::written::{changed, within};
use crate::sessions::allocating;
use crate::state::change::Change;
use arck_core_state::geometry::{FILE_SIZE_MAX, SessionNumber};
use arck_core_state::{Inode, InodeNumber, PAGE_SIZE};
use arck_protocol::Response;
use arck_protocol::message::allocation;
use arck_verifier::Credentials;
use rustix::io::Errno;
use std::ops::Range;

/// Holes that it passes where it makes holes.
const HOLES: u64 = 8192;

/// What is to be done.
#[derive(Clone)]
struct Allocation {
    range: Range<u64>,
    how: u8,
}

impl Allocation {
    fn of((position, length): (u64, u64), how: u8) -> Result<Allocation, Errno> {
        if how > allocation::PUNCH || length == 0 {
            return Err(Errno::INVAL);
        }
        let end = position.checked_add(length).ok_or(Errno::FBIG)?;
        match end <= FILE_SIZE_MAX {
            true => Ok(Allocation {
                range: position..end,
                how,
            }),
            false => Err(Errno::FBIG),
        }
    }

    /// Pages that all of it needs at least, of a file that has some.
    fn needs(&self, inode: &Inode) -> u64 {
        let end = self.range.end.min(inode.size).div_ceil(PAGE_SIZE);
        let pages = end.saturating_sub(self.range.start / PAGE_SIZE);
        match self.how {
            allocation::PUNCH => 0,
            _ => pages.saturating_sub(inode.pages),
        }
    }
}

impl Core {
    /// See [`arck_protocol::Request::Allocate`].
    pub fn allocate(
        &mut self,
        session: SessionNumber,
        file: (InodeNumber, u32),
        range: (u64, u64),
        how: u8,
    ) -> Reply {
        let allocation = match Allocation::of(range, how) {
            Ok(allocation) => allocation,
            Err(errno) => return errno.into(),
        };
        // Whoever may not is not let take anything from its owner.
        if let Err(errno) = self.may_write(session, file) {
            return errno.into();
        }
        if let Some(due) = self.put_off(session, file.0) {
            return Reply::Later(due);
        }
        match self.is_together(session, file) {
            Ok(Together::No) => {}
            Ok(Together::Yes) => return Errno::BUSY.into(),
            Ok(Together::Until(due)) => return Reply::Later(due),
            Err(errno) => return errno.into(),
        }
        match self.try_allocate(session, file, &allocation) {
            Ok(reached) => Reply::Now(Response::Bytes(reached.to_le_bytes().to_vec())),
            Err(errno) => errno.into(),
        }
    }

    fn try_allocate(
        &mut self,
        session: SessionNumber,
        file: (InodeNumber, u32),
        allocation: &Allocation,
    ) -> Result<u64, Errno> {
        let inode = self.expect_file(session, file)?.0;
        if allocation.needs(&inode) > self.sessions.state.space.pages_free() {
            return Err(Errno::NOSPC);
        }
        let is_paged = self.sessions.state.pool.is_paged();
        let mut reached = 0;
        // What others have written since then would be zeroed once more.
        let keeps_other = self.sessions.has_unanswered(session);
        self.change_file(session, file, false, |change, who| {
            reached = allocate(change, file.0, who, allocation, is_paged)?;
            if !keeps_other {
                change.completes_request();
            }
            Ok(())
        })?;
        Ok(reached)
    }
}

/// The change; gives up to where it has come.
fn allocate(
    change: &mut Change<'_>,
    number: InodeNumber,
    who: &Credentials,
    allocation: &Allocation,
    is_paged: bool,
) -> Result<u64, Errno> {
    let mut inode = change.inode(number).ok_or(Errno::STALE)?;
    change.allocate_for_readers(&inode);
    let mut pages = Pages::new(&inode);
    let Range { start, end } = allocation.range;
    let first = start / PAGE_SIZE;
    let last = end.min(inode.size).div_ceil(PAGE_SIZE);
    let is_hole_made = allocation.how == allocation::PUNCH;
    let mut left = allocating::pages(is_paged);
    let mut page = first;
    while page < last && left > 0 && page - first < HOLES {
        let range = within(page, start)..within(page, end);
        let is_hole = pages.is_hole(change, page)?;
        // What is behind the file's end is zero.
        let is_whole = range.start == 0 && range.end >= within(page, inode.size);
        match allocation.how {
            allocation::FILL if !is_hole => {}
            allocation::PUNCH if is_hole => {}
            allocation::PUNCH if is_whole => pages.take(change, &mut inode, page)?,
            _ => pages.replace(change, &mut inode, page, |content| content[range].fill(0))?,
        }
        left -= u64::from(!(is_hole && is_hole_made));
        page += 1;
    }
    inode.root = pages.root();
    let is_done = page >= last || inode.pages == 0 && is_hole_made;
    changed(change, inode, who);
    Ok(if is_done { end } else { page * PAGE_SIZE })
}
