//! Logs in a trust group of several processes: what is to be done when a member has died.
//!
//! # Invariants
//! * Nothing of a member is left that another would have to close: sections are looked at by their numbers, and
//!   none is listed as open.
//! * A member that died inside the auxiliary state has done to the core state what single stores commit, so each
//!   of its records is there as a whole or not at all. All else is made anew from that, by the kit.
//! * The bells stay where they are.

use arck_libfs_kit::Session;
use arck_libfs_kit::carried::Carried;
use arck_libfs_kit::engine::{Dependents, LibFs};
use arck_libfs_kit::region::ThreadSlot;
use arck_libfs_kit::views::{CachedInode, Viewing};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Where the places stand that the kit keeps for building again, while that is under way.
const OLD: usize = 2;

/// A session, as one of perhaps several members of a group.
pub struct Members {
    pub session: &'static Session,
}

impl Dependents for Members {
    fn view_moved(&self, _: &Viewing<'_>, _: &'static CachedInode) {}
    fn tree_changes(&self) {}
}

impl LibFs for Members {
    fn close_all_of(&self, _: u16) -> Result<(), Errno> {
        Ok(())
    }

    fn begin_again(&self, _: &'static ThreadSlot<'static>, _: &[u16]) -> Result<(), Errno> {
        let session = self.session;
        let is_noted = session.region().auxiliary_root(OLD).ok_or(Errno::IO)?;
        if is_noted.load(Ordering::Relaxed) == 0 {
            // Once, also where whoever has begun it died over it.
            session.state().data.remember(session)?;
            is_noted.store(1, Ordering::Release);
        }
        let opens = session.control().opens().iter();
        opens.for_each(|entry| entry.store(0, Ordering::Release));
        session.region().begin_build();
        let carried = Carried::default();
        session.state().begin_again(session, false, &carried)?;
        is_noted.store(0, Ordering::Release);
        Ok(())
    }
}
