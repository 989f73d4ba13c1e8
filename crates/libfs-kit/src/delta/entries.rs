//! The delta's index of a file: pages of the arena that lead to data pages.
//!
//! # Invariants
//! * An entry is stored after what it leads to is durable; an index page is durable before the entry
//!   that leads to it.
//! * Fresh pages are taken before anything is stored: what has begun cannot lack one.

use super::*;
use arck_core_state::index::{self, FANOUT, HEIGHT_MAX, IndexRoot};

/// Looks up the delta's own entry for a file page: 0 = as verified.
#[inline]
pub fn index_entry(session: &Session, root: IndexRoot, page: u64) -> u64 {
    let height = root.height();
    if height == 0 {
        return if page == 0 { root.leaf() } else { 0 };
    }
    if height > HEIGHT_MAX || page >= index::capacity(height) {
        return 0;
    }
    let mut pointer = root.pointer();
    for level in (1..=height).rev() {
        if pointer == 0 {
            return 0;
        }
        let place = pointer as usize * PAGE_SIZE as usize + index::slot(page, level) * 8;
        match session.arena_at(place).load_u64(place, Ordering::Acquire) {
            Some(next) => pointer = next,
            None => return 0,
        }
    }
    pointer
}

/// How many fresh arena pages [`set_index_entry`] may need: new roots, and a way down beside.
pub const INDEX_PAGES_MAX: usize = 2 * HEIGHT_MAX as usize;

/// Fresh arena pages for an index, taken before anything is stored: for three entries at most.
#[derive(Default)]
pub struct FreshPages {
    pages: [u32; 3 * INDEX_PAGES_MAX],
    count: usize,
}

impl FreshPages {
    /// Gives the page back if there is no place for it.
    pub fn add(&mut self, page: u32) -> Result<(), u32> {
        let place = self.pages.get_mut(self.count).ok_or(page)?;
        *place = page;
        self.count += 1;
        Ok(())
    }
    pub fn count(&self) -> usize {
        self.count
    }
    pub fn take(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        Some(self.pages[self.count])
    }
}

/// How many fresh pages setting the entry of `page` needs.
pub fn index_pages_needed(session: &Session, root: IndexRoot, page: u64) -> usize {
    let height = index::height_for(page + 1).max(root.height());
    if height == 0 {
        return 0;
    }
    if root.0 == 0 {
        return height as usize;
    }
    if height > root.height() {
        // New roots above the old one, and a way down beside it unless the old one covers it.
        return (height - root.height()) as usize + height as usize;
    }
    let mut pointer = root.pointer();
    for level in (1..=height).rev() {
        if pointer == 0 {
            return level as usize;
        }
        if level > 1 {
            let place = pointer as usize * PAGE_SIZE as usize + index::slot(page, level) * 8;
            pointer = session
                .arena_at(place)
                .load_u64(place, Ordering::Acquire)
                .unwrap_or(0);
        }
    }
    0
}

/// Fills a fresh index page with zeroes and one entry.
fn fresh_index_page(
    session: &Session,
    page: u32,
    slot: usize,
    entry: u64,
) -> Result<Flushed<Entries>, Errno> {
    // In one piece: the line with the entry would be flushed twice.
    let mut whole = [0u8; PAGE_SIZE as usize];
    let place = whole.get_mut(slot * 8..slot * 8 + 8).ok_or(OUTSIDE)?;
    place.copy_from_slice(&entry.to_ne_bytes());
    let stored = page_bytes(session, page)?.stream(0, &whole);
    Ok(stored.ok_or(OUTSIDE)?.describing())
}

/// Fresh index pages from the lowest level to `top`, each leading to the one below, the lowest by `entry` for
/// file page `page`. Gives the highest, durable with the others. `None`: there is no level.
fn way_down(
    session: &Session,
    page: u64,
    top: u32,
    entry: u64,
    fresh: &mut FreshPages,
) -> Result<Option<(u64, Durable<Entries>)>, Errno> {
    let mut pointer = entry;
    let mut stored = None;
    for level in 1..=top {
        let new = fresh.take().ok_or(OUTSIDE)?;
        let filled = fresh_index_page(session, new, index::slot(page, level), pointer)?;
        stored = Some(filled.join_all(stored));
        pointer = u64::from(new);
    }
    Ok(stored.map(|stored| (pointer, order::fence(stored))))
}

impl Entry<'_> {
    fn word(&self) -> u64 {
        match self {
            Entry::Page(pointer, _) => *pointer,
            Entry::Hole => index::HOLE,
        }
    }

    /// Stores the word by which the entry is found: what it leads to is durable, and the index pages on
    /// the way to it that are new.
    #[inline(always)]
    #[track_caller]
    fn publish(
        &self,
        bytes: &SharedBytes<'_>,
        place: usize,
        word: u64,
        way: Option<Durable<Entries>>,
    ) -> Result<Flushed<Entries>, Errno> {
        let stored = match (self, way) {
            (Entry::Page(_, filled), Some(way)) => bytes
                .publish(place, word, (*filled, way))
                .map(order::Published::into_dirty),
            (Entry::Page(_, filled), None) => bytes
                .publish(place, word, *filled)
                .map(order::Published::into_dirty),
            (Entry::Hole, Some(way)) => bytes
                .publish(place, word, way)
                .map(order::Published::into_dirty),
            // It refers to nothing.
            (Entry::Hole, None) => bytes.write_u64(place, word),
        };
        Ok(stored.ok_or(OUTSIDE)?.describing().flush())
    }
}

/// Entries in the first line of an index page.
pub const FRONT: usize = 8;

/// Makes a fresh index page of these entries, and zeroes behind them. To be durable, with what they lead
/// to, before anything leads there. `is_clean`: behind its first line it is zero already.
pub fn fill_index_page(
    session: &Session,
    page: u32,
    entries: &[u64],
    is_clean: bool,
) -> Result<Flushed, Errno> {
    let bytes = page_bytes(session, page)?;
    let mut whole = [0u64; FANOUT as usize];
    let place = whole.get_mut(..entries.len()).ok_or(OUTSIDE)?;
    place.copy_from_slice(entries);
    match is_clean && entries.len() <= FRONT {
        true => Ok(bytes
            .write(0, whole[..FRONT].as_bytes())
            .ok_or(OUTSIDE)?
            .flush()),
        false => bytes.stream(0, whole.as_bytes()).ok_or(OUTSIDE),
    }
}

/// Calls `each` for the entries in the first line of an index page.
pub fn for_each_in_front(session: &Session, page: u32, mut each: impl FnMut(u64)) {
    let Ok(bytes) = page_bytes(session, page) else {
        return;
    };
    for slot in 0..FRONT {
        match bytes.load_u64(slot * 8, Ordering::Acquire) {
            None | Some(0) => {}
            Some(entry) => each(entry),
        }
    }
}

/// Sets the delta's entry for file page `page` to `entry`, growing the index by `fresh` pages
/// where it has to. A root without pointer but with a height: an index that does not exist yet
/// and is to be at least so high. Gives the new root (already
/// stored in the branch) and the token of the store that made the entry visible.
pub fn set_index_entry(
    session: &Session,
    branch: &BegunBranch<'_>,
    root: IndexRoot,
    page: u64,
    entry: Entry<'_>,
    fresh: &mut FreshPages,
) -> Result<(IndexRoot, Flushed<Entries>), Errno> {
    let root_at = offset::ROOT as usize;
    let mut root = root;
    let needed = index::height_for(page + 1);
    if needed > HEIGHT_MAX {
        return Err(Errno::FBIG);
    }
    if needed == 0 && root.height() == 0 {
        let value = match entry {
            Entry::Hole => IndexRoot::hole(),
            Entry::Page(pointer, _) => IndexRoot::new(pointer, 0),
        };
        let stored = entry.publish(&branch.bytes, root_at, value.0, None)?;
        return Ok((value, stored));
    }
    if root.height() != 0 && root.pointer() == 0 || root.0 == 0 {
        let needed = needed.max(root.height());
        // An empty index: build the path bottom up and commit it by the root.
        let way = way_down(session, page, needed, entry.word(), fresh)?;
        let (pointer, way) = way.ok_or(OUTSIDE)?;
        let value = IndexRoot::new(pointer, needed);
        let stored = entry.publish(&branch.bytes, root_at, value.0, Some(way))?;
        return Ok((value, stored));
    }
    // The same entries in a higher tree: valid at once, and if it is lost, so is the new entry alone.
    let mut raised: Option<Flushed<Entries>> = None;
    while root.height() < needed {
        let new = fresh.take().ok_or(OUTSIDE)?;
        let below = if root.height() == 0 {
            root.leaf()
        } else {
            root.pointer()
        };
        let filled = order::fence(fresh_index_page(session, new, 0, below)?);
        root = IndexRoot::new(u64::from(new), root.height() + 1);
        raised = Some(branch.set(offset::ROOT, root.0, filled)?.describing());
    }
    let mut at = root.pointer() as usize;
    for level in (2..=root.height()).rev() {
        let place = at * PAGE_SIZE as usize + index::slot(page, level) * 8;
        let arena = session.arena_at(place);
        let next = arena.load_u64(place, Ordering::Acquire).ok_or(OUTSIDE)?;
        if next != 0 {
            at = next as usize;
            continue;
        }
        let way = way_down(session, page, level - 1, entry.word(), fresh)?;
        let (pointer, way) = way.ok_or(OUTSIDE)?;
        let stored = entry.publish(&arena, place, pointer, Some(way))?;
        return Ok((root, stored.join_all(raised)));
    }
    let place = at * PAGE_SIZE as usize + index::slot(page, 1) * 8;
    let stored = entry.publish(&session.arena_at(place), place, entry.word(), None)?;
    Ok((root, stored.join_all(raised)))
}

/// Sets the delta's entries for the file pages `first` and on, all at or beyond the file's size:
/// they lead nowhere until a size that reaches them is stored, so nothing has to be durable
/// before. Gives the tokens, to be fenced before that size. `None`, with nothing changed: the
/// index has no page for all of them.
pub fn set_entries_ahead(
    session: &Session,
    root: IndexRoot,
    first: u64,
    entries: impl ExactSizeIterator<Item = u64>,
) -> Result<Option<Flushed<Entries>>, Errno> {
    let height = root.height();
    let (slot, count) = (index::slot(first, 1), entries.len());
    let fits = slot + count <= FANOUT as usize && first < index::capacity(height);
    if height == 0 || height > HEIGHT_MAX || count == 0 || !fits {
        return Ok(None);
    }
    let mut at = root.pointer();
    for level in (2..=height).rev() {
        let place = at as usize * PAGE_SIZE as usize + index::slot(first, level) * 8;
        let next = session.arena_at(place).load_u64(place, Ordering::Acquire);
        at = next.ok_or(OUTSIDE)?;
        if at == 0 {
            return Ok(None);
        }
    }
    let leaf = page_bytes(session, u32::try_from(at).map_err(|_| OUTSIDE)?)?;
    for (index, entry) in entries.enumerate() {
        leaf.store_u64((slot + index) * 8, entry, Ordering::Release)
            .ok_or(OUTSIDE)?;
    }
    let stored = leaf.dirty(slot * 8, count * 8).ok_or(OUTSIDE)?;
    Ok(Some(stored.describing().flush()))
}

/// Takes the entry of `page` out of the delta: "as verified" again. Nothing is referred to, so
/// nothing has to be durable before.
pub fn clear_index_entry(
    session: &Session,
    branch: &BegunBranch<'_>,
    root: IndexRoot,
    page: u64,
) -> Result<Option<Flushed<Entries>>, Errno> {
    if root.height() == 0 {
        return if page == 0 {
            Ok(Some(branch.put(offset::ROOT, 0)?.describing().flush()))
        } else {
            Ok(None)
        };
    }
    let mut pointer = root.pointer() as usize;
    for level in (1..=root.height()).rev() {
        let place = pointer * PAGE_SIZE as usize + index::slot(page, level) * 8;
        if level == 1 {
            return Ok(Some(
                session
                    .arena_at(place)
                    .write_u64(place, 0)
                    .ok_or(OUTSIDE)?
                    .describing()
                    .flush(),
            ));
        }
        pointer = session
            .arena_at(place)
            .load_u64(place, Ordering::Acquire)
            .unwrap_or(0) as usize;
        if pointer == 0 {
            return Ok(None);
        }
    }
    Ok(None)
}

/// The first leaf entry that is not 0 from file page `from` on, below `end`, and its page.
pub fn next_entry(session: &Session, root: IndexRoot, from: u64, end: u64) -> Option<(u64, u64)> {
    if from >= end {
        return None;
    }
    if root.height() == 0 {
        return (from == 0 && root.leaf() != 0).then(|| (0, root.leaf()));
    }
    let height = root.height().min(HEIGHT_MAX);
    next_below(session, root.pointer(), height, 0, from..end)
}

fn next_below(
    session: &Session,
    pointer: u64,
    level: u32,
    first: u64,
    range: std::ops::Range<u64>,
) -> Option<(u64, u64)> {
    let bytes = page_bytes(session, u32::try_from(pointer).ok()?).ok()?;
    let step = index::capacity(level - 1);
    let slots = |page: u64| page.saturating_sub(first) / step;
    let last = slots(range.end - 1).min(FANOUT - 1);
    (slots(range.start)..=last).find_map(|slot| {
        let entry = bytes.load_u64(slot as usize * 8, Ordering::Acquire)?;
        let at = first + slot * step;
        match (entry, level) {
            (0, _) => None,
            (_, 1) => Some((at, entry)),
            _ => next_below(session, entry, level - 1, at, range.clone()),
        }
    })
}

/// Calls `each` for every leaf entry of a delta's index that is not 0 (page, entry), and
/// `interior` for every arena page of the index.
pub fn for_each_entry(
    session: &Session,
    root: IndexRoot,
    each: &mut impl FnMut(u64, u64),
    interior: &mut impl FnMut(u32),
) {
    if root.height() == 0 {
        if root.leaf() != 0 {
            each(0, root.leaf());
        }
        return;
    }
    walk(session, root.pointer(), root.height(), 0, each, interior);
}

fn walk(
    session: &Session,
    pointer: u64,
    level: u32,
    first: u64,
    each: &mut impl FnMut(u64, u64),
    interior: &mut impl FnMut(u32),
) {
    let Ok(page) = u32::try_from(pointer) else {
        return;
    };
    let Ok(bytes) = page_bytes(session, page) else {
        return;
    };
    interior(page);
    for slot in 0..FANOUT {
        let entry = bytes
            .load_u64(slot as usize * 8, Ordering::Acquire)
            .unwrap_or(0);
        if entry == 0 {
            continue;
        }
        let page = first + slot * index::capacity(level - 1);
        if level == 1 {
            each(page, entry);
        } else {
            walk(session, entry, level - 1, page, each, interior);
        }
    }
}
