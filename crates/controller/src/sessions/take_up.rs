//! Taking up sessions that were there before this controller.
//!
//! A controller that is started after another one was killed finds sessions in the table. Whether
//! one of them is still there the kernel says: its arena was sent to it locked (`flock`), the lock
//! belongs to the open file that its mapping keeps, and so lasts exactly as long as some process of
//! it has the arena mapped: not longer than an exec, and whatever became of its socket. A session
//! that is not there is recovered as any that died. One that is, is *away* until it connects again
//! ([`Sessions::resume`]), and stays the owner of what it owns, which the pool's headers say.
//!
//! Each member of a session is sent an open file of its own, with a lock of a byte that stands for the
//! member ([`lock_byte`]), which is there as long as its mapping. So of a member who has not come back
//! the kernel says too whether it will.
//!
//! # Invariants
//! * Of a session that is away, what its control memory would say is taken for the worst: every
//!   thread may be in an operation (so each fold keeps fold copies), every inode may be open (no
//!   orphan is freed) or mapped (pages that a mapped file might lose are kept). Nobody waits for
//!   it longer than [`Options::take_up`](crate::Options) after the start.
//! * What it hands over is believed no more than what it writes: its control memory is a sealed
//!   memory file of the right size, and everything in it is looked at as ever; its group's region is
//!   one that it can write already, and no file of the pool, since others are sent it anew.
//! * A session is taken up for the user that opened it, and for who knows its secret.

use crate::pool::files::Pool;
use crate::sessions::Sessions;
use crate::sessions::allocating;
use crate::sessions::arena::{self, Arena, lock_byte};
use crate::sessions::fold_copies::FoldCopies;
use crate::sessions::group::{Group, Members};
use crate::sessions::lent::Lent;
use crate::sessions::members::are_same;
use crate::sessions::owned::Owned;
use crate::sessions::session::{Live, OwnedInode, Session};
use crate::state::tables::State;
use arck_controller_state::segments::SegmentKind;
use arck_controller_state::sessions as session_table;
use arck_controller_state::sessions::SessionEntry;
use arck_core_state::SegmentNumber;
use arck_core_state::geometry::SessionNumber;
use arck_pm::{MapOptions, Mapping};
use arck_protocol::control::{CONTROL_SIZE, ControlMemory, MEMBERS, slot_state};
use arck_protocol::message::{Named, Written};
use arck_protocol::socket::Caller;
use arck_protocol::{Request, Response, ring};
use arck_verifier::Credentials;
use arck_verifier::VerifiedState;
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, OFlags, SealFlags};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often it is looked whether sessions that are away are still there.
pub const AWAY_INTERVAL: Duration = Duration::from_millis(250);
/// So long a request that needs a session that is away is put off at a time.
const AGAIN: Duration = Duration::from_millis(5);
/// The type that statfs(2) tells of memory files.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Who comes back to a session ([`Call::Resume`](arck_protocol::socket::Call::Resume)).
pub struct Returning<'a> {
    pub number: SessionNumber,
    pub secret: [u64; 2],
    pub member: u16,
    pub caller: &'a Caller,
}

/// Whether some process still has a session's arena mapped.
pub fn is_there(pool: &Pool, session: SessionNumber) -> bool {
    let file = match pool.open_file(&arena::name(session), OFlags::RDONLY) {
        Ok(file) => file,
        Err(Errno::NOENT) => return false,
        // Nobody knows: it is asked again.
        Err(_) => return true,
    };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

/// Of the entries of the session table, those of sessions that are still there.
pub fn those_there(pool: &Pool, entries: &[(usize, SessionEntry)]) -> Vec<SessionNumber> {
    let numbers = entries.iter().map(|(_, entry)| entry.session);
    numbers.filter(|&number| is_there(pool, number)).collect()
}

/// The user of a session, as its entry says.
pub fn credentials(entry: &SessionEntry) -> Credentials {
    let groups = entry.groups.len().min(entry.group_count as usize);
    Credentials {
        session: entry.session,
        uid: entry.uid,
        gid: entry.gid,
        groups: entry.groups[..groups].to_vec(),
    }
}

impl Sessions {
    /// Makes a session known that is there and away, with what it owns.
    pub fn expect_back(
        &mut self,
        index: usize,
        entry: &SessionEntry,
        mut arena: Arena,
        owned: &[OwnedInode],
    ) {
        let number = entry.session;
        let slots = owned.iter().map(|inode| inode.branch_slot);
        let sealed_slots = owned.iter().filter_map(|inode| inode.sealed_slot);
        let spare = arena.take_all_slots(slots.chain(sealed_slots));
        let mut session = Session::new(number, credentials(entry), index, arena, None);
        session.is_away = true;
        let since = Instant::now();
        let entries = owned.iter();
        session.owned = entries
            .map(|inode| (inode.number, Owned::new(since, inode.branch_slot)))
            .collect();
        let sealed = owned.iter().filter(|inode| inode.sealed_slot.is_some());
        session.sealed = sealed.map(|inode| inode.number).collect();
        session.vacate(spare);
        let pool = &self.state.pool;
        session.fold_copies = FoldCopies::read(
            pool,
            session.whose(),
            entry.fold_copies_lost,
            |inode, fold| {
                pool.header(inode)
                    .is_some_and(|header| header.fold() == fold)
            },
        );
        let most = u64::from(session.arena.pages().1);
        session.set_credits(pool, entry.credits.min(most));
        let segments = 0..pool.geometry().segment_count;
        let owner = |segment: SegmentNumber| {
            let entry = self.state.space.entry(segment)?;
            (entry.kind() == SegmentKind::Data).then_some(entry.owner)
        };
        session.segments = segments
            .clone()
            .filter(|&segment| owner(segment) == Some(number))
            .collect();
        // It may have been sent any of them.
        for segment in segments {
            if session.mapped.insert(segment) {
                self.state.space.note_sent(segment, true);
            }
        }
        // What it was sent to write is looked at as before.
        session.arena.allow_for_overhead();
        let excess = session.arena.excess().unwrap_or(0);
        // It could have asked for as much by now, whoever stored there.
        if self.may_take(entry.uid, excess) {
            session.arena.grant_excess(excess);
        }
        if let Ok(allowance) = session.arena.allowance(number, session.arena.pages()) {
            self.lookout.lend(Lent::Arena(number), allowance);
        }
        for &segment in &session.segments {
            self.lend_segment(number, entry.uid, segment);
        }
        session.uncommitted = owned.len();
        self.all.insert(number, session);
    }

    pub fn any_away(&self) -> bool {
        self.away != 0
    }

    /// Whether a request is to be put off that would be served better if sessions that are away
    /// were back: until then, or until they have had their time.
    pub fn put_off_for_away(&self) -> Option<Instant> {
        let now = Instant::now();
        let waits = self.any_away() && now < self.opened + self.options.take_up;
        waits.then(|| now + AGAIN)
    }

    /// Whether an inode's owner is away.
    pub fn owner_is_away(&self, owner: SessionNumber) -> bool {
        self.any_away() && self.all.get(&owner).is_some_and(|s| s.is_away)
    }

    /// Counts those that are away, after any has come or gone.
    pub fn count_away(&mut self) {
        self.away = self.all.values().filter(|s| s.is_away).count();
    }

    /// Sessions that were away, and are not there any more.
    pub fn departed(&self) -> Vec<SessionNumber> {
        let away = self.all.values().filter(|s| s.is_away);
        away.map(|session| session.number)
            .filter(|&number| !is_there(&self.state.pool, number))
            .collect()
    }

    /// Whether any member of any session is waited for that an earlier controller knew.
    pub fn expects_members(&self) -> bool {
        let mut sessions = self.all.values();
        sessions.any(|session| session.members.expects_any())
    }

    /// Those of them who are not there any more.
    pub fn departed_members(&self) -> Vec<(SessionNumber, u16)> {
        let mut departed = Vec::new();
        for session in self.all.values().filter(|s| s.members.expects_any()) {
            let arena = arena::name(session.number);
            let Ok(file) = self.state.pool.open_file(&arena, OFlags::RDONLY) else {
                continue;
            };
            let is_gone = |member: &u16| {
                // Nobody knows: it is asked again.
                lock_byte(&file, libc::F_OFD_GETLK, *member)
                    .is_ok_and(|found| i32::from(found.l_type) == libc::F_UNLCK)
            };
            let gone = session.members.expected().filter(is_gone);
            departed.extend(gone.map(|member| (session.number, member)));
        }
        departed
    }

    /// A session that has just been taken up is away again.
    pub fn lose(&mut self, number: SessionNumber) {
        if let Some(session) = self.all.get_mut(&number) {
            session.live = None;
            session.is_away = true;
            session.members = Members::default();
        }
        self.count_away();
    }

    /// Notes which request is served now ([`State::serving`](crate::state::tables::State)).
    pub fn note_serving(&mut self, number: SessionNumber, slot: usize) {
        self.mediating.request_begins(Instant::now());
        let session = self.all.get(&number);
        self.state.serving = session.and_then(|session| {
            let request = session.live.as_ref()?.control().requests.get(slot)?;
            let count = request.count.load(Ordering::Relaxed);
            let entry = session_table::entry_offset(session.index);
            let token = request_token(number, slot, count);
            Some(((entry + session_table::DONE_OFFSET) as u64, token))
        });
    }

    /// Whether the request of a session that was done last, of those that must not be done twice, has not been answered.
    pub fn has_unanswered(&self, number: SessionNumber) -> bool {
        let Some(session) = self.all.get(&number) else {
            return false;
        };
        let done = arena::entry(&self.state.pool, session.index).map_or(0, |entry| entry.done);
        let (slot, count) = ((done >> 24 & 0xff) as usize, done & 0xff_ffff);
        let live = session.live.as_ref();
        let request = live.and_then(|live| live.control().requests.get(slot));
        done != 0
            && request.is_some_and(|request| {
                request.state.load(Ordering::Acquire) == slot_state::SUBMITTED
                    && request.count.load(Ordering::Relaxed) & 0xff_ffff == count
            })
    }

    /// Takes a member of a session up again, and with the first the session, whose control memory
    /// this is; the wake descriptor that it gets. A group's region comes too, for those who join it
    /// later. ESTALE, EACCES, EBUSY; EINVAL if that is no control memory.
    pub fn resume(
        &mut self,
        who: &Credentials,
        returning: &Returning<'_>,
        received: &[OwnedFd],
    ) -> Result<OwnedFd, Errno> {
        let Returning { number, member, .. } = *returning;
        let session = self.all.get_mut(&number);
        let session = session.filter(|s| !s.is_leaving).ok_or(Errno::STALE)?;
        let entry = arena::entry(&self.state.pool, session.index).ok_or(Errno::STALE)?;
        if !are_same(&session.credentials, who) || entry.secret != returning.secret {
            return Err(Errno::ACCESS);
        }
        let (control, region) = match received {
            [control] => (control, None),
            [control, region] if !returning.caller.group.is_empty() => (control, Some(region)),
            _ => return Err(Errno::INVAL),
        };
        if member == 0 || usize::from(member) >= MEMBERS {
            return Err(Errno::INVAL);
        }
        if let Some(live) = &session.live {
            // Another member was first, and its control memory is what counts.
            session
                .members
                .come_back(member, returning.caller.process)?;
            return rustix::io::fcntl_dupfd_cloexec(&live.wake, 0);
        }
        let mapping = map_control(control.as_fd())?;
        if let Some(region) = region {
            check_region(region.as_fd(), control.as_fd())?;
            session.members.group = Some(Group {
                name: returning.caller.group.clone(),
                control: rustix::io::fcntl_dupfd_cloexec(control, 0)?,
                region: rustix::io::fcntl_dupfd_cloexec(region, 0)?,
            });
        }
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let sent = rustix::io::fcntl_dupfd_cloexec(&wake, 0)?;
        let live = Live {
            control: mapping,
            wake,
        };
        let header = &live.control().header;
        header.awake.store(1, Ordering::SeqCst);
        header.closed.store(0, Ordering::SeqCst);
        answer_done(&self.state, &live, number, entry.done);
        ring::ring_all(live.control());
        session.members.expect_back(live.control());
        session.attach(live);
        session
            .members
            .come_back(member, returning.caller.process)?;
        let room = session.credits();
        session.set_credits(&self.state.pool, room);
        self.count_away();
        self.publish_free_counts(true);
        Ok(sent)
    }
}

/// Looks at what a session says is its group's region, before it is opened anew for those who join.
/// EINVAL.
fn check_region(region: BorrowedFd<'_>, control: BorrowedFd<'_>) -> Result<(), Errno> {
    // The only question that nothing but the kernel answers, whatever file it is: no descriptor
    // whose closing could keep anybody waiting.
    let seals = rustix::fs::fcntl_get_seals(region).map_err(|_| Errno::INVAL)?;
    // The controller may open files of the pool for writing that the session was sent to be read:
    // the region is a memory file, as its control memory, which the session can write already.
    let access = rustix::fs::fcntl_getfl(region)?;
    let is_writable = access & OFlags::RWMODE == OFlags::RDWR;
    let (region, control) = (rustix::fs::fstat(region)?, rustix::fs::fstat(control)?);
    // Those who join it later are not to find it cut off under them.
    let is_sealed = seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
    match is_writable && is_sealed && region.st_dev == control.st_dev {
        true => Ok(()),
        false => Err(Errno::INVAL),
    }
}

/// Maps what a session says is its control memory.
fn map_control(control: BorrowedFd<'_>) -> Result<Mapping, Errno> {
    // The only question that nothing but the kernel answers, whatever file it is.
    let seals = rustix::fs::fcntl_get_seals(control).map_err(|_| Errno::INVAL)?;
    let needed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let status = rustix::fs::fstat(control)?;
    let system = rustix::fs::fstatfs(control)?;
    // Pages of the other kind of memory files, huge ones, may be missing when they are touched.
    let is_memory = system.f_type.cast_unsigned() == TMPFS_MAGIC;
    if !seals.contains(needed)
        || !is_memory
        || status.st_size.cast_unsigned() != CONTROL_SIZE as u64
    {
        return Err(Errno::INVAL);
    }
    Mapping::new(control, 0, CONTROL_SIZE, MapOptions::READ_WRITE).map_err(|_| Errno::INVAL)
}

/// What names a request of a session: its slot, and which of those that went through it.
pub fn request_token(session: SessionNumber, slot: usize, count: u64) -> u64 {
    u64::from(session) << 32 | (slot as u64 & 0xff) << 24 | count & 0xff_ffff
}

/// The request that the last controller had done when it died, and perhaps had not answered.
fn answer_done(state: &State, live: &Live, session: SessionNumber, done: u64) {
    let control = live.control();
    for (slot, request) in control.requests.iter().enumerate() {
        if request_token(session, slot, request.count.load(Ordering::Relaxed)) != done {
            continue;
        }
        if let Some(Ok(request)) = ring::receive(control, slot)
            && let Some(response) = response_when_done(state, &request)
        {
            list_made(state, control, &request);
            ring::respond(control, slot, &response);
        }
    }
}

/// What was made to be opened is listed, as it would have been.
fn list_made(state: &State, control: &ControlMemory, request: &Request) {
    let Request::MakeName {
        directory,
        name,
        uid,
        open,
        mark,
        ..
    } = request
    else {
        return;
    };
    let made = state.lookup(*directory, name);
    let inode = made.and_then(|made| state.shadow(made.inode));
    // Somebody else's may have its name since.
    if let Some(inode) = inode.filter(|inode| inode.uid == *uid) {
        control.list_made((*open, *mark), inode.number, inode.generation);
    }
}

/// What a request is told that was done before; `None` for one that may be done twice.
fn response_when_done(state: &State, request: &Request) -> Option<Response> {
    let (inode, append, end) = match request {
        Request::MoveDirectory { .. }
        | Request::Resize { .. }
        | Request::SetAttributes { .. }
        | Request::SetExtended { .. } => {
            return Some(Response::Done);
        }
        // One of these has done so much at least; the rest is done once more.
        Request::Allocate {
            position, length, ..
        } => {
            let end = allocating::end_of_part(*position, *length, state.pool.is_paged());
            return Some(Response::Bytes(end.to_le_bytes().to_vec()));
        }
        Request::MakeName {
            directory, name, ..
        } => {
            // Where it was taken away since, it is told of none, which the session finds to be gone.
            let made = state.lookup(*directory, name);
            let is_mediated = state
                .shadow(*directory)
                .is_some_and(|directory| directory.mediation().is_mediated());
            let named = Named {
                inode: made.map_or(0, |made| made.inode),
                generation: made.map_or(0, |made| made.generation),
                is_mediated,
            };
            return Some(Response::Bytes(named.encode()));
        }
        Request::RemoveName { .. } | Request::LinkName { .. } => {
            return Some(Response::Bytes(Named::default().encode()));
        }
        Request::Write {
            inode,
            append,
            position,
            bytes,
            ..
        } => (inode, append, position.saturating_add(bytes.len() as u64)),
        Request::WriteAttached {
            inode,
            append,
            position,
            length,
            ..
        } => (inode, append, position.saturating_add(u64::from(*length))),
        _ => return None,
    };
    let inode = state.shadow(*inode)?;
    let written = Written {
        // Others may have appended behind it.
        end: if *append { inode.size } else { end },
        is_mediated: inode.goes_by_message(),
    };
    Some(Response::Bytes(written.encode()))
}
