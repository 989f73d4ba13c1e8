//! Writing and cutting by message: what a session may write and cannot own, or of which it cannot see
//! what is around. Its user could write the file when he opened it, and may not any more; or he may write it
//! and not read it. And what sessions that do not trust each other write by turns: a *mediated* file (KucoFS, section 3),
//! which nobody has to own for that.
//!
//! # Invariants
//! * Written by the controller, into pages of its own, in the same change as the inode that leads to
//!   them: whole or not at all, also after a crash. Data is durable before that is.
//! * What others have changed of the file is folded first, in the same change. Of a mediated file before it, and its
//!   owner has it no longer then, when its lease is over: it was that for what no message does.
//! * What lies between the old end of the file and the bytes is zero.

use crate::core::Core;
use crate::fold::pages::Copier;
use crate::fold::reply::Reply;
use crate::requests::write_together::{self, Together};
use crate::requests::written::{self, Place, changed, within};
use crate::state::apply::file::{Setter, truncate};
use crate::state::change::Change;
use crate::state::marks::unmark;
use arck_core_state::geometry::{FILE_SIZE_MAX, SessionNumber};
use arck_core_state::{
    FileKind, IndexRoot, Inode, InodeNumber, Mediation, PAGE_BYTES, PAGE_SIZE, PagePtr,
};
use arck_protocol::Response;
use arck_protocol::control::ATTACHED_MAX;
use arck_protocol::message::Written;
use arck_verifier::Credentials;
use rustix::io::Errno;
use std::time::{Duration, Instant};

impl Core {
    /// See [`arck_protocol::Request::Write`] and [`arck_protocol::Request::WriteAttached`]; `position` none: at the end.
    pub fn write(
        &mut self,
        session: SessionNumber,
        file: (InodeNumber, u32),
        position: Option<u64>,
        bytes: &[u8],
    ) -> Reply {
        if bytes.is_empty() || bytes.len() > ATTACHED_MAX {
            return Errno::INVAL.into();
        }
        // Whoever may not is not let take anything from its owner.
        if let Err(errno) = self.may_write(session, file) {
            return errno.into();
        }
        if let Some(due) = self.put_off(session, file.0) {
            return Reply::Later(due);
        }
        match self.is_together(session, file) {
            Ok(Together::Yes) => return self.write_together(session, file, position, bytes),
            Ok(Together::Until(due)) => return Reply::Later(due),
            Ok(Together::No) => {}
            Err(errno) => return errno.into(),
        }
        match self.try_write(session, file, position, bytes) {
            Ok(written) => Reply::Now(Response::Bytes(written.encode())),
            Err(Errno::BUSY) => self.leave_to_owners(file.0).into(),
            Err(errno) => errno.into(),
        }
    }

    /// A file that a session has mapped is not written by messages, and is not found any more. EBUSY, if nothing worse.
    fn leave_to_owners(&mut self, number: InodeNumber) -> Errno {
        let inode = self.sessions.state.shadow(number);
        let is_found = inode.is_some_and(|inode| inode.mediation() == Mediation::Found);
        let left = match is_found {
            true => self.access().set_mediation(number, Mediation::Auto),
            false => Ok(()),
        };
        left.err().unwrap_or(Errno::BUSY)
    }

    fn try_write(
        &mut self,
        session: SessionNumber,
        file: (InodeNumber, u32),
        position: Option<u64>,
        bytes: &[u8],
    ) -> Result<Written, Errno> {
        let (inode, was_owned) = self.expect_file(session, file)?;
        let mediation = self.stays_mediated(&inode, file, session, was_owned);
        let mut end = 0;
        // Of another one, that was done and is not answered yet, no controller would know any more.
        let keeps_other = self.sessions.has_unanswered(session);
        let is_mediated = inode.mediation().is_mediated();
        self.change_file(session, file, is_mediated, |change, who| {
            end = put(change, file.0, who, position, bytes, mediation)?;
            // Appended twice it would be there twice.
            if !keeps_other {
                change.completes_request();
            }
            Ok(())
        })?;
        if mediation == Mediation::Found {
            self.sessions.mediating.served(file, Instant::now());
        }
        Ok(Written {
            end,
            is_mediated: mediation.is_mediated(),
        })
    }

    /// Until when a write, or a change of names, waits: for sessions that may come back with a map of the file, and for the lease of a mediated
    /// file's owner, which is that for what no message does.
    pub(super) fn put_off(
        &mut self,
        session: SessionNumber,
        number: InodeNumber,
    ) -> Option<Instant> {
        match self.sessions.state.shadow(number)?.goes_by_message() {
            true => self.put_off_for_owner(session, number),
            false => self.sessions.put_off_for_away(),
        }
    }

    /// The same, whatever the file is.
    pub(super) fn put_off_for_owner(
        &mut self,
        session: SessionNumber,
        number: InodeNumber,
    ) -> Option<Instant> {
        let away = self.sessions.put_off_for_away();
        let owner = self.sessions.state.header_copy(number)?.ownership.session();
        match owner == session || owner == 0 {
            true => away,
            false => away.max(self.lease_of_owner(owner, number)),
        }
    }

    /// Until when an inode is its owner's, who is noted to be waited for.
    pub(super) fn lease_of_owner(
        &mut self,
        owner: SessionNumber,
        number: InodeNumber,
    ) -> Option<Instant> {
        let owned = self.sessions.all.get(&owner)?.owned.get(number)?;
        let earned = owned.rest().map_or(Duration::ZERO, |rest| rest.earned);
        let until = owned.since + self.sessions.options.lease.max(earned);
        let lease = (until > Instant::now()).then_some(until);
        if lease.is_some() {
            self.sessions.note_wanted(owner, &[number]);
        }
        lease
    }

    /// See [`arck_protocol::Request::SetMediation`].
    pub fn set_mediation(
        &mut self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
        mediation: u32,
    ) -> Reply {
        self.try_set_mediation(session, (number, generation), mediation)
            .into()
    }

    fn try_set_mediation(
        &mut self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
        mediation: u32,
    ) -> Result<(), Errno> {
        let is_known = Mediation::from_stored(mediation) as u32 == mediation;
        if !is_known || mediation == Mediation::Found as u32 {
            return Err(Errno::INVAL);
        }
        self.sessions.state.header_of(number, generation)?;
        let who = self.sessions.all.get(&session).ok_or(Errno::NOENT)?;
        let inode = self.sessions.state.shadow(number).ok_or(Errno::STALE)?;
        if !self.sessions.state.may_reach(&who.credentials, number) {
            return Err(Errno::ACCESS);
        }
        if !matches!(inode.kind(), Some(FileKind::File | FileKind::Directory)) {
            return Err(Errno::INVAL);
        }
        if !who.credentials.is_root() && who.credentials.uid != inode.uid {
            return Err(Errno::PERM);
        }
        let mediation = Mediation::from_stored(mediation);
        self.access().set_mediation(number, mediation)
    }

    /// A mediated file is nobody's where it is written by message: whoever owned it has done something that no message
    /// does. Whether anybody has: he may have mapped it until then.
    pub(super) fn take_mediated(&mut self, inode: &Inode) -> Result<bool, Errno> {
        let header = self.sessions.state.header_copy(inode.number);
        let owner = header.ok_or(Errno::STALE)?.ownership.session();
        if owner == 0 || !inode.goes_by_message() {
            return Ok(false);
        }
        self.owners().reclaim(owner, &[inode.number])?;
        Ok(true)
    }

    /// See [`arck_protocol::Request::Resize`].
    pub fn resize(&mut self, session: SessionNumber, file: (InodeNumber, u32), size: u64) -> Reply {
        if size > FILE_SIZE_MAX {
            return Errno::FBIG.into();
        }
        // Whoever may not is not let take anything from its owner.
        if let Err(errno) = self.may_write(session, file) {
            return errno.into();
        }
        if let Some(due) = self.put_off(session, file.0) {
            return Reply::Later(due);
        }
        let keeps_other = self.sessions.has_unanswered(session);
        let is_together = match self.is_together(session, file) {
            Ok(Together::Until(due)) => return Reply::Later(due),
            Ok(together) => Ok(matches!(together, Together::Yes)),
            Err(errno) => Err(errno),
        };
        let cut = is_together.and_then(|is_together| {
            if is_together {
                // Its owner may have taken the right away.
                self.may_write(session, file)?;
                return self.change_file(session, file, false, |change, who| {
                    write_together::cut(change, file, who, size)?;
                    if !keeps_other {
                        change.completes_request();
                    }
                    Ok(())
                });
            }
            let (inode, was_owned) = self.expect_file(session, file)?;
            let mediation = self.stays_mediated(&inode, file, session, was_owned);
            self.change_file(session, file, false, |change, who| {
                cut(change, file.0, who, size, mediation)?;
                // What others have written since then would be cut once more.
                if !keeps_other {
                    change.completes_request();
                }
                Ok(())
            })
        });
        if cut.is_ok() {
            self.sessions.state.clear_tail(file.0);
        }
        cut.into()
    }

    /// That a session may write a file, or could when it opened it, as far as that is verified. EACCES, ESTALE; EISDIR, EINVAL for what
    /// is none.
    pub(super) fn may_write(
        &self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
    ) -> Result<Inode, Errno> {
        self.sessions.state.header_of(number, generation)?;
        let inode = self.sessions.may_be_told(session, number, 2)?;
        match inode.kind() {
            Some(FileKind::File) => Ok(inode),
            Some(FileKind::Directory) => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// The same, and that nobody has it mapped; whether somebody had to give a mediated file up for that.
    pub(super) fn expect_file(
        &mut self,
        session: SessionNumber,
        file: (InodeNumber, u32),
    ) -> Result<(Inode, bool), Errno> {
        let inode = self.may_write(session, file)?;
        // What is stored through a map goes to the pages that are there.
        self.sessions.refuse_moving(file.0)?;
        if !self.take_mediated(&inode)? {
            return Ok((inode, false));
        }
        // Its owner may have mapped it, and may have taken the right away.
        self.sessions.refuse_moving(file.0)?;
        Ok((self.may_write(session, file)?, true))
    }

    /// Changes a file. EBUSY: a session has a map of it, and it `must_not_be_mapped`, since each of many writes would
    /// have pages kept for that.
    pub(super) fn change_file(
        &mut self,
        session: SessionNumber,
        (number, _): (InodeNumber, u32),
        must_not_be_mapped: bool,
        mut what: impl FnMut(&mut Change<'_>, &Credentials) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let who = self.sessions.all.get(&session).ok_or(Errno::NOENT)?;
        let who = who.credentials.clone();
        self.freeing().note_kept();
        let keeps = self.sessions.is_mapped_before_change(number);
        if keeps && must_not_be_mapped {
            unmark(&self.sessions.state, [number]);
            return Err(Errno::BUSY);
        }
        self.access().change_inode(number, |change| {
            if keeps {
                change.keep_pages_of(number);
            }
            what(change, &who)
        })
    }
}

/// New pages for some of a file's, made of what was in the old ones.
pub(super) struct Pages {
    setter: Setter,
    copier: Copier,
}

impl Pages {
    pub(super) fn new(inode: &Inode) -> Pages {
        Pages {
            setter: Setter::new(inode.root),
            copier: Copier::default(),
        }
    }

    /// The root of the file's index as it is now.
    pub(super) fn root(&self) -> IndexRoot {
        self.setter.root()
    }

    /// Whether a page is a hole, also by what the same change has folded.
    pub(super) fn is_hole(&mut self, change: &mut Change<'_>, page: u64) -> Result<bool, Errno> {
        Ok(self.setter.get(change, page)?.is_null())
    }

    /// Makes a hole of a page.
    pub(super) fn take(
        &mut self,
        change: &mut Change<'_>,
        inode: &mut Inode,
        page: u64,
    ) -> Result<(), Errno> {
        let old = self.setter.set(change, page, PagePtr::NULL)?;
        if !old.is_null() {
            inode.pages = inode.pages.saturating_sub(1);
            change.drop_data_page(inode.number, old);
        }
        Ok(())
    }

    /// Replaces a page by what `fill` makes of it; what lies behind the file's end is zero then.
    pub(super) fn replace(
        &mut self,
        change: &mut Change<'_>,
        inode: &mut Inode,
        page: u64,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Errno> {
        let new = change.new_data_page()?;
        let old = self.setter.set(change, page, new)?;
        let mut content = [0; PAGE_BYTES];
        if old.is_null() {
            inode.pages += 1;
        } else {
            match change.state.pool.written(old) {
                Some((segment, at)) => {
                    segment.bytes().copy_to(at, &mut content).ok_or(Errno::IO)?
                }
                None => self.copier.read(change.state, old, &mut content)?,
            }
            change.drop_data_page(inode.number, old);
        }
        content[within(page, inode.size)..].fill(0);
        fill(&mut content);
        written::fill(change, new, &content)
    }
}

/// The change of a write; gives the position behind the bytes.
fn put(
    change: &mut Change<'_>,
    number: InodeNumber,
    who: &Credentials,
    position: Option<u64>,
    bytes: &[u8],
    mediation: Mediation,
) -> Result<u64, Errno> {
    let mut inode = change.inode(number).ok_or(Errno::STALE)?;
    let size = inode.size;
    let place = Place::of(size, position, bytes)?;
    change.allocate_for_readers(&inode);
    let mut pages = Pages::new(&inode);
    for page in place.pages() {
        let (from, part) = place.part(page);
        pages.replace(change, &mut inode, page, |content| {
            content[from..from + part.len()].copy_from_slice(part);
        })?;
    }
    // What was written is durable by the first fence of the change, before anything leads to it.
    inode.root = pages.root();
    inode.size = size.max(place.end);
    inode.set_mediation(mediation);
    changed(change, inode, who);
    Ok(place.end)
}

/// The change of a file's length.
fn cut(
    change: &mut Change<'_>,
    number: InodeNumber,
    who: &Credentials,
    size: u64,
    mediation: Mediation,
) -> Result<(), Errno> {
    let mut inode = change.inode(number).ok_or(Errno::STALE)?;
    if size < inode.size {
        let limit = size.div_ceil(PAGE_SIZE);
        let (root, dropped) = truncate(change, number, inode.root, limit)?;
        inode.root = root;
        inode.pages = inode.pages.saturating_sub(dropped);
    } else if size > inode.size && !inode.size.is_multiple_of(PAGE_SIZE) {
        let last = inode.size / PAGE_SIZE;
        let mut pages = Pages::new(&inode);
        if !pages.is_hole(change, last)? {
            change.allocate_for_readers(&inode);
            pages.replace(change, &mut inode, last, |_| {})?;
            inode.root = pages.root();
        }
    }
    inode.size = size;
    inode.set_mediation(mediation);
    changed(change, inode, who);
    Ok(())
}
