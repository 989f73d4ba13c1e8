//! Whether what was looked at is of one verified state.
//!
//! Invariant: what is read without the inode's lock counts only if the header's sequence did not move
//! meanwhile (KucoFS's versioned read), not even a failure does otherwise.

use crate::need::{Attempt, Need, Stop};
use crate::views::{CachedInode, Viewing};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// A version of the verified state of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    sequence: u64,
    fold: u64,
}

impl Viewing<'_> {
    /// A pointer led nowhere: the verified state moved, or lies where this session cannot look yet,
    /// or it is damaged. Without the inode's
    /// lock another thread may refresh the view before this looks at it: then the caller has to
    /// ask [`Viewing::unmoved_since`] too, of any failure.
    #[cold]
    pub fn lost(&self, inode: &CachedInode) -> Stop {
        let denied = self.session.take_denied();
        match self.unmoved(inode) {
            Ok(()) if denied => Need::Admit(inode.number(), true).into(),
            Ok(()) => Errno::IO.into(),
            Err(stop) => stop,
        }
    }

    /// Which verified state a view was made from; to be taken before anything of the view is
    /// used, and given to [`Viewing::unmoved_since`] afterwards.
    #[inline]
    pub fn seen(&self, inode: &CachedInode) -> Seen {
        Seen {
            sequence: inode.sequence.load(Ordering::Acquire),
            fold: inode.fold.load(Ordering::Acquire),
        }
    }

    /// That the verified state is still the one that was `seen`: what was read in between is
    /// one state, even if another thread has refreshed the view meanwhile.
    #[inline]
    pub fn unmoved_since(&self, inode: &CachedInode, seen: Seen) -> Attempt<()> {
        let header = self.header(inode.number())?;
        std::sync::atomic::fence(Ordering::Acquire);
        if header.sequence.load(Ordering::Acquire) == seen.sequence && header.fold() == seen.fold {
            Ok(())
        } else {
            Err(Need::Again.into())
        }
    }

    /// The same for what is done under the inode's lock, where no other thread refreshes.
    #[inline]
    pub fn unmoved(&self, inode: &CachedInode) -> Attempt<()> {
        self.unmoved_since(inode, self.seen(inode))
    }
}
