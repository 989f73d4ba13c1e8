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
//! * What is cut off is zeroed in the file's last page, once it is durable that the file is shorter;
//!   if the page is not this session's to store to, it is replaced by one without it.
//! * All of it under the lock of the whole inode, or, where a write only goes over bytes in place,
//!   under that of these bytes ([`arck_libfs_kit::views::locks`]); inside an operation.

mod step;

use crate::engine::{Attempt, Context, Need, Published, Written};
use crate::interface::Errno;
use crate::size_limit;
use arck_core_state::branch::offset;
use arck_core_state::geometry::FILE_SIZE_MAX;
use arck_core_state::{IndexRoot, PAGE_SIZE, PagePtr, index};
use arck_libfs_kit::delta::{self, Branch, FreshPages};
use arck_libfs_kit::views::entries::pages_of;
use arck_libfs_kit::views::stamps::now;
use arck_libfs_kit::views::{CachedInode, begun, flag};
use arck_pm::order;
use arck_pm::{Durable, Flushed};
use std::sync::atomic::Ordering;
use step::Step;

/// Pages written in one step: more are written in several, in one turn ([`arck_libfs_kit::views::turns`]).
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
    /// Writes; gives the bytes written (fewer than asked for only if more would not fit in one
    /// step or below `limit`, or if pages run out on the way and `in_parts` allows it) and where.
    /// EFBIG, ENOSPC.
    pub fn write_at(
        &self,
        inode: &'static CachedInode,
        data: &[u8],
        position: Position,
        in_parts: bool,
        limit: u64,
    ) -> Attempt<(usize, u64)> {
        if let Some(before) = self.written()
            && (Position::At(before.at), before.asked) == (position, data.len())
        {
            self.stamp_written(inode)?;
            return Ok((before.done, before.at));
        }
        if !data.is_empty() {
            self.expect_no_set_id(inode)?;
        }
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
            return self.write_locked(inode, data, position, in_parts, limit);
        }
        let _locked = self.lock_to_write(inode, end);
        self.write_locked(inode, data, position, in_parts, limit)
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
        limit: u64,
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
        let limit = match position < limit {
            true => limit,
            // It may have been raised since.
            false => size_limit::refresh(),
        }
        .min(FILE_SIZE_MAX);
        if position >= limit {
            return Err(Errno::FBIG.into());
        }
        let most = (STEP as u64) * PAGE_SIZE - position % PAGE_SIZE;
        let length = (data.len() as u64).min(most).min(limit - position);
        let asked = data.len();
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
        // What was not reached has made it shorter.
        self.publishes();
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
                    Ok(entries) => order::fence(entries).ok_or(Errno::IO)?,
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
            inode.stamped(time);
        } else {
            let only_bytes = step.count == 0;
            let entries = if !only_bytes {
                let data = order::fence(step.stored.take());
                step.publish_entries(&data)?
            } else {
                None
            };
            let stamp = self.stamp(inode, &branch, time)?;
            let _durable = order::fence((entries, step.stored.take(), stamp.stored));
            inode.branch_is_durable();
            if !expected.still_holds(self.header(inode.number())?) {
                // A fold got in between. Bytes in pages of our own stand, as long as the file is
                // ours: no fold takes them, and whoever gets the file next sees them. Written once
                // more they would come on top of what another thread has written meanwhile.
                let now = self.header(inode.number())?.ownership();
                let before = expected.ownership;
                if only_bytes && (now.session(), now.epoch()) == (before.session(), before.epoch())
                {
                    self.note_written(Written {
                        at: position,
                        asked,
                        done: written,
                    });
                } else {
                    self.keep_turn(inode);
                }
                return Err(Need::Again.into());
            }
            if let Some(time) = stamp.time {
                inode.stamped(time);
            }
        }
        if inode.has(flag::MAPPED) {
            self.remap(inode, size.min(position) / PAGE_SIZE, pages_of(end));
        }
        Ok((written, position))
    }

    /// Stamps a write whose bytes stand.
    #[cold]
    fn stamp_written(&self, inode: &'static CachedInode) -> Attempt<()> {
        let _locked = self.lock_whole(inode);
        let expected = self.begin_change(inode)?;
        let (branch, begun) = self.branch(inode, &expected)?;
        let time = now();
        self.expect_reached()?;
        self.put_times(inode, &branch, time)?;
        let _durable = order::fence((begun, branch.flush_line_0()?));
        inode.branch_is_durable();
        if !expected.still_holds(self.header(inode.number())?) {
            return Err(Need::Again.into());
        }
        inode.stamped(time);
        Ok(())
    }

    /// Changes the size. EFBIG. Gives a page of the file, the last, where what was cut off is left
    /// behind the end: it is somebody else's, and one of this session's is to take its place
    /// ([`Context::own_step`]).
    pub fn resize(&self, inode: &'static CachedInode, new: u64) -> Attempt<Option<u64>> {
        if new > FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        self.expect_no_set_id(inode)?;
        let _locked = self.lock_whole(inode);
        self.heed_turn(inode)?;
        let expected = self.begin_change(inode)?;
        let old = inode.size.load(Ordering::Relaxed);
        if new > old && size_limit::forbids(new) {
            return Err(Errno::FBIG.into());
        }
        let (branch, begun) = self.branch(inode, &expected)?;
        let time = now();
        let begun = if new > old {
            let mut places = NO_PAGES;
            let mut step = Step::new(self, inode, branch, begun, &mut places);
            step.zero_tail(old)?;
            let data = order::fence(step.stored.take());
            let _entries = order::fence(step.publish_entries(&data)?);
            None
        } else {
            begun
        };
        let limit = inode.limit.load(Ordering::Relaxed).min(pages_of(new));
        // Before it is cut: afterwards nothing may be lacking for it.
        let left = (new < old).then(|| self.count_pages(inode, new, limit));
        self.expect_reached()?;
        // One cache line, in this order: what reaches the medium is a prefix of it.
        self.put_times(inode, &branch, time)?;
        let _ = branch.put(offset::SIZE, new)?;
        if new < old {
            let _ = branch.put(offset::LIMIT, limit)?;
        }
        let _durable = order::fence((begun, branch.flush_line_0()?));
        inode.branch_is_durable();
        if !expected.still_holds(self.header(inode.number())?) {
            // Perhaps it has been folded: nothing of others may come before the next attempt.
            self.keep_turn(inode);
            return Err(Need::Again.into());
        }
        inode.size.store(new, Ordering::Release);
        inode.stamped(time);
        if new < old {
            inode.limit.store(limit, Ordering::Release);
        }
        if inode.has(flag::MAPPED) {
            self.remap(inode, old.min(new) / PAGE_SIZE, u64::MAX);
        }
        if let Some(left) = left {
            self.drop_entries(inode, &branch, pages_of(new))?;
            let before = inode.pages.swap(left, Ordering::Relaxed);
            let dropped = before.saturating_sub(left);
            self.session.state().data.note_dropped(dropped);
        }
        // It is cut. Whatever keeps the rest from being zeroed must not have the cut made again, on top of
        // what others have written since: then it stays behind the end, for the controller to see to.
        let left = (new <= old).then(|| self.clear_tail(inode, new));
        Ok(left.and_then(Result::ok).flatten())
    }

    /// Zeroes what lies behind the end of a file in its last page; gives that page if it is not this
    /// session's. That the file ends there is durable.
    fn clear_tail(&self, inode: &'static CachedInode, size: u64) -> Attempt<Option<u64>> {
        let within = (size % PAGE_SIZE) as usize;
        if within == 0 {
            return Ok(None);
        }
        let page = self.data_page(inode, size / PAGE_SIZE)?;
        if page.is_null() {
            return Ok(None);
        }
        if !self.session.is_own(page) {
            return Ok(Some(size / PAGE_SIZE));
        }
        let bytes = self.session.page_bytes(page).ok_or(Errno::IO)?;
        let zeroes = bytes.stream_zeroes(within, PAGE_SIZE as usize - within);
        let _durable = order::fence(zeroes.ok_or(Errno::IO)?);
        Ok(None)
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
        if self.session.is_of_group() && self.is_mapped_elsewhere(inode) {
            // They stay nobody's until the session ends.
            return Ok(());
        }
        for (_, entry) in dropped {
            self.session
                .state()
                .data
                .release(self.session, PagePtr(entry));
        }
        Ok(())
    }

    /// Data pages that the file has in this session's view, below `size` bytes, and of the verified state below
    /// page `limit`.
    fn count_pages(&self, inode: &CachedInode, size: u64, limit: u64) -> u64 {
        let size = pages_of(size);
        let limit = limit
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
        self.publishes();
        let data = order::fence(step.stored.take());
        let _entries = order::fence(step.publish_entries(&data)?);
        if inode.has(flag::MAPPED) {
            self.remap(inode, first, page);
        }
        if !expected.still_holds(self.header(inode.number())?) {
            return Err(Need::Again.into());
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
