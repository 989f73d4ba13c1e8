//! `fallocate` by message: for who may write a file, or could when he opened it, and cannot own it.
//!
//! # Invariants
//! * One message does so many pages, and each is whole: the file ends behind what has been done, or where it did.
//! * What is known not to fit is not begun.

use crate::core::Core;
use crate::fold::reply::Reply;
use crate::requests::write_by_message::Pages;
use crate::requests::write_together::Together;
use crate::requests::written::{changed, within};
use crate::state::change::Change;
use arck_core_state::geometry::{FILE_SIZE_MAX, SessionNumber};
use arck_core_state::{Inode, InodeNumber, PAGE_SIZE};
use arck_protocol::Response;
use arck_protocol::message::allocation;
use arck_verifier::{Credentials, VerifiedState};
use rustix::io::Errno;
use std::ops::Range;

/// Pages that one message does, so that nobody waits long behind it.
const PAGES: u64 = 256;

/// What is to be done.
#[derive(Clone)]
struct Allocation {
    range: Range<u64>,
    how: u8,
    keeps_size: bool,
}

impl Allocation {
    fn of((position, length): (u64, u64), how: u8, keeps_size: bool) -> Result<Allocation, Errno> {
        if how > allocation::PUNCH || length == 0 || how == allocation::PUNCH && !keeps_size {
            return Err(Errno::INVAL);
        }
        let end = position.checked_add(length).ok_or(Errno::FBIG)?;
        match end <= FILE_SIZE_MAX {
            true => Ok(Allocation {
                range: position..end,
                how,
                keeps_size,
            }),
            false => Err(Errno::FBIG),
        }
    }

    /// Pages that all of it needs at most, of a file that has some.
    fn needs(&self, inode: &Inode) -> u64 {
        let end = match self.keeps_size {
            true => self.range.end.min(inode.size),
            false => self.range.end,
        };
        let first = self.range.start / PAGE_SIZE;
        match self.how {
            // A part of one at each end.
            allocation::PUNCH => 2,
            allocation::ZERO => end.div_ceil(PAGE_SIZE).saturating_sub(first),
            _ => (end.div_ceil(PAGE_SIZE).saturating_sub(first)).saturating_sub(inode.pages),
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
        keeps_size: bool,
    ) -> Reply {
        let allocation = match Allocation::of(range, how, keeps_size) {
            Ok(allocation) => allocation,
            Err(errno) => return errno.into(),
        };
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
        let inode = self.expect_file(session, file, true)?.0;
        // Of what its owner has changed and nobody has folded nothing is known here: it is found out page by page.
        let space = &self.sessions.state.space;
        if allocation.needs(&inode) > space.pages_free() {
            return Err(Errno::NOSPC);
        }
        let last = (allocation.range.start / PAGE_SIZE + PAGES) * PAGE_SIZE;
        let part = Allocation {
            range: allocation.range.start..allocation.range.end.min(last),
            ..allocation.clone()
        };
        let reached = part.range.end;
        self.change_file(session, file, false, |change, who| {
            allocate(change, file.0, who, &part)
        })?;
        Ok(reached)
    }
}

/// The change.
fn allocate(
    change: &mut Change<'_>,
    number: InodeNumber,
    who: &Credentials,
    part: &Allocation,
) -> Result<(), Errno> {
    let mut inode = change.inode(number).ok_or(Errno::STALE)?;
    change.allocate_for_readers(&inode);
    let mut pages = Pages::new(&inode);
    let size = inode.size;
    let new_size = match part.keeps_size {
        true => size,
        false => size.max(part.range.end),
    };
    let last = size / PAGE_SIZE;
    let end = part.range.end.min(new_size);
    let first = part.range.start / PAGE_SIZE;
    if new_size > size && !size.is_multiple_of(PAGE_SIZE) && last < first {
        // What lies behind the old end becomes a part of the file.
        if !change.state.data_page(number, last).is_null() {
            pages.replace(change, &mut inode, last, |_| {})?;
        }
    }
    for page in first..end.div_ceil(PAGE_SIZE) {
        let range = within(page, part.range.start)..within(page, part.range.end);
        let is_hole = change.state.data_page(number, page).is_null();
        let is_whole =
            range.len() as u64 == PAGE_SIZE || range.start == 0 && part.range.end >= size;
        match part.how {
            allocation::FILL if is_hole => pages.replace(change, &mut inode, page, |_| {})?,
            // What lies behind the old end in it becomes a part of the file.
            allocation::FILL if page == last && new_size > size => {
                pages.replace(change, &mut inode, page, |_| {})?;
            }
            allocation::FILL => {}
            allocation::PUNCH if is_hole => {}
            allocation::PUNCH if is_whole => pages.take(change, &mut inode, page)?,
            _ => pages.replace(change, &mut inode, page, |content| content[range].fill(0))?,
        }
    }
    inode.root = pages.root();
    inode.size = new_size;
    changed(change, inode, who);
    Ok(())
}
