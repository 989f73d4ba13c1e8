//! Data of files: [reading](read), [writing](write), changing sizes, [space](space), and where there is
//! [data](extents). It knows no names, and of who the process is only what a write takes away with set-id bits.

pub mod extents;
pub mod own;
pub mod read;
pub mod readable;
pub mod size_limit;
pub mod space;
mod step;
pub mod write;

use crate::attributes::Attributing;
use arck_libfs_kit::format::PagePtr;
use std::cell::Cell;
use std::ops::Deref;

/// A write whose bytes stand, and which is still to be stamped.
#[derive(Clone, Copy)]
pub struct Written {
    /// Where, and how many bytes of how many.
    pub at: u64,
    pub asked: usize,
    pub done: usize,
    /// In which page, of a file that has not been this session's all the time since: there they stand, as long as that
    /// is the file's.
    pub place: Option<PagePtr>,
}

/// An attempt, as what reads and writes data.
pub struct Data<'a> {
    pub attributing: Attributing<'a>,
    /// Of the call, from one attempt to the next.
    pub written: &'a Cell<Option<Written>>,
}

impl<'a> Deref for Data<'a> {
    type Target = Attributing<'a>;
    #[inline(always)]
    fn deref(&self) -> &Attributing<'a> {
        &self.attributing
    }
}
