//! Extended attributes by message: of what changes by message, and of what a session has open and cannot own or map any more.
//!
//! # Invariants
//! * Whose right counts is as a fold has it ([`extended_refused`]): that of the mode as it is now. What a descriptor keeps is that the
//!   inode can be reached.
//! * All attributes of an inode change in one step, and stand in a page of the controller's own. What was in the old one may be anything, and
//!   is copied before it is looked at.

use crate::core::Core;
use crate::fold::pages::Copier;
use crate::fold::reply::Reply;
use crate::pool::clock::now;
use crate::requests::written;
use crate::state::change::Change;
use arck_core_state::extended::{self, Page};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, Inode, InodeNumber, Mediation, PAGE_BYTES, PagePtr};
use arck_protocol::Response;
use arck_protocol::message::{READ_MAX, extended as how};
use arck_verifier::{Credentials, Rule, extended_refused};
use rustix::io::Errno;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

/// What becomes of an attribute.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    name: &'a [u8],
    /// None: it is taken away.
    value: Option<&'a [u8]>,
    /// Bits of [`how`].
    how: u8,
}

impl<'a> Setting<'a> {
    /// EINVAL: no such name, or no such change.
    pub fn of(name: &'a [u8], how: u8, length: u32, value: &'a [u8]) -> Result<Setting<'a>, Errno> {
        let prefix = extended::PREFIX.as_bytes();
        let is_name = name.starts_with(prefix)
            && name.len() > prefix.len()
            && name.len() <= extended::NAME_MAX
            && !name.contains(&0);
        let is_removed = how & how::REMOVE != 0;
        let known = match is_removed {
            true => how::REMOVE | how::UNSEEN,
            false => how::CREATE | how::REPLACE | how::UNSEEN,
        };
        let is_whole = value.len() == length as usize && (!is_removed || length == 0);
        if how & !known != 0 || !is_name || !is_whole {
            return Err(Errno::INVAL);
        }
        Ok(Setting {
            name,
            value: (!is_removed).then_some(value),
            how,
        })
    }

    fn has(self, bits: u8) -> bool {
        self.how & bits != 0
    }

    /// The attributes after it. EEXIST, ENODATA, E2BIG.
    fn apply(self, page: &Page) -> Result<Page, Errno> {
        match page.get(self.name) {
            Some(_) if self.has(how::CREATE) => Err(Errno::EXIST),
            None if self.has(how::REPLACE | how::REMOVE) => Err(Errno::NODATA),
            _ => page.with(self.name, self.value).ok_or(Errno::TOOBIG),
        }
    }
}

impl Core {
    /// See [`arck_protocol::Request::SetExtended`].
    pub fn set_extended(
        &mut self,
        session: SessionNumber,
        what: (InodeNumber, u32),
        setting: Result<Setting<'_>, Errno>,
    ) -> Reply {
        // Whoever may not is not let take anything from its owner.
        let may = setting.and_then(|setting| {
            self.expect_extended(session, what, setting)?;
            Ok(setting)
        });
        let setting = match may {
            Ok(setting) => setting,
            Err(errno) => return errno.into(),
        };
        // Of whom it is, his lease counts, whatever changes it.
        if let Some(due) = self.put_off_for_owner(session, what.0) {
            return Reply::Later(due);
        }
        self.try_set_extended(session, what, setting).into()
    }

    fn try_set_extended(
        &mut self,
        session: SessionNumber,
        what: (InodeNumber, u32),
        setting: Setting<'_>,
    ) -> Result<(), Errno> {
        let inode = self.expect_extended(session, what, setting)?;
        let was_owned = self.take_mediated(&inode)?;
        // Its owner may have changed that.
        let inode = self.expect_extended(session, what, setting)?;
        let who = self.sessions.who(session)?;
        let mediation = match inode.goes_by_message() {
            true => self.stays_mediated(&inode, what, session, was_owned),
            false => inode.mediation(),
        };
        // What others have set since then would be set back.
        let keeps_other = self.sessions.has_unanswered(session);
        self.access().change_inode(what.0, |change| {
            set(change, what.0, &who, setting, mediation)?;
            if !keeps_other {
                change.completes_request();
            }
            Ok(())
        })?;
        if mediation == Mediation::Found {
            self.sessions.mediating.served(what, Instant::now());
        }
        Ok(())
    }

    /// That a session may change extended attributes of an inode by message. EACCES, EPERM, ESTALE; EBUSY: it can own it for that.
    fn expect_extended(
        &self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
        setting: Setting<'_>,
    ) -> Result<Inode, Errno> {
        self.sessions.state.header_of(number, generation)?;
        // A descriptor keeps that it can be reached, and nothing of what its mode says.
        let inode = self.sessions.may_be_told(session, number, 0)?;
        let who = self.sessions.who(session)?;
        may_set(&who, &inode)?;
        // Whose it is, he is to do it without a message.
        let owns_it_for_that = !setting.has(how::UNSEEN)
            && !inode.goes_by_message()
            && who.may(&inode, 4)
            && self.sessions.check_own(session, number).is_ok();
        match owns_it_for_that {
            true => Err(Errno::BUSY),
            false => Ok(inode),
        }
    }

    /// See [`arck_protocol::Request::Extended`].
    pub fn extended(
        &mut self,
        session: SessionNumber,
        what: (InodeNumber, u32),
        position: u32,
        names: bool,
    ) -> Reply {
        match self.try_extended(session, what, position as usize, names) {
            Ok(bytes) => Reply::Now(Response::Bytes(bytes)),
            Err(errno) => errno.into(),
        }
    }

    fn try_extended(
        &mut self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
        position: usize,
        names: bool,
    ) -> Result<Vec<u8>, Errno> {
        if position >= PAGE_BYTES {
            return Err(Errno::INVAL);
        }
        let wanted = if names { 0 } else { 4 };
        let header = self.sessions.state.header_of(number, generation)?;
        self.sessions.may_be_told(session, number, 0)?;
        self.fold_own(session, number, &header)?;
        let inode = self.sessions.may_be_told(session, number, 0)?;
        if !self.sessions.who(session)?.may(&inode, wanted) {
            return Err(Errno::ACCESS);
        }
        let mut page = Page::default();
        if !inode.attributes.is_null() {
            Copier::default().read(&self.sessions.state, inode.attributes, &mut page.0)?;
        }
        if names {
            page = page.names();
        }
        let used = &page.0[..page.length()];
        let mut hasher = DefaultHasher::new();
        used.hash(&mut hasher);
        let mut told = hasher.finish().to_le_bytes().to_vec();
        let end = used.len().min(position + READ_MAX - told.len());
        told.extend_from_slice(used.get(position..end).unwrap_or(&[]));
        Ok(told)
    }
}

/// That a user may set extended attributes, by the rule of a fold. EACCES, EPERM.
fn may_set(who: &Credentials, inode: &Inode) -> Result<(), Errno> {
    let has_some = matches!(inode.kind(), Some(FileKind::File | FileKind::Directory));
    match extended_refused(who, inode) {
        None if has_some => Ok(()),
        Some(Rule::WritePermission) if has_some => Err(Errno::ACCESS),
        _ => Err(Errno::PERM),
    }
}

/// The change.
fn set(
    change: &mut Change<'_>,
    number: InodeNumber,
    who: &Credentials,
    setting: Setting<'_>,
    mediation: Mediation,
) -> Result<(), Errno> {
    let mut inode = change.inode(number).ok_or(Errno::STALE)?;
    // What its owner had changed of that has just been folded.
    may_set(who, &inode)?;
    let mut page = Page::default();
    if !inode.attributes.is_null() {
        Copier::default().read(change.state, inode.attributes, &mut page.0)?;
    }
    let page = setting.apply(&page)?;
    let new = match page.is_empty() {
        true => PagePtr::NULL,
        false => {
            change.allocate_for_readers(&inode);
            let new = change.new_data_page()?;
            written::fill(change, new, &page.0)?;
            new
        }
    };
    if !inode.attributes.is_null() {
        change.set_data_page_used(inode.attributes, false);
    }
    inode.attributes = new;
    inode.changed = now();
    inode.set_mediation(mediation);
    change.set_inode(inode);
    change.note_attributes(number);
    Ok(())
}
