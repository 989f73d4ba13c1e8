//! Who has which page in the pool as it will be, and where new pages go.
//!
//! # Invariants
//! * A page is given out only if nothing refers to it in the pool as it is, rightly or not.
//! * New pages of metadata are of the class *nobody*: what is there is sent to nobody but root and
//!   the pool's user, until the controller moves it.

use crate::pool::Pool;
use arck_controller_state::segments::{STALE, SegmentEntry, SegmentKind};
use arck_core_state::{InodeNumber, PagePtr, SegmentNumber};
use foldhash::HashMap;

/// See the module's head.
pub(crate) struct Space<'p> {
    pool: &'p Pool,
    pub segments: Vec<SegmentEntry>,
    /// Segments that are others than before.
    pub changed: Vec<SegmentNumber>,
    owners: HashMap<PagePtr, Owner>,
    /// What anything refers to: not to be written.
    pub referred: Vec<u64>,
    /// Where the search for a free page goes on.
    cursors: [u64; 2],
    /// There are, or were, several users.
    shared: bool,
}

/// The user of data segments that no session writes.
const CONTROLLER: u32 = u32::MAX;

/// Who has a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// Inodes.
    Inodes,
    Inode(InodeNumber),
}

impl<'p> Space<'p> {
    pub fn new(pool: &'p Pool, segments: Vec<SegmentEntry>, referred: Vec<u64>) -> Space<'p> {
        Space {
            pool,
            shared: segments.iter().any(|entry| entry.class != 0),
            segments,
            changed: Vec::new(),
            owners: HashMap::default(),
            referred,
            cursors: [1; 2],
        }
    }

    pub fn kind_of(&self, page: PagePtr) -> SegmentKind {
        let segment = self.pool.geometry.segment_of(page);
        let entry = self.segments.get(segment as usize);
        entry.map_or(SegmentKind::Free, SegmentEntry::kind)
    }

    pub fn owner(&self, page: PagePtr) -> Option<Owner> {
        self.owners.get(&page).copied()
    }

    /// Takes a page for somebody; false if it is taken.
    pub fn claim(&mut self, page: PagePtr, owner: Owner) -> bool {
        match self.owners.entry(page) {
            std::collections::hash_map::Entry::Occupied(taken) => {
                *taken.get() == Owner::Inodes && owner == Owner::Inodes
            }
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(owner);
                true
            }
        }
    }

    /// Gives back what an inode has taken.
    pub fn release(&mut self, page: PagePtr) {
        self.owners.remove(&page);
    }

    /// All pages in use, as the words of the bitmap.
    pub fn bitmap(&self) -> Vec<u64> {
        let mut words = vec![0; self.referred.len()];
        if let Some(first) = words.first_mut() {
            *first |= 1;
        }
        for page in self.owners.keys() {
            if let Some(word) = words.get_mut((page.0 / 64) as usize) {
                *word |= 1 << (page.0 % 64);
            }
        }
        words
    }

    fn is_free(&self, page: PagePtr) -> bool {
        let word = self.referred.get((page.0 / 64) as usize);
        word.is_some_and(|word| word >> (page.0 % 64) & 1 == 0) && self.owner(page).is_none()
    }

    /// A page for somebody. Of data only in segments that no session writes. `None`: there is no
    /// room.
    pub fn allocate(&mut self, kind: SegmentKind, owner: Owner) -> Option<PagePtr> {
        let which = usize::from(kind == SegmentKind::Data);
        let pages = self.pool.geometry.pages_per_segment();
        let mut at = self.cursors[which];
        while at < self.pool.geometry.page_count() {
            let page = PagePtr(at);
            let segment = self.pool.geometry.segment_of(page);
            let entry = self
                .segments
                .get(segment as usize)
                .copied()
                .unwrap_or_default();
            let fits = entry.kind() == kind
                && entry.owner == 0
                && entry.class == 0
                && (kind == SegmentKind::Metadata || !self.shared || entry.uid == CONTROLLER);
            if !fits {
                at = (at / pages + 1) * pages;
                continue;
            }
            if self.is_free(page) {
                self.cursors[which] = at + 1;
                self.claim(page, owner);
                return Some(page);
            }
            at += 1;
        }
        // A segment that is free.
        let free = (0..self.pool.geometry.segment_count).find(|&segment| {
            let entry = &self.segments[segment as usize];
            let first = self.pool.geometry.first_page(segment).0;
            (entry.kind(), entry.flags & STALE) == (SegmentKind::Free, 0)
                && (first..first + pages).all(|p| self.is_free(PagePtr(p)))
        })?;
        self.segments[free as usize] = SegmentEntry {
            kind: match kind {
                SegmentKind::Metadata => 1,
                SegmentKind::Data | SegmentKind::Free => 2,
            },
            // Of data that no session writes.
            uid: if kind == SegmentKind::Data {
                CONTROLLER
            } else {
                0
            },
            ..SegmentEntry::default()
        };
        self.changed.push(free);
        self.cursors[which] = self.pool.geometry.first_page(free).0.max(1);
        self.allocate(kind, owner)
    }
}
