//! Letting readers in to what is in a file or directory that they may read and cannot map.
//!
//! # Invariants
//! * Of a large file it goes in steps: segments in which there is nothing but the file's, and that nobody
//!   can write, get another label, [`SEGMENTS`] at a time; of the rest [`WINDOW`] pages are copied at a
//!   time. Others are served between two steps.
//! * What there is no room for is not begun, and not tried again for a second
//!   ([`relabellings`](super::relabellings)): it is read by message
//!   ([`crate::sessions::rights`]).
//! * What gets another label is emptied first where nothing refers to it, and behind the file's end. Until it
//!   is empty, which others do not wait for, its segments go to nobody.

use crate::access::Access;
use crate::access::relabellings::Relabelling;
use crate::fold::pages::{contents, index_pages};
use crate::pool::reach::Reach;
use crate::sessions::lent::Lent;
use crate::state::change::{Change, Weight};
use crate::state::classes::{Condition, NOBODY, Wish};
use crate::state::tables::State;
use arck_controller_state::segments::{CONTROLLER, HIDDEN, SegmentEntry, SegmentKind};
use arck_core_state::{FileKind, Inode, InodeNumber, PagePtr, SegmentNumber};
use arck_verifier::Credentials;
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Data pages that are copied in one step: 4 MiB.
const WINDOW: usize = 1024;
/// Segments that get another label in one step.
const SEGMENTS: usize = 32;
/// Segments that are being emptied for somebody who has not asked for so long again are given up.
const FORGOTTEN: Duration = Duration::from_secs(5);

impl Access<'_> {
    /// Those for which nobody asks any more (`all`: whoever asks) are given up.
    pub(crate) fn forget_relabelling(&mut self, all: bool) {
        let forgotten = |relabelling: &Relabelling| all || relabelling.asked.elapsed() > FORGOTTEN;
        let forgotten = self
            .places
            .relabelling
            .0
            .extract_if(.., |_, it| forgotten(it));
        let emptying: Vec<_> = forgotten.flat_map(|(_, it)| it.emptying).collect();
        self.give_up(emptying);
    }

    /// Moves what is in an inode where a user can map it, a step of it; whether that is all. EACCES,
    /// EBUSY, ENOSPC.
    pub fn admit_contents(
        &mut self,
        who: &Credentials,
        number: InodeNumber,
    ) -> Result<bool, Errno> {
        let inode = *self.sessions.state.shadow(number).ok_or(Errno::STALE)?;
        if self.sessions.state.is_privileged(who) {
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
        let before = outside(&self.sessions.state)?;
        if before == 0 {
            return Ok(true);
        }
        if self.places.no_room.is_known(number) {
            return Err(Errno::NOSPC);
        }
        self.sessions.refuse_moving(number)?;
        if self.relabel_segments(&inode)? {
            return Ok(false);
        }
        if before > WINDOW && !self.has_room_for(before) {
            return Err(self.places.no_room.note(number));
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
            Err(Errno::NOSPC) if before > WINDOW => return Err(self.places.no_room.note(number)),
            Err(errno) => return Err(errno),
        }
        match outside(&self.sessions.state)? {
            0 => Ok(true),
            after if after < before => Ok(false),
            // There is no class for it, or no room in that.
            _ if before > WINDOW => Err(self.places.no_room.note(number)),
            _ => Err(Errno::NOSPC),
        }
    }

    /// Whether so many data pages can be had for a class.
    fn has_room_for(&mut self, pages: usize) -> bool {
        let has_room =
            |access: &Access<'_>| access.sessions.state.space.grantable() >= pages as u64;
        if !has_room(self) {
            self.freeing().give_back_segments();
        }
        has_room(self)
    }

    /// Gives segments in which nothing is but what is in a file the label of those who may read it, if
    /// nobody can write them any more: the session that did has ended. Whether there were any; then there is
    /// more to do.
    fn relabel_segments(&mut self, inode: &Inode) -> Result<bool, Errno> {
        if inode.kind() != Some(FileKind::File) {
            return Ok(false);
        }
        let place = self.sessions.state.label_of_inode(inode.number);
        let class = self.sessions.state.classes.get(place).cloned();
        let class = class.and_then(|class| class.and(Condition::of(inode, Wish::Read)));
        let label = self.sessions.state.label(class.as_ref());
        if label == NOBODY {
            return Ok(false);
        }
        let mut relabelling = match self.places.relabelling.0.remove(&inode.number) {
            Some(mut relabelling) => {
                self.wait_for_emptying(&mut relabelling.emptying);
                relabelling
            }
            None => self.begin_relabelling(inode, label)?,
        };
        if !relabelling.emptying.is_empty() {
            relabelling.asked = Instant::now();
            let segments = relabelling.segments.keys().copied();
            self.sessions.state.space.quarantine(segments);
            self.places.relabelling.0.insert(inode.number, relabelling);
            return Ok(true);
        }
        // They are ready, and nobody else's turn comes before they have their label.
        self.end_quarantine();
        // The file may have changed since: what it has left, too, would have to be emptied first.
        let counts = self.pages_shown(inode)?;
        let is_whole = |&(segment, unused): &(SegmentNumber, u64)| {
            let count = counts.get(&segment).copied().unwrap_or(0);
            self.sessions.state.space.unused_in(segment) == unused
                && self.is_whole(segment, count, label)
        };
        let whole = relabelling.segments.into_iter().filter(is_whole);
        let whole: Vec<SegmentNumber> = whole.map(|(segment, _)| segment).collect();
        if whole.is_empty() {
            return Ok(false);
        }
        self.sessions.state.clear_tail(inode.number);
        let mut change = Change::new(&mut self.sessions.state);
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
            self.sessions.lookout.forget(Lent::Segment(segment));
        }
        Ok(true)
    }

    /// Has some of the segments emptied in which nothing is but what is in a file, where nothing is.
    fn begin_relabelling(&mut self, inode: &Inode, label: u32) -> Result<Relabelling, Errno> {
        let counts = self.pages_shown(inode)?.into_iter();
        let whole = counts.filter(|&(segment, count)| self.is_whole(segment, count, label));
        let unused_in = |(segment, _)| (segment, self.sessions.state.space.unused_in(segment));
        let segments: BTreeMap<_, _> = whole.take(SEGMENTS).map(unused_in).collect();
        let geometry = self.sessions.state.pool.geometry();
        let unused: Vec<PagePtr> = segments
            .keys()
            .flat_map(|&segment| {
                let first = geometry.first_page(segment).0;
                (first..first + geometry.pages_per_segment()).map(PagePtr)
            })
            .filter(|&page| !self.sessions.state.space.is_used(page))
            .collect();
        let mut emptying = Vec::new();
        if !unused.is_empty() {
            let mut change = Change::new(&mut self.sessions.state);
            for &page in &unused {
                change.set_data_page_used(page, true);
            }
            change.commit(Weight::Fold)?;
            emptying = self.begin_emptying(&unused);
        }
        Ok(Relabelling {
            segments,
            emptying,
            asked: Instant::now(),
        })
    }

    /// How many pages of a file are in each segment. What lies behind the end counts for nothing: it is not
    /// to be shown.
    fn pages_shown(&self, inode: &Inode) -> Result<BTreeMap<SegmentNumber, u64>, Errno> {
        let geometry = self.sessions.state.pool.geometry();
        let pages = index_pages(&self.sessions.state, inode.root)?;
        let shown = pages.iter().filter(|page| page.is_data_before(inode.size));
        let mut counts = BTreeMap::new();
        for page in shown {
            *counts
                .entry(geometry.segment_of(page.pointer()))
                .or_default() += 1;
        }
        Ok(counts)
    }

    /// Whether nothing but these pages is in a segment, and nobody can write it.
    fn is_whole(&self, segment: SegmentNumber, pages: u64, label: u32) -> bool {
        let space = &self.sessions.state.space;
        let entry = space.entry(segment).unwrap_or_default();
        let used =
            self.sessions.state.pool.geometry().pages_per_segment() - space.unused_in(segment);
        entry.class != label
            && !matches!(entry.uid, CONTROLLER | HIDDEN)
            && space.is_adoptable(segment)
            && pages == used
            && self
                .sessions
                .state
                .pool
                .reach(&Lent::Segment(segment).name())
                == Reach::Nobodys
    }
}
