//! Index pages of files, and of directories' buckets.
//!
//! # Invariants
//! * An index page that exists is reachable from the root; truncation frees those that become
//!   empty by it.
//! * Heights never shrink except to nothing: a root of height `h` stays good for what it covered.

use crate::state::change::Change;
use arck_core_state::index::{FANOUT, HEIGHT_MAX, capacity, height_for, slot};
use arck_core_state::{EditWords, IndexRoot, InodeNumber, PAGE_BYTES, PagePtr, Pages, Words, cast};
use rustix::io::Errno;

/// Sets entries of one index; remembers the last leaf, since neighbours follow each other.
pub struct Setter {
    root: IndexRoot,
    leaf: Option<(u64, PagePtr)>,
}

/// Entries of an index, ascending, a slice for each leaf that they are in.
pub fn by_leaf(entries: &[(u64, PagePtr)]) -> impl Iterator<Item = &[(u64, PagePtr)]> {
    entries.chunk_by(|(one, _), (next, _)| one / FANOUT == next / FANOUT)
}

/// Entries of a leaf for which it is not copied as a whole.
const FEW: usize = 32;

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

    /// The entry of page number `page` in this change.
    pub fn get(&mut self, change: &mut Change<'_>, page: u64) -> Result<PagePtr, Errno> {
        if page >= capacity(self.root.height()) {
            return Ok(PagePtr::NULL);
        }
        if self.root.height() == 0 {
            return Ok(PagePtr(self.root.pointer()));
        }
        match self.descend(change, page, false)? {
            Some(leaf) => Ok(PagePtr(read(change, leaf, slot(page, 1))?)),
            None => Ok(PagePtr::NULL),
        }
    }

    /// Sets the entry of page number `page`; gives what it was. EFBIG beyond the greatest
    /// height, ENOSPC.
    pub fn set(
        &mut self,
        change: &mut Change<'_>,
        page: u64,
        pointer: PagePtr,
    ) -> Result<PagePtr, Errno> {
        let mut old = Vec::with_capacity(1);
        self.set_run(change, &[(page, pointer)], &mut old)?;
        Ok(old.pop().unwrap_or(PagePtr::NULL))
    }

    /// The same of pages that lie in one leaf, ascending; what they were comes into `olds`, one for each.
    pub fn set_run(
        &mut self,
        change: &mut Change<'_>,
        entries: &[(u64, PagePtr)],
        olds: &mut Vec<PagePtr>,
    ) -> Result<(), Errno> {
        olds.clear();
        let set = entries.iter().filter(|(_, pointer)| !pointer.is_null());
        let last_set = set.map(|(page, _)| *page).max();
        if let Some(page) = last_set.filter(|&page| page >= capacity(self.root.height())) {
            self.grow(change, page)?;
        }
        if self.root.height() == 0 {
            for &(page, pointer) in entries {
                let mut old = 0;
                if page == 0 {
                    old = self.root.pointer();
                    self.root = IndexRoot::new(pointer.0, 0);
                }
                olds.push(PagePtr(old));
            }
            return Ok(());
        }
        let first = entries.first().map_or(0, |(page, _)| *page);
        let leaf = match self.leaf {
            Some((at, leaf)) if at == first / FANOUT => Some(leaf),
            _ if first >= capacity(self.root.height()) => None,
            _ => self.descend(change, first, last_set.is_some())?,
        };
        let Some(leaf) = leaf else {
            olds.resize(entries.len(), PagePtr::NULL);
            return Ok(());
        };
        self.leaf = Some((first / FANOUT, leaf));
        let edited = match entries.len() > FEW {
            true => change.edit_much(leaf)?,
            false => change.edit(leaf)?,
        };
        for &(page, pointer) in entries {
            let at = slot(page, 1);
            let old = edited.word(at);
            if old != pointer.0 {
                edited.set_word(at, pointer.0);
            }
            olds.push(PagePtr(old));
        }
        Ok(())
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
    let words = change.page(page).ok_or(Errno::IO)?;
    let entries: [u64; PAGE_BYTES / 8] = std::array::from_fn(|place| words.word(place));
    for (place, below) in (0..).zip(entries).filter(|(_, below)| *below != 0) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestCore;
    use arck_core_state::index::lookup;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// By leaves as one by one: the same entries, and the same that were there before.
        #[test]
        fn runs_are_as_their_entries(
            rounds in proptest::collection::vec(
                (0u64..600_000, proptest::collection::vec((0u64..1500, any::<bool>()), 0..600)), 1..5)
        ) {
            let (mut one, mut other) = (TestCore::new(), TestCore::new());
            let mut one = Change::new(&mut one.core.sessions.state);
            let mut other = Change::new(&mut other.core.sessions.state);
            let (mut by_run, mut by_one) =
                (Setter::new(IndexRoot::EMPTY), Setter::new(IndexRoot::EMPTY));
            let mut model = BTreeMap::new();
            let mut next = 1 << 40;
            for (base, places) in rounds {
                let places: BTreeMap<u64, bool> = places.into_iter().collect();
                let entries: Vec<(u64, PagePtr)> = places
                    .into_iter()
                    .map(|(place, is_set)| {
                        next += 1;
                        (base + place, if is_set { PagePtr(next) } else { PagePtr::NULL })
                    })
                    .collect();
                let mut olds = Vec::new();
                for run in by_leaf(&entries) {
                    by_run.set_run(&mut one, run, &mut olds).unwrap();
                    prop_assert_eq!(olds.len(), run.len());
                    for (&(page, pointer), &old) in run.iter().zip(&olds) {
                        prop_assert_eq!(by_one.set(&mut other, page, pointer).unwrap(), old);
                        let before = model.insert(page, pointer);
                        prop_assert_eq!(before.unwrap_or(PagePtr::NULL), old);
                    }
                }
                prop_assert_eq!(by_run.root().height(), by_one.root().height());
                for (&page, &pointer) in &model {
                    let found = |change: &Change<'_>, root| {
                        lookup(change, root, page).unwrap_or(PagePtr::NULL)
                    };
                    prop_assert_eq!(found(&one, by_run.root()), pointer);
                    prop_assert_eq!(found(&other, by_one.root()), pointer);
                }
            }
        }
    }
}
