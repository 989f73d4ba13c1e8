//! Writable shared maps of one file by several sessions (DESIGN section 9).
//!
//! A session's own maps show pages that it alone may write, and nobody else becomes the file's owner meanwhile. Of a file that
//! others may write as well, the pages are brought to segments that have nothing else in them before the first such map
//! is placed, and whoever may write the file is sent those to write. It is *together* then ([`arck_core_state::TOGETHER`]):
//! nobody owns it, what writes and cuts it goes by message, and [in place](super::write_together).
//!
//! # Invariants
//! * Whoever was sent such a segment to write could write the file when he was. Where he no longer may, or nobody has a map
//!   of the file any more, nothing is put there and nobody is sent it any more ([`crate::access::together`]); and what is
//!   there moves before anybody relies on it.
//! * A session lists a map, fences, and then looks whether the header is marked; here the header is marked before the tables
//!   of maps are read. So a file does not cease to be together while somebody is placing a map of it.
//! * A page that is brought there is copied in the same change. Nobody stores to it where it was: no session has a
//!   writable map of another kind, and its owner has given it up.

use crate::core::Core;
use crate::fold::pages::{Copier, shown};
use crate::fold::reply::Reply;
use crate::state::apply::file::Setter;
use crate::state::change::Change;
use crate::state::marks::unmark;
use crate::state::tables::State;
use arck_controller_state::segments::{SegmentEntry, TOGETHER};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, Inode, InodeNumber, PAGE_SIZE};
use arck_protocol::Response;
use arck_verifier::{Credentials, VerifiedState};
use rustix::io::Errno;

/// Pages that one request brings, so that nobody waits long behind it.
const PAGES: u64 = 256;
/// And those that it looks at, most of which may be there already.
const LOOKED_AT: u64 = 8192;

impl Core {
    /// See [`arck_protocol::Request::MapTogether`].
    pub fn map_together(
        &mut self,
        session: SessionNumber,
        file: (InodeNumber, u32),
        first: u64,
        count: u64,
    ) -> Reply {
        if let Some(due) = self.put_off_for_owner(session, file.0) {
            return Reply::Later(due);
        }
        match self.try_map_together(session, file, first, count) {
            Ok(done) => Reply::Now(Response::Bytes(done.to_le_bytes().to_vec())),
            Err(errno) => errno.into(),
        }
    }

    fn try_map_together(
        &mut self,
        session: SessionNumber,
        file: (InodeNumber, u32),
        first: u64,
        count: u64,
    ) -> Result<u64, Errno> {
        let (number, generation) = file;
        let header = self.sessions.state.header_of(number, generation)?;
        if header.kind == HeaderKind::Granted {
            // Of one that is not committed nobody else knows.
            return Err(Errno::OPNOTSUPP);
        }
        if !self.sessions.may_open(session, number, 0o6) {
            return Err(Errno::ACCESS);
        }
        let end = first.checked_add(count).ok_or(Errno::INVAL)?;
        let inode = self.sessions.state.shadow(number).copied();
        if inode.is_some_and(|inode| inode.kind() != Some(FileKind::File)) {
            return Err(Errno::INVAL);
        }
        let is_together = inode.is_some_and(|inode| inode.is_together());
        if !is_together && self.sessions.is_mapped_writable(0, number) {
            // Its own are of another kind, too: all of them are.
            let is_others = self.sessions.is_mapped_writable(session, number);
            return Err(if is_others {
                Errno::TXTBSY
            } else {
                Errno::OPNOTSUPP
            });
        }
        let owner = header.ownership.session();
        if owner != 0 {
            self.owners().reclaim(owner, &[number])?;
        }
        // It has just begun to be left, perhaps: from its beginning again, when that is so.
        self.sessions.leaving.remove(&number);
        let inode = self.sessions.state.shadow(number).copied();
        let inode = inode.ok_or(Errno::STALE)?;
        if !is_together && !self.may_be_together(session, &inode) {
            return Err(Errno::OPNOTSUPP);
        }
        let end = end.min(inode.size.div_ceil(PAGE_SIZE));
        self.freeing().note_kept();
        // Nothing is filled that cannot be.
        let there = if is_together { inode.pages } else { 0 };
        let space = &self.sessions.state.space;
        let unused: u64 = space
            .together(file)
            .map(|(segment, _)| space.unused_in(segment))
            .sum();
        if end.saturating_sub(first).saturating_sub(there) > unused + space.grantable() {
            return Err(Errno::NOSPC);
        }
        let keeps = self.sessions.is_mapped_before_change(number);
        if !is_together && keeps && self.sessions.is_mapped_writable(0, number) {
            unmark(&self.sessions.state, [number]);
            return Err(Errno::TXTBSY);
        }
        let mut done = first.min(end);
        self.access().change_inode(number, |change| {
            if keeps {
                change.keep_pages_of(number);
            }
            done = bring(change, file, first, end, is_together)?;
            Ok(())
        })?;
        Ok(done)
    }

    /// Whether a file is to be mapped in this way: where others than this session may write it.
    fn may_be_together(&self, session: SessionNumber, inode: &Inode) -> bool {
        let Some(asking) = self.sessions.all.get(&session) else {
            return false;
        };
        let others_may = inode.mode & 0o022 != 0 || asking.credentials.uid != inode.uid;
        others_may && self.sessions.state.space.shared
    }
}

/// Brings pages of a file to where they are together; gives the first that is not there yet, or `end`.
fn bring(
    change: &mut Change<'_>,
    file: (InodeNumber, u32),
    first: u64,
    end: u64,
    is_together: bool,
) -> Result<u64, Errno> {
    let mut inode = change.inode(file.0).ok_or(Errno::STALE)?;
    let label = change.allocate_for_readers(&inode);
    let mut setter = Setter::new(inode.root);
    let mut in_place = Copier::default();
    let (mut page, mut left) = (first, PAGES);
    let end = end.min(first.saturating_add(LOOKED_AT));
    while page < end && left != 0 {
        let old = change.state.data_page(file.0, page);
        let space = &change.state.space;
        // What is mapped stays where it is.
        let is_there = match is_together {
            true => space.is_together(old, file),
            false => space.is_together_as(old, file, label),
        };
        if !is_there {
            let new = change.new_page_together(file, inode.uid)?;
            let bytes = in_place.content(change.state, old, shown(page, inode.size))?;
            in_place.write_reached(change.state, new, 0, &bytes)?;
            setter.set(change, page, new)?;
            match old.is_null() {
                true => inode.pages += 1,
                false => change.drop_data_page(file.0, old),
            }
            left -= 1;
        }
        page += 1;
    }
    inode.root = setter.root();
    inode.mediation |= arck_core_state::TOGETHER;
    change.set_inode(inode);
    Ok(page)
}

impl State {
    /// Whether somebody may be sent a segment to write that is not his own.
    pub fn may_write_together(&self, who: &Credentials, entry: &SegmentEntry) -> bool {
        if entry.flags & TOGETHER == 0 || self.header_of(entry.file, entry.generation).is_err() {
            return false;
        }
        self.inode(entry.file).is_some_and(|inode| {
            inode.is_together()
                && (who.uid == inode.uid || who.may(&inode, 0o6))
                && self.may_reach(who, entry.file)
        })
    }
}
