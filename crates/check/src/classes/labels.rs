//! Where things that are labelled lie: what is noted while the inodes are looked at.

use crate::inode::Use;
use crate::pool::Pool;
use crate::shared::lock;
use arck_core_state::{FileKind, InodeNumber, PagePtr, SegmentNumber};
use std::sync::Mutex;

/// A page of a segment with a label, or an inode in one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Labelled {
    pub segment: SegmentNumber,
    pub number: InodeNumber,
    /// The inode itself lies there, not what is in it.
    pub is_place: bool,
}

/// What is noted while the inodes are looked at.
#[derive(Default)]
pub(crate) struct Labels {
    pub labelled: Mutex<Vec<Labelled>>,
    /// What is no directory, and a directory that has a name of it.
    pub names: Mutex<Vec<(InodeNumber, InodeNumber)>>,
}

impl Labels {
    /// `None`: nobody but root and the pool's user is sent anything, or it is too early to tell.
    pub fn of(pool: &Pool) -> Option<Labels> {
        let mut segments = 0..pool.geometry.segment_count;
        let is_closed = pool.superblock.clean && !pool.served;
        let any = segments.any(|segment| pool.segment_entry(segment).class != 0);
        (is_closed && any).then(Labels::default)
    }

    /// An inode has a page; `last` is what was noted last, by this thread.
    pub fn note(
        &self,
        pool: &Pool,
        number: InodeNumber,
        page: PagePtr,
        what: Use,
        last: &mut Option<Labelled>,
    ) {
        if !pool.geometry.contains(page) {
            return;
        }
        let labelled = Labelled {
            segment: pool.geometry.segment_of(page),
            number,
            is_place: what == Use::Inodes,
        };
        if *last != Some(labelled) && pool.segment_entry(labelled.segment).class != 0 {
            lock(&self.labelled).push(labelled);
        }
        *last = Some(labelled);
    }

    pub fn note_name(&self, directory: InodeNumber, target: InodeNumber, kind: FileKind) {
        if kind != FileKind::Directory {
            lock(&self.names).push((target, directory));
        }
    }
}
