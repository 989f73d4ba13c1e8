//! Which segment a session gets for its data.
//!
//! # Invariant
//! * What is granted nobody else can write, but who gave it back himself, and all of its file is there.

use crate::pool::files::Pool;
use crate::pool::reach::is_out_of_reach;
use crate::space::pages::Space;
use arck_controller_state::segments::{FOREIGN, STALE, SegmentEntry, SegmentKind};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{SegmentNumber, cast};
use rustix::io::Errno;

impl Space {
    /// A segment for a session's data: an ownerless one of the same user and class that is at
    /// least half free, else a new one that leaves `kept` pages for metadata, else any ownerless
    /// one with free pages. ENOSPC. Only what `session` gave back itself may still be written by
    /// somebody, by another of its processes, say. INPROGRESS, if one `may_wait`: nothing is changed, and what would be
    /// granted is sooner had when a file that is being made ahead is made.
    pub fn find_data_segment(
        &mut self,
        pool: &Pool,
        session: SessionNumber,
        uid: u32,
        label: u32,
        kept: u64,
        may_wait: bool,
    ) -> Result<SegmentNumber, Errno> {
        self.forget_finished();
        let all = cast::low(self.geometry.pages_per_segment());
        let is_same = |entry: &SegmentEntry| {
            entry.uid == uid && entry.class == label && entry.flags & FOREIGN == 0
        };
        let mut candidates: Vec<(u32, SegmentNumber)> = (0..self.geometry.segment_count)
            .filter(|&segment| self.is_adoptable(segment))
            .map(|segment| (self.used_in[segment as usize], segment))
            .filter(|&(used, segment)| {
                let same = is_same(&self.segments[segment as usize]);
                used < all && (same || (used == 0 && self.may_be_renewed(segment)))
            })
            .collect();
        candidates.sort_unstable();
        let (roomy, tight): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .partition(|&(used, _)| used <= all / 2);
        for (used, segment) in roomy {
            let same = is_same(&self.segments[segment as usize]);
            let had_it = same && self.given_back.get(&segment) == Some(&session);
            if had_it || is_out_of_reach(pool, segment) {
                match self.make_ready(pool, segment, used, same) {
                    // Whoever pinned its pages keeps it, or its file is gone: another one.
                    Err(Errno::AGAIN | Errno::IO) => {}
                    other => return other.map(|()| segment),
                }
            }
        }
        if may_wait && self.waits_for_file(pool, kept) {
            return Err(Errno::INPROGRESS);
        }
        match self.find_segment(pool, SegmentKind::Data, kept) {
            Err(Errno::NOSPC) => {}
            other => return other,
        }
        for (used, segment) in tight {
            if is_out_of_reach(pool, segment) {
                match self.make_ready(pool, segment, used, true) {
                    Err(Errno::AGAIN | Errno::IO) => {}
                    other => return other.map(|()| segment),
                }
            }
        }
        Err(Errno::NOSPC)
    }

    /// Whether the next free segment has no file yet, and one for it is being made.
    fn waits_for_file(&self, pool: &Pool, kept: u64) -> bool {
        self.has_files_made(pool, kept) && pool.spares().is_coming()
    }

    /// Has files made ahead of their need if the next free segment has none yet; whether that is so. `kept`: as in
    /// [`Space::find_data_segment`].
    pub fn has_files_made(&self, pool: &Pool, kept: u64) -> bool {
        let Some(segment) = self.next_free_for_data(kept) else {
            return false;
        };
        let is_stale = self.segments[segment as usize].flags & STALE != 0;
        let is_needed = !is_stale && !pool.has_segment(segment);
        if is_needed {
            pool.order_spares(self.free_segments);
        }
        is_needed
    }
}
