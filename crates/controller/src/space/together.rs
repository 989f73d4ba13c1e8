//! Data segments that several sessions may have been sent to write at the same time, since they have writable maps of one
//! file: see [`crate::requests::map_together`].
//!
//! # Invariants
//! * All pages of such a segment are one file's, or were.
//! * Its uid is that of the file's user, and it is FOREIGN: it goes to no session while anything is in it, and with another
//!   file to whoever gets it, once nobody can write it and no session looks at it.

use crate::space::pages::Space;
use arck_controller_state::segments::{FOREIGN, SegmentEntry, SegmentKind, TOGETHER};
use arck_core_state::{InodeNumber, PagePtr, SegmentNumber};
use arck_verifier::Credentials;

/// The part of a pool's segments of which more than that have to be free for a file to get its first one.
const PLENTY: u32 = 4;

/// Whether a segment's entry says that it is of a file, of which 0 is none.
fn is_of(entry: &SegmentEntry, (number, generation): (InodeNumber, u32)) -> bool {
    entry.kind() == SegmentKind::Data
        && entry.flags & TOGETHER != 0
        && number != 0
        && (entry.file, entry.generation) == (number, generation)
}

impl Space {
    /// The segments of a file that those may write who have maps of it.
    pub fn together(
        &self,
        file: (InodeNumber, u32),
    ) -> impl Iterator<Item = (SegmentNumber, SegmentEntry)> + '_ {
        let numbered = (0..self.geometry.segment_count).zip(&self.segments);
        numbered
            .filter(move |(_, entry)| is_of(entry, file))
            .map(|(segment, entry)| (segment, *entry))
    }

    /// Whether a page lies in such a segment of a file.
    pub fn is_together(&self, page: PagePtr, file: (InodeNumber, u32)) -> bool {
        self.geometry.contains(page)
            && self
                .segments
                .get(self.geometry.segment_of(page) as usize)
                .is_some_and(|entry| is_of(entry, file))
    }

    /// Whether a page lies in a segment that was such a one, and is not to be written by sessions any more, some of which
    /// still can.
    pub fn is_retired(&self, page: PagePtr) -> bool {
        self.geometry.contains(page)
            && self
                .segments
                .get(self.geometry.segment_of(page) as usize)
                .is_some_and(|entry| entry.flags & TOGETHER != 0 && entry.file == 0)
    }

    /// A page of such a segment that is there already, with this label: what was put elsewhere for those who may read the file now
    /// does not go where others could look. `None`: a new segment is needed.
    pub fn allocate_together(&mut self, file: (InodeNumber, u32), label: u32) -> Option<PagePtr> {
        let has_room = |space: &Space, segment: SegmentNumber| {
            let entry = &space.segments[segment as usize];
            is_of(entry, file) && entry.class == label && space.unused_in(segment) != 0
        };
        let last = self.last_together.filter(|&last| has_room(self, last));
        let segment = last.or_else(|| {
            let mut of_file = self.together(file).map(|(segment, _)| segment);
            of_file.find(|&segment| has_room(self, segment))
        })?;
        self.last_together = Some(segment);
        self.allocate_in(segment)
    }

    /// Whether a page lies in such a segment of a file, whose label is this one.
    pub fn is_together_as(&self, page: PagePtr, file: (InodeNumber, u32), label: u32) -> bool {
        self.is_together(page, file) && self.label_of(page) == label
    }

    /// The segment of a page, if several sessions may have been sent it to write, whatever file it was for.
    pub fn was_together(&self, page: PagePtr) -> Option<SegmentNumber> {
        let segment = self
            .geometry
            .contains(page)
            .then(|| self.geometry.segment_of(page))?;
        let entry = self.segments.get(segment as usize)?;
        (entry.flags & TOGETHER != 0).then_some(segment)
    }

    /// Somebody is sent such a segment to write.
    pub fn note_writer(&mut self, segment: SegmentNumber, who: &Credentials) {
        self.writers.note(segment, who);
    }

    /// Nobody can write the segment any more.
    pub fn forget_writers(&mut self, segment: SegmentNumber) {
        self.writers.forget(segment);
    }

    /// Whether all are of a kind who were sent a segment to write, since it is one of these.
    pub fn were_all(&self, segment: SegmentNumber, is: impl Fn(&Credentials) -> bool) -> bool {
        self.writers.were_all(segment, is)
    }

    /// Whether a file may have one more of them: one that fills those that it has, or where there is plenty of space, since
    /// nothing else is put there.
    pub fn has_segment_together(&self, file: (InodeNumber, u32)) -> bool {
        let is_plenty = self.free_segments > self.geometry.segment_count / PLENTY;
        self.has_segment_for_data() && (is_plenty || self.together(file).next().is_some())
    }
}

/// What stands in the segment table of one.
pub fn entry(file: (InodeNumber, u32), uid: u32, label: u32) -> SegmentEntry {
    SegmentEntry {
        kind: SegmentKind::Data as u32,
        class: label,
        uid,
        flags: TOGETHER | FOREIGN,
        file: file.0,
        generation: file.1,
        ..SegmentEntry::default()
    }
}
