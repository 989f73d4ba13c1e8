//! What lies behind the end of a file, in its last page: what a shorter write or a truncation cut off is
//! nobody's to read any more, and a LibFS that should have zeroed it is not relied on.
//!
//! # Invariants
//! * A page that is moved to other readers has zeroes behind the end of the file ([`super::pages`]).
//! * So has one that readers can map already and that its writer cannot write: when the file has become
//!   shorter, as soon as that is committed; before it becomes longer, whatever its new owner left out.
//! * A page in a segment of a session is never touched: that session may be storing there. Only its own
//!   user, root and the pool's user can map it.

use crate::fold::pages::Copier;
use crate::state::tables::State;
use arck_controller_state::segments::{CONTROLLER, SegmentKind};
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE, PagePtr};
use arck_verifier::{Changes, VerifiedState};

/// A file whose size a fold changes.
#[derive(Clone, Copy)]
pub(crate) struct Resized {
    number: InodeNumber,
    old: u64,
    new: u64,
}

/// Files of which a fold changes the size, and not the page in which the shorter one ends.
pub(crate) fn resized(state: &State, changes: &Changes<'_>) -> Vec<Resized> {
    if !state.space.shared {
        // Whoever is served may read everything.
        return Vec::new();
    }
    let resized = changes.inodes.iter().filter_map(|change| {
        let old = state.shadow(change.inode)?.size;
        let new = change.size.filter(|&new| new != old)?;
        let end = old.min(new);
        let stays = |&(page, _): &(u64, PagePtr)| page != end / PAGE_SIZE;
        (end % PAGE_SIZE != 0 && change.pages.iter().all(stays)).then_some(Resized {
            number: change.inode,
            old,
            new,
        })
    });
    resized.collect()
}

/// Zeroes what is behind the ends of files that are about to become longer: nobody sees it yet.
pub(crate) fn clear_before_growth(state: &State, resized: &[Resized]) {
    let mut copier = Copier::default();
    for file in resized.iter().filter(|file| file.new > file.old) {
        clear_behind(state, &mut copier, file.number, file.old);
    }
}

fn clear_behind(state: &State, copier: &mut Copier, number: InodeNumber, end: u64) {
    let page = state.data_page(number, end / PAGE_SIZE);
    if end.is_multiple_of(PAGE_SIZE) || page.is_null() {
        return;
    }
    // Whose segment it is may be storing there at this moment, also after the file has become another
    // session's: what he has stored in place stands, and is not stored once more.
    if state.data_segment_owner(page).is_some() {
        return;
    }
    if let Err(errno) = copier.clear(state, page, (end % PAGE_SIZE) as usize) {
        // Its session has cut its file off: nobody reads anything of the page.
        tracing::debug!("the end of inode {number} is not cleared: {errno}");
    }
}

impl State {
    /// Zeroes what is behind the end of a file, unless it lies where a session may be storing.
    pub(crate) fn clear_tail(&self, number: InodeNumber) {
        self.clear_tail_with(&mut Copier::default(), number);
    }

    fn clear_tail_with(&self, copier: &mut Copier, number: InodeNumber) {
        let state = &self;
        let Some(inode) = state.shadow(number) else {
            return;
        };
        if !state.space.shared || inode.kind() != Some(FileKind::File) {
            return;
        }
        clear_behind(state, copier, number, inode.size);
    }

    /// Of files that have become shorter.
    pub(crate) fn clear_after_cuts(&self, resized: &[Resized]) {
        let mut copier = Copier::default();
        for file in resized.iter().filter(|file| file.new < file.old) {
            self.clear_tail_with(&mut copier, file.number);
        }
    }

    /// After a crash, which may have been between a cut and this: of a file whose end readers can map.
    pub fn clear_shown_tail(&self, copier: &mut Copier, number: InodeNumber) {
        let Some(inode) = self.shadow(number) else {
            return;
        };
        if inode.kind() != Some(FileKind::File) || inode.size.is_multiple_of(PAGE_SIZE) {
            return;
        }
        let page = self.data_page(number, inode.size / PAGE_SIZE);
        if page.is_null() {
            return;
        }
        let segment = self.pool.geometry().segment_of(page);
        let entry = self.space.entry(segment).unwrap_or_default();
        if entry.kind() == SegmentKind::Data && entry.uid == CONTROLLER {
            self.clear_tail_with(copier, number);
        }
    }
}
