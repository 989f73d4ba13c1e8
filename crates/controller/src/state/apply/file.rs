//! Index pages of files, and of directories' buckets.
//!
//! # Invariants
//! * An index page that exists is reachable from the root; truncation frees those that become
//!   empty by it.
//! * Heights never shrink except to nothing: a root of height `h` stays good for what it covered.

use crate::state::change::Change;
use arck_core_state::index::{FANOUT, HEIGHT_MAX, capacity, height_for, slot};
use arck_core_state::{IndexRoot, InodeNumber, PagePtr, cast};
use rustix::io::Errno;

/// Sets entries of one index; remembers the last leaf, since neighbours follow each other.
pub struct Setter {
    root: IndexRoot,
    leaf: Option<(u64, PagePtr)>,
}

fn read(change: &Change<'_>, page: PagePtr, slot: usize) -> Result<u64, Errno> {
    change.word(page, slot)
}

impl Setter {
    pub fn new(root: IndexRoot) -> Setter {
        Setter { root, leaf: None }
    }

    /// The root as it is now.
    pub fn root(&self) -> IndexRoot {
        self.root
    }

    /// Sets the entry of page number `page`; gives what it was. EFBIG beyond the greatest
    /// height, ENOSPC.
    pub fn set(
        &mut self,
        change: &mut Change<'_>,
        page: u64,
        pointer: PagePtr,
    ) -> Result<PagePtr, Errno> {
        if page >= capacity(self.root.height()) {
            if pointer.is_null() {
                return Ok(PagePtr::NULL);
            }
            self.grow(change, page)?;
        }
        if self.root.height() == 0 {
            let old = PagePtr(self.root.pointer());
            self.root = IndexRoot::new(pointer.0, 0);
            return Ok(old);
        }
        let leaf = match self.leaf {
            Some((first, leaf)) if first == page / FANOUT => leaf,
            _ => match self.descend(change, page, !pointer.is_null())? {
                Some(leaf) => leaf,
                None => return Ok(PagePtr::NULL),
            },
        };
        self.leaf = Some((page / FANOUT, leaf));
        let at = slot(page, 1);
        let old = read(change, leaf, at)?;
        if old != pointer.0 {
            change.set_word(leaf, at, pointer.0)?;
        }
        Ok(PagePtr(old))
    }

    fn grow(&mut self, change: &mut Change<'_>, page: u64) -> Result<(), Errno> {
        let height = height_for(page + 1);
        if height > HEIGHT_MAX {
            return Err(Errno::FBIG);
        }
        while self.root.height() < height {
            let pointer = if self.root.pointer() == 0 {
                0
            } else {
                let above = change.new_page()?;
                change.set_word(above, 0, self.root.pointer())?;
                above.0
            };
            self.root = IndexRoot::new(pointer, self.root.height() + 1);
        }
        self.leaf = None;
        Ok(())
    }

    fn descend(
        &mut self,
        change: &mut Change<'_>,
        page: u64,
        create: bool,
    ) -> Result<Option<PagePtr>, Errno> {
        let height = self.root.height();
        let mut at = PagePtr(self.root.pointer());
        if at.is_null() {
            if !create {
                return Ok(None);
            }
            at = change.new_page()?;
            self.root = IndexRoot::new(at.0, height);
        }
        for level in (2..=height).rev() {
            let place = slot(page, level);
            let mut below = PagePtr(read(change, at, place)?);
            if below.is_null() {
                if !create {
                    return Ok(None);
                }
                below = change.new_page()?;
                change.set_word(at, place, below.0)?;
            }
            at = below;
        }
        Ok(Some(at))
    }
}

/// Drops all pages of inode `of` from page number `limit` on, data pages and index pages; gives the new root
/// and the number of data pages dropped.
pub fn truncate(
    change: &mut Change<'_>,
    of: InodeNumber,
    root: IndexRoot,
    limit: u64,
) -> Result<(IndexRoot, u64), Errno> {
    if root.pointer() == 0 || limit >= capacity(root.height()) {
        return Ok((root, 0));
    }
    let mut dropped = 0;
    let is_empty = drop_below(
        change,
        of,
        PagePtr(root.pointer()),
        root.height(),
        0,
        limit,
        &mut dropped,
    )?;
    let root = if is_empty { IndexRoot::EMPTY } else { root };
    Ok((root, dropped))
}

/// True if nothing is left of the part of the tree at `page`, which is freed then. `first` is
/// the first page number it covers.
#[allow(clippy::too_many_arguments)]
fn drop_below(
    change: &mut Change<'_>,
    of: InodeNumber,
    page: PagePtr,
    level: u32,
    first: u64,
    limit: u64,
    dropped: &mut u64,
) -> Result<bool, Errno> {
    if level == 0 {
        if first >= limit {
            change.drop_data_page(of, page);
            *dropped += 1;
            return Ok(true);
        }
        return Ok(false);
    }
    let step = capacity(level - 1);
    let mut left = false;
    for place in 0..FANOUT {
        let below = read(change, page, cast::index(place))?;
        if below == 0 {
            continue;
        }
        let start = first + place * step;
        if start + step <= limit {
            left = true;
        } else if drop_below(change, of, PagePtr(below), level - 1, start, limit, dropped)? {
            // If all of the page goes, so does the entry: no need to change it.
            if first < limit {
                change.set_word(page, cast::index(place), 0)?;
            }
        } else {
            left = true;
        }
    }
    if !left {
        change.free_page(page);
    }
    Ok(!left)
}

/// The number of the page that has `count` pages of a file from there to its end, or 0 where it has fewer.
pub fn number_from_end(change: &Change<'_>, root: IndexRoot, count: u64) -> Result<u64, Errno> {
    let mut left = count.max(1);
    let page = PagePtr(root.pointer());
    if page.is_null() {
        return Ok(0);
    }
    let found = from_end(change, page, root.height(), 0, &mut left)?;
    Ok(found.unwrap_or(0))
}

/// Within the part of the tree at `page`, if there are as many; else `left` is what remains.
fn from_end(
    change: &Change<'_>,
    page: PagePtr,
    level: u32,
    first: u64,
    left: &mut u64,
) -> Result<Option<u64>, Errno> {
    if level == 0 {
        *left -= 1;
        return Ok((*left == 0).then_some(first));
    }
    let step = capacity(level - 1);
    for place in (0..FANOUT).rev() {
        let below = PagePtr(read(change, page, cast::index(place))?);
        if below.is_null() {
            continue;
        }
        let found = from_end(change, below, level - 1, first + place * step, left)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
