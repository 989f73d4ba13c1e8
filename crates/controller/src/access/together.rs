//! How a file ceases to be what sessions have mapped together ([`crate::requests::map_together`]).
//!
//! # Invariants
//! * A file that is its owners' again has no page that anybody could write who is not one of them: whether somebody can write a
//!   segment the kernel says ([`crate::pool::reach`]), whoever was sent it.
//! * Where somebody may not write the file any more who was sent its segments, nothing is put there, and nobody is sent them; and
//!   what is there moves with the closing that found that.

use crate::access::Access;
use crate::fold::pages::{Copier, shown};
use crate::pool::reach::is_out_of_reach;
use crate::sessions::leaving::Leaving;
use crate::state::apply::file::Setter;
use crate::state::change::{Change, Weight};
use crate::state::marks::unmark;
use arck_controller_state::segments::SegmentEntry;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{Inode, InodeNumber, PAGE_SIZE, SegmentNumber, TOGETHER, index};
use arck_verifier::VerifiedState;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Pages that move in one step, and those that are looked at.
const PAGES: u64 = 256;
const LOOKED_AT: u64 = 8192;
/// So soon is gone on.
const SOON: Duration = Duration::from_micros(200);

impl Access<'_> {
    /// A file of which nobody has a writable map any more is its owners' again, if it was mapped together. Where somebody can
    /// still write its segments, it leaves them: a part of it now, and then `Some` says when there is more to do. It stays as it is, too, where
    /// `asker` alone has such maps, and all who were sent its segments are the same user. Nobody owns the file: who places a
    /// map of it then is seen here, or sees the mark.
    /// ETXTBSY: somebody has.
    pub(crate) fn end_together(
        &mut self,
        number: InodeNumber,
        asker: Option<SessionNumber>,
    ) -> Result<Option<Instant>, Errno> {
        let Some(inode) = self.sessions.state.shadow(number).copied() else {
            return Ok(None);
        };
        if !inode.is_together() {
            return Ok(None);
        }
        if let Some(due) = self.sessions.put_off_for_away() {
            return Ok(Some(due));
        }
        let keeps = self.sessions.is_mapped_before_change(number);
        if self.sessions.is_mapped_writable(0, number) {
            unmark(&self.sessions.state, [number]);
            return match asker.is_some_and(|asker| self.is_askers_alone(asker, &inode)) {
                true => Ok(None),
                false => Err(Errno::TXTBSY),
            };
        }
        let mut leaving = match self.sessions.leaving.remove(&number) {
            Some(leaving) if leaving.generation == inode.generation => leaving,
            _ => Leaving {
                generation: inode.generation,
                ..Leaving::default()
            },
        };
        let end = inode.size.div_ceil(PAGE_SIZE);
        let file = (number, inode.generation);
        let segments: Vec<(SegmentNumber, SegmentEntry)> =
            self.sessions.state.space.together(file).collect();
        self.freeing().note_kept();
        let from = leaving.next;
        let changed = self.change_inode(number, |change| {
            if keeps {
                change.keep_pages_of(number);
            }
            leaving.next = from;
            let mut inode = change.inode(number).ok_or(Errno::STALE)?;
            go_on(&mut leaving, change, &mut inode, end)?;
            if leaving.next >= end {
                inode.mediation &= !TOGETHER;
                for &(segment, entry) in &segments {
                    // What nobody can write is there for the next one who maps the file.
                    match is_reached(&mut leaving, change, segment) {
                        true => change.set_segment(segment, retired(entry)),
                        false => change.state.space.forget_writers(segment),
                    }
                }
            }
            change.set_inode(inode);
            Ok(())
        });
        changed?;
        if leaving.next >= end {
            return Ok(None);
        }
        self.sessions.leaving.insert(number, leaving);
        Ok(Some(Instant::now() + SOON))
    }

    /// Whether a session alone has writable maps of a file, and nobody of another user may have kept some of its segments: then it
    /// can be the file's owner all the same, for what changes no data.
    fn is_askers_alone(&self, asker: SessionNumber, inode: &Inode) -> bool {
        let Some(asking) = self.sessions.all.get(&asker) else {
            return false;
        };
        let uid = asking.credentials.uid;
        let space = &self.sessions.state.space;
        let mut segments = space.together((inode.number, inode.generation));
        !self.sessions.is_mapped_writable(asker, inode.number)
            && segments.all(|(segment, _)| space.were_all(segment, |who| who.uid == uid))
    }

    /// Nobody is sent the segments of a file to write any more, if somebody was who may not write it where it lies with this
    /// label; what is in them is to move then. Whether that is so.
    pub(crate) fn retire_together(&mut self, number: InodeNumber, label: u32) -> bool {
        let Some(inode) = self.sessions.state.shadow(number).copied() else {
            return false;
        };
        if !inode.is_together() {
            return false;
        }
        let state = &self.sessions.state;
        let file = (number, inode.generation);
        let segments: Vec<(SegmentNumber, SegmentEntry)> = state.space.together(file).collect();
        let has_lost = |(segment, entry): &(SegmentNumber, SegmentEntry)| {
            !state.space.were_all(*segment, |who| {
                state.admits(label, who) && state.may_write_together(who, entry)
            })
        };
        if !segments.iter().any(has_lost) {
            return false;
        }
        let mut change = Change::new(&mut self.sessions.state);
        for (segment, entry) in segments {
            change.set_segment(segment, retired(entry));
        }
        match change.commit(Weight::Fold) {
            Ok(()) => true,
            Err(errno) => {
                tracing::error!("segments of inode {number} stay as they are: {errno}");
                false
            }
        }
    }
}

/// The entry of a segment to which nothing comes any more, and that nobody is sent to write.
fn retired(entry: SegmentEntry) -> SegmentEntry {
    SegmentEntry {
        file: 0,
        generation: 0,
        ..entry
    }
}

/// Whether somebody can write a segment, as was so when this was asked first.
fn is_reached(leaving: &mut Leaving, change: &Change<'_>, segment: SegmentNumber) -> bool {
    let pool = &change.state.pool;
    let is = || !is_out_of_reach(pool, segment);
    *leaving.reached.entry(segment).or_insert_with(is)
}

/// Moves data of a file that somebody can write to its class, some of it.
fn go_on(
    leaving: &mut Leaving,
    change: &mut Change<'_>,
    inode: &mut Inode,
    end: u64,
) -> Result<(), Errno> {
    change.allocate_for_readers(inode);
    let mut setter = Setter::new(inode.root);
    let mut in_place = Copier::default();
    let (mut left, mut looked_at) = (PAGES, LOOKED_AT);
    while left != 0 && looked_at != 0 {
        let next = index::next(change.state, inode.root, leaving.next, end);
        let Some(page) = next.ok_or(Errno::IO)? else {
            leaving.next = end;
            break;
        };
        looked_at -= 1;
        leaving.next = page + 1;
        let old = change.state.data_page(inode.number, page);
        let segment = change.state.space.was_together(old);
        if segment.is_none_or(|segment| !is_reached(leaving, change, segment)) {
            continue;
        }
        let new = change.new_data_page()?;
        let bytes = in_place.content(change.state, old, shown(page, inode.size))?;
        in_place.write_reached(change.state, new, 0, &bytes)?;
        setter.set(change, page, new)?;
        change.drop_data_page(inode.number, old);
        left -= 1;
    }
    inode.root = setter.root();
    Ok(())
}
