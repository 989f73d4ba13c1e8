//! Writing by message what sessions have mapped together ([`super::map_together`]): in place, so that every map shows it.
//!
//! # Invariants
//! * A page that is there already gets the bytes where it is, before the change that says so: a reader may see a part of
//!   such a write, and so may whoever recovers it, as with a write of an owner.
//! * What is between the old end of the file and the bytes is zero, whatever was stored behind the end through maps.
//! * Sessions can write the segments and cut their files off: they are reached by accesses that may fail, and by no call
//!   that waits for a file's lock, which a session can hold.

use crate::core::Core;
use crate::fold::pages::Copier;
use crate::fold::reply::Reply;
use crate::requests::written::{Place, changed, within};
use crate::state::apply::file::{Setter, truncate};
use crate::state::change::Change;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{InodeNumber, PAGE_BYTES, PAGE_SIZE};
use arck_protocol::Response;
use arck_protocol::message::Written;
use arck_verifier::{Credentials, VerifiedState};
use rustix::io::Errno;
use std::time::Instant;

/// Whether sessions have a file mapped together.
pub enum Together {
    Yes,
    No,
    /// It is on its way to its owners.
    Until(Instant),
}

impl Core {
    /// Whether a file that a session may write is together, and somebody has a writable map of it: else it is so no longer, or on
    /// its way to that until then.
    pub(super) fn is_together(
        &mut self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
    ) -> Result<Together, Errno> {
        let inode = self.may_write(session, (number, generation))?;
        if !inode.is_together() {
            return Ok(Together::No);
        }
        self.take_mediated(&inode)?;
        match self.access().end_together(number, None) {
            Ok(None) => Ok(Together::No),
            Ok(Some(due)) => Ok(Together::Until(due)),
            Err(Errno::TXTBSY) => Ok(Together::Yes),
            Err(errno) => Err(errno),
        }
    }

    /// See [`Core::write`].
    pub(super) fn write_together(
        &mut self,
        session: SessionNumber,
        file: (InodeNumber, u32),
        position: Option<u64>,
        bytes: &[u8],
    ) -> Reply {
        let mut end = 0;
        let keeps_other = self.sessions.has_unanswered(session);
        // Its owner may have taken the right away.
        let written = self.may_write(session, file).and_then(|_| {
            self.change_file(session, file, false, |change, who| {
                end = put(change, file, who, position, bytes)?;
                if !keeps_other {
                    change.completes_request();
                }
                Ok(())
            })
        });
        let is_mediated = true;
        match written {
            Ok(()) => Reply::Now(Response::Bytes(Written { end, is_mediated }.encode())),
            Err(errno) => errno.into(),
        }
    }
}

/// The change of a length.
pub(super) fn cut(
    change: &mut Change<'_>,
    file: (InodeNumber, u32),
    who: &Credentials,
    size: u64,
) -> Result<(), Errno> {
    let mut inode = change.inode(file.0).ok_or(Errno::STALE)?;
    let last = inode.size / PAGE_SIZE;
    let gap = within(last, inode.size)..within(last, size.max(inode.size));
    if size < inode.size {
        let limit = size.div_ceil(PAGE_SIZE);
        let (root, dropped) = truncate(change, file.0, inode.root, limit)?;
        inode.root = root;
        inode.pages = inode.pages.saturating_sub(dropped);
    } else if !gap.is_empty() {
        // What was stored there through maps was nobody's.
        let page = change.state.data_page(file.0, last);
        if !page.is_null() {
            let zeroes = [0; PAGE_BYTES];
            Copier::default().write_reached(change.state, page, gap.start, &zeroes[gap])?;
        }
    }
    inode.size = size;
    changed(change, inode, who);
    Ok(())
}

/// The change of a write; gives the position behind the bytes.
fn put(
    change: &mut Change<'_>,
    file: (InodeNumber, u32),
    who: &Credentials,
    position: Option<u64>,
    bytes: &[u8],
) -> Result<u64, Errno> {
    let mut inode = change.inode(file.0).ok_or(Errno::STALE)?;
    let size = inode.size;
    let place = Place::of(size, position, bytes)?;
    change.allocate_for_readers(&inode);
    let mut setter = Setter::new(inode.root);
    let mut in_place = Copier::default();
    // All pages that are not there yet, before any byte is stored where others see it.
    let mut pages = Vec::new();
    for page in place.pages() {
        let old = change.state.data_page(file.0, page);
        let new = match change.state.space.is_together(old, file) {
            true => None,
            false => Some(change.new_page_together(file, inode.uid)?),
        };
        pages.push((page, old, new));
    }
    for (page, old, new) in pages {
        let (from, part) = place.part(page);
        let Some(new) = new else {
            // What was stored there through maps was nobody's.
            let gap = place.gap(page);
            if !gap.is_empty() {
                let zeroes = [0; PAGE_BYTES];
                in_place.write_reached(change.state, old, gap.start, &zeroes[gap])?;
            }
            if !part.is_empty() {
                in_place.write_reached(change.state, old, from, part)?;
            }
            continue;
        };
        let mut content = in_place.content(change.state, old, within(page, size))?;
        content[from..from + part.len()].copy_from_slice(part);
        in_place.write_reached(change.state, new, 0, &content)?;
        setter.set(change, page, new)?;
        match old.is_null() {
            true => inode.pages += 1,
            false => change.drop_data_page(file.0, old),
        }
    }
    inode.root = setter.root();
    inode.size = size.max(place.end);
    changed(change, inode, who);
    Ok(place.end)
}
