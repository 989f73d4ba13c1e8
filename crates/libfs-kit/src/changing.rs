//! Changing inodes: the first check, with which every change begins, branches, times and entries of deltas, and
//! the second check, after what was published.
//!
//! * [`ahead`]: folds that are asked for ahead. [`second_check`]: whether what was published stands. [`branch`]: branches begun. [`stamps`]: times in
//!   them. [`entries`]: their indexes of pages.
//!
//! # Invariants
//! * Nothing is written to an inode's delta before [`Changing::begin_change`] has said that the inode is owned,
//!   and its view that of now; under the inode's lock, and inside an operation from then on.
//! * After publishing, [`Changing::confirm`] looks at the headers again (DESIGN section 5).

mod ahead;
pub mod branch;
pub mod entries;
pub mod second_check;
pub mod stamps;

pub use arck_protocol::operation::Expected;
pub use second_check::{Confirmed, Published};

use crate::need::{Attempt, Need, Stop};
use crate::ownership::{self, Owner};
use crate::views::{CachedInode, Viewing};
use arck_core_state::{InodeNumber, LiveHeader};
use rustix::io::Errno;
use std::ops::Deref;

/// An attempt, as what changes inodes: it sees their views, and checks that they still hold.
pub struct Changing<'a> {
    viewing: Viewing<'a>,
}

impl<'a> Deref for Changing<'a> {
    type Target = Viewing<'a>;
    #[inline(always)]
    fn deref(&self) -> &Viewing<'a> {
        &self.viewing
    }
}

impl<'a> Changing<'a> {
    #[inline(always)]
    pub(crate) fn of(viewing: Viewing<'a>) -> Changing<'a> {
        Changing { viewing }
    }

    /// The first check, with which every change of an inode begins: that it is owned, and its view that of
    /// now. Under its lock; enters the operation.
    #[inline]
    pub fn begin_change(&self, inode: &CachedInode) -> Attempt<Expected> {
        self.enter();
        let expected = self.owned(inode)?;
        self.unmoved(inode)?;
        self.session.reach_delta()?;
        Ok(expected)
    }

    /// That this session owns the inode and `inode` is a view of it as it is now; to be asked
    /// under the inode's lock, after [`enter`](crate::attempt::Attempting::enter), before anything is written.
    #[inline]
    fn owned(&self, inode: &CachedInode) -> Attempt<Expected> {
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
            return Need::Wait(number).into();
        }
        match ownership::owner(self.session, header) {
            // Until it is repaired, or taken away: what came on top would be lost with it.
            Owner::Us(_) if header.ownership().is_refused() => Errno::IO.into(),
            // Ours, but the view is older than a fold: whoever asked refreshes the view.
            Owner::Us(_) => Need::Again.into(),
            Owner::Nobody | Owner::Other => Need::Own([number, 0, 0, 0]).into(),
            Owner::Gone => Errno::STALE.into(),
        }
    }
}
