//! Sessions: who they are, what they hold, what they were sent.
//!
//! # Invariants
//! * Control memory is writable by the session: only atomics of it are looked at, each once.
//! * `owned` names exactly the inodes whose header names this session.
//! * No descriptor that the controller uses itself is ever sent: what is sent comes from an
//!   open of its own. The wake descriptor cannot be opened twice, so it is never read, only
//!   waited for (edge-triggered).

use crate::pool::files::Pool;
use crate::sessions::arena::{Arena, Reader};
use crate::sessions::flights::Flights;
use crate::sessions::fold_copies::{FoldCopies, KeptFoldCopy, Whose};
use crate::sessions::group::Members;
use crate::sessions::owned::{Owned, OwnedInodes};
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::{BRANCH_SIZE, StoredBranch};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{HeaderCopy, InodeNumber, SegmentNumber};
use arck_pm::Mapping;
use arck_protocol::control::ControlMemory;
use arck_verifier::{ArenaSource, Credentials};
use foldhash::HashSet;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Inodes that a session may own at once.
pub const OWNED_MAX: usize = 1 << 19;
/// Inode numbers of a first grant: many sessions create a file or two.
pub const FIRST_GRANT: usize = 16;
/// Sets of operations for which slots that were given up wait, each for one.
const VACATED_MAX: usize = 8;

/// An inode that a session has, or had, as its header says.
pub struct OwnedInode {
    pub number: InodeNumber,
    /// 0: nobody's, but granted.
    pub session: SessionNumber,
    pub branch_slot: u32,
    /// Where its sealed delta is, if it has one.
    pub sealed_slot: Option<u32>,
}

/// Whom a header names as the owner.
fn owner_of(pool: &Pool, number: InodeNumber) -> Option<SessionNumber> {
    pool.header(number)
        .map(|header| header.ownership().session())
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
    /// Its last process has gone, and its end waits or is under way: see [`crate::ownership::ending`].
    pub is_leaving: bool,
    pub owned: OwnedInodes,
    /// Of those, the directories that are sealed: see [`crate::fold::seal`].
    pub sealed: Vec<InodeNumber>,
    pub segments: Vec<SegmentNumber>,
    /// Segments that it was sent read-only.
    pub mapped: HashSet<SegmentNumber>,
    /// See [`crate::sessions::credits`].
    pub(crate) credits: u64,
    /// Inode numbers that were granted last, had there been plenty: see [`crate::requests::grant_numbers`].
    pub next_grant: usize,
    /// And when.
    pub granted_at: Option<Instant>,
    /// Numbers granted to it that are uncommitted, and perhaps some that are not any more.
    pub(crate) uncommitted: usize,
    pub fold_copies: FoldCopies,
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
            owned: OwnedInodes::default(),
            sealed: Vec::new(),
            segments: Vec::new(),
            mapped: HashSet::default(),
            credits: 0,
            next_grant: FIRST_GRANT,
            granted_at: None,
            uncommitted: 0,
            fold_copies: FoldCopies::default(),
            stuck: Flights::default(),
            vacated: Vec::new(),
        }
    }

    /// The operations for which the last fold waited in vain.
    pub fn stuck(&self) -> Flights {
        self.stuck.clone()
    }

    /// Whose fold copies they are.
    pub fn whose(&self) -> Whose {
        Whose {
            session: self.number,
            index: self.index,
        }
    }

    /// See [`FoldCopies::keep`].
    pub fn keep_fold_copies(
        &mut self,
        pool: &Pool,
        flights: Flights,
        fold_copies: Vec<KeptFoldCopy>,
    ) {
        let whose = self.whose();
        let control = self.live.as_ref().map(Live::control);
        self.fold_copies
            .keep(pool, whose, control, flights, fold_copies);
    }

    /// Whether there is anything to fold of an inode, as of now: an active delta, or a sealed one.
    pub fn has_branch(&self, number: InodeNumber, header: &HeaderCopy) -> bool {
        header.sealed != 0 || self.branch(number, header).is_some()
    }

    /// An inode's branch, if there is one, as of now.
    pub fn branch(&self, number: InodeNumber, header: &HeaderCopy) -> Option<StoredBranch> {
        let mut bytes = [0; BRANCH_SIZE];
        let offset = branch_offset(header.branch_slot)?;
        Reader(&self.arena).copy(offset, &mut bytes).ok()?;
        let ownership_epoch = header.ownership.epoch();
        StoredBranch::decode(
            &bytes,
            number,
            header.generation,
            ownership_epoch,
            header.fold,
        )
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
        wait_for(&mut waiting, control, patience);
        ignored.append(waiting);
        self.stuck = ignored;
        self.stuck.are_none()
    }

    /// Whether all that is in flight leaves so soon. Who does not is waited for again by the next fold.
    pub fn is_left_within(&self, patience: Duration) -> bool {
        let mut waiting = self.in_flight();
        match &self.live {
            Some(live) => wait_for(&mut waiting, live.control(), patience),
            None => waiting.are_none(),
        }
    }

    /// Notes what it owns from now on, as the headers say already: numbers with their places in the branch
    /// table.
    pub fn own(&mut self, pool: &Pool, inodes: impl Iterator<Item = (InodeNumber, u32)>) {
        let since = Instant::now();
        for (number, slot) in inodes {
            debug_assert_eq!(owner_of(pool, number), Some(self.number), "{number}");
            let before = self.owned.insert(number, Owned::new(since, slot));
            debug_assert!(before.is_none(), "{number} was owned already");
        }
    }

    /// Forgets inodes that it owned, and that no header says are its own any more. Operations that began before their headers were marked may
    /// still store into their branch slots, which are used again only when those have left.
    pub fn disown(&mut self, pool: &Pool, inodes: &[InodeNumber]) {
        debug_assert!(
            inodes
                .iter()
                .all(|&inode| owner_of(pool, inode) != Some(self.number)),
            "some of {inodes:?} are owned"
        );
        let mut slots: Vec<u32> = inodes
            .iter()
            .filter_map(|&inode| self.owned.remove(inode))
            .flat_map(|mut owned| [Some(owned.slot), owned.take_spare()])
            .flatten()
            .collect();
        let flights = self.in_flight();
        if flights.are_none() {
            slots.drain(..).for_each(|slot| self.arena.free_slot(slot));
        } else {
            self.put_off(flights, slots);
        }
    }

    /// Nothing is sealed any more; these are the slots of what was. `straddled`: somebody may yet store there.
    pub(crate) fn has_unsealed(&mut self, slots: Vec<(InodeNumber, u32)>, straddled: bool) {
        self.sealed.clear();
        let mut left = Vec::new();
        for (number, slot) in slots {
            match self.owned.get_mut(number).filter(|_| !straddled) {
                Some(owned) => left.extend(owned.rest_mut().spare.replace(slot)),
                None => left.push(slot),
            }
        }
        self.vacate(left);
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
        self.fold_copies.become_known(live.control());
        self.live = Some(live);
        self.is_away = false;
    }

    /// A free branch slot, taken. ENOSPC, NOBUFS: see [`Arena::take_slot`].
    pub fn take_slot(&mut self) -> Result<u32, Errno> {
        self.free_vacated();
        self.arena.take_slot()
    }
}

/// Waits until these have left; false if not all have in time.
fn wait_for(waiting: &mut Flights, control: &ControlMemory, patience: Duration) -> bool {
    let started = Instant::now();
    let mut rounds = 0u32;
    while !waiting.all_left(control) {
        rounds += 1;
        if rounds.is_multiple_of(16) {
            if started.elapsed() > patience {
                return false;
            }
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
    true
}

/// Hard to guess.
pub fn secret() -> Result<[u64; 2], Errno> {
    let mut secret = [0u64; 2];
    // SAFETY: writes to the 16 bytes of `secret` at most.
    let length = unsafe { libc::getrandom(secret.as_mut_ptr().cast(), 16, 0) };
    match length {
        16 => Ok(secret),
        _ => Err(Errno::AGAIN),
    }
}
