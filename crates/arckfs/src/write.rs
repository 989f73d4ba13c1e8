//! Writing file data, and changing sizes.
//!
//! # Invariants
//! * A page of this session's own is overwritten in place; any other is replaced by a new page
//!   (copy on write), since only its owner may store to it.
//! * Order, shown to the types: data before the index entry that leads to it, entries before
//!   the size that makes them reachable. A size is one store. An entry beyond the size leads
//!   nowhere, and needs to be durable, with its data, only before the size.
//! * Entries at or beyond the size are none of the file's: shrinking stores the size first and
//!   the limit behind it in the same cache line, then tidies; growing zeroes the tail of the
//!   last page first.
//! * All of it under the lock of the whole inode, or, where a write only goes over bytes in place,
//!   under that of these bytes ([`crate::buckets`]); inside an operation.

use crate::engine::{Attempt, Context, Fix, Published};
use crate::interface::Errno;
use crate::read::pages_of;
use crate::state::{CachedInode, begun, flag};
use crate::time::now;
use arck_core_state::branch::{StoredBranch, offset};
use arck_core_state::geometry::FILE_SIZE_MAX;
use arck_core_state::{IndexRoot, PAGE_SIZE, PagePtr, index};
use arck_libfs_kit::delta::{self, Branch, FreshPages};
use arck_pm::order;
use arck_pm::{Durable, Flushed};
use arck_protocol::operation::Expected;
use std::sync::atomic::Ordering;

/// Pages written in one step: more are written in several, in one turn ([`crate::turns`]).
const STEP: usize = 512;
/// Bytes that are written in one step, wherever they go.
pub const ONE_STEP: usize = (STEP - 1) * PAGE_SIZE as usize;

/// Pages of a small write, whose places are kept apart.
const FEW: usize = 3;
/// Places for the fresh pages of a small write, and for the one that the file ended in.
const NO_PAGES: [(u64, PagePtr); FEW + 1] = [(0, PagePtr::NULL); FEW + 1];

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    At(u64),
    /// O_APPEND: the end of the file, whatever it is then.
    End,
}

impl<'a> Context<'a> {
    /// The inode's branch, begun if it has not been. Inside an operation, under the lock. The
    /// token is of the beginning, to be fenced before anything is published in the branch.
    ///
    /// Inlined, as what else gives back more than two words on the way of a change: read in other
    /// pieces than it was stored in, such an answer waits for all stores before it.
    #[inline(always)]
    pub fn branch(
        &self,
        inode: &'static CachedInode,
        expected: &Expected,
    ) -> Attempt<(Branch<'static>, Option<Flushed>)> {
        // Asked once, inside the operation: later the header may tell another's slot.
        let slot = expected
            .branch_slot(self.header(inode.number())?)
            .ok_or(Fix::Again)?;
        if !self.session.state().arena.has_branch(slot) {
            return Err(Fix::BranchSlot(slot).into());
        }
        let branch = Branch::at(self.session, slot)?;
        let begun = match inode.branch.load(Ordering::Acquire) {
            begun::DURABLE => None,
            begun::NOT => Some(self.begin_branch(inode, expected, &branch)?),
            // Whoever began it may have stopped before it was durable.
            _ => Some(branch.flush()?),
        };
        Ok((branch, begun))
    }

    #[inline(never)]
    fn begin_branch(
        &self,
        inode: &'static CachedInode,
        expected: &Expected,
        branch: &Branch<'_>,
    ) -> Attempt<Flushed> {
        let mut content = StoredBranch::unchanged(
            inode.number(),
            inode.generation(),
            expected.ownership.epoch(),
            expected.fold,
        );
        if inode.has(flag::UNBORN) {
            content.parent = inode.parent.load(Ordering::Relaxed);
        }
        let begun = branch.begin(&content)?;
        inode.branch.store(begun::STORED, Ordering::Release);
        self.note_dirty(inode, self.offset_of(inode.number()));
        Ok(begun)
    }

    /// Owned, synchronous and entered: what every change of an inode begins with.
    pub fn begin_change(&self, inode: &CachedInode) -> Attempt<Expected> {
        self.enter();
        let expected = self.owned(inode)?;
        self.unmoved(inode)?;
        Ok(expected)
    }

    /// Writes; gives the bytes written (fewer than asked for only if more would not fit in one
    /// step, or if pages run out on the way and `in_parts` allows it) and where. EFBIG, ENOSPC.
    pub fn write_at(
        &self,
        inode: &'static CachedInode,
        data: &[u8],
        position: Position,
        in_parts: bool,
    ) -> Attempt<(usize, u64)> {
        let length = data.len() as u64;
        let end = match position {
            Position::At(position) => position.saturating_add(length),
            Position::End => u64::MAX,
        };
        if let Position::At(at) = position
            && !inode.spread.load(Ordering::Acquire).is_null()
            && (1..=ONE_STEP as u64).contains(&length)
            && let Some(_locked) = self.lock_bytes(inode, at, length)
            && self.overwrites(inode, at, end)?
        {
            return self.write_locked(inode, data, position, in_parts);
        }
        let _locked = self.lock_to_write(inode, end);
        self.write_locked(inode, data, position, in_parts)
    }

    /// Whether a write of the bytes from `at` to `end` goes over bytes of the file in place alone,
    /// and needs nothing that is begun under the whole inode's lock. Under the lock of the bytes.
    fn overwrites(&self, inode: &CachedInode, at: u64, end: u64) -> Attempt<bool> {
        let is_simple = end <= inode.size.load(Ordering::Acquire)
            && inode.branch.load(Ordering::Acquire) == begun::DURABLE
            && !inode.has(flag::MAPPED);
        let mut pages = at / PAGE_SIZE..pages_of(end);
        while is_simple && let Some(page) = pages.next() {
            let place = self.data_page(inode, page)?;
            if place.is_null() || !self.session.is_own(place) {
                return Ok(false);
            }
        }
        Ok(is_simple)
    }

    /// Under the lock of the whole inode, or of the bytes if that [overwrites](Self::overwrites).
    #[inline(always)]
    fn write_locked(
        &self,
        inode: &'static CachedInode,
        data: &[u8],
        position: Position,
        in_parts: bool,
    ) -> Attempt<(usize, u64)> {
        self.heed_turn(inode)?;
        let expected = self.begin_change(inode)?;
        let size = inode.size.load(Ordering::Relaxed);
        let position = match position {
            Position::At(position) => position,
            Position::End => size,
        };
        if data.is_empty() {
            return Ok((0, position));
        }
        if position >= FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        let most = (STEP as u64) * PAGE_SIZE - position % PAGE_SIZE;
        let length = (data.len() as u64).min(most).min(FILE_SIZE_MAX - position);
        let data = &data[..length as usize];
        let (branch, begun) = self.branch(inode, &expected)?;
        // Room for a small write costs nothing to make ready; for a large one it costs as much
        // as copying a page.
        let mut few = NO_PAGES;
        let mut many;
        let places = if position % PAGE_SIZE + length <= FEW as u64 * PAGE_SIZE {
            &mut few[..]
        } else {
            many = [(0, PagePtr::NULL); STEP + 1];
            &mut many[..]
        };
        let mut step = Step::new(self, inode, branch, begun, places);
        if position > size {
            step.zero_tail(size)?;
        }
        step.stream(data, position, size, in_parts)?;
        let written = step.covered;
        let end = position + written as u64;
        let time = now();
        if end > size {
            // Entries ahead of the size become durable together with what they lead to.
            let ahead = step.set_entries_ahead(size)?;
            let is_ahead = ahead.is_some();
            let (data, ahead) = order::fence((step.stored.take(), ahead));
            let proof = if step.count == 0 || is_ahead || step.put_first_page(&data)? {
                data.or(ahead).ok_or(Errno::IO)?
            } else {
                match step.publish_entries(&data) {
                    Ok(entries) => order::fence(entries),
                    Err(stop) => {
                        // Entries beyond the size must not wait there for the file to grow.
                        self.drop_entries(inode, &branch, pages_of(size))?;
                        return Err(stop);
                    }
                }
            };
            self.put_times(inode, &branch, time)?;
            let stored = branch.set(offset::SIZE, end, proof)?;
            let _durable = order::fence(stored);
            inode.branch_is_durable();
            let published = Published {
                offset: branch.offset_of(offset::SIZE),
                word: end,
                before: size,
                length: 8,
            };
            self.confirm(&[(inode, expected)], published)?;
            inode.size.store(end, Ordering::Release);
        } else {
            let entries = if step.count != 0 {
                let data = order::fence(step.stored.take());
                Some(step.publish_entries(&data)?)
            } else {
                None
            };
            let stamped = self.stamp(inode, &branch, time)?;
            let _durable = order::fence((entries, step.stored.take(), stamped));
            inode.branch_is_durable();
            if !expected.still_holds(self.header(inode.number())?) {
                // A fold got in between. Writing the same bytes once more does no harm, but if
                // somebody else's have come on top.
                self.keep_turn(inode);
                return Err(Fix::Again.into());
            }
        }
        inode.stamped(time);
        if inode.has(flag::MAPPED) {
            self.remap(inode, size.min(position) / PAGE_SIZE, pages_of(end));
        }
        Ok((written, position))
    }

    /// Changes the size. EFBIG.
    pub fn resize(&self, inode: &'static CachedInode, new: u64) -> Attempt<()> {
        if new > FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        let _locked = self.lock_whole(inode);
        self.heed_turn(inode)?;
        let expected = self.begin_change(inode)?;
        let old = inode.size.load(Ordering::Relaxed);
        let (branch, begun) = self.branch(inode, &expected)?;
        let time = now();
        if new > old {
            let mut places = NO_PAGES;
            let mut step = Step::new(self, inode, branch, begun, &mut places);
            step.zero_tail(old)?;
            let data = order::fence(step.stored.take());
            let _entries = order::fence(step.publish_entries(&data)?);
        } else {
            let _begun = order::fence(begun);
        }
        // One cache line, in this order: what reaches the medium is a prefix of it.
        self.put_times(inode, &branch, time)?;
        let _ = branch.put(offset::SIZE, new)?;
        let limit = inode.limit.load(Ordering::Relaxed).min(pages_of(new));
        if new < old {
            let _ = branch.put(offset::LIMIT, limit)?;
        }
        let _durable = order::fence(branch.flush_line_0()?);
        inode.branch_is_durable();
        if !expected.still_holds(self.header(inode.number())?) {
            // Perhaps it has been folded: nothing of others may come before the next attempt.
            self.keep_turn(inode);
            return Err(Fix::Again.into());
        }
        inode.size.store(new, Ordering::Release);
        inode.stamped(time);
        if new < old {
            inode.limit.store(limit, Ordering::Release);
        }
        if inode.has(flag::MAPPED) {
            self.remap(inode, old.min(new) / PAGE_SIZE, u64::MAX);
        }
        if new < old {
            self.drop_entries(inode, &branch, pages_of(new))?;
            inode
                .pages
                .store(self.count_pages(inode), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes the delta's entries from file page `first` on out, and frees their pages.
    fn drop_entries(
        &self,
        inode: &'static CachedInode,
        branch: &Branch<'_>,
        first: u64,
    ) -> Attempt<()> {
        let root = inode.delta_root();
        if root.0 == 0 {
            return Ok(());
        }
        let mut dropped = Vec::new();
        delta::for_each_entry(
            self.session,
            root,
            &mut |page, entry| {
                if page >= first {
                    dropped.push((page, entry));
                }
            },
            &mut |_| {},
        );
        let mut cleared = Vec::with_capacity(dropped.len());
        for &(page, _) in &dropped {
            cleared.push(delta::clear_index_entry(self.session, branch, root, page)?);
        }
        let _durable = order::fence(cleared);
        if root.height() == 0 && first == 0 {
            inode.root.store(0, Ordering::Release);
        }
        for (_, entry) in dropped {
            self.session
                .state()
                .data
                .release(self.session, PagePtr(entry));
        }
        Ok(())
    }

    /// Data pages that the file has in this session's view.
    pub fn count_pages(&self, inode: &CachedInode) -> u64 {
        let size = pages_of(inode.size.load(Ordering::Relaxed));
        let limit = inode
            .limit
            .load(Ordering::Relaxed)
            .min(pages_of(inode.base_size.load(Ordering::Relaxed)))
            .min(size);
        let root = inode.verified_root();
        let mut count = count_verified(self, root.pointer(), root.height(), 0, limit);
        delta::for_each_entry(
            self.session,
            inode.delta_root(),
            &mut |page, entry| {
                let verified = page < limit
                    && arck_core_state::index::lookup(self.session, root, page)
                        .is_some_and(|page| !page.is_null());
                if page >= size {
                    return;
                }
                match (entry == arck_core_state::index::HOLE, verified) {
                    (false, false) => count += 1,
                    (true, true) => count -= 1,
                    _ => {}
                }
            },
            &mut |_| {},
        );
        count
    }

    /// Gives pages of this session's own to what has none or somebody else's, in file pages from
    /// `first` up to `end` or the end of the file, so that a map of them can be written; one step
    /// of pages at a time. Gives the page up to which it came.
    pub fn own_step(&self, inode: &'static CachedInode, first: u64, end: u64) -> Attempt<u64> {
        let _locked = self.lock_whole(inode);
        let expected = self.begin_change(inode)?;
        let end = end.min(pages_of(inode.size.load(Ordering::Relaxed)));
        let mut page = first;
        while page < end && self.session.is_own(self.data_page(inode, page)?) {
            page += 1;
        }
        if page >= end {
            return Ok(end);
        }
        let (branch, begun) = self.branch(inode, &expected)?;
        let mut places = [(0, PagePtr::NULL); STEP + 1];
        let mut step = Step::new(self, inode, branch, begun, &mut places);
        let last = end.min(page + STEP as u64);
        while page < last {
            let old = self.data_page(inode, page)?;
            if !self.session.is_own(old) {
                match step.fresh(page, old, 0, &[]) {
                    // What there is room for now; the rest is asked for again.
                    Err(_) if step.count != 0 => break,
                    other => other?,
                }
            }
            page += 1;
        }
        let data = order::fence(step.stored.take());
        let _entries = order::fence(step.publish_entries(&data)?);
        if inode.has(flag::MAPPED) {
            self.remap(inode, first, page);
        }
        if !expected.still_holds(self.header(inode.number())?) {
            return Err(Fix::Again.into());
        }
        Ok(page)
    }
}

fn count_verified(context: &Context<'_>, pointer: u64, level: u32, first: u64, limit: u64) -> u64 {
    use arck_core_state::{Pages, index};
    if pointer == 0 || first >= limit {
        return 0;
    }
    if level == 0 {
        return 1;
    }
    let Some(page) = context.session.page(PagePtr(pointer)) else {
        return 0;
    };
    (0..index::FANOUT)
        .map(|slot| {
            let below = page[slot as usize].load(Ordering::Relaxed);
            count_verified(
                context,
                below,
                level - 1,
                first + slot * index::capacity(level - 1),
                limit,
            )
        })
        .sum()
}

/// One step of a change of data: pages filled, then entries to be published.
struct Step<'c, 'a> {
    context: &'c Context<'a>,
    inode: &'static CachedInode,
    branch: Branch<'static>,
    /// Fresh pages and their places in the file, ascending.
    fresh: &'c mut [(u64, PagePtr)],
    count: usize,
    /// Arena pages for the entries of the fresh pages.
    index: FreshPages,
    /// For which index page, under which height of the index, they have been taken last.
    index_of: (u64, u32),
    /// Bytes of the data that were placed.
    covered: usize,
    /// All that was stored so far, the beginning of the branch included.
    stored: Stored,
}

/// Tokens of a step, gathered.
struct Stored(Option<Flushed>);

impl Stored {
    fn add(&mut self, token: Flushed) {
        self.0 = Some(match self.0.take() {
            Some(before) => before.join(token),
            None => token,
        });
    }
    fn take(&mut self) -> Option<Flushed> {
        self.0.take()
    }
}

impl<'c, 'a> Step<'c, 'a> {
    fn new(
        context: &'c Context<'a>,
        inode: &'static CachedInode,
        branch: Branch<'static>,
        begun: Option<Flushed>,
        fresh: &'c mut [(u64, PagePtr)],
    ) -> Self {
        Step {
            context,
            inode,
            branch,
            fresh,
            count: 0,
            index: FreshPages::default(),
            index_of: (u64::MAX, 0),
            covered: 0,
            stored: Stored(begun),
        }
    }

    /// Where file page `page` is, fresh pages of this step included.
    fn page(&self, page: u64) -> Attempt<PagePtr> {
        match self.fresh[..self.count].last() {
            // Places ascend, so only the page that was filled last can be asked for again.
            Some(fresh) if fresh.0 == page => Ok(fresh.1),
            _ => self.context.data_page(self.inode, page),
        }
    }

    /// A new page for file page `page`: `data` at `within`, the rest from `base` (or zeroes).
    fn fresh(&mut self, page: u64, base: PagePtr, within: usize, data: &[u8]) -> Attempt<()> {
        let session = self.context.session;
        // Once data is stored nothing may be lacking: some of it may go over what was there.
        let height = index::height_for(page + 1);
        if self.index_of != (page / index::FANOUT, height) {
            self.context
                .reserve_entry(self.inode, page, self.count != 0, &mut self.index)?;
            self.index_of = (page / index::FANOUT, height);
        }
        let Some(new) = session.state().data.take(session, self.context.slot()) else {
            return Err(Fix::DataPages.into());
        };
        let Some(place) = self.fresh.get_mut(self.count) else {
            session.state().data.release(session, new);
            return Err(Errno::IO.into());
        };
        *place = (page, new);
        self.count += 1;
        let bytes = session.page_bytes(new).ok_or(Errno::IO)?;
        let whole = PAGE_SIZE as usize;
        if data.len() == whole {
            return self.store(new, 0, data);
        }
        let end = within + data.len();
        if base.is_null() {
            self.stored
                .add(bytes.stream_zeroes(0, within).ok_or(Errno::IO)?);
            self.stored
                .add(bytes.stream_zeroes(end, whole - end).ok_or(Errno::IO)?);
        } else {
            let mut old = [0u8; PAGE_SIZE as usize];
            let from = session.page_bytes(base).ok_or(Errno::IO)?;
            from.try_copy_to(0, &mut old)
                .map_err(|error| error.errno())?;
            self.store(new, 0, &old[..within])?;
            self.store(new, end, &old[end..])?;
        }
        self.store(new, within, data)
    }

    fn store(&mut self, page: PagePtr, within: usize, data: &[u8]) -> Attempt<()> {
        let bytes = self.context.session.page_bytes(page).ok_or(Errno::IO)?;
        self.stored.add(
            bytes
                .try_stream(within, data)
                .map_err(|error| error.errno())?,
        );
        Ok(())
    }

    /// Places data at `position`, in place where the page is ours. If pages run out on the way
    /// it fails, or, `in_parts`, stops with what was placed in `covered`.
    fn stream(&mut self, data: &[u8], position: u64, size: u64, in_parts: bool) -> Attempt<()> {
        let end = position + data.len() as u64;
        let mut is_seen_whole = false;
        while self.covered < data.len() {
            let at = position + self.covered as u64;
            let within = (at % PAGE_SIZE) as usize;
            let part = (PAGE_SIZE as usize - within).min(data.len() - self.covered);
            let piece = &data[self.covered..self.covered + part];
            let page = self.page(at / PAGE_SIZE)?;
            let count = self.count;
            let in_place = !page.is_null() && self.context.session.is_own(page);
            if in_place && !is_seen_whole && at < size {
                self.be_seen_whole(at, end, size)?;
                is_seen_whole = true;
            }
            let placed = if in_place {
                self.store(page, within, piece)
            } else {
                self.fresh(at / PAGE_SIZE, page, within, piece)
            };
            if let Err(stop) = placed {
                // A page that was not filled must not be published with the rest.
                self.drop_unfilled(count);
                return if self.covered != 0 && in_parts {
                    Ok(())
                } else {
                    Err(stop)
                };
            }
            self.covered += part;
        }
        Ok(())
    }

    /// Before bytes that readers see are overwritten in place, from `at` on: that the write does
    /// nothing else, or in a turn. Alone, such bytes are all there when the inode's lock goes.
    fn be_seen_whole(&self, at: u64, end: u64, size: u64) -> Attempt<()> {
        let mut is_more = self.count != 0 || end > size;
        let mut page = at / PAGE_SIZE + 1;
        while !is_more && page * PAGE_SIZE < end {
            let place = self.context.data_page(self.inode, page)?;
            is_more = !self.context.session.is_own(place);
            page += 1;
        }
        match is_more {
            true => self.context.has_turn(self.inode),
            false => Ok(()),
        }
    }

    /// Gives fresh pages back, but for the first `count`.
    #[cold]
    fn drop_unfilled(&mut self, count: usize) {
        let session = self.context.session;
        for (_, pointer) in &self.fresh[count..self.count] {
            session.state().data.release(session, *pointer);
        }
        self.count = count;
    }

    /// Zeroes what lies behind `size` in its page, before the file grows beyond it.
    fn zero_tail(&mut self, size: u64) -> Attempt<()> {
        let within = (size % PAGE_SIZE) as usize;
        if within == 0 {
            return Ok(());
        }
        let page = self.page(size / PAGE_SIZE)?;
        if page.is_null() {
            return Ok(());
        }
        let session = self.context.session;
        if session.is_own(page) {
            let bytes = session.page_bytes(page).ok_or(Errno::IO)?;
            let rest = PAGE_SIZE as usize - within;
            self.stored
                .add(bytes.stream_zeroes(within, rest).ok_or(Errno::IO)?);
            return Ok(());
        }
        let zeroes = [0u8; PAGE_SIZE as usize];
        self.fresh(size / PAGE_SIZE, page, within, &zeroes[within..])
    }

    /// Sets the entries of all fresh pages if they lie beyond `size`, where nothing reaches them
    /// yet, and the delta's index has a place for them.
    fn set_entries_ahead(&mut self, size: u64) -> Attempt<Option<Flushed>> {
        let fresh = &mut self.fresh[..self.count];
        let (Some(&(first, _)), Some(&(last, _))) = (fresh.first(), fresh.last()) else {
            return Ok(None);
        };
        if first < pages_of(size) || last - first + 1 != self.count as u64 {
            return Ok(None);
        }
        let entries = fresh.iter().map(|(_, pointer)| pointer.0);
        let root = self.inode.delta_root();
        let set = delta::set_entries_ahead(self.context.session, root, first, entries)?;
        if set.is_some() {
            let pages = &self.inode.pages;
            pages.fetch_add(self.count as u64, Ordering::Relaxed);
            fresh.iter_mut().for_each(|(_, page)| *page = PagePtr::NULL);
        }
        Ok(set)
    }

    /// The first page of an empty file stands in the branch, in the cache line of the size: put
    /// there before the size, it is durable whenever the size is. False: it is not of that kind.
    fn put_first_page(&mut self, data: &Option<Durable>) -> Attempt<bool> {
        let (page, pointer) = self.fresh[0];
        if self.count != 1 || page != 0 || self.inode.delta_root().0 != 0 || data.is_none() {
            return Ok(false);
        }
        // It may replace another session's.
        let is_new = self.context.data_page(self.inode, page)?.is_null();
        let root = IndexRoot::new(pointer.0, 0);
        let _ = self.branch.put(offset::ROOT, root.0)?;
        self.inode.root.store(root.0, Ordering::Release);
        self.inode
            .pages
            .fetch_add(u64::from(is_new), Ordering::Relaxed);
        self.fresh[0].1 = PagePtr::NULL;
        Ok(true)
    }

    /// Publishes the entries of all fresh pages. `data`: what they lead to, and the branch, is
    /// durable. Gives the token of the stores.
    fn publish_entries(&mut self, data: &Option<Durable>) -> Attempt<Flushed> {
        let context = self.context;
        let mut token = self.branch.flush_line_0()?;
        for index in 0..self.count {
            let (page, pointer) = self.fresh[index];
            let proof = data.as_ref().ok_or(Errno::IO)?;
            let null = context.data_page(self.inode, page)?.is_null();
            let pages = &mut self.index;
            let stored =
                context.set_entry(self.inode, &self.branch, page, pointer.0, pages, proof)?;
            self.fresh[index].1 = PagePtr::NULL;
            if null {
                self.inode.pages.fetch_add(1, Ordering::Relaxed);
            }
            token = token.join(stored);
        }
        Ok(token)
    }
}

impl Drop for Step<'_, '_> {
    /// Gives back fresh pages that were not published.
    fn drop(&mut self) {
        let session = self.context.session;
        for (_, pointer) in &self.fresh[..self.count] {
            if !pointer.is_null() {
                session.state().data.release(session, *pointer);
            }
        }
        self.context.give_index_pages(&mut self.index, 0);
    }
}
