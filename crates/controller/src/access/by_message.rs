//! Reading by message: what a session may read and cannot map.
//!
//! Two kinds of files are read so. One was open when the right to read it went away: the one who has
//! it open reads on, as POSIX has it, and what is in it has moved to where he cannot follow. The
//! other has no class that the session could be in (there are too many, or no room for it).
//!
//! # Invariants
//! * A right that a session keeps ([`KeptRights`]) is one that its user had when it went away, of an
//!   inode that the session listed as open then, or one that he was handed on with a descriptor
//!   ([`crate::handed::descriptions`]); it ends when no session of that user lists the inode any more. One that is
//!   away may list what it likes. No user has more of them than half of what others leave.
//! * What was *shown* to a session is an inode to which it has asked the way, by a directory that it
//!   could search; until the way is closed.
//! * No data is mapped for longer than one answer takes, and it is copied guarded: the session that
//!   wrote it may cut its file off.

use crate::access::kept::KeptRights;
use crate::access::relocate::Copier;
use crate::core::Core;
use crate::fold::folding::{After, heavy_barrier};
use crate::fold::ownership::Reply;
use crate::pool::files::Pool;
use crate::state::classes::Class;
use arck_core_state::PAGE_BYTES;
use arck_core_state::cast;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, Inode, InodeNumber, PAGE_SIZE};
use arck_pm::{MapOptions, Mapping};
use arck_protocol::Response;
use arck_protocol::control::open_entry;
use arck_protocol::message::READ_MAX;
use arck_protocol::socket::{PIECE_MAX, PIECE_OFFSET};
use arck_verifier::{Credentials, VerifiedState};
use foldhash::{HashMap, HashMapExt, HashSet};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Inodes shown to sessions; when there are more, all have to ask the way again.
const SHOWN_MAX: usize = 4096;
/// Places of open tables that are looked at for one user: eight tables that are full. What else he lists
/// keeps him no right, and others not waiting.
const LISTED_MAX: usize = 1 << 20;

/// An inode that is closed in the step under way.
struct Leaving {
    /// Before and after its own rights changed, if they did.
    old: Inode,
    inode: Inode,
    /// Class of the place that it had, and of the one that it is to have.
    from: Option<Class>,
    place: Option<Class>,
    /// It has no name; and who can get at it, if that is known.
    orphan: bool,
    users: Option<BTreeSet<u32>>,
    /// Sessions to which it had been shown.
    shown: Vec<SessionNumber>,
}

impl Leaving {
    fn could_reach(&self, session: SessionNumber, who: &Credentials) -> bool {
        let by_place = || self.from.as_ref().is_some_and(|from| from.admits(who));
        match &self.users {
            Some(users) => users.contains(&who.uid),
            None => by_place() || !self.orphan && self.shown.contains(&session),
        }
    }

    fn can_reach(&self, session: SessionNumber, who: &Credentials) -> bool {
        match self.orphan {
            true => self.could_reach(session, who),
            false => self.place.as_ref().is_some_and(|place| place.admits(who)),
        }
    }
}

/// How long a right that was claimed stays before the session that has claimed it lists the inode.
const CLAIMED: Duration = Duration::from_secs(10);

/// Inode, generation and user.
type Claim = (InodeNumber, u32, u32);

/// Rights that were claimed a moment ago, with descriptors that were handed on: as many as one user may keep,
/// so none is looked for among the others.
#[derive(Default)]
struct Claims {
    since: HashMap<Claim, Instant>,
    /// The oldest first. What was claimed anew stands here again.
    order: VecDeque<(Instant, Claim)>,
}

impl Claims {
    fn note(&mut self, claim: Claim, now: Instant) {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= CLAIMED;
        while let Some((since, oldest)) = self.order.pop_front_if(|(since, _)| is_over(*since)) {
            if self.since.get(&oldest) == Some(&since) {
                self.since.remove(&oldest);
            }
        }
        // It stands in the order twice at most.
        let since = self.since.entry(claim).or_insert(now);
        if *since == now || now.saturating_duration_since(*since) > CLAIMED / 2 {
            *since = now;
            self.order.push_back((now, claim));
        }
    }

    fn has(&self, claim: Claim) -> bool {
        let since = self.since.get(&claim);
        since.is_some_and(|since| since.elapsed() < CLAIMED)
    }
}

/// What is served by message, to whom.
#[derive(Default)]
pub(crate) struct ByMessage {
    kept: KeptRights,
    claimed: Claims,
    leaving: Vec<Leaving>,
    shown: HashMap<InodeNumber, Vec<SessionNumber>>,
}

/// Which sessions list which inodes as open.
type Openers = HashMap<u64, Vec<SessionNumber>>;

impl ByMessage {
    /// With the rights that were kept before, if that `counts`.
    pub fn open(pool: &Pool, counts: bool) -> ByMessage {
        ByMessage {
            kept: KeptRights::open(pool, counts),
            ..ByMessage::default()
        }
    }

    /// Whether any right is kept, which is to be forgotten some time.
    pub fn keeps_any(&self) -> bool {
        !self.kept.is_empty()
    }

    pub fn forget_session(&mut self, session: SessionNumber) {
        self.shown.retain(|_, sessions| {
            sessions.retain(|&other| other != session);
            !sessions.is_empty()
        });
    }
}

impl Core {
    /// Which sessions list which of some entries as open, now. Not root's, which may do everything; and of
    /// each other user no more than [`LISTED_MAX`] places are looked at.
    fn openers(&self, wanted: &HashSet<u64>) -> Openers {
        heavy_barrier();
        let mut openers = Openers::new();
        let mut looked: HashMap<u32, usize> = HashMap::new();
        for session in self.sessions.values() {
            let Some(live) = &session.live else { continue };
            if session.credentials.is_root() {
                continue;
            }
            let looked = looked.entry(session.credentials.uid).or_default();
            let listed = live.control().opens();
            let listed = &listed[..listed.len().min(LISTED_MAX - *looked)];
            *looked += listed.len();
            for entry in listed {
                let entry = entry.load(Ordering::Acquire);
                if entry != 0 && wanted.contains(&entry) {
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
    /// lets read and write it as it is now; `old` is the inode as it was. Those who have it open when
    /// it has moved, and could before, are to keep what they had
    /// ([`keep_rights`](Self::keep_rights)).
    pub(crate) fn note_leaving(&mut self, old: &Inode, inode: &Inode, place: Option<&Class>) {
        let number = inode.number;
        let shown = self.by_message.shown.remove(&number).unwrap_or_default();
        let orphan = self.state.orphans.contains(&number);
        let leaving = Leaving {
            old: *old,
            inode: *inode,
            from: self
                .state
                .classes
                .get(self.state.label_of_inode(number))
                .cloned(),
            place: place.cloned(),
            users: self
                .state
                .orphan_users
                .get(&number)
                .filter(|_| orphan)
                .cloned(),
            orphan,
            shown,
        };
        for &session in &leaving.shown {
            let who = self.sessions.get(&session).map(|s| s.credentials.clone());
            if who.is_some_and(|who| leaving.can_reach(session, &who)) {
                self.show(session, number);
            }
        }
        self.by_message.leaving.push(leaving);
    }

    /// Looks at who has open what has been closed. After it has moved: whoever lists it later finds
    /// that it is not where it was when he looked at his rights, and walks to it again.
    pub(crate) fn keep_rights(&mut self) {
        if self.by_message.leaving.is_empty() {
            return;
        }
        let leaving = self.by_message.leaving.iter();
        let wanted = leaving.map(|of| open_entry(of.inode.number, of.inode.generation));
        let openers = self.openers(&wanted.collect());
        for leaving in std::mem::take(&mut self.by_message.leaving) {
            let (number, generation) = (leaving.inode.number, leaving.inode.generation);
            let Some(listing) = openers.get(&open_entry(number, generation)) else {
                continue;
            };
            for session in listing {
                let Some(who) = self.sessions.get(session).map(|s| &s.credentials) else {
                    continue;
                };
                if self.state.is_privileged(who) {
                    continue;
                }
                let uid = who.uid;
                let could_reach = leaving.could_reach(*session, who);
                let can_reach = leaving.can_reach(*session, who);
                let had = self.by_message.kept.rights(number, generation, uid);
                let had = had
                    | if could_reach {
                        bits(who, &leaving.old)
                    } else {
                        0
                    };
                let has = if can_reach {
                    bits(who, &leaving.inode)
                } else {
                    0
                };
                if had & !has != 0 {
                    let (pool, of) = (&self.state.pool, (number, generation));
                    self.by_message.kept.keep(pool, of, uid, had & !has);
                }
            }
        }
    }

    /// Keeps a right that somebody was handed on: to read (4) and write (2) as `wanted` says, and to
    /// know what it is. ENOBUFS if so many are kept for him that others would have none.
    pub(crate) fn keep_claimed(
        &mut self,
        of: (InodeNumber, u32),
        user: u32,
        wanted: u32,
    ) -> Result<(), Errno> {
        let by_message = &mut self.by_message;
        // A bit that stands for no more than the inode's attributes.
        let rights = wanted | 1;
        if !by_message.kept.keep(&self.state.pool, of, user, rights) {
            return Err(Errno::NOBUFS);
        }
        by_message.claimed.note((of.0, of.1, user), Instant::now());
        Ok(())
    }

    /// Forgets rights that were kept of what is not open any more.
    pub(crate) fn forget_kept(&mut self) {
        if self.by_message.kept.is_empty() {
            return;
        }
        let kept = self.by_message.kept.inodes();
        let wanted = kept.map(|(number, generation)| open_entry(number, generation));
        let openers = self.openers(&wanted.collect());
        let sessions = &self.sessions;
        let pool = &self.state.pool;
        let away = sessions.values().filter(|session| session.is_away);
        let away: BTreeSet<u32> = away.map(|session| session.credentials.uid).collect();
        let mut kept = std::mem::take(&mut self.by_message.kept);
        kept.retain(pool, |number, generation, uid| {
            let listing = openers.get(&open_entry(number, generation));
            let listing = listing.into_iter().flatten();
            let mut listing = listing.filter_map(|session| sessions.get(session));
            listing.any(|session| session.credentials.uid == uid)
                || away.contains(&uid)
                || self.by_message.claimed.has((number, generation, uid))
        });
        self.by_message.kept = kept;
    }

    /// Users who keep a right of an inode.
    pub(crate) fn keeps(&self, who: &Credentials, number: InodeNumber) -> bool {
        let Some(header) = self.state.header_copy(number) else {
            return false;
        };
        let had = |leaving: &Leaving| {
            leaving.inode.number == number
                && leaving.inode.generation == header.generation
                && leaving.could_reach(0, who)
                && bits(who, &leaving.old) != 0
        };
        self.by_message
            .kept
            .rights(number, header.generation, who.uid)
            != 0
            || self.by_message.leaving.iter().any(had)
    }

    /// Whether a session may have an inode's attributes (`wanted` 0) or contents (4) by message, or
    /// write it (2).
    /// ESTALE, EACCES.
    pub(crate) fn may_be_told(
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
        let kept = &self.by_message.kept;
        let kept = kept.rights(number, inode.generation, who.uid);
        let lists = || {
            let control = session.live.as_ref().map(|live| live.control());
            control.is_some_and(|control| control.lists(number, inode.generation))
                || self
                    .by_message
                    .claimed
                    .has((number, inode.generation, who.uid))
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
        let inode = self.may_read_out(session, number, generation)?;
        let length = cast::index(inode.size.saturating_sub(position).min(length as u64));
        let mut bytes = vec![0; length];
        self.read_out(number, position, length, |done, part| {
            bytes[done..done + part.len()].copy_from_slice(part);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// The file of which a session is to be told what is in it, as it is now. ESTALE, EACCES, EISDIR.
    fn may_read_out(
        &mut self,
        session: SessionNumber,
        number: InodeNumber,
        generation: u32,
    ) -> Result<Inode, Errno> {
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
        match inode.kind() {
            Some(FileKind::File | FileKind::Link) => Ok(inode),
            _ => Err(Errno::ISDIR),
        }
    }

    /// Tells what is in a file, a part of a page at a time with its place among the bytes.
    fn read_out(
        &self,
        number: InodeNumber,
        position: u64,
        length: usize,
        mut tell: impl FnMut(usize, &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut copier = Copier::default();
        let mut content = [0; PAGE_BYTES];
        let mut done = 0;
        while done < length {
            let at = position + done as u64;
            let within = (at % PAGE_SIZE) as usize;
            let part = (PAGE_BYTES - within).min(length - done);
            let page = self.state.data_page(number, at / PAGE_SIZE);
            match page.is_null() {
                true => content.fill(0),
                // EIO: its session has cut its file off, or somebody has removed it.
                false => copier.read(&self.state, page, &mut content)?,
            }
            tell(done, &content[within..within + part])?;
            done += part;
        }
        Ok(())
    }

    /// See [`Call::ReadPiece`](arck_protocol::socket::Call::ReadPiece); gives the bytes there are.
    pub fn read_piece(
        &mut self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
        position: u64,
        length: u32,
        piece: &mut Piece,
    ) -> Result<u32, Errno> {
        if length as usize > PIECE_MAX {
            return Err(Errno::INVAL);
        }
        let inode = self.may_read_out(session, number, generation)?;
        let length = cast::low(inode.size.saturating_sub(position).min(u64::from(length)));
        piece.begin();
        self.read_out(number, position, length as usize, |at, part| {
            piece.put(at, part)
        })?;
        piece.end();
        Ok(length)
    }
}

/// Where a connection's pieces are told: a sealed memory file that it may read. It costs what one is long,
/// however many are asked for and kept.
pub struct Piece {
    file: OwnedFd,
    mapping: Mapping,
    number: u64,
}

impl Piece {
    pub fn new() -> Result<Piece, Errno> {
        let file = rustix::fs::memfd_create(
            "arck-piece",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        let length = PIECE_OFFSET + PIECE_MAX;
        rustix::fs::ftruncate(&file, length as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Mapping::new(&file, 0, length, MapOptions::READ_WRITE);
        Ok(Piece {
            file,
            mapping: mapping.map_err(|error| error.errno())?,
            number: 0,
        })
    }

    /// From now on nothing in it is right.
    fn begin(&mut self) {
        self.number += 1;
        self.store_number(0);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    fn put(&self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        let copied = self.mapping.bytes().copy_from(PIECE_OFFSET + at, bytes);
        copied.ok_or(Errno::INVAL)
    }

    fn end(&mut self) {
        self.store_number(self.number);
    }

    fn store_number(&self, number: u64) {
        // In range: its first word.
        let _ = self.mapping.bytes().store_u64(0, number, Ordering::Release);
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// To be sent: a descriptor of its own, that can only be read.
    pub fn descriptor(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::open(path, flags, Mode::empty())
    }
}

/// Which of reading (4) and writing (2) an inode's mode lets a user do.
fn bits(who: &Credentials, inode: &Inode) -> u32 {
    let reads = inode.kind() == Some(FileKind::Link) || who.may(inode, 4);
    (u32::from(reads) * 4) | (u32::from(who.may(inode, 2)) * 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestCore;

    /// Who claimed ten thousand descriptors, and used none, had each further claim look at all of them, and
    /// once a second all of them at each other: everybody waited for seconds.
    #[test]
    fn claims_are_not_looked_for_among_each_other() {
        const CLAIMS: u32 = 30_000;
        let mut test = TestCore::new();
        for user in 0..64 {
            test.session(1000 + user, &[1000 + user]);
        }
        let core = &mut test.core;
        let seconds = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_sec;
        let began = seconds();
        for number in 0..CLAIMS {
            core.keep_claimed((number, 1), 1001, 4).unwrap();
        }
        core.forget_kept();
        let took = seconds() - began;
        assert!(took < 5, "{took} seconds of work");
        let kept = |core: &Core, number| core.by_message.kept.rights(number, 1, 1001);
        assert!((0..CLAIMS).all(|number| kept(core, number) == 5));
        // Nobody lists them, and nobody has claimed them since.
        core.by_message.claimed = Claims::default();
        core.forget_kept();
        assert!(!core.by_message.keeps_any());
    }

    #[test]
    fn a_claim_counts_for_a_while_from_when_it_was_made_last() {
        let mut claims = Claims::default();
        let now = Instant::now();
        let at = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap();
        let (one, other) = ((1, 1, 1001), (1, 1, 1002));
        claims.note(one, at(14));
        claims.note(other, at(12));
        for seconds in [13, 8, 7, 6] {
            claims.note(one, at(seconds));
        }
        assert!(claims.has(one) && !claims.has(other));
        claims.note((2, 1, 1001), now);
        assert!(!claims.since.contains_key(&other));
        assert_eq!((claims.since.len(), claims.order.len()), (2, 2));
    }
}
