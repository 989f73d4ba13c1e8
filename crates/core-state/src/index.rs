//! File index: pages of 512 page pointers, a radix tree by size, walked in place.
//!
//! Height 0: the root *is* page 0 of the file. Height h: the root is an index page each of whose
//! entries covers 512^(h-1) pages. The same shape serves three uses: data pages of a file,
//! hash pages of a directory, and the delta of a file, whose *interior* pointers are page
//! numbers in the owner's arena and whose leaf entries are pages of the pool, 0 for "as
//! verified", or [`HOLE`] for "nothing here any more".

use crate::Pages;
use crate::cast;
use crate::geometry::PagePtr;
use core::sync::atomic::Ordering;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Pointers in an index page.
pub const FANOUT: u64 = 512;
/// Greatest height; reaches 2^36 pages, 2^48 bytes.
pub const HEIGHT_MAX: u32 = 4;
/// Leaf entry of a delta: the page is dropped, there is a hole now.
pub const HOLE: u64 = u64::MAX;

/// Root pointer (bits 0..56) and height (bits 56..64) of an index, in one word so that both
/// change in one store.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct IndexRoot(pub u64);

impl IndexRoot {
    pub const EMPTY: IndexRoot = IndexRoot(0);
    const POINTER_MASK: u64 = (1 << 56) - 1;

    pub fn new(pointer: u64, height: u32) -> IndexRoot {
        IndexRoot(pointer & Self::POINTER_MASK | u64::from(height) << 56)
    }
    /// Root pointer; 0 = nothing.
    pub fn pointer(self) -> u64 {
        self.0 & Self::POINTER_MASK
    }
    pub fn height(self) -> u32 {
        (self.0 >> 56) as u32
    }
    /// The HOLE marker shortened to the pointer's bits, for a root of height 0.
    pub fn is_hole(self) -> bool {
        self.height() == 0 && self.pointer() == Self::POINTER_MASK
    }
    pub fn hole() -> IndexRoot {
        IndexRoot(Self::POINTER_MASK)
    }
    /// The entry of page 0 as a leaf entry; only for height 0.
    pub fn leaf(self) -> u64 {
        if self.is_hole() { HOLE } else { self.pointer() }
    }
}

/// Pages that an index of `height` covers.
pub fn capacity(height: u32) -> u64 {
    1u64 << (9 * height.min(HEIGHT_MAX))
}

/// Least height whose index covers `pages` pages; more than [`HEIGHT_MAX`] = too many.
pub fn height_for(pages: u64) -> u32 {
    let mut height = 0;
    while height <= HEIGHT_MAX && (1u64 << (9 * height)) < pages {
        height += 1;
    }
    height
}

/// Slot, in an index page at `level` (1 = leaf), on the way to `page`.
pub fn slot(page: u64, level: u32) -> usize {
    (page >> (9 * (level - 1)) & (FANOUT - 1)) as usize
}

/// The page that holds file page `page`: null for a hole. `None` if a pointer led outside the
/// pool, which a reader takes for a sign of change and retries.
pub fn lookup(pages: &impl Pages, root: IndexRoot, page: u64) -> Option<PagePtr> {
    let height = root.height();
    if height > HEIGHT_MAX {
        return None;
    }
    if page >= capacity(height) {
        return Some(PagePtr::NULL);
    }
    let mut pointer = root.pointer();
    for level in (1..=height).rev() {
        if pointer == 0 {
            return Some(PagePtr::NULL);
        }
        pointer = pages.page(PagePtr(pointer))?[slot(page, level)].load(Ordering::Relaxed);
    }
    Some(PagePtr(pointer))
}

/// The first page number from `from` on, below `limit`, that has a page. `None` if a pointer led
/// outside the pool. Empty parts of the tree are passed over whole.
pub fn next(pages: &impl Pages, root: IndexRoot, from: u64, limit: u64) -> Option<Option<u64>> {
    if root.height() > HEIGHT_MAX {
        return None;
    }
    let limit = limit.min(capacity(root.height()));
    next_below(pages, root.pointer(), root.height(), 0, from, limit)
}

fn next_below(
    pages: &impl Pages,
    pointer: u64,
    level: u32,
    first: u64,
    from: u64,
    limit: u64,
) -> Option<Option<u64>> {
    if pointer == 0 || first >= limit {
        return Some(None);
    }
    if level == 0 {
        return Some((first >= from).then_some(first));
    }
    let step = capacity(level - 1);
    let page = pages.page(PagePtr(pointer))?;
    for place in from.saturating_sub(first) / step..FANOUT {
        let below = page[cast::index(place)].load(Ordering::Relaxed);
        let at = first + place * step;
        if let Some(found) = next_below(pages, below, level - 1, at, from, limit)? {
            return Some(Some(found));
        }
    }
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_and_slots() {
        for (pages, height) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (512, 1),
            (513, 2),
            (1 << 18, 2),
            (1 << 36, 4),
            ((1 << 36) + 1, 5),
        ] {
            assert_eq!(height_for(pages), height, "{pages}");
        }
        assert_eq!(slot(513, 1), 1);
        assert_eq!(slot(513, 2), 1);
        let root = IndexRoot::new(77, 3);
        assert_eq!((root.pointer(), root.height()), (77, 3));
        assert_eq!(IndexRoot::hole().leaf(), HOLE);
    }
}
