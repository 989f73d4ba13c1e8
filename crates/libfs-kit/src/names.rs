//! Names: looking them up, and changing them: creations of new inodes beside their first names, names taken
//! away, added and moved. Several names can be changed [`together`].
//!
//! * [`lookup`]: what a name leads to. [`listing`]: all names of a directory. [`directories`]: the way to one.
//! * [`creations`], [`changes`], [`together`]: changes, which [`records`] of a delta say.
//!
//! # Invariant
//! * What a view shows of names changes when the operation stands, not before.

mod ahead;
pub mod changes;
pub mod creations;
pub mod directories;
pub mod listing;
pub mod lookup;
pub mod records;
pub mod together;

pub use crate::views::overlay::OverlayEntry;

use crate::changing::Changing;
use std::ops::Deref;

/// One attempt, with all that an operation may do in it. From below: the
/// [attempt](crate::attempt::Attempting), its [views](crate::views::Viewing), [changing](Changing) them, names.
pub struct Context<'a> {
    changing: Changing<'a>,
}

impl<'a> Deref for Context<'a> {
    type Target = Changing<'a>;
    #[inline(always)]
    fn deref(&self) -> &Changing<'a> {
        &self.changing
    }
}

impl<'a> Context<'a> {
    #[inline(always)]
    pub(crate) fn of(changing: Changing<'a>) -> Context<'a> {
        Context { changing }
    }
}
