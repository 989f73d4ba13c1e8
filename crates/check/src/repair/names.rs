//! Names of directories: reading what is left of them, and writing directories anew.
//!
//! # Invariants
//! * A hash page that says whose it is counts for that directory alone; one that does not say so
//!   counts for who refers to it, if nobody else has it.
//! * A directory that is written anew lies in new pages: the old one is whole until the end.

use super::plan::Plan;
use super::space::{Owner, Space};
use crate::pool::Pool;
use arck_controller_state::segments::SegmentKind;
use arck_core_state::directory::{
    CHAIN_MAX, Dentry, HASH_PAGE_MAGIC, HashPage, TAG_CONTINUED, UNITS, WORD_IDENTITY, WORD_MAGIC,
    bucket_of, hash_name, next_page, read_entry, tags, units_for,
};
use arck_core_state::index::{FANOUT, HEIGHT_MAX, height_for};
use arck_core_state::{
    FileKind, IndexRoot, Inode, InodeNumber, PAGE_SIZE, PagePtr, PageWords, Pages, zeroed_page,
};
use foldhash::HashSet;
use std::sync::atomic::Ordering;

/// A name as it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    pub bytes: Box<[u8]>,
    pub target: InodeNumber,
    pub generation: u32,
    pub kind: FileKind,
}

/// Whether these bytes can be a name.
pub(crate) fn is_name(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && !bytes.contains(&b'/')
        && !bytes.contains(&0)
        && bytes != b"."
        && bytes != b".."
}

/// What is found of a directory.
#[derive(Default)]
pub(crate) struct Found {
    pub names: Vec<Name>,
    /// Index pages and hash pages.
    pub pages: Vec<PagePtr>,
    /// Pages that are in its place, and do not say that they are its.
    pub strange: Vec<PagePtr>,
}

/// Reads a directory's names from the pages that are its own.
pub(crate) fn read(pool: &Pool, space: &Space<'_>, inode: &Inode) -> Found {
    let mut reader = Reader {
        pool,
        space,
        number: inode.number,
        seen: HashSet::default(),
        found: Found::default(),
    };
    if inode.root.height() <= HEIGHT_MAX {
        let root = PagePtr(inode.root.pointer());
        reader.walk(root, inode.root.height());
    }
    reader.found
}

struct Reader<'a, 'p> {
    pool: &'p Pool,
    space: &'a Space<'p>,
    number: InodeNumber,
    seen: HashSet<PagePtr>,
    found: Found,
}

impl Reader<'_, '_> {
    /// A page of metadata that nobody else has and that was not met before.
    fn is_to_be_read(&mut self, page: PagePtr) -> bool {
        self.pool.geometry.contains(page)
            && self.space.kind_of(page) == SegmentKind::Metadata
            && self.space.owner(page).is_none()
            && self.seen.insert(page)
    }

    fn walk(&mut self, page: PagePtr, level: u32) {
        if !self.is_to_be_read(page) {
            return;
        }
        let Some(words) = self.pool.page(page) else {
            return;
        };
        if level > 0 {
            self.found.pages.push(page);
            for word in words {
                let below = PagePtr(word.load(Ordering::Relaxed));
                self.walk(below, level - 1);
            }
            return;
        }
        let (mut at, mut words) = (page, words);
        for _ in 0..CHAIN_MAX {
            let magic = words[WORD_MAGIC].load(Ordering::Relaxed);
            let whose = words[WORD_IDENTITY].load(Ordering::Relaxed) as u32;
            if magic == HASH_PAGE_MAGIC && whose == self.number {
                self.found.pages.push(at);
                self.found.names.extend(names(words));
            } else {
                self.found.strange.push(at);
            }
            at = next_page(words);
            if at.is_null() || !self.is_to_be_read(at) {
                return;
            }
            match self.pool.page(at) {
                Some(next) => words = next,
                None => return,
            }
        }
    }
}

/// The names in a hash page.
pub(crate) fn names(page: &PageWords) -> Vec<Name> {
    let mut found = Vec::new();
    for (unit, tag) in tags(page).into_iter().enumerate() {
        if tag <= TAG_CONTINUED {
            continue;
        }
        if let Some((dentry, _, name)) = read_entry(page, unit) {
            found.push(Name {
                bytes: name.as_bytes().into(),
                target: dentry.inode,
                generation: dentry.generation,
                kind: dentry.kind,
            });
        }
    }
    found
}

/// Writes a directory with these names into new pages; gives root and size. `None`: there is no
/// room.
pub(crate) fn write(
    plan: &mut Plan,
    space: &mut Space<'_>,
    seed: u64,
    number: InodeNumber,
    names: &[Name],
) -> Option<(IndexRoot, u64)> {
    if names.is_empty() {
        return Some((IndexRoot::EMPTY, PAGE_SIZE));
    }
    let owner = Owner::Inode(number);
    let units: usize = names.iter().map(|name| units_for(name.bytes.len())).sum();
    // About half full: few chains.
    let count = (units as u64 * 2).div_ceil(UNITS as u64).max(1);
    let mut buckets: Vec<Vec<(u64, &Name)>> = vec![Vec::new(); count as usize];
    for name in names {
        let hash = hash_name(seed, &name.bytes);
        buckets[bucket_of(hash, count) as usize].push((hash, name));
    }
    let mut leaves = Vec::with_capacity(buckets.len());
    for (bucket, names) in (0..).zip(buckets) {
        let mut pages: Vec<(PagePtr, Box<PageWords>)> = Vec::new();
        for (hash, name) in names {
            let dentry = Dentry {
                inode: name.target,
                generation: name.generation,
                kind: name.kind,
            };
            let has_room = pages
                .last()
                .is_some_and(|(_, words)| HashPage(words).add(hash, &name.bytes, dentry).is_some());
            if has_room {
                continue;
            }
            let page = space.allocate(SegmentKind::Metadata, owner)?;
            let words = zeroed_page();
            HashPage(&words).format(number, bucket);
            HashPage(&words).add(hash, &name.bytes, dentry)?;
            if let Some((_, before)) = pages.last() {
                HashPage(before).set_next(page);
            }
            pages.push((page, words));
        }
        leaves.push(pages.first().map_or(0, |(page, _)| page.0));
        for (page, words) in pages {
            plan.add_page(page, words);
        }
    }
    // Index pages, level by level.
    let height = height_for(count);
    let mut level = leaves;
    for _ in 0..height {
        let mut above = Vec::new();
        for part in level.chunks(FANOUT as usize) {
            if part.iter().all(|&below| below == 0) {
                above.push(0);
                continue;
            }
            let page = space.allocate(SegmentKind::Metadata, owner)?;
            let words = zeroed_page();
            for (word, &below) in words.iter().zip(part) {
                word.store(below, Ordering::Relaxed);
            }
            plan.add_page(page, words);
            above.push(page.0);
        }
        level = above;
    }
    let root = level.first().copied()?;
    Some((IndexRoot::new(root, height), count * PAGE_SIZE))
}
