//! Sessions: who they are, what they hold, what they were sent.
//!
//! # Invariants
//! * Control memory is writable by the session: only atomics of it are looked at, each once.
//! * `owned` names exactly the inodes whose header names this session.
//! * No descriptor that the controller uses itself is ever sent: what is sent comes from an
//!   open of its own. The wake descriptor cannot be opened twice, so it is never read, only
//!   waited for (edge-triggered).

use crate::core::Core;
use crate::pool::files::Pool;
use crate::sessions::arena::{self, Arena, Reader};
use crate::sessions::lent::Lent;
use crate::sessions::members::{Group, Members};
use crate::sessions::receipts::{Flights, KeptReceipt, RECEIPT_BYTES, Receipts, Whose};
use arck_controller_state::segments::SegmentKind;
use arck_controller_state::sessions::{GROUPS_MAX, SESSIONS_MAX, SessionEntry};
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::{BRANCH_SIZE, StoredBranch};
use arck_core_state::cast;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{HeaderCopy, InodeNumber, PAGE_SIZE, SegmentNumber, layout};
use arck_pm::{MapOptions, Mapping};
use arck_protocol::control::{CONTROL_SIZE, ControlMemory};
use arck_protocol::socket::{Caller, REGION_SIZE, REGION_SIZE_MAX, Welcome};
use arck_verifier::{ArenaSource, Credentials, Rule};
use foldhash::{HashMap, HashSet};
use rustix::event::EventfdFlags;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Inodes that a session may own at once.
pub const OWNED_MAX: usize = 1 << 19;
/// Inode numbers of a first grant: many sessions create a file or two.
const FIRST_GRANT: usize = 16;
/// Sets of operations for which slots that were given up wait, each for one.
const VACATED_MAX: usize = 8;
/// How an inode is owned.
#[derive(Clone, Copy, Debug)]
pub struct Owned {
    /// Since when; the lease counts from here.
    pub since: Instant,
    /// The least that the lease is: a multiple of what it took to take the inode over, so that two
    /// writers whose changes are costly to fold get something done between two folds.
    pub earned: Duration,
    /// Place in the arena's branch table.
    pub slot: u32,
    /// When it was last folded for a reader.
    pub folded: Option<Instant>,
    /// Its delta was refused, and has been neither accepted nor set aside since.
    pub refusal: Option<Refusal>,
}

/// A delta that was refused, and may yet be repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// When the grace period ends.
    pub due: Instant,
    /// What was refused last: rule and place.
    pub rule: Rule,
    pub offset: u64,
}

impl Owned {
    pub fn new(since: Instant, slot: u32) -> Owned {
        Owned {
            since,
            earned: Duration::ZERO,
            slot,
            folded: None,
            refusal: None,
        }
    }
}

/// The parts of a session whose process may be there.
pub struct Live {
    pub(crate) control: Mapping,
    pub wake: OwnedFd,
}

impl Live {
    pub fn control(&self) -> &ControlMemory {
        // SAFETY: the mapping is page-aligned, `CONTROL_SIZE` bytes long, writable, of a memfd
        // sealed against shrinking, and lives as long as `self`.
        unsafe { ControlMemory::from_pointer(self.control.as_ptr()) }
    }
}

/// A session.
pub struct Session {
    pub number: SessionNumber,
    pub credentials: Credentials,
    /// Its place in the session table.
    pub index: usize,
    /// Its processes; none while it is away.
    pub members: Members,
    pub arena: Arena,
    /// `None` while a dead session is being recovered, or a living one is away.
    pub live: Option<Live>,
    /// It was there before this controller, and has not come back yet: see [`crate::sessions::take_up`].
    pub is_away: bool,
    /// Its last process has gone, and its end waits or is under way: see [`crate::fold::ending`].
    pub is_leaving: bool,
    pub owned: HashMap<InodeNumber, Owned>,
    pub segments: Vec<SegmentNumber>,
    /// Segments that it was sent read-only.
    pub mapped: HashSet<SegmentNumber>,
    /// See [`crate::sessions::room`].
    pub(crate) room: u64,
    /// Inode numbers to grant at the next request; doubles from grant to grant.
    pub next_grant: usize,
    /// Numbers granted to it that are unborn, and perhaps some that are not any more.
    pub(crate) unborn: usize,
    pub receipts: Receipts,
    /// Operations for which a fold has waited in vain: none waits for them again.
    stuck: Flights,
    /// Branch slots that are free once these operations have left: they may store there yet.
    vacated: Vec<(Flights, Vec<u32>)>,
}

impl Session {
    pub fn new(
        number: SessionNumber,
        credentials: Credentials,
        index: usize,
        arena: Arena,
        live: Option<Live>,
    ) -> Session {
        Session {
            number,
            credentials,
            index,
            members: Members::default(),
            arena,
            live,
            is_away: false,
            is_leaving: false,
            owned: HashMap::default(),
            segments: Vec::new(),
            mapped: HashSet::default(),
            room: 0,
            next_grant: FIRST_GRANT,
            unborn: 0,
            receipts: Receipts::default(),
            stuck: Flights::default(),
            vacated: Vec::new(),
        }
    }

    /// The operations for which the last fold waited in vain.
    pub fn stuck(&self) -> Flights {
        self.stuck.clone()
    }

    /// Whose receipts they are.
    pub fn whose(&self) -> Whose {
        Whose {
            session: self.number,
            index: self.index,
        }
    }

    /// See [`Receipts::keep`].
    pub fn keep_receipts(&mut self, pool: &Pool, flights: Flights, receipts: Vec<KeptReceipt>) {
        let whose = self.whose();
        let control = self.live.as_ref().map(Live::control);
        self.receipts.keep(pool, whose, control, flights, receipts);
    }

    /// Whether there is anything to fold of an inode, as of now.
    pub fn has_branch(&self, number: InodeNumber, header: &HeaderCopy) -> bool {
        self.branch(number, header).is_some()
    }

    /// An inode's branch, if there is one, as of now.
    pub fn branch(&self, number: InodeNumber, header: &HeaderCopy) -> Option<StoredBranch> {
        let mut bytes = [0; BRANCH_SIZE];
        let offset = branch_offset(header.branch_slot)?;
        Reader(&self.arena).copy(offset, &mut bytes).ok()?;
        let epoch = header.ownership.epoch();
        StoredBranch::decode(&bytes, number, header.generation, epoch, header.fold)
    }

    /// Whoever is inside an operation now; to be asked after a heavy barrier.
    pub fn in_flight(&self) -> Flights {
        match &self.live {
            Some(live) => Flights::inside(live.control()),
            None if self.is_away => Flights::unknown(),
            // Its threads are gone; whatever they were doing stays as it stands.
            None => Flights::default(),
        }
    }

    /// Waits until what is in flight has left, but not for what did not leave in time before.
    /// False if anything has not left.
    pub fn wait_in_flight(&mut self, patience: Duration) -> bool {
        let mut waiting = self.in_flight();
        if waiting.are_none() {
            self.stuck = Flights::default();
            return true;
        }
        let Some(live) = &self.live else {
            // Most of what is in flight will have left.
            std::thread::sleep(patience);
            self.stuck = waiting;
            return false;
        };
        let control = live.control();
        let mut ignored = std::mem::take(&mut self.stuck);
        ignored.all_left(control);
        waiting.leave_out(&ignored);
        let started = Instant::now();
        let mut rounds = 0u32;
        while !waiting.all_left(control) {
            rounds += 1;
            if rounds.is_multiple_of(16) {
                if started.elapsed() > patience {
                    break;
                }
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        ignored.append(waiting);
        self.stuck = ignored;
        self.stuck.are_none()
    }

    /// Forgets inodes that it owned. Operations that began before their headers were marked may
    /// still store into their branch slots, which are used again only when those have left.
    pub fn disown(&mut self, inodes: &[InodeNumber]) {
        let mut slots: Vec<u32> = inodes
            .iter()
            .filter_map(|inode| self.owned.remove(inode))
            .map(|owned| owned.slot)
            .collect();
        let flights = self.in_flight();
        if flights.are_none() {
            slots.drain(..).for_each(|slot| self.arena.free_slot(slot));
        } else {
            self.put_off(flights, slots);
        }
    }

    /// Slots of which it is not known who may yet store there.
    pub(crate) fn vacate(&mut self, slots: Vec<u32>) {
        self.put_off(self.in_flight(), slots);
    }

    /// Slots that are free when these operations have left, or a little later: a session can have a
    /// thousand in flight, and give up what it owns however often.
    fn put_off(&mut self, flights: Flights, mut slots: Vec<u32>) {
        if slots.is_empty() {
            return;
        }
        self.free_vacated();
        let are_many = self.vacated.len() >= VACATED_MAX;
        match self.vacated.last_mut() {
            Some((others, known)) if *others == flights => known.append(&mut slots),
            Some((others, known)) if are_many => {
                others.unite(flights);
                known.append(&mut slots);
            }
            _ => self.vacated.push((flights, slots)),
        }
    }

    fn free_vacated(&mut self) {
        if let Some(live) = &self.live {
            let arena = &mut self.arena;
            self.vacated.retain_mut(|(flights, slots)| {
                let left = flights.all_left(live.control());
                if left {
                    slots.drain(..).for_each(|slot| arena.free_slot(slot));
                }
                !left
            });
        }
    }

    /// Its control memory is known from now on: what was in flight is at most what is in flight now.
    pub(crate) fn attach(&mut self, live: Live) {
        let inside = Flights::inside(live.control());
        self.stuck.become_known(&inside);
        for (flights, _) in &mut self.vacated {
            flights.become_known(&inside);
        }
        self.receipts.become_known(live.control());
        self.live = Some(live);
        self.is_away = false;
    }

    /// A free branch slot, taken. ENOSPC.
    pub fn take_slot(&mut self) -> Result<u32, Errno> {
        self.free_vacated();
        self.arena.take_slot()
    }
}

/// Hard to guess.
pub(crate) fn secret() -> Result<[u64; 2], Errno> {
    let mut secret = [0u64; 2];
    // SAFETY: writes to the 16 bytes of `secret` at most.
    let length = unsafe { libc::getrandom(secret.as_mut_ptr().cast(), 16, 0) };
    match length {
        16 => Ok(secret),
        _ => Err(Errno::AGAIN),
    }
}

/// A group's region, all zeroes: a memory file that nobody makes longer or shorter. EINVAL.
fn make_region(wish: u64) -> Result<OwnedFd, Errno> {
    let size = match wish {
        0 => REGION_SIZE,
        wish if wish <= REGION_SIZE_MAX && wish.is_multiple_of(PAGE_SIZE) => wish,
        _ => return Err(Errno::INVAL),
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let region = rustix::fs::memfd_create("arck-group", flags)?;
    rustix::fs::fchmod(&region, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::ftruncate(&region, size)?;
    rustix::fs::fcntl_add_seals(
        &region,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    Ok(region)
}

/// What a new session is sent, in this order (see [`arck_protocol::socket::Answer::Welcome`]).
pub type Greeting = (Welcome, Vec<OwnedFd>);

fn reopen(descriptor: &OwnedFd) -> Result<OwnedFd, Errno> {
    // Files that a session handed in can be its own, with a lease: then EAGAIN, and nobody waits.
    rustix::fs::open(
        format!("/proc/self/fd/{}", descriptor.as_raw_fd()),
        OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    )
}

impl Core {
    /// After a fold of a session's: the receipts of all sessions of its user together take no more
    /// than [`RECEIPT_BYTES`], but for the last. Root and the pool's user may have so much for each.
    pub(crate) fn bound_receipts(&mut self, last: SessionNumber) {
        let Some(user) = self.sessions.get(&last).map(|s| s.credentials.uid) else {
            return;
        };
        if self.is_trusted(user) {
            return;
        }
        let pool = &self.state.pool;
        let sessions = &mut self.sessions;
        let total = |sessions: &BTreeMap<SessionNumber, Session>| -> usize {
            let of_user = sessions.values().filter(|s| s.credentials.uid == user);
            of_user.map(|s| s.receipts.bytes()).sum()
        };
        if total(sessions) <= RECEIPT_BYTES {
            return;
        }
        for session in sessions.values_mut().filter(|s| s.credentials.uid == user) {
            let control = session.live.as_ref().map(Live::control);
            let whose = session.whose();
            session.receipts.drop_asked(pool, whose, control);
        }
        let mut left = total(sessions);
        while left > RECEIPT_BYTES {
            let candidates = sessions.values_mut().filter(|session| {
                let may_lose = session.number != last || session.receipts.len() > 1;
                session.credentials.uid == user && may_lose
            });
            let most = candidates.max_by_key(|session| session.receipts.bytes());
            let lost = most.map_or(0, |session| {
                let whose = session.whose();
                session.receipts.lose_oldest(pool, whose)
            });
            match lost {
                0 => return,
                bytes => left -= bytes,
            }
        }
    }

    /// Whether a user may take all that there is: root, and the pool's own.
    pub fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || uid == self.state.pool.superblock().uid
    }

    /// Opens a session for a connection, or joins one. EMFILE, ENOSPC; EAGAIN when there are too
    /// many.
    pub fn open_session(
        &mut self,
        credentials: Credentials,
        caller: &Caller,
    ) -> Result<(SessionNumber, Greeting), Errno> {
        if let Some(joined) = self.join_session(&credentials, caller) {
            return joined;
        }
        let user = credentials.uid;
        self.may_open_session(user)?;
        let mut is_taken = [false; SESSIONS_MAX];
        for session in self.sessions.values() {
            is_taken[session.index] = true;
        }
        let index = is_taken.iter().position(|taken| !taken);
        let index = index.ok_or(Errno::AGAIN)?;
        let pool = &self.state.pool;
        let control = rustix::fs::memfd_create(
            "arck-control",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::fchmod(&control, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::ftruncate(&control, CONTROL_SIZE as u64)?;
        rustix::fs::fcntl_add_seals(
            &control,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
        let mapping = Mapping::new(&control, 0, CONTROL_SIZE, MapOptions::READ_WRITE)
            .map_err(|error| error.errno())?;
        let region = make_region(caller.region)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wake_sent = rustix::io::fcntl_dupfd_cloexec(&wake, 0)?;
        let number = arena::next_session(pool)?;
        let credentials = Credentials {
            session: number,
            ..credentials
        };
        let mut entry = SessionEntry {
            session: number,
            group_count: cast::count(credentials.groups.len().min(GROUPS_MAX)),
            uid: credentials.uid,
            gid: credentials.gid,
            branch_pages: 0,
            delta_pages: 0,
            secret: secret()?,
            room: 0,
            done: 0,
            receipts_lost: 0,
            groups: [0; GROUPS_MAX],
        };
        for (place, &group) in entry.groups.iter_mut().zip(&credentials.groups) {
            *place = group;
        }
        let arena = Arena::create(pool, number, user, &self.workers)?;
        (entry.branch_pages, entry.delta_pages) = arena.pages();
        let allowance = arena.allowance(number, arena.pages())?;
        self.lookout.lend(Lent::Arena(number), allowance);
        let stored = arena::store_entry(pool, index, &entry).inspect_err(|_| {
            pool.remove_file(&arena::name(number));
            self.lookout.forget(Lent::Arena(number));
        })?;
        self.state.journal.await_fence(stored);
        let live = Live {
            control: mapping,
            wake,
        };
        live.control().header.awake.store(1, Ordering::SeqCst);
        let who = credentials.clone();
        let mut session = Session::new(number, credentials, index, arena, Some(live));
        session.members.group = Some(Group {
            name: caller.group.clone(),
            control,
            region,
        });
        let member = session.join_as_first(caller.process)?;
        self.sessions.insert(number, session);
        let greeting = self.greeting(number, member, wake_sent, true);
        if let Some(session) = self.sessions.get_mut(&number)
            && caller.group.is_empty()
        {
            // Nobody joins it.
            session.members.group = None;
        }
        let greeting = greeting.inspect_err(|_| self.end_session(number, libc::EIO))?;
        self.prepare_classes(&who);
        self.give_first_room(number);
        self.publish_free_counts(true);
        Ok((number, greeting))
    }

    /// What a new member of a session is sent.
    pub(crate) fn greeting(
        &self,
        number: SessionNumber,
        member: u16,
        wake: OwnedFd,
        makes_region: bool,
    ) -> Result<Greeting, Errno> {
        let session = self.sessions.get(&number).ok_or(Errno::STALE)?;
        let group = session.members.group.as_ref().ok_or(Errno::STALE)?;
        let pool = &self.state.pool;
        let entry = arena::entry(pool, session.index).ok_or(Errno::STALE)?;
        let descriptors = vec![
            pool.open_file(layout::HEADERS, OFlags::RDONLY)?,
            pool.open_file(layout::PAGE_BITMAP, OFlags::RDONLY)?,
            reopen(&group.control)?,
            wake,
            reopen(&group.region)?,
            crate::sessions::take_up::open_arena(pool, number, member)?,
        ];
        let superblock = pool.superblock();
        let (branch_pages, delta_pages) = session.arena.pages();
        let welcome = Welcome {
            session: number,
            member,
            geometry: superblock.geometry,
            uuid: superblock.uuid,
            hash_seed: superblock.hash_seed,
            durability: superblock.durability as u32,
            flush: u32::from(pool.flushes()),
            branch_pages,
            delta_pages,
            secret: entry.secret,
            makes_region,
            user: session.credentials.uid,
            user_group: session.credentials.gid,
        };
        Ok((welcome, descriptors))
    }

    /// Descriptors of segments: of the session's own to write, if that is wanted, else to read. EACCES for a segment of
    /// nobody's or beyond the table, and for one of a class that the session is not in.
    pub fn map_segments(
        &mut self,
        session: SessionNumber,
        segments: &[SegmentNumber],
        to_write: bool,
    ) -> Result<Vec<OwnedFd>, Errno> {
        let Core {
            state, sessions, ..
        } = self;
        let session = sessions.get_mut(&session).ok_or(Errno::NOENT)?;
        let mut descriptors = Vec::with_capacity(segments.len());
        for &segment in segments {
            let entry = state.space.entry(segment).ok_or(Errno::ACCESS)?;
            let is_own = entry.kind() == SegmentKind::Data && entry.owner == session.number;
            if entry.kind() == SegmentKind::Free
                || !(is_own || state.admits(entry.class, &session.credentials))
            {
                return Err(Errno::ACCESS);
            }
            let access = match is_own && to_write {
                true => OFlags::RDWR,
                false => OFlags::RDONLY,
            };
            descriptors.push(state.pool.open_segment(segment, access)?);
            if session.mapped.insert(segment) {
                state.space.note_sent(segment, true);
            }
        }
        Ok(descriptors)
    }
}
