//! The attempt itself: the thread that makes it, the epoch that it has pinned, the operation of the protocol
//! that it enters when it is going to publish, and the call that it belongs to.
//!
//! * [`call`]: what a call carries from attempt to attempt. `admission`: what it has been told on its way.
//! * [`whole`]: an inode held as a whole, and exclusive I/O, which a call keeps.
//! * `verified`: the verified state of an inode, mapped or told.
//!
//! # Invariants
//! * An attempt that stops before it has published leaves everything as it was.
//! * What could not be reached is not taken for what is not there: an attempt publishes nothing after it
//!   ([`Attempting::expect_reached`]), and what it says is not told.

mod admission;
mod call;
mod verified;
pub mod whole;

pub(crate) use admission::Admission;
pub(crate) use call::Call;
pub use call::Progress;

use crate::need::{Attempt, Need, Stop};
use crate::region::{Guard, ThreadSlot};
use crate::state::inodes::CachedInode;
use crate::{Operation, Session, ThreadContext};
use arck_core_state::{InodeNumber, LiveHeader};
use rustix::io::Errno;
use std::cell::RefCell;
use whole::Exclusive;

/// Attempts until an operation gives up with EAGAIN: each follows some progress of another
/// session or of the controller, so this is far more than any honest run needs.
pub(crate) const ATTEMPTS_MAX: usize = 100_000;

/// One attempt.
pub struct Attempting<'a> {
    pub session: &'static Session,
    pub thread: &'static ThreadContext,
    pub guard: Guard<'static>,
    operation: RefCell<Option<Operation<'static>>>,
    call: &'a Call,
}

impl<'a> Attempting<'a> {
    /// Begins one: the epoch is pinned until it ends.
    #[inline(always)]
    pub(crate) fn begin(
        session: &'static Session,
        thread: &'static ThreadContext,
        call: &'a Call,
    ) -> Attempting<'a> {
        Attempting {
            session,
            thread,
            guard: thread.slot().pin(),
            operation: RefCell::new(None),
            call,
        }
    }

    #[inline(always)]
    pub fn slot(&self) -> &'static ThreadSlot<'static> {
        self.thread.slot()
    }

    /// Enters the operation, once an attempt is going to publish.
    #[inline]
    pub fn enter(&self) {
        let mut operation = self.operation.borrow_mut();
        if operation.is_none() {
            *operation = Some(self.thread.enter());
        }
    }

    /// Leaves it, when nothing more will be published.
    pub(crate) fn leave(&self) {
        self.operation.borrow_mut().take();
    }

    pub(crate) fn is_inside(&self) -> bool {
        self.operation.borrow().is_some()
    }

    /// The group's region has no memory left: ENOMEM, if a fold has not helped.
    #[cold]
    pub fn no_memory(&self) -> Stop {
        match self.call.may_free_memory() {
            true => Need::Memory.into(),
            false => Errno::NOMEM.into(),
        }
    }

    /// That nobody looks any more at what was there in this epoch is waited for once in a call, and not for long; then
    /// `None`: whoever stays inside for longer than that does not keep the others.
    #[cold]
    pub fn wait_for_unseen(&self, epoch: u64) -> Option<Stop> {
        self.call
            .may_wait_for_unseen()
            .then(|| Need::Unseen(epoch).into())
    }

    /// From here on the attempt does what is not to be done twice.
    #[inline]
    pub fn note_change(&self) {
        self.call.reach(Progress::Changing);
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
        self.call.reach(Progress::Publishing);
    }

    /// What the attempt does is in the delta.
    #[inline(always)]
    pub(crate) fn has_published(&self) {
        self.call.reach(Progress::Published);
    }

    /// What the call has asked, and been told, on its way.
    #[inline(always)]
    pub(crate) fn admission(&self) -> &Admission {
        &self.call.admission
    }

    /// Keeps exclusive I/O until the call ends.
    pub(crate) fn keep(&self, exclusive: Exclusive) {
        self.call.keep(exclusive);
    }

    #[inline(always)]
    pub fn header(&self, number: InodeNumber) -> Result<&'static LiveHeader, Errno> {
        self.session.header(number).ok_or(Errno::STALE)
    }

    /// Whether this session owns an inode, as its view has it.
    #[inline(always)]
    pub fn owns(&self, inode: &CachedInode) -> bool {
        inode.expected().ownership.session() == self.session.number()
    }

    /// That it does: to be asked before much is stored for a change that
    /// the first check would not let be made.
    pub fn expect_own(&self, inode: &CachedInode) -> Attempt<()> {
        match self.owns(inode) {
            true => Ok(()),
            false => Err(Need::Own([inode.number(), 0, 0, 0]).into()),
        }
    }
}
