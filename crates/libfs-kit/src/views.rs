//! Views: what this session sees of inodes, in the group's shared region. A view is the verified state of
//! an inode with this session's delta on top.
//!
//! * [`refresh`]: the table of views, and bringing one up to date. [`ended`]: what becomes of deltas that
//!   are over. [`links`]: counts of links. `admission`: what cannot be mapped yet.
//! * [`kinds`]: a view as that of a directory, or of what is none.
//! * [`overlay`]: what deltas say of names. [`entries`], [`reading`]: the pages of files. [`times`].
//! * [`locks`], [`exclusive`]: who may change what of an inode at the same time.
//! * [`sealed`]: what is being folded of a directory while this session goes on.
//! * [`verified`]: what was looked at is of one state.
//! * [`open`]: the table of what is open. [`uncommitted`], [`reuse`]: the end of what was never committed, and
//!   the numbers of that.
//!
//! # Invariants
//! * Everything here can be rebuilt from the core state.
//! * A [`CachedInode`] holds for the `ownership`, `fold` and `sequence` written in it, which are compared
//!   with the header before it is believed.
//! * `CachedInode::lock` protects the delta fields for writing (those of a directory's names may be
//!   protected by the locks of its [stripes](locks) instead); readers of attributes load them
//!   one by one. Cached inodes are never freed while the session lives, so references to them
//!   need no epoch; overlay entries are freed through the epoch.
//!
//! Order of locks: the LibFS's own; that of making room; exclusive I/O of an inode (one at a time, see [`exclusive`]);
//! cached inodes by ascending number, directories before what they hold where both are needed;
//! then stocks of the kit; then the region's own.

pub mod above;
mod admission;
pub mod byte_locks;
pub mod ended;
pub mod entries;
pub mod exclusive;
pub mod kinds;
pub mod links;
pub mod locks;
pub mod open;
pub mod overlay;
pub mod reading;
pub mod refresh;
pub mod reuse;
pub mod sealed;
pub mod striping;
pub mod times;
pub mod uncommitted;
pub mod verified;

pub use crate::delta::begun;
pub use crate::state::inodes::*;
pub use crate::state::kinds::SealedPart;
pub use crate::state::views::Views;
pub use kinds::{Directory, File};

use crate::attempt::Attempting;
use std::ops::Deref;

/// What of a LibFS depends on views. It runs no operation that is not inside already.
pub trait Dependents: Sync {
    /// The verified state beneath the view of an inode with [`flag::MAPPED`] is another. Under its lock.
    fn view_moved(&self, viewing: &Viewing<'_>, inode: &'static CachedInode);

    /// Called before and after a directory is taken away from where it was, or goes to another name: what is
    /// remembered of paths counts no more.
    fn tree_changes(&self);
}

/// An attempt, as what looks at views, locks them, and keeps them up to date.
pub struct Viewing<'a> {
    attempting: Attempting<'a>,
    pub views: &'static Views,
    dependents: &'a dyn Dependents,
}

impl<'a> Deref for Viewing<'a> {
    type Target = Attempting<'a>;
    #[inline(always)]
    fn deref(&self) -> &Attempting<'a> {
        &self.attempting
    }
}

impl<'a> Viewing<'a> {
    #[inline(always)]
    pub(crate) fn of(
        attempting: Attempting<'a>,
        views: &'static Views,
        dependents: &'a dyn Dependents,
    ) -> Viewing<'a> {
        Viewing {
            attempting,
            views,
            dependents,
        }
    }

    /// What of the LibFS depends on views.
    #[inline(always)]
    pub(crate) fn dependents(&self) -> &'a dyn Dependents {
        self.dependents
    }
}
