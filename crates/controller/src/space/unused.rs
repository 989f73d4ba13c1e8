//! Segments in which there is nothing, and that nobody can write.

use crate::pool::files::Pool;
use crate::pool::reach::is_out_of_reach;
use crate::space::pages::Space;
use arck_controller_state::segments::{HIDDEN, SegmentKind};
use arck_core_state::SegmentNumber;
use std::collections::HashSet;

impl Space {
    /// The labels that are on segments, each once.
    pub fn labels(&self) -> HashSet<u32> {
        self.segments.iter().map(|entry| entry.class).collect()
    }

    /// Segments with nothing in them that no session has, that can be another's ([`Space::may_be_renewed`]), and that
    /// nobody can write.
    /// Of the metadata of each class in `kept` all but one.
    pub fn find_unused(&mut self, pool: &Pool, kept: &HashSet<u32>) -> Vec<SegmentNumber> {
        self.may_have_unused = false;
        self.forget_finished();
        let mut kept = kept.clone();
        let mut found = Vec::new();
        for segment in 0..self.geometry.segment_count {
            let entry = self.segments[segment as usize];
            let is_unused = self.used_in[segment as usize] == 0
                && self.may_be_renewed(segment)
                && match entry.kind() {
                    SegmentKind::Free => false,
                    SegmentKind::Metadata => !kept.remove(&entry.class),
                    // Of what is hidden, users who are no longer there may have kept maps.
                    SegmentKind::Data => {
                        (self.shared || entry.uid != HIDDEN)
                            && self.is_adoptable(segment)
                            && is_out_of_reach(pool, segment)
                    }
                };
            if is_unused {
                found.push(segment);
            }
        }
        found
    }
}
