//! What of a session's deltas goes on in a new build of the auxiliary state: that of inodes which
//! no fold takes, since they have no name and the controller has never known of them.
//!
//! # Invariant
//! A page that such a delta refers to is taken in the new build, and the inode's number is not in
//! its stock.

use crate::delta::{self, Branch};
use crate::session::{Session, State};
use arck_core_state::branch::StoredBranch;
use arck_core_state::{InodeNumber, PagePtr, extended};
use rustix::io::Errno;
use std::collections::BTreeSet;

/// See the module's head.
#[derive(Default)]
pub struct Carried {
    numbers: BTreeSet<InodeNumber>,
    pub(crate) delta_pages: Vec<u32>,
    pub(crate) data_pages: Vec<PagePtr>,
}

impl Carried {
    /// An uncommitted inode goes on with its delta: gives what its branch says, if it has one.
    pub fn keep(&mut self, session: &Session, number: InodeNumber) -> Option<StoredBranch> {
        self.numbers.insert(number);
        let header = session.header(number)?;
        let branch = Branch::at(session, header.branch_slot()).ok()?;
        let stored = branch.stored(number, header)?;
        if stored.attributes != 0 && stored.attributes != extended::NONE {
            self.data_pages.push(PagePtr(u64::from(stored.attributes)));
        }
        let (data, delta) = (&mut self.data_pages, &mut self.delta_pages);
        delta::for_each_entry(
            session,
            stored.root,
            &mut |_, page| data.push(PagePtr(page)),
            &mut |page| delta.push(page),
        );
        Some(stored)
    }

    /// An uncommitted inode goes on without whatever delta it has, which durably ends. EIO.
    pub fn keep_bare(&mut self, session: &Session, number: InodeNumber) -> Result<(), Errno> {
        self.numbers.insert(number);
        let header = session.header(number).ok_or(Errno::STALE)?;
        match delta::end_branch(session, number, header) {
            true => Ok(()),
            false => Err(Errno::IO),
        }
    }

    pub fn has(&self, number: InodeNumber) -> bool {
        self.numbers.contains(&number)
    }
}

impl State {
    /// In a new build of the auxiliary state, with nothing unfolded but what is `carried`. Where
    /// `keeping`, no page is free that was taken. ENOMEM.
    pub fn begin_again(
        &self,
        session: &'static Session,
        keeping: bool,
        carried: &Carried,
    ) -> Result<(), Errno> {
        let slot = session.thread()?.slot();
        let segments = self.data.look_at_old(session)?;
        self.arena.begin_again(session, slot, carried)?;
        self.data
            .begin_again(session, slot, segments, keeping, carried)?;
        self.numbers.begin_again(session, slot, carried);
        let inode_count = session.geometry().inode_count;
        self.views.begin_again(session.region(), inode_count, slot)
    }
}
