//! Views: what this session sees of inodes, in the group's shared region. A view is the verified state of
//! an inode with this session's delta on top.
//!
//! * [`refresh`]: the table of views, and bringing one up to date. [`ended`]: what becomes of deltas that
//!   are over. [`links`]: counts of links.
//! * [`kinds`]: a view as that of a directory, or of what is none.
//! * [`locks`], [`exclusive`]: who may change what of an inode at the same time.
//! * [`verified`]: what was looked at is of one state. [`entries`]: the pages of files, and the entries of
//!   deltas that lead to them. [`branch`]: branches begun. [`stamps`]: times.
//! * [`open`]: the table of what is open.
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

pub mod branch;
pub mod ended;
pub mod entries;
pub mod exclusive;
pub mod kinds;
pub mod links;
pub mod locks;
pub mod open;
pub mod reading;
pub mod refresh;
pub mod stamps;
pub mod verified;
pub mod whole;

pub use crate::delta::begun;
pub use crate::state::inodes::*;
pub use crate::state::views::Views;
pub use kinds::{Directory, File};
