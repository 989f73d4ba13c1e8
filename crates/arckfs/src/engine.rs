//! How an operation runs: inside an operation of the protocol, with the epoch pinned, and again
//! from the start whenever something has to be fetched first or a fold got in between.
//!
//! # Invariants
//! * Nothing is asked of the controller inside an operation or under a lock: an attempt that
//!   needs something gives it up as a [`Fix`], ends, and is made again after.
//! * An attempt that stops before it has published leaves everything as it was.
//! * What could not be reached is not taken for what is not there: an attempt publishes nothing after it
//!   ([`Context::expect_reached`]), and what it says is not told.
//! * After publishing, [`Context::confirm`] looks at the headers again (DESIGN section 5).

mod fixes;

use crate::credentials::Credentials;
use crate::interface::{Errno, Failure};
use crate::listing::Scratch;
use crate::mappings;
use crate::paths::PathCache;
use crate::spares::Spares;
use crate::state::{AuxiliaryState, CachedInode};
use crate::turns::Turn;
use arck_core_state::{Inode, InodeNumber, LiveHeader};
use arck_libfs_kit::arena_pages::Short;
use arck_libfs_kit::ownership::{self, Owner, Straddled};
use arck_libfs_kit::region::{Guard, ThreadSlot};
use arck_libfs_kit::{Operation, Session, ThreadContext};
use arck_protocol::operation::Expected;
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

/// Why an attempt ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// For good.
    Failure(Failure),
    /// To be made again after this.
    Fix(Fix),
}

/// What an attempt needs before it is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Ownership of these inodes (0 = no inode).
    Own([InodeNumber; 4]),
    /// The newest verified state of an inode that another session owns.
    Recall(InodeNumber),
    /// The same, of one that is going to be changed: it comes with the ownership, if that can be had.
    TakeOver(InodeNumber),
    /// That the attributes of an inode can be mapped; its contents too, if that is said.
    Admit(InodeNumber, bool),
    /// That the set-id bits of a file are gone that a write takes away.
    DropSetId(InodeNumber),
    /// The fold of an inode to end.
    Wait(InodeNumber),
    /// The lock of an inode, which could not be waited for under another lock.
    Busy(InodeNumber),
    /// Another thread's turn on an inode's data to end.
    Turn(InodeNumber),
    /// A turn on an inode's data, until the call ends.
    OwnTurn(InodeNumber),
    Numbers,
    DataPages,
    ArenaPages,
    /// Room in the pool for what so many more delta pages add.
    Room(u32),
    BranchSlot(u32),
    /// Memory of the group's region: what a fold makes superfluous is free after it.
    Memory,
    /// A fold of these inodes (0 = none).
    Commit([InodeNumber; 2]),
    /// Counts of links to be those of one state: another thread may be at it.
    Counts,
    /// Another thread to be through with a name and the links of its inode.
    Links,
    /// Nothing: something changed, look again.
    Again,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Failure(Failure::Errno(errno))
    }
}
impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failure(failure)
    }
}
impl From<Fix> for Stop {
    fn from(fix: Fix) -> Stop {
        Stop::Fix(fix)
    }
}

impl Fix {
    /// Of `pages` delta pages that are needed at once there was none, or not all.
    pub fn short(short: Short, pages: usize) -> Fix {
        match short {
            Short::Pages => Fix::ArenaPages,
            Short::Room => Fix::Room(pages as u32),
        }
    }
}

/// Result of an attempt or of a part of one.
pub type Attempt<T> = Result<T, Stop>;

/// Attempts until an operation gives up with EAGAIN: each follows some progress of another
/// session or of the controller, so this is far more than any honest run needs.
const ATTEMPTS_MAX: usize = 100_000;

/// Attempts that may end with ESTALE before the call does: what a name led to may have ended
/// between the look-up and the look at the inode, each time by another thread's work.
const STALE_ATTEMPTS: u32 = 32;

/// How often one call finds that what a path led to is gone, before it takes it that there is nothing.
const STALE_PATHS_MAX: u32 = 132;

/// After so many of them whoever makes and removes it gets the processor in between.
const STALE_PATHS_QUICK: u32 = 8;

/// How often one call that walked a path is told by the controller that it may not reach what the path
/// led to, before it tells the program: directories may have moved, or been closed, since they were
/// walked, and what the path leads to now is another question.
const DENIED_MAX: u32 = 8;

/// One attempt.
pub struct Context<'a> {
    pub session: &'static Session,
    pub state: &'static AuxiliaryState,
    pub thread: &'static ThreadContext,
    pub guard: Guard<'static>,
    operation: RefCell<Option<Operation<'static>>>,
    pub credentials: &'a Credentials,
    pub paths: &'a PathCache,
    pub spares: &'a Spares,
    recalled: &'a Recalled,
}

/// Inodes recalled for one call: each once for each walk, so that the call ends.
#[derive(Default)]
pub struct Recalled {
    numbers: RefCell<Vec<InodeNumber>>,
    /// Inodes of which the controller has told, since they cannot be mapped, and in which state.
    told: RefCell<Vec<(u64, Inode)>>,
    /// Inodes to which it has been asked the way.
    shown: RefCell<Vec<InodeNumber>>,
    /// How often the controller has refused what the call needed.
    denied: Cell<u32>,
    /// Memory has been made free for the call already.
    memory: Cell<bool>,
    /// A turn that the call has had to take.
    turn: RefCell<Option<Turn>>,
    /// The attempt has published: it is not made again as if it had not.
    published: Cell<bool>,
    /// The attempt publishes what it has computed: all of that was reached.
    publishes: Cell<bool>,
    /// The attempt has begun to change what may not be changed twice, while nothing was damaged: if it
    /// succeeds, it is not made again.
    changes: Cell<bool>,
    /// Before it left, the auxiliary state was damaged: what it has found counts for nothing.
    damaged: Cell<bool>,
    /// A write whose bytes stand, and which is still to be stamped.
    written: Cell<Option<Written>>,
}

impl Recalled {
    /// What the controller has told of an inode: the sequence of its header, and the inode.
    pub(crate) fn note_told(&self, told: (u64, Inode)) {
        self.told.borrow_mut().push(told);
    }

    /// For a path that is walked again from its start, since what it led to is gone: others have
    /// changed what was recalled before that.
    #[cold]
    fn begin_again(&self) {
        self.numbers.borrow_mut().clear();
        self.told.borrow_mut().clear();
        self.shown.borrow_mut().clear();
    }

    /// Whether what an attempt says may be wrong that has not reached something: what it has published
    /// before stands.
    #[cold]
    fn is_wrong<T>(&self, attempted: &Attempt<T>) -> bool {
        match attempted {
            Err(Stop::Failure(Failure::Errno(Errno::IO | Errno::STALE))) => true,
            Ok(_) | Err(_) => !self.publishes.get(),
        }
    }

    /// Whether a path is to be walked again after the controller has said EACCES. The way is shown to
    /// it again then: what was moved to where it may be reached may have been closed since.
    fn is_to_be_asked_again(&self) -> bool {
        self.shown.borrow_mut().clear();
        self.denied.replace(self.denied.get() + 1) < DENIED_MAX
    }
}

/// See [`Recalled`].
#[derive(Clone, Copy)]
pub struct Written {
    /// Where, and how many bytes of how many.
    pub at: u64,
    pub asked: usize,
    pub done: usize,
}

/// What [`Context::confirm`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// The delta stands: auxiliary state is to be brought up to it.
    Standing,
    /// A fold took the operation along and ended the delta: auxiliary state will be rebuilt.
    Folded,
}

impl<'a> Context<'a> {
    pub fn slot(&self) -> &'static ThreadSlot<'static> {
        self.thread.slot()
    }

    /// Whether the controller has refused what the call needed.
    #[inline]
    pub fn was_denied(&self) -> bool {
        self.recalled.denied.get() != 0
    }

    /// What the controller has told of an inode, if it still is so.
    pub fn told(&self, number: InodeNumber, sequence: u64) -> Option<Inode> {
        let told = self.recalled.told.borrow();
        let of_now = |told: &&(u64, Inode)| told.1.number == number && told.0 == sequence;
        told.iter().rev().find(of_now).map(|told| told.1)
    }

    /// Notes that the controller is asked the way to an inode; whether it has been for this call.
    pub fn note_shown(&self, number: InodeNumber) -> bool {
        let mut shown = self.recalled.shown.borrow_mut();
        let before = shown.contains(&number);
        if !before {
            shown.push(number);
        }
        before
    }

    /// Whether the path is to be walked again after the controller has said EACCES.
    pub fn is_to_be_asked_again(&self) -> bool {
        self.recalled.is_to_be_asked_again()
    }

    /// Enters the operation, once an attempt is going to publish.
    pub fn enter(&self) {
        let mut operation = self.operation.borrow_mut();
        if operation.is_none() {
            *operation = Some(self.thread.enter());
        }
    }

    /// Notes a recall; false if this call has recalled the inode already. A path leads through as
    /// many inodes as it has names, and forty links have more.
    pub fn may_recall(&self, number: InodeNumber) -> bool {
        let mut numbers = self.recalled.numbers.borrow_mut();
        let first = !numbers.contains(&number);
        if first {
            numbers.push(number);
        }
        first
    }

    /// The group's region has no memory left: ENOMEM, if a fold has not helped.
    #[cold]
    pub fn no_memory(&self) -> Stop {
        match self.recalled.memory.replace(true) {
            false => Fix::Memory.into(),
            true => Errno::NOMEM.into(),
        }
    }

    /// From here on the attempt does what is not to be done twice.
    #[inline]
    pub fn note_change(&self) {
        self.recalled.changes.set(true);
    }

    /// Before anything is published, and behind the last look at what it is computed from: that nothing of
    /// that was out of reach. ENOMEM, EMFILE: see [`ThreadContext::unreached`].
    #[inline]
    pub fn expect_reached(&self) -> Attempt<()> {
        match self.thread.unreached() {
            None => {
                self.publishes();
                Ok(())
            }
            Some(errno) => Err(errno.into()),
        }
    }

    /// The same, of what has failed already where something was out of reach, or was left out.
    #[inline]
    pub fn publishes(&self) {
        self.recalled.publishes.set(true);
    }

    /// Notes a write that is done but for its times, for the next attempt.
    pub fn note_written(&self, written: Written) {
        self.recalled.written.set(Some(written));
    }

    /// The write that an attempt before this one has noted.
    pub fn written(&self) -> Option<Written> {
        self.recalled.written.get()
    }

    /// Keeps a turn until the call ends.
    pub fn keep(&self, turn: Turn) {
        *self.recalled.turn.borrow_mut() = Some(turn);
    }

    fn leave(&self) {
        self.operation.borrow_mut().take();
    }

    pub fn header(&self, number: InodeNumber) -> Result<&'static LiveHeader, Errno> {
        self.session.header(number).ok_or(Errno::STALE)
    }

    /// That this session owns the inode and `inode` is a view of it as it is now; to be asked
    /// under the inode's lock, after [`Context::enter`], before anything is written.
    pub fn owned(&self, inode: &CachedInode) -> Attempt<Expected> {
        let number = inode.number();
        let header = self.header(number)?;
        let expected = inode.expected();
        if self.session.is_of_group() && self.session.region().is_damaged() {
            return Err(Errno::IO.into());
        }
        if expected.still_holds(header) && expected.ownership.session() == self.session.number() {
            self.note_change();
            return Ok(expected);
        }
        Err(self.why_not_owned(number, header))
    }

    #[cold]
    fn why_not_owned(&self, number: InodeNumber, header: &LiveHeader) -> Stop {
        if header.ownership().is_marked() {
            return Fix::Wait(number).into();
        }
        match ownership::owner(self.session, header) {
            // Until it is repaired, or taken away: what came on top would be lost with it.
            Owner::Us(_) if header.ownership().is_refused() => Errno::IO.into(),
            // Ours, but the view is older than a fold: whoever asked refreshes the view.
            Owner::Us(_) => Fix::Again.into(),
            Owner::Nobody | Owner::Other => Fix::Own([number, 0, 0, 0]).into(),
            Owner::Gone => Errno::STALE.into(),
        }
    }

    /// The second look, after publishing. The first of `inodes` is the one in whose delta the
    /// operation was published; `published` is the word by which it was.
    pub fn confirm(
        &self,
        inodes: &[(&CachedInode, Expected)],
        published: Published,
    ) -> Attempt<Confirmed> {
        self.recalled.published.set(true);
        if self.all_hold(inodes)? {
            return Ok(Confirmed::Standing);
        }
        self.straddles(inodes, published)
    }

    fn all_hold(&self, inodes: &[(&CachedInode, Expected)]) -> Attempt<bool> {
        for (inode, expected) in inodes {
            if !expected.still_holds(self.header(inode.number())?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A fold got in between. What was published in the first inode's delta was folded, or
    /// missed, as the receipt says. If another inode of the operation is not as it was, half of
    /// the operation may have gone without the other: it is taken back, inside the operation,
    /// and made again unless the first delta was folded as published.
    #[cold]
    fn straddles(
        &self,
        inodes: &[(&CachedInode, Expected)],
        published: Published,
    ) -> Attempt<Confirmed> {
        let Some((inode, expected)) = inodes.first() else {
            return Ok(Confirmed::Standing);
        };
        let header = self.header(inode.number())?;
        let mut last = published.word;
        let mut bytes = [0u8; RECORD_BYTES];
        let bytes = bytes.get_mut(..published.length).ok_or(Errno::IO)?;
        self.session
            .arena_at(published.offset as usize)
            .copy_to(published.offset as usize, bytes)
            .ok_or(Errno::IO)?;
        bytes[..8].copy_from_slice(&published.word.to_le_bytes());
        let mut last_bytes = [0u8; RECORD_BYTES];
        let last_bytes = &mut last_bytes[..published.length];
        last_bytes.copy_from_slice(bytes);
        for _ in 0..ATTEMPTS_MAX {
            self.enter();
            // Nor does anything come on top of a delta that was refused.
            let others_hold = self.all_hold(&inodes[1..])? && !header.ownership().is_refused();
            if others_hold && last == published.word && expected.still_holds(header) {
                return Ok(Confirmed::Standing);
            }
            if !others_hold {
                // Whatever becomes of the first delta, half an operation must not stay in it.
                last = published.before;
                last_bytes[..8].copy_from_slice(&last.to_le_bytes());
                self.store_word(published.offset, last)?;
            }
            self.leave();
            match ownership::straddled_after(
                self.session,
                header,
                inode.number(),
                expected,
                published.offset,
                bytes,
                last_bytes,
            )? {
                Straddled::NotFolded if last != published.word => return Err(Fix::Again.into()),
                Straddled::NotFolded => {}
                Straddled::Included => {
                    // The overlay still shows the names as they were before, and a link that was
                    // made and taken back unfolded moves no sequence.
                    self.unsettle_counts();
                    return Ok(Confirmed::Folded);
                }
                Straddled::Missed => return Err(Fix::Again.into()),
            }
        }
        Err(Errno::IO.into())
    }

    fn store_word(&self, offset: u64, word: u64) -> Attempt<()> {
        let offset = usize::try_from(offset).map_err(|_| Errno::IO)?;
        let stored = self
            .session
            .arena_at(offset)
            .write_u64(offset, word)
            .ok_or(Errno::IO)?;
        let _durable = arck_pm::order::fence(stored.flush());
        Ok(())
    }
}

/// The word of the arena that commits an operation.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Byte offset in the arena.
    pub offset: u64,
    pub word: u64,
    /// What to store there to take the operation back.
    pub before: u64,
    /// Bytes from `offset` on that have to be folded for the operation to be: all of a record,
    /// since a copy made while it was being stored may have its first word and not the rest.
    pub length: usize,
}

/// Bytes of the longest record.
const RECORD_BYTES: usize =
    arck_core_state::record::RECORD_UNITS_MAX * arck_core_state::record::RECORD_UNIT;

/// What every operation needs; the public face is [`crate::FileSystem`].
pub struct Engine {
    pub session: &'static Session,
    pub state: &'static AuxiliaryState,
    pub credentials: Credentials,
    pub paths: PathCache,
    pub spares: Spares,
    pub listing: Scratch,
}

impl Engine {
    /// Runs attempts until one succeeds or fails for good. What a name led to may be gone before
    /// it is looked at: then the path is walked again from its start, as if it never had been. ENOENT
    /// if it leads time and again to what is gone by then.
    #[inline]
    pub fn run<T>(&self, attempt: impl FnMut(&Context<'_>) -> Attempt<T>) -> Result<T, Failure> {
        self.run_again(attempt, true)
    }

    #[inline(always)]
    fn run_again<T>(
        &self,
        mut attempt: impl FnMut(&Context<'_>) -> Attempt<T>,
        by_path: bool,
    ) -> Result<T, Failure> {
        let thread = self.session.thread()?;
        let recalled = Recalled::default();
        let mut stale = 0;
        for _ in 0..ATTEMPTS_MAX {
            if self.session.is_of_group() && !thread.slot().is_pinned() {
                self.be_one_of_group()?;
            }
            recalled.published.set(false);
            recalled.changes.set(false);
            recalled.publishes.set(false);
            thread.forget_unreached();
            let attempted = self.attempt(thread, &recalled, &mut attempt);
            if let Some(errno) = thread.unreached()
                && recalled.is_wrong(&attempted)
            {
                return Err(self.session.say_why(errno).into());
            }
            let is_done = match &attempted {
                Ok(_) => recalled.published.get() || recalled.changes.get(),
                Err(Stop::Failure(_)) => recalled.published.get(),
                Err(Stop::Fix(_)) => false,
            };
            if recalled.damaged.get() && !is_done {
                continue;
            }
            let stop = match attempted {
                Ok(value) => return Ok(value),
                Err(stop) => stop,
            };
            let fixed = match stop {
                Stop::Failure(Failure::Errno(Errno::STALE)) if by_path => Err(Errno::STALE),
                Stop::Failure(Failure::Errno(Errno::STALE)) if stale < STALE_ATTEMPTS => {
                    stale += 1;
                    Ok(())
                }
                Stop::Failure(failure) => return Err(self.why(failure)),
                Stop::Fix(Fix::OwnTurn(number)) => {
                    let inode = self.known(number).ok_or(Errno::STALE)?;
                    *recalled.turn.borrow_mut() =
                        Some(Turn::on(self.session, inode, thread.slot().holder()));
                    Ok(())
                }
                Stop::Fix(Fix::Admit(number, false)) => self.admit(number, &recalled),
                Stop::Fix(fix) => self.fix_inside(thread, fix),
            };
            if fixed.is_err()
                && let Some(errno) = thread.unreached()
            {
                // What was to be got could not be looked at.
                return Err(self.session.say_why(errno).into());
            }
            match fixed {
                Ok(()) => {}
                Err(Errno::STALE) if by_path && stale == STALE_PATHS_MAX => {
                    return Err(Errno::NOENT.into());
                }
                Err(Errno::STALE) if by_path => {
                    stale += 1;
                    recalled.begin_again();
                    if stale > STALE_PATHS_QUICK {
                        std::thread::yield_now();
                    }
                }
                Err(Errno::ACCESS) if by_path && recalled.is_to_be_asked_again() => {}
                Err(errno) => return Err(self.why(errno.into())),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Says why, where the program is told ENOMEM and a limit is to blame.
    #[cold]
    fn why(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Errno(errno) => Failure::Errno(self.session.say_why(errno)),
            other => other,
        }
    }

    #[inline(always)]
    fn attempt<T>(
        &self,
        thread: &'static ThreadContext,
        recalled: &Recalled,
        attempt: &mut impl FnMut(&Context<'_>) -> Attempt<T>,
    ) -> Attempt<T> {
        let is_outermost = !thread.slot().is_pinned();
        let context = Context {
            session: self.session,
            state: self.state,
            thread,
            guard: thread.slot().pin(),
            operation: RefCell::new(None),
            credentials: &self.credentials,
            paths: &self.paths,
            spares: &self.spares,
            recalled,
        };
        if is_outermost
            && (self.session.has_missed_withdrawals()
                || self.session.is_of_group() && self.session.region().is_damaged())
        {
            return Err(Fix::Again.into());
        }
        let attempted = attempt(&context);
        // While nobody can have built it anew.
        let is_damaged = is_outermost && self.session.is_of_group();
        let is_damaged = is_damaged && self.session.region().is_damaged();
        recalled.damaged.set(is_damaged);
        attempted
    }

    /// Gets what an attempt needs, inside: what that changes of the auxiliary state nobody builds anew
    /// meanwhile. What fails since it is damaged is tried again.
    #[cold]
    pub fn fix_inside(&self, thread: &'static ThreadContext, fix: Fix) -> Result<(), Errno> {
        loop {
            let is_within = thread.slot().is_pinned();
            let inside = self.inside()?;
            let fixed = self.fix(thread, fix);
            let is_damaged = inside.is_some() && self.session.region().is_damaged();
            if is_within || fixed.is_ok() || !is_damaged {
                return fixed;
            }
        }
    }

    /// One attempt, of the thread that builds the auxiliary state anew: what it needs it does not get.
    pub fn run_inside<T>(
        &self,
        slot: &'static ThreadSlot<'static>,
        mut attempt: impl FnMut(&Context<'_>) -> Attempt<T>,
    ) -> Result<T, Errno> {
        let _inside = slot.pin();
        let recalled = Recalled::default();
        match self.attempt(self.session.thread()?, &recalled, &mut attempt) {
            Ok(value) => Ok(value),
            Err(Stop::Failure(Failure::Errno(errno))) => Err(errno),
            Err(_) => Err(Errno::AGAIN),
        }
    }

    /// Keeps the auxiliary state from being built anew, outside of an attempt, until it is dropped;
    /// of a session of one process nothing.
    #[inline]
    pub fn inside(&self) -> Result<Option<Guard<'static>>, Errno> {
        if !self.session.is_of_group() {
            return Ok(None);
        }
        let slot = self.session.thread()?.slot();
        loop {
            let is_within = slot.is_pinned();
            let inside = slot.pin();
            let is_damaged = self.session.region().is_damaged();
            if is_within || !is_damaged && !self.session.has_missed_withdrawals() {
                return Ok(Some(inside));
            }
            drop(inside);
            if is_damaged {
                self.rebuild()?;
            }
            self.session.drop_withdrawn()?;
        }
    }

    /// Before a call in a group of several processes: what others have left is cleared away, and the
    /// maps of this one show what others have changed.
    #[inline]
    fn be_one_of_group(&self) -> Result<(), Errno> {
        let kept_up = self.session.keep_up();
        kept_up.map_err(|errno| self.session.say_why(errno))?;
        if self.session.any_departed() {
            self.clear_departed()?;
        }
        if self.session.region().is_damaged() {
            self.rebuild()?;
        }
        if self.session.has_missed_withdrawals() {
            self.session.drop_withdrawn()?;
        }
        if mappings::take_moved(self.state.maps_moved.load(Ordering::Acquire)) {
            self.catch_up_with_maps();
        }
        Ok(())
    }

    /// As [`Engine::run`], for operations that take no path.
    #[inline]
    pub fn run_local<T>(
        &self,
        attempt: impl FnMut(&Context<'_>) -> Attempt<T>,
    ) -> Result<T, Errno> {
        self.run_again(attempt, false)
            .map_err(|failure| match failure {
                Failure::Errno(errno) => errno,
                Failure::Outside(_) => Errno::XDEV,
            })
    }
}
