//! How an operation runs: inside an operation of the protocol, with the epoch pinned, and again
//! from the start whenever something has to be had first or a fold got in between.
//!
//! An operation is a closure over a [`Context`], one *[attempt](crate::attempt)*. It
//!
//! 1. looks at what it needs, by [views](crate::views) and [names](crate::names);
//!    what is lacking it gives away as a [`Need`], and the engine meets that and makes it again;
//! 2. locks the inodes that it is about ([`crate::views::locks`]);
//! 3. begins to change them ([`Changing::begin_change`]: the *first check*), has what it refers to
//!    durable, and publishes by one store;
//! 4. has the *second check* made, [`Changing::confirm`], which asks for the fold copy where a fold got
//!    in between, and says whether the operation stands, was folded, or is to be made again;
//! 5. brings the views up to what stands.
//!
//! The engine does the rest: waiting for marks, asking for ownership, numbers, pages and room, folding
//! where there is none, refreshing views and dropping deltas that are over, joining in when a member
//! of the group has died, and going on with the controller's successor.
//!
//! # Invariants
//! * Nothing is asked of the controller inside an operation or under a lock: an attempt that
//!   needs something gives it up as a [`Need`], ends, and is made again after.
//!
//! [`Changing::begin_change`]: crate::changing::Changing::begin_change
//! [`Changing::confirm`]: crate::changing::Changing::confirm

mod admission;
mod ahead;
mod needs;
mod open;
mod rebuild;
mod waiting;

pub use crate::attempt::Progress;
pub use crate::changing::{Confirmed, Expected, Published};
pub use crate::names::Context;
pub use crate::need::{Attempt, Need, Stop};
pub use crate::views::Dependents;

use crate::attempt::whole::Exclusive;
use crate::attempt::{ATTEMPTS_MAX, Attempting, Call};
use crate::changing::Changing;
use crate::region::{Guard, ThreadSlot};
use crate::views::refresh::known_in;
use crate::views::{CachedInode, Viewing, Views};
use crate::{Session, ThreadContext};
use arck_core_state::InodeNumber;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// How a call comes to the inodes that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// By names: what they led to may be gone before it is looked at; then they are walked again from
    /// the start, as if it never had been. ENOENT if they lead time and again to what is gone by then.
    Names,
    /// By numbers, of what is open.
    Numbers,
}

/// What the engine leaves to the LibFS, beside what depends on views.
pub trait LibFs: Dependents {
    /// Closes what a member of the group had open that is gone. Inside; one thread at a time.
    fn close_all_of(&self, member: u16) -> Result<(), Errno>;

    /// Begins a new build of the auxiliary state, since a member died inside the old one: `gone`
    /// are the departed. Nobody else is inside, and all is folded. See
    /// [`State::begin_again`](crate::session::State::begin_again) for the kit's part.
    fn begin_again(&self, slot: &'static ThreadSlot<'static>, gone: &[u16]) -> Result<(), Errno>;
}

/// A LibFS with nothing of that: its sessions are of one process each, and show no file in a live map.
pub struct Alone;

impl Dependents for Alone {
    fn view_moved(&self, _: &Viewing<'_>, _: &'static CachedInode) {}
    fn tree_changes(&self) {}
}

impl LibFs for Alone {
    fn close_all_of(&self, _: u16) -> Result<(), Errno> {
        Ok(())
    }
    fn begin_again(&self, _: &'static ThreadSlot<'static>, _: &[u16]) -> Result<(), Errno> {
        // Nobody dies inside what only this process has.
        Err(Errno::IO)
    }
}

/// Runs operations of a session.
#[derive(Clone, Copy)]
pub struct Engine<'l> {
    pub session: &'static Session,
    pub views: &'static Views,
    pub libfs: &'l dyn LibFs,
}

/// An attempt that was made.
struct Tried<T> {
    outcome: Attempt<T>,
    /// Before it left, the auxiliary state was damaged: what it has found counts for nothing.
    is_damaged: bool,
}

impl<'l> Engine<'l> {
    pub fn new(session: &'static Session, libfs: &'l dyn LibFs) -> Engine<'l> {
        let views = &session.state().views;
        Engine {
            session,
            views,
            libfs,
        }
    }
}

impl Engine<'_> {
    /// The cached inode of a number, if there is one.
    #[inline]
    pub fn known(&self, number: InodeNumber) -> Option<&'static CachedInode> {
        known_in(
            self.session,
            self.views.inodes.load(Ordering::Acquire),
            number,
        )
    }

    /// Runs attempts until one succeeds or fails for good.
    #[inline(always)]
    pub fn run<T>(
        &self,
        way: Way,
        mut attempt: impl FnMut(&Context<'_>) -> Attempt<T>,
    ) -> Result<T, Errno> {
        let thread = self.session.thread()?;
        let call = Call::default();
        for _ in 0..ATTEMPTS_MAX {
            if self.session.is_of_group() && !thread.slot().is_pinned() {
                self.be_one_of_group()?;
            }
            call.progress.set(Progress::Looking);
            thread.forget_unreached();
            let tried = self.attempt(thread, &call, &mut attempt);
            if let Some(errno) = thread.unreached()
                && call.is_wrong(&tried.outcome)
            {
                return Err(self.session.say_why(errno));
            }
            let is_done = || match &tried.outcome {
                Ok(_) => call.progress.get() >= Progress::Changing,
                Err(Stop::Failure(_)) => call.progress.get() == Progress::Published,
                Err(Stop::Need(_)) => false,
            };
            if tried.is_damaged && !is_done() {
                continue;
            }
            match tried.outcome {
                Ok(value) => return Ok(value),
                Err(stop) => self
                    .prepare_again(thread, &call, way, stop)
                    .map_err(|errno| self.session.say_why(errno))?,
            }
        }
        Err(Errno::AGAIN)
    }

    /// As [`Engine::run`], for operations that take no names.
    #[inline]
    pub fn run_local<T>(
        &self,
        attempt: impl FnMut(&Context<'_>) -> Attempt<T>,
    ) -> Result<T, Errno> {
        self.run(Way::Numbers, attempt)
    }

    /// After an attempt that has stopped: what it needs is got. An error ends the call.
    #[inline(never)]
    fn prepare_again(
        &self,
        thread: &'static ThreadContext,
        call: &Call,
        way: Way,
        stop: Stop,
    ) -> Result<(), Errno> {
        let met = match stop {
            Stop::Failure(Errno::STALE) if way == Way::Names => Err(Errno::STALE),
            Stop::Failure(Errno::STALE) if call.looks_again() => return Ok(()),
            Stop::Failure(errno) => return Err(errno),
            Stop::Need(Need::OwnExclusive(number)) => {
                let inode = self.known(number).ok_or(Errno::STALE)?;
                call.keep(Exclusive::on(self.session, inode, thread.slot().holder()));
                Ok(())
            }
            Stop::Need(Need::Admit(number, false)) => self.admit(number, &call.admission),
            Stop::Need(need) => self.meet(thread, need),
        };
        if met.is_err()
            && let Some(errno) = thread.unreached()
        {
            // What was to be got could not be looked at.
            return Err(errno);
        }
        match met {
            Err(Errno::STALE) if way == Way::Names => call.walks_again(),
            Err(Errno::ACCESS) if way == Way::Names && call.admission.is_to_be_asked_again() => {
                Ok(())
            }
            other => other,
        }
    }

    #[inline(always)]
    fn attempt<T>(
        &self,
        thread: &'static ThreadContext,
        call: &Call,
        attempt: &mut impl FnMut(&Context<'_>) -> Attempt<T>,
    ) -> Tried<T> {
        let is_outermost = !thread.slot().is_pinned();
        let attempting = Attempting::begin(self.session, thread, call);
        let viewing = Viewing::of(attempting, self.views, self.libfs);
        let context = Context::of(Changing::of(viewing));
        let region = self.session.region();
        if is_outermost
            && (self.session.has_missed_withdrawals()
                || self.session.is_of_group() && region.is_damaged())
        {
            return Tried {
                outcome: Err(Need::Again.into()),
                is_damaged: false,
            };
        }
        let outcome = attempt(&context);
        // While nobody can have built it anew.
        let is_damaged = is_outermost && self.session.is_of_group() && region.is_damaged();
        Tried {
            outcome,
            is_damaged,
        }
    }

    /// One attempt, of the thread that builds the auxiliary state anew: what it needs it does not get.
    pub fn run_inside<T>(
        &self,
        slot: &'static ThreadSlot<'static>,
        mut attempt: impl FnMut(&Context<'_>) -> Attempt<T>,
    ) -> Result<T, Errno> {
        let _inside = slot.pin();
        let call = Call::default();
        let tried = self.attempt(self.session.thread()?, &call, &mut attempt);
        tried.outcome.map_err(|stop| match stop {
            Stop::Failure(errno) => errno,
            Stop::Need(_) => Errno::AGAIN,
        })
    }

    /// Keeps the auxiliary state from being built anew, outside of an attempt, until it is dropped;
    /// of a session of one process nothing.
    #[inline(always)]
    pub fn inside(&self) -> Result<Option<Guard<'static>>, Errno> {
        match self.session.is_of_group() {
            true => self.inside_of_group().map(Some),
            false => Ok(None),
        }
    }

    fn inside_of_group(&self) -> Result<Guard<'static>, Errno> {
        let slot = self.session.thread()?.slot();
        loop {
            let is_within = slot.is_pinned();
            let inside = slot.pin();
            let is_damaged = self.session.region().is_damaged();
            if is_within || !is_damaged && !self.session.has_missed_withdrawals() {
                return Ok(inside);
            }
            drop(inside);
            if is_damaged {
                self.rebuild()?;
            }
            self.session.drop_withdrawn()?;
        }
    }

    /// Before a call in a group of several processes: what others have left is cleared away.
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
        Ok(())
    }
}
