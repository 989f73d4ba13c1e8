//! One step of a change of data: pages are filled, then the entries that lead to them published.
//!
//! # Invariants
//! * A page that was taken and not published goes back to the stock, whatever happens.
//! * Once data is stored nothing may be lacking for its entries: their pages are reserved before.
//! * Bytes that readers see are overwritten in place only by a write that does nothing else, or in a
//!   turn ([`arck_libfs_kit::views::exclusive`]).

use crate::data::readable;
use crate::interface::Errno;
use arck_libfs_kit::changing::Changing;
use arck_libfs_kit::delta::{
    self, Beginning, BegunBranch, Contents, Entries, Entry, FreshPages, Line0, Reached,
};
use arck_libfs_kit::engine::Attempt;
use arck_libfs_kit::format::{PAGE_SIZE, PagePtr, index};
use arck_libfs_kit::memory::delegation::{self, Batch};
use arck_libfs_kit::memory::durable as order;
use arck_libfs_kit::memory::durable::{Durable, Flushed};
use arck_libfs_kit::memory::medium::Way;
use arck_libfs_kit::views::File;
use arck_libfs_kit::views::entries::pages_of;
use std::sync::atomic::Ordering;

/// One step of a change of data: pages filled, then entries to be published.
pub(super) struct Step<'c, 'a> {
    changing: &'c Changing<'a>,
    pub(super) file: File,
    pub(super) branch: &'c mut Beginning,
    /// Fresh pages and their places in the file, ascending.
    fresh: &'c mut [(u64, PagePtr)],
    pub(super) count: usize,
    /// Arena pages for the entries of the fresh pages.
    index: FreshPages,
    /// For which index page, under which height of the index, they have been taken last.
    index_of: (u64, u32),
    /// Bytes of the data that were placed.
    pub(super) covered: usize,
    /// Bytes that were stored, and not fenced yet.
    pub(super) contents: Option<Flushed<Contents>>,
    /// What others copy meanwhile of the data that is placed.
    delegated: Option<Batch>,
    /// Not all of that was there to be copied.
    is_lacking: bool,
}

impl<'c, 'a> Step<'c, 'a> {
    pub(super) fn new(
        changing: &'c Changing<'a>,
        file: File,
        branch: &'c mut Beginning,
        fresh: &'c mut [(u64, PagePtr)],
    ) -> Self {
        Step {
            changing,
            file,
            branch,
            fresh,
            count: 0,
            index: FreshPages::default(),
            index_of: (u64::MAX, 0),
            covered: 0,
            contents: None,
            delegated: None,
            is_lacking: false,
        }
    }

    fn add(&mut self, token: Flushed) {
        self.contents = Some(token.describing().join_all(self.contents.take()));
    }

    /// Makes the bytes durable, and the beginning of the branch, so that entries may lead to them.
    #[track_caller]
    pub(super) fn fence(&mut self) -> (BegunBranch<'static>, Option<Durable<Contents>>) {
        self.branch.begun_with(self.contents.take())
    }

    /// Where file page `page` is, fresh pages of this step included.
    fn page(&self, page: u64) -> Attempt<PagePtr> {
        match self.fresh[..self.count].last() {
            // Places ascend, so only the page that was filled last can be asked for again.
            Some(fresh) if fresh.0 == page => Ok(fresh.1),
            _ => self.changing.data_page(self.file, page),
        }
    }

    /// A new page for file page `page`: `data` at `within`, the rest from `base` as far as the file
    /// reaches, and zeroes.
    pub(super) fn fresh(
        &mut self,
        page: u64,
        base: PagePtr,
        within: usize,
        data: &[u8],
    ) -> Attempt<()> {
        let session = self.changing.session;
        // Once data is stored nothing may be lacking: some of it may go over what was there.
        let height = index::height_for(page + 1);
        if self.index_of != (page / index::FANOUT, height) {
            self.changing
                .reserve_entry(self.file, page, self.count != 0, &mut self.index)?;
            self.index_of = (page / index::FANOUT, height);
        }
        let new = session.state().data.take(session, self.changing.slot())?;
        let Some(place) = self.fresh.get_mut(self.count) else {
            session.state().data.release(session, new);
            return Err(Errno::IO.into());
        };
        *place = (page, new);
        self.count += 1;
        let bytes = session.page_bytes(new).ok_or(Errno::IO)?;
        let whole = PAGE_SIZE as usize;
        if data.len() == whole {
            return self.place(new, 0, data);
        }
        let end = within + data.len();
        if base.is_null() {
            self.add(bytes.stream_zeroes(0, within).ok_or(Errno::IO)?);
            self.add(bytes.stream_zeroes(end, whole - end).ok_or(Errno::IO)?);
        } else {
            let mut old = [0u8; PAGE_SIZE as usize];
            let from = session.page_bytes(base);
            let from = from.ok_or_else(|| self.changing.lost(self.file.inode()))?;
            from.try_copy_to(0, &mut old)
                .map_err(|error| error.errno())?;
            let size = self.file.size.load(Ordering::Relaxed);
            let reaches = size.saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE);
            old[reaches as usize..].fill(0);
            self.store(new, 0, &old[..within])?;
            self.store(new, end, &old[end..])?;
        }
        self.place(new, within, data)
    }

    /// The data that [`Step::stream`] was given, or a part of it; [`Step::store`] is for what does not live as long.
    fn place(&mut self, page: PagePtr, within: usize, data: &[u8]) -> Attempt<()> {
        let Some(batch) = &mut self.delegated else {
            return self.store(page, within, data);
        };
        let bytes = self.changing.session.page_bytes(page).ok_or(Errno::IO)?;
        // SAFETY: `stream` waits for the batch, or drops it, before it returns, and borrows the data until then. What is there of the
        // pool's page nobody reads meanwhile but by copies that do not count: it is fresh, or its bytes are locked.
        unsafe { batch.stream(&bytes, within, data) }.ok_or(Errno::IO)?;
        Ok(())
    }

    fn store(&mut self, page: PagePtr, within: usize, data: &[u8]) -> Attempt<()> {
        let bytes = self.changing.session.page_bytes(page).ok_or(Errno::IO)?;
        let stored = bytes.try_stream(within, data);
        self.add(stored.map_err(|error| error.errno())?);
        Ok(())
    }

    /// Places data at `position`, in place where the page is ours. If pages run out on the way
    /// it fails, or, `in_parts`, stops with what was placed in `covered`.
    pub(super) fn stream(
        &mut self,
        data: &[u8],
        position: u64,
        size: u64,
        in_parts: bool,
    ) -> Attempt<()> {
        // Of what is not all there, nothing behind that may be stored. Looking at it also has its pages brought by who has asked.
        let is_delegated =
            delegation::is_wanted(Way::Write, data.len()) && readable::length(data) == data.len();
        if !is_delegated {
            return self.stream_as_it_is(data, position, size, in_parts);
        }
        let (count, covered) = (self.count, self.covered);
        self.delegated = delegation::batch();
        let placed = self.stream_as_it_is(data, position, size, in_parts);
        self.wait_for_delegates();
        if !std::mem::take(&mut self.is_lacking) {
            return placed;
        }
        // Who stores it himself is told what is wrong, and where. The same bytes once more do no harm.
        self.drop_unfilled(count);
        self.covered = covered;
        self.stream_as_it_is(data, position, size, in_parts)
    }

    /// Before a page goes back, and before what leads to one is stored.
    fn wait_for_delegates(&mut self) {
        match self.delegated.take().map(Batch::wait) {
            None => {}
            Some(Ok(token)) => self.add(token),
            Some(Err(_)) => self.is_lacking = true,
        }
    }

    fn stream_as_it_is(
        &mut self,
        data: &[u8],
        position: u64,
        size: u64,
        in_parts: bool,
    ) -> Attempt<()> {
        let end = position + data.len() as u64;
        let mut is_seen_whole = false;
        while self.covered < data.len() {
            let at = position + self.covered as u64;
            let within = (at % PAGE_SIZE) as usize;
            let part = (PAGE_SIZE as usize - within).min(data.len() - self.covered);
            let piece = &data[self.covered..self.covered + part];
            let page = self.page(at / PAGE_SIZE)?;
            let count = self.count;
            let in_place = !page.is_null() && self.changing.session.is_own(page);
            if in_place && !is_seen_whole && at < size {
                self.be_seen_whole(at, end, size)?;
                is_seen_whole = true;
            }
            let placed = if in_place {
                self.place(page, within, piece)
            } else {
                self.fresh(at / PAGE_SIZE, page, within, piece)
            };
            if let Err(stop) = placed {
                self.wait_for_delegates();
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
            let place = self.changing.data_page(self.file, page)?;
            is_more = !self.changing.session.is_own(place);
            page += 1;
        }
        match is_more {
            true => self.changing.has_exclusive(self.file.inode()),
            false => Ok(()),
        }
    }

    /// Gives fresh pages back, but for the first `count`.
    #[cold]
    fn drop_unfilled(&mut self, count: usize) {
        let session = self.changing.session;
        for (_, pointer) in &self.fresh[count..self.count] {
            session.state().data.release(session, *pointer);
        }
        self.count = count;
    }

    /// Zeroes what lies behind `size` in its page, before the file grows beyond it.
    pub(super) fn zero_tail(&mut self, size: u64) -> Attempt<()> {
        let within = (size % PAGE_SIZE) as usize;
        if within == 0 {
            return Ok(());
        }
        let page = self.page(size / PAGE_SIZE)?;
        if page.is_null() {
            return Ok(());
        }
        let session = self.changing.session;
        if session.is_own(page) {
            let bytes = session.page_bytes(page).ok_or(Errno::IO)?;
            let rest = PAGE_SIZE as usize - within;
            self.add(bytes.stream_zeroes(within, rest).ok_or(Errno::IO)?);
            return Ok(());
        }
        let zeroes = [0u8; PAGE_SIZE as usize];
        self.fresh(size / PAGE_SIZE, page, within, &zeroes[within..])
    }

    /// Sets the entries of all fresh pages if they lie beyond `size`, where nothing reaches them
    /// yet, and the delta's index has a place for them.
    pub(super) fn set_entries_ahead(&mut self, size: u64) -> Attempt<Option<Flushed<Entries>>> {
        let fresh = &mut self.fresh[..self.count];
        let (Some(&(first, _)), Some(&(last, _))) = (fresh.first(), fresh.last()) else {
            return Ok(None);
        };
        if first < pages_of(size) || last - first + 1 != self.count as u64 {
            return Ok(None);
        }
        let entries = fresh.iter().map(|(_, pointer)| pointer.0);
        let root = self.file.delta_root();
        self.file.has_entries_to(last + 1);
        let set = delta::set_entries_ahead(self.changing.session, root, first, entries)?;
        if set.is_some() {
            self.file.part().has_more_pages(self.count as u64);
            fresh.iter_mut().for_each(|(_, page)| *page = PagePtr::NULL);
        }
        Ok(set)
    }

    /// The first page of an empty file stands in the branch, in the cache line of the size: put
    /// there before the size, it is durable whenever the size is. False: it is not of that kind.
    pub(super) fn put_first_page(
        &mut self,
        line: &Line0<'_>,
        data: &Option<Durable<Contents>>,
    ) -> Attempt<bool> {
        let (page, pointer) = self.fresh[0];
        let Some(filled) = data else {
            return Ok(false);
        };
        if self.count != 1 || page != 0 || self.file.delta_root().0 != 0 {
            return Ok(false);
        }
        // It may replace another session's.
        let is_new = self.changing.data_page(self.file, page)?.is_null();
        let root = line.put_first_page(pointer, filled)?;
        self.file.set_delta_root(root, 1);
        self.file.part().has_more_pages(u64::from(is_new));
        self.fresh[0].1 = PagePtr::NULL;
        Ok(true)
    }

    /// Publishes the entries of all fresh pages, durably, and gives what a size reaches by them and by
    /// what else was stored.
    pub(super) fn reach(
        &mut self,
        branch: &BegunBranch<'_>,
        data: Option<Durable<Contents>>,
    ) -> Attempt<Reached> {
        let entries = self.publish_entries(branch, &data)?;
        Ok(match (data, entries.map(order::fence)) {
            (Some(data), Some(entries)) => Reached::Entries(data, entries),
            (Some(data), None) => Reached::Contents(data),
            (None, _) => Reached::Hole,
        })
    }

    /// Publishes the entries of all fresh pages. `data`: what they lead to.
    /// Gives the token of the stores, if there are any. What was published before it fails
    /// is durable: the next who has the lock goes on from there.
    pub(super) fn publish_entries(
        &mut self,
        branch: &BegunBranch<'_>,
        data: &Option<Durable<Contents>>,
    ) -> Attempt<Option<Flushed<Entries>>> {
        let changing = self.changing;
        let mut token = None;
        for index in 0..self.count {
            let (page, pointer) = self.fresh[index];
            let proof = data.as_ref().ok_or(Errno::IO)?;
            let null = changing.data_page(self.file, page)?.is_null();
            let pages = &mut self.index;
            let entry = Entry::Page(pointer.0, proof);
            let set = changing.set_entry(self.file, branch, page, entry, pages);
            let stored = match set {
                Ok(stored) => stored,
                Err(stop) => {
                    order::drain(token);
                    return Err(stop);
                }
            };
            self.fresh[index].1 = PagePtr::NULL;
            if null {
                self.file.part().has_more_pages(1);
            }
            token = Some(stored.join_all(token));
        }
        Ok(token)
    }
}

impl Drop for Step<'_, '_> {
    /// Gives back fresh pages that were not published.
    fn drop(&mut self) {
        // Nobody writes a page that goes back.
        self.wait_for_delegates();
        let session = self.changing.session;
        for (_, pointer) in &self.fresh[..self.count] {
            if !pointer.is_null() {
                session.state().data.release(session, *pointer);
            }
        }
        self.changing.give_index_pages(&mut self.index, 0);
    }
}
