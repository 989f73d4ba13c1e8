//! Segments that get another label, and what there was no room for: see [`crate::access::admitting`].

use crate::access::emptyings::Emptying;
use arck_core_state::{InodeNumber, SegmentNumber};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// What there was no room for is refused for so long without being looked at.
const REFUSED: Duration = Duration::from_secs(1);

/// Inodes of which that is known; when there are more, all are looked at again.
const REFUSED_MAX: usize = 4096;

/// What there was no room for, and when.
#[derive(Default)]
pub struct NoRoom(HashMap<InodeNumber, Instant>);

impl NoRoom {
    pub fn is_known(&self, number: InodeNumber) -> bool {
        self.0
            .get(&number)
            .is_some_and(|since| since.elapsed() < REFUSED)
    }

    pub fn note(&mut self, number: InodeNumber) -> Errno {
        if self.0.len() >= REFUSED_MAX {
            self.0.clear();
        }
        self.0.insert(number, Instant::now());
        Errno::NOSPC
    }
}

/// Segments that get another label when they are empty where nothing refers to them.
pub struct Relabelling {
    /// And in how many pages of each nothing was.
    pub segments: BTreeMap<SegmentNumber, u64>,
    /// Those pages, in use until they are empty: what cannot be emptied stays so.
    pub emptying: Vec<Emptying>,
    /// When somebody asked for it last.
    pub asked: Instant,
}

/// Those of files that somebody is let in to.
#[derive(Default)]
pub struct Relabellings(pub BTreeMap<InodeNumber, Relabelling>);

impl Relabellings {
    /// They go to nobody meanwhile.
    pub(super) fn segments(&self) -> impl Iterator<Item = SegmentNumber> {
        let all = self.0.values();
        all.flat_map(|relabelling| relabelling.segments.keys().copied())
    }
}
