//! Letting readers in to what is in a file or directory that they may read and cannot map.
//!
//! # Invariants
//! * Of a large file it goes in steps: segments in which there is nothing but the file's, and that nobody
//!   can write, get another label, [`SEGMENTS`] at a time; of the rest [`WINDOW`] pages are copied at a
//!   time. Others are served between two steps.
//! * What there is no room for is not begun, and not tried again for [`REFUSED`]: it is read by message
//!   ([`crate::by_message`]).
//! * What gets another label is emptied first where nothing refers to it, and behind the file's end.

use super::pages::{contents, index_pages};
use crate::change::{Change, Weight};
use crate::classes::{Condition, NOBODY, Wish};
use crate::core::Core;
use crate::lent::Lent;
use crate::reach::Reach;
use crate::state::State;
use arck_controller_state::segments::{CONTROLLER, HIDDEN, SegmentEntry, SegmentKind};
use arck_core_state::{FileKind, Inode, InodeNumber, PAGE_SIZE, PagePtr, SegmentNumber};
use arck_verifier::Credentials;
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Data pages that are copied in one step: 4 MiB.
const WINDOW: usize = 1024;
/// Segments that get another label in one step.
const SEGMENTS: usize = 32;
/// What there was no room for is refused for so long without being looked at.
const REFUSED: Duration = Duration::from_secs(1);
/// Inodes of which that is known; when there are more, all are looked at again.
const REFUSED_MAX: usize = 4096;

/// What there was no room for, and when.
#[derive(Default)]
pub(crate) struct NoRoom(HashMap<InodeNumber, Instant>);

impl NoRoom {
    fn is_known(&self, number: InodeNumber) -> bool {
        self.0
            .get(&number)
            .is_some_and(|since| since.elapsed() < REFUSED)
    }

    fn note(&mut self, number: InodeNumber) -> Errno {
        if self.0.len() >= REFUSED_MAX {
            self.0.clear();
        }
        self.0.insert(number, Instant::now());
        Errno::NOSPC
    }
}

impl Core {
    /// Moves what is in an inode where a user can map it, a step of it; whether that is all. EACCES,
    /// EBUSY, ENOSPC.
    pub(super) fn admit_contents(
        &mut self,
        who: &Credentials,
        number: InodeNumber,
    ) -> Result<bool, Errno> {
        let inode = *self.state.shadow(number).ok_or(Errno::STALE)?;
        if self.state.is_privileged(who) {
            return Ok(true);
        }
        if inode.kind() != Some(FileKind::Link) && !who.may(&inode, 4) {
            return Err(Errno::ACCESS);
        }
        let stays = |state: &State, page| state.classes.admits(state.space.label_of(page), who);
        let outside = |state: &State| -> Result<usize, Errno> {
            let number = *state.shadow(number).ok_or(Errno::STALE)?;
            let pages = contents(state, &number)?;
            Ok(pages.iter().filter(|&&page| !stays(state, page)).count())
        };
        let before = outside(&self.state)?;
        if before == 0 {
            return Ok(true);
        }
        if self.no_room.is_known(number) {
            return Err(Errno::NOSPC);
        }
        self.refuse_moving(number)?;
        if self.relabel_segments(&inode)? {
            return Ok(false);
        }
        if before > WINDOW && !self.has_room_for(before) {
            return Err(self.no_room.note(number));
        }
        let left = Cell::new(WINDOW);
        let stays_now = |state: &State, page| {
            stays(state, page) || left.get() == 0 || {
                left.set(left.get() - 1);
                false
            }
        };
        match self.move_contents(number, None, &stays_now) {
            Ok(_) => {}
            // Of what is small it costs little to try again, and there may be room at once.
            Err(Errno::NOSPC) if before > WINDOW => return Err(self.no_room.note(number)),
            Err(errno) => return Err(errno),
        }
        match outside(&self.state)? {
            0 => Ok(true),
            after if after < before => Ok(false),
            // There is no class for it, or no room in that.
            _ if before > WINDOW => Err(self.no_room.note(number)),
            _ => Err(Errno::NOSPC),
        }
    }

    /// Whether so many data pages can be had for a class.
    fn has_room_for(&mut self, pages: usize) -> bool {
        let has_room = |core: &Core| core.state.space.grantable() >= pages as u64;
        if !has_room(self) {
            self.give_back_segments();
        }
        has_room(self)
    }

    /// Gives segments in which nothing is but what is in a file the label of those who may read it, if
    /// nobody can write them any more: the session that did has ended. Whether there were any.
    fn relabel_segments(&mut self, inode: &Inode) -> Result<bool, Errno> {
        if inode.kind() != Some(FileKind::File) {
            return Ok(false);
        }
        let place = self.state.label_of_inode(inode.number);
        let class = self.state.classes.get(place).cloned();
        let class = class.and_then(|class| class.and(Condition::of(inode, Wish::Read)));
        let label = self.state.label(class.as_ref());
        if label == NOBODY {
            return Ok(false);
        }
        let geometry = self.state.pool.geometry();
        // What lies behind the end counts for nothing: it is not to be shown.
        let pages = index_pages(&self.state, inode.root)?;
        let shown = pages.iter().filter(|page| page.is_data_before(inode.size));
        let mut counts: BTreeMap<SegmentNumber, u64> = BTreeMap::new();
        for page in shown {
            *counts
                .entry(geometry.segment_of(page.pointer()))
                .or_default() += 1;
        }
        let whole = counts
            .into_iter()
            .filter(|&(segment, count)| self.is_whole(segment, count, label));
        let mut whole: Vec<SegmentNumber> = whole.map(|(segment, _)| segment).collect();
        whole.truncate(SEGMENTS);
        if whole.is_empty() {
            return Ok(false);
        }
        let unused: Vec<PagePtr> = whole
            .iter()
            .flat_map(|&segment| {
                let first = geometry.first_page(segment).0;
                (first..first + geometry.pages_per_segment()).map(PagePtr)
            })
            .filter(|&page| !self.state.space.is_used(page))
            .collect();
        if !unused.is_empty() {
            // In use until they are empty: what cannot be emptied stays so.
            let mut change = Change::new(&mut self.state);
            for &page in &unused {
                change.set_data_page_used(page, true);
            }
            change.commit(Weight::Fold)?;
            self.empty_and_free(&unused)?;
            whole.retain(|&segment| {
                let is_own = |page: &PagePtr| geometry.segment_of(*page) == segment;
                let is_left = |page: &PagePtr| is_own(page) && self.state.space.is_used(*page);
                !unused.iter().any(is_left)
            });
        }
        self.clear_tail(inode.number);
        let mut change = Change::new(&mut self.state);
        for &segment in &whole {
            let entry = SegmentEntry {
                kind: SegmentKind::Data as u32,
                class: label,
                uid: CONTROLLER,
                ..SegmentEntry::default()
            };
            change.set_segment(segment, entry);
        }
        change.commit(Weight::Fold)?;
        for &segment in &whole {
            self.lookout.forget(Lent::Segment(segment));
        }
        Ok(!whole.is_empty())
    }

    /// Whether nothing but these pages is in a segment, and nobody can write it.
    fn is_whole(&self, segment: SegmentNumber, pages: u64, label: u32) -> bool {
        let space = &self.state.space;
        let entry = space.entry(segment).unwrap_or_default();
        let used = self.state.pool.geometry().pages_per_segment() - space.unused_in(segment);
        entry.class != label
            && !matches!(entry.uid, CONTROLLER | HIDDEN)
            && space.is_adoptable(segment)
            && pages == used
            && self.state.pool.reach(&Lent::Segment(segment).name()) == Reach::Nobodys
    }
}

/// Bytes of a page of a file that are before its end.
pub(super) fn shown(first: u64, size: u64) -> usize {
    let before = size.saturating_sub(first.saturating_mul(PAGE_SIZE));
    before.min(PAGE_SIZE) as usize
}
