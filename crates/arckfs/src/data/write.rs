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

use super::step::Step;
use super::{Data, Written, size_limit};
use crate::interface::Errno;
use arck_libfs_kit::Session;
use arck_libfs_kit::delta::{self, BegunBranch, Reached};
use arck_libfs_kit::engine::{Attempt, Confirmed, Expected, Published, Stop};
use arck_libfs_kit::format::FILE_SIZE_MAX;
use arck_libfs_kit::format::{PAGE_SIZE, PagePtr, Pages, index};
use arck_libfs_kit::memory::durable as order;
use arck_libfs_kit::views::entries::pages_of;
use arck_libfs_kit::views::times::now;
use arck_libfs_kit::views::{File, begun, flag};
use std::sync::atomic::Ordering;

/// Pages written in one step: more are written in several, in one turn ([`arck_libfs_kit::views::exclusive`]).
pub(super) const STEP: usize = 512;
/// Bytes that are written in one step, wherever they go.
pub const ONE_STEP: usize = (STEP - 1) * PAGE_SIZE as usize;

/// Nothing, where it may not be looked at.
fn not_denied<T>(looked: Attempt<T>) -> Attempt<Option<T>> {
    match looked {
        Err(Stop::Failure(Errno::ACCESS)) => Ok(None),
        other => other.map(Some),
    }
}

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

impl Data<'_> {
    /// Writes; gives the bytes written (fewer than asked for only if more would not fit in one
    /// step or below `limit`, or if pages run out on the way and `in_parts` allows it) and where.
    /// EFBIG, ENOSPC.
    pub fn write_at(
        &self,
        file: File,
        data: &[u8],
        position: Position,
        in_parts: bool,
        limit: u64,
    ) -> Attempt<(usize, u64)> {
        if let Some(before) = self.written.get()
            && (Position::At(before.at), before.asked) == (position, data.len())
        {
            if self.stamp_written(file, &before)? {
                return Ok((before.done, before.at));
            }
            self.written.set(None);
        }
        if !data.is_empty() {
            self.expect_no_set_id(&file)?;
        }
        let length = data.len() as u64;
        let end = match position {
            Position::At(position) => position.saturating_add(length),
            Position::End => u64::MAX,
        };
        if let Position::At(at) = position
            && !file.striped.load(Ordering::Acquire).is_null()
            && (1..=ONE_STEP as u64).contains(&length)
            && let Some(_locked) = self.lock_bytes(file.inode(), at, length)
            && self.overwrites(file, at, end)?
        {
            return self.write_locked(file, data, position, in_parts, limit);
        }
        let _locked = self.lock_to_write(file.inode(), length, end);
        self.write_locked(file, data, position, in_parts, limit)
    }

    /// Whether a write of the bytes from `at` to `end` goes over bytes of the file in place alone,
    /// and needs nothing that is begun under the whole inode's lock. Under the lock of the bytes.
    fn overwrites(&self, file: File, at: u64, end: u64) -> Attempt<bool> {
        let is_simple = end <= file.size.load(Ordering::Acquire)
            && file.branch.load(Ordering::Acquire) == begun::DURABLE
            && !file.has(flag::MAPPED);
        let mut pages = at / PAGE_SIZE..pages_of(end);
        while is_simple && let Some(page) = pages.next() {
            let place = self.data_page(file, page)?;
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
        file: File,
        data: &[u8],
        position: Position,
        in_parts: bool,
        limit: u64,
    ) -> Attempt<(usize, u64)> {
        self.heed_exclusive(&file)?;
        let expected = self.begin_change(&file)?;
        let size = file.size.load(Ordering::Relaxed);
        let position = match position {
            Position::At(position) => position,
            Position::End => size,
        };
        if data.is_empty() {
            return Ok((0, position));
        }
        let asked = data.len();
        let data = &data[..length_of_step(position, asked, limit)?];
        let mut branch = self.branch(file.inode(), &expected)?;
        // Room for a small write costs nothing to make ready; for a large one it costs as much
        // as copying a page.
        let mut few = NO_PAGES;
        let mut many;
        let places = if position % PAGE_SIZE + data.len() as u64 <= FEW as u64 * PAGE_SIZE {
            &mut few[..]
        } else {
            many = [(0, PagePtr::NULL); STEP + 1];
            &mut many[..]
        };
        let mut step = Step::new(self, file, &mut branch, places);
        if position > size {
            step.zero_tail(size)?;
        }
        step.stream(data, position, size, in_parts)?;
        // What was not reached has made it shorter.
        self.publishes();
        let written = step.covered;
        let end = position + written as u64;
        if end > size {
            self.publish_growth(&mut step, &expected, size, end)?;
        } else {
            let asked = Written {
                at: position,
                asked,
                done: written,
                place: None,
            };
            self.publish_in_place(&mut step, &expected, asked)?;
        }
        if file.has(flag::MAPPED) {
            self.remap(file.inode(), size.min(position) / PAGE_SIZE, pages_of(end));
        }
        Ok((written, position))
    }

    /// Publishes what a step has stored by which the file grows: its entries, and then its size, one store.
    #[inline(always)]
    fn publish_growth(
        &self,
        step: &mut Step<'_, '_>,
        expected: &Expected,
        size: u64,
        end: u64,
    ) -> Attempt<()> {
        let (file, time) = (step.file, now());
        // Entries ahead of the size become durable together with what they lead to.
        let ahead = step.set_entries_ahead(size)?;
        let (branch, (data, ahead)) = step.branch.begun_with((step.contents.take(), ahead));
        let line = branch.line_0();
        let reached = if let Some(ahead) = ahead {
            Reached::Entries(data.ok_or(Errno::IO)?, ahead)
        } else if step.count == 0 || step.put_first_page(&line, &data)? {
            Reached::Contents(data.ok_or(Errno::IO)?)
        } else {
            match step.reach(&branch, data) {
                Ok(reached) => reached,
                Err(stop) => {
                    // Entries beyond the size must not wait there for the file to grow.
                    self.drop_entries(file, &branch, pages_of(size))?;
                    return Err(stop);
                }
            }
        };
        self.put_times(&file, &line, time)?;
        let (committed, stamped) = order::fence(branch.set_size(line, end, reached)?);
        let published = Published {
            offset: branch.offset_of_size(),
            word: end,
            before: size,
            length: 8,
        };
        self.confirm(&[(file.inode(), *expected)], published, committed)?;
        file.size.store(end, Ordering::Release);
        file.stamped(time, Some(stamped));
        Ok(())
    }

    /// Publishes what a step has stored within the file.
    #[inline(always)]
    fn publish_in_place(
        &self,
        step: &mut Step<'_, '_>,
        expected: &Expected,
        written: Written,
    ) -> Attempt<()> {
        let (file, time) = (step.file, now());
        let only_bytes = step.count == 0;
        let entries = match only_bytes {
            true => None,
            false => {
                let (branch, data) = step.fence();
                step.publish_entries(&branch, &data)?
            }
        };
        let stamp = self.stamp(file.inode(), step.branch, time)?;
        let changed = (entries, step.contents.take(), stamp.stored);
        let (.., stamped) = self
            .confirm_repeatable(&file, expected, step.branch, changed)
            .inspect_err(|_| self.keep_written(file, expected, only_bytes.then_some(written)))?;
        file.stamped(stamp.time, stamped);
        Ok(())
    }

    /// A fold got in between a write and its end. Bytes in pages of our own stand, as long as the file is
    /// ours: no fold takes them, and whoever gets the file next sees them. Written once
    /// more they would come on top of what another thread has written meanwhile. So they do of a file that was taken
    /// away and came back, if they are in one page that is still the file's: others write to pages of their own. Of
    /// anything else nobody comes in between, but for who has the exclusive I/O already.
    #[cold]
    fn keep_written(&self, file: File, expected: &Expected, only_bytes: Option<Written>) {
        let before = expected.ownership;
        let is_ours = self.header(file.number()).is_ok_and(|header| {
            let now = header.ownership();
            (now.session(), now.epoch()) == (before.session(), before.epoch())
        });
        let place = |written: &Written| {
            let (first, last) = (written.at, written.at + written.done.max(1) as u64 - 1);
            let is_one = first / PAGE_SIZE == last / PAGE_SIZE;
            let page = is_one.then(|| self.data_page(file, first / PAGE_SIZE));
            page.and_then(Result::ok).filter(|page| !page.is_null())
        };
        match only_bytes {
            Some(written) if is_ours => self.written.set(Some(written)),
            Some(written) if let Some(place) = place(&written) => {
                let place = Some(place);
                self.written.set(Some(Written { place, ..written }));
            }
            _ => self.keep_exclusive(file.inode()),
        }
    }

    /// Stamps a write whose bytes stand; false if they do not any more.
    #[cold]
    fn stamp_written(&self, file: File, written: &Written) -> Attempt<bool> {
        let _locked = self.lock_whole(file.inode());
        let expected = self.begin_change(&file)?;
        if let Some(place) = written.place {
            let is_there = written.at + written.done as u64 <= file.size.load(Ordering::Relaxed);
            let now = self.data_page(file, written.at / PAGE_SIZE)?;
            if !is_there || now != place || !self.session.is_own(place) {
                return Ok(false);
            }
        }
        let mut branch = self.branch(file.inode(), &expected)?;
        let (time, line) = (now(), branch.line_0());
        self.expect_reached()?;
        self.put_times(&file, &line, time)?;
        let stamped = self.confirm_repeatable(&file, &expected, &mut branch, line.flush()?)?;
        file.stamped(time, Some(stamped));
        Ok(true)
    }

    /// Changes the size. EFBIG. Gives a page of the file, the last, where what was cut off is left
    /// behind the end: it is somebody else's, and one of this session's is to take its place
    /// ([`Data::own_step`]).
    pub fn resize(&self, file: File, new: u64) -> Attempt<Option<u64>> {
        if new > FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        self.expect_no_set_id(&file)?;
        let _locked = self.lock_whole(file.inode());
        self.heed_exclusive(&file)?;
        let expected = self.begin_change(&file)?;
        let old = file.size.load(Ordering::Relaxed);
        if new > old && size_limit::forbids(new) {
            return Err(Errno::FBIG.into());
        }
        let mut branch = self.branch(file.inode(), &expected)?;
        let time = now();
        let mut tail = Reached::Hole;
        if new > old {
            let mut places = NO_PAGES;
            let mut step = Step::new(self, file, &mut branch, &mut places);
            step.zero_tail(old)?;
            let (branch, data) = step.fence();
            tail = step.reach(&branch, data)?;
        }
        let limit = file.part().limit.load(Ordering::Relaxed).min(pages_of(new));
        // Before it is cut: afterwards nothing may be lacking for it.
        let dropped = (new < old).then(|| self.pages_from(file, pages_of(new)));
        if new < old {
            self.withhold_mapped(file, pages_of(new), pages_of(old))?;
        }
        self.expect_reached()?;
        // One cache line, in this order: what reaches the medium is a prefix of it.
        let line = branch.line_0();
        self.put_times(&file, &line, time)?;
        match new < old {
            true => line.cut(new, limit)?,
            false => line.lengthen(new, tail)?,
        }
        // Perhaps it has been folded, and nobody knows: nothing of others may come before the next attempt.
        let (confirmed, stamped) = self
            .confirm_fields(&file, &expected, &mut branch, line.flush()?)
            .inspect_err(|_| self.keep_exclusive(file.inode()))?;
        if confirmed == Confirmed::Folded {
            // Its last page is zeroed behind the end by whoever makes the file longer; one that is another
            // session's is replaced.
            let is_within = new < old && !new.is_multiple_of(PAGE_SIZE);
            return Ok(is_within.then_some(new / PAGE_SIZE));
        }
        file.size.store(new, Ordering::Release);
        file.stamped(time, Some(stamped));
        if new < old {
            file.part().limit.store(limit, Ordering::Release);
        }
        if file.has(flag::MAPPED) {
            self.remap(file.inode(), old.min(new) / PAGE_SIZE, u64::MAX);
        }
        if let Some(dropped) = dropped {
            self.drop_entries(file, &branch.durable(), pages_of(new))?;
            let pages = file.part().pages.load(Ordering::Relaxed);
            // Who may write a file and not read it cannot look at its verified index: what it drops there is told by
            // the next fold, but where all goes.
            let dropped = if new == 0 { pages } else { dropped.min(pages) };
            file.part().pages.store(pages - dropped, Ordering::Relaxed);
            self.session.state().data.note_dropped(dropped);
        }
        // It is cut. Whatever keeps the rest from being zeroed must not have the cut made again, on top of
        // what others have written since: then it stays behind the end, for the controller to see to.
        let left = (new <= old).then(|| self.clear_tail(file, new));
        Ok(left.and_then(Result::ok).flatten())
    }

    /// Zeroes what lies behind the end of a file in its last page; gives that page if it is not this
    /// session's. That the file ends there is durable.
    fn clear_tail(&self, file: File, size: u64) -> Attempt<Option<u64>> {
        let within = (size % PAGE_SIZE) as usize;
        if within == 0 {
            return Ok(None);
        }
        let page = self.data_page(file, size / PAGE_SIZE)?;
        if page.is_null() {
            return Ok(None);
        }
        if !self.session.is_own(page) {
            return Ok(Some(size / PAGE_SIZE));
        }
        let bytes = self.session.page_bytes(page).ok_or(Errno::IO)?;
        let zeroes = bytes.stream_zeroes(within, PAGE_SIZE as usize - within);
        order::drain(zeroes.ok_or(Errno::IO)?);
        Ok(None)
    }

    /// Pages of this session's own that a cut drops from a file which other processes of the group have mapped: they show
    /// them, and store to them, until their next call. So nobody gets them, when a fold has freed them either. Before
    /// the cut is stored.
    fn withhold_mapped(&self, file: File, first: u64, end: u64) -> Attempt<()> {
        if !self.session.is_of_group() || !self.is_mapped_elsewhere(&file) {
            return Ok(());
        }
        let mut own = Vec::new();
        let mut at = first;
        // Who may not look at what was verified may not map it either.
        while let Some(page) = not_denied(self.next_data(file, at, end))?.flatten() {
            let shown = not_denied(self.data_page(file, page))?;
            own.extend(shown.filter(|&shown| self.session.is_own(shown)));
            at = page + 1;
        }
        let data = &self.session.state().data;
        data.withhold(self.session, self.slot(), &own);
        Ok(())
    }

    /// Takes the delta's entries from file page `first` on out, and frees their pages.
    fn drop_entries(&self, file: File, branch: &BegunBranch<'_>, first: u64) -> Attempt<()> {
        let root = file.delta_root();
        if root.0 == 0 {
            return Ok(());
        }
        let mut dropped = Vec::new();
        let (mut from, end) = (first, file.entries_end());
        while let Some((page, entry)) = delta::next_entry(self.session, root, from, end) {
            dropped.push((page, entry));
            from = page + 1;
        }
        let mut cleared = Vec::with_capacity(dropped.len());
        for &(page, _) in &dropped {
            cleared.push(delta::clear_index_entry(self.session, branch, root, page)?);
        }
        order::drain(cleared);
        file.has_no_entries_from(first);
        if root.height() == 0 && first == 0 {
            file.part().root.store(0, Ordering::Release);
        }
        if self.session.is_of_group() && self.is_mapped_elsewhere(&file) {
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

    /// Data pages that the file has in this session's view from page `first` on. Takes the time of these, not of
    /// the file.
    fn pages_from(&self, file: File, first: u64) -> u64 {
        let limit = file.part().limit.load(Ordering::Relaxed);
        let limit = limit.min(pages_of(file.base_size.load(Ordering::Relaxed)));
        let root = file.verified_root();
        let (pointer, height) = (root.pointer(), root.height());
        let mut count = count_verified(self.session, pointer, height, 0, first..limit);
        let (mut from, end) = (first, file.entries_end());
        let delta_root = file.delta_root();
        while let Some((page, entry)) = delta::next_entry(self.session, delta_root, from, end) {
            let verified = page < limit
                && index::lookup(self.session, root, page).is_some_and(|page| !page.is_null());
            match (entry == index::HOLE, verified) {
                (false, false) => count += 1,
                (true, true) => count -= 1,
                _ => {}
            }
            from = page + 1;
        }
        count
    }
}

/// How many of so many bytes are written in one step from `position` on. EFBIG.
#[inline(always)]
fn length_of_step(position: u64, asked: usize, limit: u64) -> Attempt<usize> {
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
    Ok((asked as u64).min(most).min(limit - position) as usize)
}

/// Pages in `range` of a part of a verified index, which covers pages from `first` on.
fn count_verified(
    session: &Session,
    pointer: u64,
    level: u32,
    first: u64,
    range: std::ops::Range<u64>,
) -> u64 {
    let end = first.saturating_add(index::capacity(level));
    if pointer == 0 || first >= range.end || end <= range.start {
        return 0;
    }
    if level == 0 {
        return 1;
    }
    let Some(page) = session.page(PagePtr(pointer)) else {
        return 0;
    };
    let step = index::capacity(level - 1);
    let begins = range.start.saturating_sub(first) / step;
    (begins..index::FANOUT)
        .map(|slot| (slot, first + slot * step))
        .take_while(|&(_, at)| at < range.end)
        .map(|(slot, at)| {
            let below = page[slot as usize].load(Ordering::Relaxed);
            count_verified(session, below, level - 1, at, range.clone())
        })
        .sum()
}
