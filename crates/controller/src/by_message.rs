//! Reading by message: what a session may read and cannot map.
//!
//! Two kinds of files are read so. One was open when the right to read it went away: the one who has
//! it open reads on, as POSIX has it, and what is in it has moved to where he cannot follow. The
//! other has no class that the session could be in (there are too many, or no room for it).
//!
//! # Invariants
//! * A right that a session keeps ([`Kept`]) is one that its user had when it went away, of an inode
//!   that the session listed as open then; it ends when no session of that user lists the inode any
//!   more.
//! * What was *shown* to a session is an inode to which it has asked the way, by a directory that it
//!   could search; until the way is closed.
//! * No data is mapped for longer than one answer takes, and it is copied guarded: the session that
//!   wrote it may cut its file off.

use crate::classes::Class;
use crate::core::Core;
use crate::fold::{After, heavy_barrier};
use crate::ownership::Reply;
use crate::pool::numbered;
use crate::state::State;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, Inode, InodeNumber, PAGE_SIZE, PagePtr, layout};
use arck_pm::{MapOptions, Mapping};
use arck_protocol::Response;
use arck_protocol::control::open_entry;
use arck_protocol::message::READ_MAX;
use arck_verifier::{Credentials, VerifiedState};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

/// Inodes shown to sessions; when there are more, all have to ask the way again.
const SHOWN_MAX: usize = 4096;
/// Inodes of which rights are kept; beyond that they go at once.
const KEPT_MAX: usize = 1 << 16;

/// Rights of an inode that went away while it was open.
#[derive(Default)]
pub(crate) struct Kept {
    generation: u32,
    /// By user: 4 = read, 2 = write.
    users: BTreeMap<u32, u32>,
}

/// What is served by message, to whom.
#[derive(Default)]
pub(crate) struct ByMessage {
    kept: HashMap<InodeNumber, Kept>,
    shown: HashMap<InodeNumber, Vec<SessionNumber>>,
}

/// Which sessions list which inodes as open.
pub(crate) type Openers = HashMap<u64, Vec<SessionNumber>>;

impl ByMessage {
    pub fn forget_session(&mut self, session: SessionNumber) {
        self.shown.retain(|_, sessions| {
            sessions.retain(|&other| other != session);
            !sessions.is_empty()
        });
    }

    fn rights(&self, number: InodeNumber, generation: u32, uid: u32) -> u32 {
        let kept = self.kept.get(&number);
        let kept = kept.filter(|kept| kept.generation == generation);
        kept.and_then(|kept| kept.users.get(&uid).copied())
            .unwrap_or(0)
    }
}

impl Core {
    /// Which sessions list which inodes as open, now.
    pub(crate) fn openers(&self) -> Openers {
        heavy_barrier();
        let mut openers = Openers::new();
        for session in self.sessions.values() {
            let Some(live) = &session.live else { continue };
            for entry in live.control().opens() {
                let entry = entry.load(Ordering::Acquire);
                if entry != 0 {
                    let sessions = openers.entry(entry).or_default();
                    if sessions.last() != Some(&session.number) {
                        sessions.push(session.number);
                    }
                }
            }
        }
        openers
    }

    /// An inode whose place is not of a class that a session is in, to which it knows the way.
    pub(crate) fn show(&mut self, session: SessionNumber, number: InodeNumber) {
        let shown = &mut self.by_message.shown;
        if shown.len() >= SHOWN_MAX && !shown.contains_key(&number) {
            shown.clear();
        }
        let sessions = shown.entry(number).or_default();
        if !sessions.contains(&session) {
            sessions.push(session);
        }
    }

    /// What a session has made, and there was no room for in a class that it is in: it knows the way.
    pub(crate) fn show_born(&mut self, session: SessionNumber, born: &[InodeNumber]) {
        if !self.state.space.shared {
            return;
        }
        let Some(who) = self.sessions.get(&session).map(|s| s.credentials.clone()) else {
            return;
        };
        for &number in born {
            let is_alive = self.state.is_alive(number);
            if is_alive && !self.state.admits(self.state.label_of_inode(number), &who) {
                self.show(session, number);
            }
        }
    }

    /// Of a closing: whether what is known here of an inode may have to change, whatever its class.
    pub(crate) fn is_shown(&self, number: InodeNumber) -> bool {
        self.by_message.shown.contains_key(&number)
    }

    /// An inode is about to be closed: to be for those in `place`, and of them for those whom it
    /// lets read and write it as it is now. Those who have it open and could before keep what
    /// they had; `old` is the inode as it was.
    pub(crate) fn keep_rights(
        &mut self,
        openers: &Openers,
        old: &Inode,
        inode: &Inode,
        place: Option<&Class>,
    ) {
        let number = inode.number;
        let label = self.state.label_of_inode(number);
        let is_orphan = self.state.orphans.contains(&number);
        let shown = self.by_message.shown.remove(&number).unwrap_or_default();
        let entry = open_entry(number, inode.generation);
        let none = Vec::new();
        let listing = openers.get(&entry).unwrap_or(&none);
        for session in shown.iter().chain(listing) {
            let Some(who) = self.sessions.get(session).map(|s| &s.credentials) else {
                continue;
            };
            if self.state.is_privileged(who) {
                continue;
            }
            let could_reach = match is_orphan {
                true => self.state.may_reach(who, number),
                false => self.state.admits(label, who) || shown.contains(session),
            };
            let can_reach = match is_orphan {
                true => could_reach,
                false => place.is_some_and(|place| place.admits(who)),
            };
            let uid = who.uid;
            let had = self.by_message.rights(number, inode.generation, uid);
            let had = had | if could_reach { bits(who, old) } else { 0 };
            let has = if can_reach { bits(who, inode) } else { 0 };
            if can_reach && shown.contains(session) {
                self.show(*session, number);
            }
            if had & !has == 0 || !listing.contains(session) {
                continue;
            }
            let kept = &mut self.by_message.kept;
            if kept.len() >= KEPT_MAX && !kept.contains_key(&number) {
                continue;
            }
            let kept = kept.entry(number).or_default();
            if kept.generation != inode.generation {
                *kept = Kept {
                    generation: inode.generation,
                    ..Kept::default()
                };
            }
            *kept.users.entry(uid).or_default() |= had & !has;
        }
    }

    /// Forgets rights that were kept of what is not open any more.
    pub(crate) fn forget_kept(&mut self) {
        if self.by_message.kept.is_empty() {
            return;
        }
        let openers = self.openers();
        let sessions = &self.sessions;
        self.by_message.kept.retain(|&number, kept| {
            let listing = openers.get(&open_entry(number, kept.generation));
            kept.users.retain(|&uid, _| {
                let of_user = |session| {
                    sessions
                        .get(session)
                        .is_some_and(|s| s.credentials.uid == uid)
                };
                listing.is_some_and(|listing| listing.iter().any(of_user))
            });
            !kept.users.is_empty()
        });
    }

    /// Users who keep a right of an inode.
    pub(crate) fn keeps(&self, who: &Credentials, number: InodeNumber) -> bool {
        let generation = self.state.header_copy(number).map(|h| h.generation);
        generation
            .is_some_and(|generation| self.by_message.rights(number, generation, who.uid) != 0)
    }

    /// Whether a session may have an inode's attributes (`wanted` 0) or contents (4) by message.
    /// ESTALE, EACCES.
    fn may_be_told(
        &self,
        session: SessionNumber,
        number: InodeNumber,
        wanted: u32,
    ) -> Result<Inode, Errno> {
        let session = self.sessions.get(&session).ok_or(Errno::NOENT)?;
        let who = &session.credentials;
        let inode = *self.state.shadow(number).ok_or(Errno::STALE)?;
        let shown = self.by_message.shown.get(&number);
        let may_reach = self.state.may_reach(who, number)
            || shown.is_some_and(|shown| shown.contains(&session.number));
        if may_reach && bits(who, &inode) & wanted == wanted {
            return Ok(inode);
        }
        // Right after a directory was made private, what was open in it may not have been looked
        // at yet, and is none of that: then the class of its place counts, as above.
        let kept = self.by_message.rights(number, inode.generation, who.uid);
        let lists = || {
            let control = session.live.as_ref().map(|live| live.control());
            control.is_some_and(|control| control.lists(number, inode.generation))
        };
        if kept != 0 && kept & wanted == wanted && lists() {
            Ok(inode)
        } else {
            Err(Errno::ACCESS)
        }
    }

    /// See [`arck_protocol::Request::Inspect`].
    pub fn inspect(&mut self, session: SessionNumber, number: InodeNumber) -> Reply {
        let told = self.may_be_told(session, number, 0).and_then(|inode| {
            let header = self.state.header_copy(number).ok_or(Errno::STALE)?;
            let mut bytes = header.sequence.to_le_bytes().to_vec();
            bytes.extend_from_slice(inode.as_bytes());
            Ok(bytes)
        });
        match told {
            Ok(bytes) => Reply::Now(Response::Bytes(bytes)),
            Err(errno) => errno.into(),
        }
    }

    /// See [`arck_protocol::Request::Read`].
    pub fn read(
        &mut self,
        session: SessionNumber,
        number: InodeNumber,
        generation: u32,
        position: u64,
        length: u32,
    ) -> Reply {
        match self.try_read(session, number, generation, position, length as usize) {
            Ok(bytes) => Reply::Now(Response::Bytes(bytes)),
            Err(errno) => errno.into(),
        }
    }

    fn try_read(
        &mut self,
        session: SessionNumber,
        number: InodeNumber,
        generation: u32,
        position: u64,
        length: usize,
    ) -> Result<Vec<u8>, Errno> {
        if length > READ_MAX {
            return Err(Errno::INVAL);
        }
        let header = self.state.header_copy(number).ok_or(Errno::STALE)?;
        if header.generation != generation {
            return Err(Errno::STALE);
        }
        self.may_be_told(session, number, 4)?;
        // What the session itself has changed is to be in it; what others have, it has had recalled.
        let own = self.sessions.get(&session).ok_or(Errno::NOENT)?;
        if header.ownership.session() == session && own.has_branch(number, &header) {
            // Refused: the verified state is what there is.
            let _ = self.fold(session, &[number], After::Keep);
        }
        let inode = self.may_be_told(session, number, 4)?;
        if !matches!(inode.kind(), Some(FileKind::File | FileKind::Link)) {
            return Err(Errno::ISDIR);
        }
        let length = inode.size.saturating_sub(position).min(length as u64) as usize;
        let mut bytes = vec![0; length];
        let mut done = 0;
        while done < length {
            let at = position + done as u64;
            let within = (at % PAGE_SIZE) as usize;
            let part = (PAGE_SIZE as usize - within).min(length - done);
            let page = self.state.data_page(number, at / PAGE_SIZE);
            if !page.is_null() {
                copy_out(&self.state, page, within, &mut bytes[done..done + part])?;
            }
            done += part;
        }
        Ok(bytes)
    }
}

/// Which of reading (4) and writing (2) an inode's mode lets a user do.
fn bits(who: &Credentials, inode: &Inode) -> u32 {
    let reads = inode.kind() == Some(FileKind::Link) || who.may(inode, 4);
    (u32::from(reads) * 4) | (u32::from(who.may(inode, 2)) * 2)
}

/// Bytes of a data page. EIO: its session has cut its file off.
fn copy_out(state: &State, page: PagePtr, within: usize, target: &mut [u8]) -> Result<(), Errno> {
    let geometry = state.pool.geometry();
    let name = numbered(layout::SEGMENTS, geometry.segment_of(page));
    let file = state.pool.open_file(&name, OFlags::RDONLY)?;
    let offset = page.address() % geometry.segment_size;
    let mapping = Mapping::new(&file, offset, PAGE_SIZE as usize, MapOptions::READ_ONLY);
    let mapping = mapping.map_err(|error| error.errno())?;
    let copied = mapping.bytes().try_copy_to(within, target);
    copied.map_err(|error| error.errno())
}
