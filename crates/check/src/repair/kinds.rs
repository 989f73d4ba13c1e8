//! What segments are used for, by what is in them and what refers to them.
//!
//! Invariant: the segment table is not believed where the inodes say otherwise; each page is looked
//! into once.

use crate::pool::Pool;
use arck_controller_state::classes::CLASSES_MAX;
use arck_controller_state::segments::{CONTROLLER, HIDDEN, SegmentEntry, SegmentKind, TOGETHER};
use arck_core_state::directory::{CHAIN_MAX, HASH_PAGE_MAGIC, WORD_MAGIC, next_page};
use arck_core_state::index::HEIGHT_MAX;
use arck_core_state::{FileKind, Inode, InodeNumber, PagePtr, Pages, SegmentNumber};
use foldhash::HashSet;
use std::sync::atomic::Ordering;

/// What an inode or a bucket weighs, against a pointer.
const PROOF: u64 = 1000;

/// What speaks for a segment being of metadata, and of data.
#[derive(Clone, Copy, Default)]
struct Votes {
    metadata: u64,
    data: u64,
}

/// Pages that anything refers to, and what that says of segments.
pub(crate) struct Kinds<'p> {
    pool: &'p Pool,
    votes: Vec<Votes>,
    /// A bit for each page that anything refers to.
    pub referred: Vec<u64>,
}

/// The inode that a header leads to, if it is that number's.
pub(crate) fn inode_of(pool: &Pool, number: InodeNumber, address: u64) -> Option<Inode> {
    let page = PagePtr::of_address(address);
    let inode = Inode::read(pool, address).filter(|_| pool.geometry.contains(page))?;
    (inode.number == number && inode.kind().is_some()).then_some(inode)
}

impl<'p> Kinds<'p> {
    pub fn new(pool: &'p Pool) -> Kinds<'p> {
        let segments = pool.geometry.segment_count as usize;
        let words = pool.geometry.page_count().div_ceil(64) as usize;
        let mut kinds = Kinds {
            pool,
            votes: vec![Votes::default(); segments],
            referred: vec![0; words],
        };
        for number in pool.numbers().into_iter().flatten() {
            let address = pool.header(number).inode;
            kinds.refer(PagePtr::of_address(address));
            if let Some(inode) = inode_of(pool, number, address) {
                kinds.vote(PagePtr::of_address(address), PROOF, 0);
                kinds.walk_inode(&inode);
            }
        }
        kinds
    }

    fn walk_inode(&mut self, inode: &Inode) {
        if !inode.attributes.is_null() {
            self.refer(inode.attributes);
            self.vote(inode.attributes, 0, 1);
        }
        let is_directory = inode.kind() == Some(FileKind::Directory);
        if inode.root.height() <= HEIGHT_MAX {
            let root = PagePtr(inode.root.pointer());
            self.walk(root, inode.root.height(), is_directory);
        }
    }

    fn walk(&mut self, page: PagePtr, level: u32, is_directory: bool) {
        if page.is_null() || !self.refer(page) {
            return;
        }
        let pool = self.pool;
        if level == 0 && !is_directory {
            self.vote(page, 0, 1);
            return;
        }
        self.vote(page, 1, 0);
        let Some(words) = pool.page(page) else {
            return;
        };
        if level > 0 {
            for word in words {
                let below = PagePtr(word.load(Ordering::Relaxed));
                self.walk(below, level - 1, is_directory);
            }
            return;
        }
        // A bucket and what it goes on in.
        let mut at = page;
        for _ in 0..CHAIN_MAX {
            let Some(words) = pool.page(at) else {
                return;
            };
            if words[WORD_MAGIC].load(Ordering::Relaxed) == HASH_PAGE_MAGIC {
                self.vote(at, PROOF, 0);
            }
            at = next_page(words);
            if at.is_null() || !self.refer(at) {
                return;
            }
        }
    }

    /// Notes that something refers to a page; false if that was known, or it is none.
    fn refer(&mut self, page: PagePtr) -> bool {
        if !self.pool.geometry.contains(page) {
            return false;
        }
        let bit = 1 << (page.0 % 64);
        let Some(word) = self.referred.get_mut((page.0 / 64) as usize) else {
            return false;
        };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn vote(&mut self, page: PagePtr, metadata: u64, data: u64) {
        if self.pool.geometry.contains(page) {
            let segment = self.pool.geometry.segment_of(page);
            if let Some(votes) = self.votes.get_mut(segment as usize) {
                votes.metadata += metadata;
                votes.data += data;
            }
        }
    }

    /// The segment table as it has to be; `mislabelled` are to be nobody's.
    pub fn entries(&self, mislabelled: &HashSet<SegmentNumber>) -> Vec<SegmentEntry> {
        let entry = |segment: SegmentNumber| {
            let mut entry = self.pool.segment_entry(segment);
            let votes = self
                .votes
                .get(segment as usize)
                .copied()
                .unwrap_or_default();
            let kind = match (votes.metadata, votes.data) {
                _ if segment == 0 => SegmentKind::Metadata,
                (0, 0) => entry.kind(),
                (metadata, data) if metadata > data => SegmentKind::Metadata,
                (metadata, data) if metadata < data => SegmentKind::Data,
                _ if entry.kind() == SegmentKind::Free => SegmentKind::Data,
                _ => entry.kind(),
            };
            let is_other = kind != entry.kind();
            entry.kind = match kind {
                SegmentKind::Free => 0,
                SegmentKind::Metadata => 1,
                SegmentKind::Data => 2,
            };
            if is_other {
                // What it was meant to be is not known: nobody's.
                entry.owner = 0;
                entry.flags = 0;
                entry.uid = 0;
            }
            if kind != SegmentKind::Data || self.pool.superblock.clean {
                entry.owner = 0;
            }
            if entry.class as usize > CLASSES_MAX || mislabelled.contains(&segment) {
                entry.class = 0;
                // What the controller had put there it hides; a session's user stays.
                entry.uid = match (kind, entry.uid) {
                    (SegmentKind::Data, CONTROLLER) => HIDDEN,
                    (SegmentKind::Data, uid) => uid,
                    _ => 0,
                };
            }
            entry.flags &= kind.flags();
            if entry.flags & TOGETHER == 0 {
                (entry.file, entry.generation) = (0, 0);
            }
            entry
        };
        (0..self.pool.geometry.segment_count).map(entry).collect()
    }
}
