//! Classes that became tighter: what has to move is found, moved, and emptied where it was, or hidden.
//!
//! # Invariant
//! See the head of [`super`]: whatever fails, nobody new is sent what he may not read.

use crate::access::Access;
use crate::access::closings::Closing;
use crate::access::moving::was_lent;
use crate::access::parts::is_large;
use crate::fold::pages::contents;
use crate::fold::touched::Touched;
use crate::state::change::{Change, Weight};
use crate::state::classes::{Class, Condition, NOBODY, Wish};
use crate::state::tables::{State, buckets};
use arck_controller_state::segments::{CONTROLLER, HIDDEN, SegmentEntry, SegmentKind};
use arck_core_state::directory::for_each_in_bucket;
use arck_core_state::{FileKind, Inode, InodeNumber, PagePtr, ROOT_INODE, SegmentNumber};
use arck_verifier::VerifiedState;
use rustix::io::Errno;
use std::collections::BTreeSet;

/// How often an inode is looked at again at once because its own fold has changed its rights.
const OWN_CHANGES_MAX: u32 = 4;

/// Buckets of a directory that are looked at in one step.
const BUCKETS: u64 = 32;

/// Who may read what is in an inode: those who may be where it is, and of these those whom it lets read.
fn readers_of(inode: &Inode, place: Option<&Class>) -> Option<Class> {
    match inode.kind() {
        Some(FileKind::Link) => place.cloned(),
        _ => place
            .cloned()
            .and_then(|class| class.and(Condition::of(inode, Wish::Read))),
    }
}

/// Whether a page lies where nobody but these may read it.
fn fits(state: &State, page: PagePtr, read: Option<&Class>) -> bool {
    state.classes.is_within(state.space.label_of(page), read) && !state.space.is_retired(page)
}

impl Access<'_> {
    /// Looks at one inode, and has what is in it looked at.
    pub(super) fn close_one(&mut self, mut at: Touched, closing: &mut Closing) {
        self.places.closings.note_work(1);
        self.folds.progress.add(1);
        if !self.is_as_touched(&at) {
            return;
        }
        if at.contents {
            return self.close_part(at, closing);
        }
        // What is looked at in part has been looked at itself.
        if at.from == 0 {
            let known = self.folds.touched.len();
            self.close_itself(&at, closing);
            for _ in 0..OWN_CHANGES_MAX {
                let Some(own) = self.take_own_change(at.number, known) else {
                    break;
                };
                self.close_itself(&own, closing);
                if own.deep {
                    at.deep = true;
                    closing.within.remove(&(at.number, false));
                    closing.within.remove(&(at.number, true));
                }
                at.whole |= own.whole;
            }
        }
        if at.whole {
            self.sessions
                .state
                .clear_shown_tail(&mut closing.copier, at.number);
        }
        if at.deep {
            self.look_within(at, closing);
        }
    }

    fn close_itself(&mut self, at: &Touched, closing: &mut Closing) {
        let number = at.number;
        match self.tighten_one(at, closing) {
            Ok(false) => {}
            Ok(true) => {
                let generation = self
                    .sessions
                    .state
                    .header_copy(number)
                    .map_or(0, |h| h.generation);
                closing.waiting.push(Touched::contents(number, generation));
            }
            Err(errno) => {
                tracing::error!("inode {number}: others may still read it: {errno}");
                self.hide_contents(number);
            }
        }
    }

    /// Takes out what the fold that an inode moved with has changed of its own rights: if that
    /// waited its turn, all that is beneath would be looked at once more for each directory of a
    /// chain.
    fn take_own_change(&mut self, number: InodeNumber, known: usize) -> Option<Touched> {
        let is_own = |touched: &Touched| touched.number == number && touched.attributes;
        let place = self.folds.touched.iter().skip(known).position(is_own)?;
        Some(self.folds.touched.remove(known + place))
    }

    /// Whether an inode still is what was touched, where it was touched. If it has got another name
    /// since, that has been touched too.
    fn is_as_touched(&self, at: &Touched) -> bool {
        let header = self.sessions.state.header_copy(at.number);
        if at.generation != 0 && header.is_none_or(|header| header.generation != at.generation) {
            return false;
        }
        match at.via {
            // Of a directory it is its parent that counts.
            Some(directory) if self.sessions.state.directory(at.number).is_none() => {
                let found = self.sessions.state.lookup(directory, &at.name);
                found.is_some_and(|dentry| dentry.inode == at.number)
            }
            _ => true,
        }
    }

    /// All that is in a directory is to be looked at, unless it has been for this closing: some of
    /// its names now, the others when those are through.
    fn look_within(&mut self, at: Touched, closing: &mut Closing) {
        let Some(inode) = self.sessions.state.directory(at.number).copied() else {
            return;
        };
        if at.from == 0 && !closing.within.insert((at.number, at.whole)) {
            return;
        }
        // Buckets that are split meanwhile leave their names here or behind the last.
        let end = buckets(&inode).min(at.from + BUCKETS);
        let mut found = Vec::new();
        for place in at.from..end {
            // What is damaged has been logged.
            let _ = for_each_in_bucket(
                &self.sessions.state,
                inode.root,
                place,
                |dentry, _, name, _, _| {
                    found.push(Touched {
                        attributes: at.whole,
                        whole: at.whole,
                        ..Touched::moved(dentry, at.number, name.as_bytes())
                    });
                },
            );
        }
        self.places.closings.note_work(end - at.from);
        if end < buckets(&inode) {
            closing.waiting.push(Touched { from: end, ..at });
        }
        closing.waiting.append(&mut found);
    }

    /// The class of the place in which an inode is: of the directory above it. `label`: the class that it has.
    fn place_of(&self, at: &Touched, inode: &Inode, label: u32) -> Option<Class> {
        let number = at.number;
        let parent = match inode.kind() {
            Some(FileKind::Directory) if number == ROOT_INODE => None,
            Some(FileKind::Directory) => Some(inode.parent),
            _ => at.via,
        };
        match parent {
            Some(directory) => self.sessions.state.search_class(directory),
            // The root's, or the class that it had.
            None if number == ROOT_INODE => Some(Class::world()),
            // Who may read it by the names that are left is not known here: it is its owner's until
            // somebody asks by one of them.
            None if at.unlinked => {
                let class = self.sessions.state.classes.get(label).cloned();
                class.and_then(|class| class.and(Condition::only(inode.uid)))
            }
            None => self.sessions.state.classes.get(label).cloned(),
        }
    }

    /// Whether there is more in it than is moved in one step: only its place has changed then.
    fn tighten_one(&mut self, at: &Touched, closing: &mut Closing) -> Result<bool, Errno> {
        let number = at.number;
        let Some(inode) = self.sessions.state.shadow(number).copied() else {
            return Ok(false);
        };
        let label = self.sessions.state.label_of_inode(number);
        let place = self.place_of(at, &inode, label);
        let moves = !self.sessions.state.classes.is_within(label, place.as_ref());
        self.note_who_leaves(at, &inode, place.as_ref(), moves);
        if !moves && !at.attributes {
            return Ok(false);
        }
        if is_large(&inode) {
            if moves {
                self.places.closings.note_move();
                let label = self.sessions.state.label(place.as_ref());
                self.move_alone(number, label, |_| Ok(()))?;
            }
            return Ok(true);
        }
        let read = readers_of(&inode, place.as_ref());
        let pages = contents(&self.sessions.state, &inode)?;
        let is_outside = |page: &PagePtr| !fits(&self.sessions.state, *page, read.as_ref());
        let has_outside = pages.iter().any(is_outside);
        if !moves && !has_outside {
            return Ok(false);
        }
        self.places.closings.note_move();
        self.places
            .closings
            .note_work(if has_outside { pages.len() as u64 } else { 0 });
        let label = match moves {
            true => self.sessions.state.label(place.as_ref()),
            false => label,
        };
        if has_outside || self.leaves_outside(number, label, read.as_ref())? {
            self.move_out(number, label, read.as_ref(), closing)?;
        }
        Ok(false)
    }

    /// Notes whom a change or a move of an inode may shut out: what they have open they keep.
    fn note_who_leaves(&mut self, at: &Touched, inode: &Inode, place: Option<&Class>, moves: bool) {
        let is_open_to_change = moves || at.attributes || self.sessions.is_shown(at.number);
        let whose = (!moves).then_some(inode.uid);
        if is_open_to_change && self.has_others(whose) {
            let before = at.old.as_ref().unwrap_or(inode);
            self.sessions.note_leaving(before, inode, place);
        }
    }

    /// Moves an inode into pages of a class, and what is in it not; `then` is part of the same change.
    fn move_alone(
        &mut self,
        number: InodeNumber,
        label: u32,
        mut then: impl FnMut(&mut Change<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.freeing().note_kept();
        self.change_inode(number, |change| {
            change.allocate_for_class(label);
            change.move_inode(number)?;
            then(change)
        })
    }

    /// Moves an inode whose contents all lie where they may. Whether some do not after that: what its owner had
    /// stored was folded before, in this step, into pages of the class that it leaves.
    fn leaves_outside(
        &mut self,
        number: InodeNumber,
        label: u32,
        read: Option<&Class>,
    ) -> Result<bool, Errno> {
        let mut has_outside = false;
        self.move_alone(number, label, |change| {
            let inode = change.inode(number).ok_or(Errno::STALE)?;
            let pages = contents(change, &inode)?;
            let is_outside = |page: &PagePtr| !fits(change.state, *page, read);
            has_outside = pages.iter().any(is_outside);
            Ok(())
        })?;
        Ok(has_outside)
    }

    /// Moves an inode, and what is in it and lies where others may read it.
    fn move_out(
        &mut self,
        number: InodeNumber,
        label: u32,
        read: Option<&Class>,
        closing: &mut Closing,
    ) -> Result<(), Errno> {
        let stays_mapped =
            !self.retire_together(number, label) && self.sessions.refuse_moving(number).is_err();
        // A writable map goes to pages of segments that sessions were sent to write, and those stay:
        // whoever can see them already goes on, as with any map; nobody else will. That keeps others
        // from nothing but what users of such maps have written themselves.
        let is_mapped = |state: &State, page: PagePtr| {
            stays_mapped && was_lent(state, page) && !state.space.is_retired(page)
        };
        let stays = |state: &State, page| fits(state, page, read) || is_mapped(state, page);
        match self.move_contents(number, Some(label), &stays) {
            Ok(left) => {
                let state = &self.sessions.state;
                let inode = state.shadow(number).copied();
                let pages = inode.and_then(|inode| contents(state, &inode).ok());
                let mut pages = pages.unwrap_or_default();
                pages.retain(|&page| is_mapped(state, page) && !fits(state, page, read));
                self.hide_segments(&pages);
                closing.emptying.extend(self.begin_emptying(&left));
                Ok(())
            }
            Err(Errno::NOSPC) => {
                // No room for its data, which somebody may have seen to. For metadata some is kept:
                // nobody is shown attributes and names any more, or let in by the inode's place.
                self.move_contents(number, Some(label), &|_, _| true)?;
                Err(Errno::NOSPC)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Whether there are sessions that are neither trusted nor, if that is said, of a file's owner.
    fn has_others(&self, owner: Option<u32>) -> bool {
        self.sessions.all.values().any(|session| {
            let who = &session.credentials;
            Some(who.uid) != owner && !self.sessions.state.is_privileged(who)
        })
    }

    /// See [`hide_segments`](Self::hide_segments); of what is in an inode.
    pub(super) fn hide_contents(&mut self, number: InodeNumber) {
        if let Some(inode) = self.sessions.state.shadow(number).copied() {
            let pages = contents(&self.sessions.state, &inode).unwrap_or_default();
            self.hide_segments(&pages);
        }
    }

    /// Where pages could not be moved: nobody is sent their data segments from now on, until they
    /// have been.
    pub(super) fn hide_segments(&mut self, pages: &[PagePtr]) {
        let geometry = self.sessions.state.pool.geometry();
        let segments: BTreeSet<SegmentNumber> = pages
            .iter()
            .map(|&page| geometry.segment_of(page))
            .collect();
        if segments.is_empty() {
            return;
        }
        let mut change = Change::new(&mut self.sessions.state);
        for segment in segments {
            if let Some(entry) = change.state.space.entry(segment)
                && entry.kind() == SegmentKind::Data
                && entry.class != NOBODY
            {
                // Those who have it go on seeing it: nothing else is put there.
                let uid = match entry.uid {
                    CONTROLLER => HIDDEN,
                    uid => uid,
                };
                let hidden = SegmentEntry {
                    class: NOBODY,
                    uid,
                    ..entry
                };
                change.set_segment(segment, hidden);
            }
        }
        if let Err(errno) = change.commit(Weight::Fold) {
            tracing::error!("segments of what could not be moved stay as they are: {errno}");
        }
    }
}
