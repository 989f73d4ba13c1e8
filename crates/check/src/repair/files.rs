//! The pages of files: what is kept, what is copied, what is dropped.
//!
//! # Invariants
//! * Who is in order comes first, and keeps its pages. Of a page that two have the second gets a
//!   copy, so that neither loses what it held.
//! * The walk ends: into a page that somebody has nobody goes again, but for one copy of it, which
//!   takes a page.

use super::plan::{Plan, copy_page};
use super::space::{Owner, Space};
use crate::pool::Pool;
use arck_controller_state::segments::SegmentKind;
use arck_core_state::geometry::{FILE_SIZE_MAX, PATH_MAX};
use arck_core_state::index::{FANOUT, HEIGHT_MAX, capacity};
use arck_core_state::{DEVICE_MAX, FileKind, IndexRoot, Inode, PAGE_SIZE, PagePtr, Pages};
use std::sync::atomic::Ordering;

/// What became of a file's pages.
#[derive(Default)]
pub(crate) struct Fate {
    pub kept: u64,
    pub copied: u64,
    pub dropped: u64,
}

/// Puts a file's pages in order: its inode is changed, and what has to change in index pages goes
/// into the plan.
pub(crate) fn settle(
    pool: &Pool,
    plan: &mut Plan,
    space: &mut Space<'_>,
    inode: &mut Inode,
    kind: FileKind,
) -> Fate {
    let mut fate = Fate::default();
    let owner = Owner::Inode(inode.number);
    attributes(pool, plan, space, inode, kind, &mut fate);
    if kind.is_device() {
        fate.dropped += u64::from(inode.root.pointer() != 0);
        (inode.root, inode.pages) = (IndexRoot::EMPTY, 0);
        if inode.size > DEVICE_MAX {
            // Which device it was nobody knows; this one is none.
            inode.size = 0;
        }
        return fate;
    }
    if matches!(kind, FileKind::Pipe | FileKind::Socket) {
        fate.dropped += u64::from(inode.root.pointer() != 0);
        (inode.root, inode.size, inode.pages) = (IndexRoot::EMPTY, 0, 0);
        return fate;
    }
    let most = if kind == FileKind::Link {
        PATH_MAX as u64
    } else {
        FILE_SIZE_MAX
    };
    if inode.root.height() > HEIGHT_MAX {
        fate.dropped += 1;
        inode.root = IndexRoot::EMPTY;
    }
    let height = inode.root.height();
    // Where the pages are all there, and the size says otherwise, it is the size that is wrong.
    let mut count = Count::default();
    count.walk(pool, space, PagePtr(inode.root.pointer()), height, 0);
    let wanted = count
        .last
        .map_or(0, |last| (last + 1).saturating_mul(PAGE_SIZE));
    let is_whole = count.leaves == inode.pages && wanted <= most.next_multiple_of(PAGE_SIZE);
    if inode.size > most || (wanted > inode.size.next_multiple_of(PAGE_SIZE) && is_whole) {
        inode.size = wanted.min(most);
    }
    let mut walk = Settle {
        pool,
        plan,
        space,
        owner,
        end: inode.size.div_ceil(PAGE_SIZE),
        fate: &mut fate,
    };
    let root = walk.entry(inode.root.pointer(), height, 0);
    inode.root = IndexRoot::new(root, height);
    if root == 0 {
        inode.root = IndexRoot::EMPTY;
    }
    inode.pages = fate.kept + fate.copied;
    fate
}

/// The page of the extended attributes.
pub(crate) fn attributes(
    pool: &Pool,
    plan: &mut Plan,
    space: &mut Space<'_>,
    inode: &mut Inode,
    kind: FileKind,
    fate: &mut Fate,
) {
    let page = inode.attributes;
    if page.is_null() {
        return;
    }
    let owner = Owner::Inode(inode.number);
    let may_have = matches!(kind, FileKind::File | FileKind::Directory)
        && pool.geometry.contains(page)
        && space.kind_of(page) == SegmentKind::Data;
    if may_have && space.claim(page, owner) {
        return;
    }
    let copy = if may_have {
        space.allocate(SegmentKind::Data, owner)
    } else {
        None
    };
    inode.attributes = copy.unwrap_or(PagePtr::NULL);
    match copy {
        Some(copy) => plan.add_copy(copy, page),
        None => fate.dropped += 1,
    }
}

/// Counts the data pages that are where data pages can be.
#[derive(Default)]
struct Count {
    leaves: u64,
    last: Option<u64>,
    steps: u64,
}

impl Count {
    fn walk(&mut self, pool: &Pool, space: &Space<'_>, page: PagePtr, level: u32, first: u64) {
        self.steps += 1;
        // More than there are pages: it goes in a circle.
        if !pool.geometry.contains(page) || self.steps > 2 * pool.geometry.page_count() {
            return;
        }
        if level == 0 {
            if space.kind_of(page) == SegmentKind::Data {
                self.leaves += 1;
                self.last = self.last.max(Some(first));
            }
            return;
        }
        if space.kind_of(page) != SegmentKind::Metadata {
            return;
        }
        let Some(words) = pool.page(page) else { return };
        for slot in 0..FANOUT {
            let below = PagePtr(words[slot as usize].load(Ordering::Relaxed));
            if !below.is_null() {
                let first = first.saturating_add(slot * capacity(level - 1));
                self.walk(pool, space, below, level - 1, first);
            }
        }
    }
}

struct Settle<'a, 's, 'p> {
    pool: &'p Pool,
    plan: &'a mut Plan,
    space: &'a mut Space<'s>,
    owner: Owner,
    end: u64,
    fate: &'a mut Fate,
}

impl Settle<'_, '_, '_> {
    /// What has to stand where `pointer` does; 0 for nothing.
    fn entry(&mut self, pointer: u64, level: u32, first: u64) -> u64 {
        if pointer == 0 {
            return 0;
        }
        let page = PagePtr(pointer);
        let wanted = if level == 0 {
            SegmentKind::Data
        } else {
            SegmentKind::Metadata
        };
        let fits = self.pool.geometry.contains(page)
            && self.space.kind_of(page) == wanted
            && first < self.end;
        if !fits {
            self.fate.dropped += 1;
            return 0;
        }
        if level == 0 {
            return self.leaf(page);
        }
        let owner = self.space.owner(page);
        if owner == Some(Owner::Inodes) || owner == Some(self.owner) {
            self.fate.dropped += 1;
            return 0;
        }
        let is_own = self.space.claim(page, self.owner);
        let (at, words) = if is_own {
            (page, copy_page(self.pool, page))
        } else {
            match self.space.allocate(SegmentKind::Metadata, self.owner) {
                Some(new) => (new, copy_page(self.pool, page)),
                None => (PagePtr::NULL, None),
            }
        };
        let Some(words) = words else {
            self.fate.dropped += 1;
            return 0;
        };
        let step = capacity(level - 1);
        for slot in 0..FANOUT {
            let below = words[slot as usize].load(Ordering::Relaxed);
            let kept = self.entry(below, level - 1, first.saturating_add(slot * step));
            if kept != below {
                words[slot as usize].store(kept, Ordering::Relaxed);
                if is_own {
                    self.plan.set_word(at.address() + slot * 8, kept);
                }
            }
        }
        if !is_own {
            self.plan.add_page(at, words);
        }
        at.0
    }

    fn leaf(&mut self, page: PagePtr) -> u64 {
        if self.space.claim(page, self.owner) {
            self.fate.kept += 1;
            return page.0;
        }
        match self.space.allocate(SegmentKind::Data, self.owner) {
            Some(copy) => {
                self.plan.add_copy(copy, page);
                self.fate.copied += 1;
                copy.0
            }
            None => {
                self.fate.dropped += 1;
                0
            }
        }
    }
}
