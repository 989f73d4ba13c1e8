//! One append: the bytes of some records behind the end of a section, published by one store.
//!
//! # Invariants
//! * Order, shown to the types: bytes before the entries that lead to their pages, entries before the size that
//!   makes them reachable. The size is one store, so the records are there together or not at all, and before
//!   the first of them nothing is lacking. That takes two fences, and one more where the index grows.
//! * All of it under the lock of the whole section, inside an operation. There it is decided where the records
//!   go, and whether the section takes any: it does as long as it is shorter than the log's limit. So a section
//!   that has reached that never changes again, whoever appends.
//! * Only pages of this session's own are stored to, behind the size, where nobody reads; another's last page is
//!   replaced by one of its own with the same bytes.
//! * A page that was taken and not published goes back to the stock.

use crate::sections::SectionFile;
use arck_libfs_kit::Session;
use arck_libfs_kit::delta::{
    self, Beginning, BegunBranch, Contents, Entries, Entry, FreshPages, Reached,
};
use arck_libfs_kit::engine::{Attempt, Context, Expected, Published};
use arck_libfs_kit::format::{Durability, PAGE_SIZE, PagePtr, index};
use arck_libfs_kit::memory::durable::{self as order, Durable, Flushed};
use arck_libfs_kit::messages::{InodeList, Request};
use arck_libfs_kit::views::File;
use arck_libfs_kit::views::entries::pages_of;
use arck_libfs_kit::views::times::now;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

const PAGE: usize = PAGE_SIZE as usize;

/// What came of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Appended {
    /// The records begin so many bytes from the section's first.
    At(u64),
    /// The section takes no more; it has so many bytes.
    Full(u64),
}

/// Appends all these bytes to the section if it is shorter than `limit` bytes.
/// ESTALE: it is no section any more.
#[inline]
pub fn append(
    context: &Context<'_>,
    section: SectionFile,
    limit: u64,
    parts: &[&[u8]],
) -> Attempt<Appended> {
    let file = section.view_to_change(context)?;
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let _locked = context.lock_to_write(file.inode(), length as u64, u64::MAX);
    context.heed_exclusive(&file)?;
    let expected = context.begin_change(&file)?;
    // It may have been cut off before it was locked.
    section.expect(context, &file)?;
    if context.links(&file)? == 0 {
        return Err(Errno::STALE.into());
    }
    let size = file.size.load(Ordering::Relaxed);
    if size >= limit {
        return Ok(Appended::Full(size));
    }
    let mut branch = context.branch(file.inode(), &expected)?;
    let mut filling = Filling::new(context, file);
    filling.take_pages(size, length)?;
    filling.fill(size, length, parts)?;
    context.expect_reached()?;
    filling.publish(&mut branch, &expected, size, size + length as u64)?;
    Ok(Appended::At(size))
}

/// The bytes of all parts, one after the other.
struct Source<'p> {
    parts: &'p [&'p [u8]],
    first: &'p [u8],
}

impl<'p> Source<'p> {
    fn of(parts: &'p [&'p [u8]]) -> Source<'p> {
        Source { parts, first: &[] }
    }

    /// Copies the next bytes, as many as `target` has.
    fn copy_to(&mut self, target: &mut [u8]) {
        let mut done = 0;
        while done < target.len() {
            let piece = self.next(target.len() - done);
            if piece.is_empty() {
                return;
            }
            target[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
    }

    /// The next bytes that lie together, so many at most.
    fn next(&mut self, most: usize) -> &'p [u8] {
        while self.first.is_empty()
            && let Some((first, rest)) = self.parts.split_first()
        {
            (self.first, self.parts) = (first, rest);
        }
        let (piece, rest) = self.first.split_at(most.min(self.first.len()));
        self.first = rest;
        piece
    }
}

/// Pages filled behind the end of a section, and then published.
struct Filling<'c, 'a> {
    context: &'c Context<'a>,
    file: File,
    /// Pages of the pool that are not filled yet.
    taken: Vec<u64>,
    /// Those that are, and their places in the section, ascending.
    fresh: Vec<(u64, PagePtr)>,
    /// Arena pages for their entries.
    index: FreshPages,
    /// For which index page, under which height of the index, they have been taken last.
    index_of: (u64, u32),
    /// Bytes that were stored, and not fenced yet.
    contents: Option<Flushed<Contents>>,
}

impl<'c, 'a> Filling<'c, 'a> {
    fn new(context: &'c Context<'a>, file: File) -> Self {
        Filling {
            context,
            file,
            taken: Vec::new(),
            fresh: Vec::new(),
            index: FreshPages::default(),
            index_of: (u64::MAX, 0),
            contents: None,
        }
    }

    /// Takes all pages that so many bytes from `position`, the end, on need: before anything is stored, and as many
    /// at once as are lacking, since an attempt that is made again begins with none.
    #[inline]
    fn take_pages(&mut self, position: u64, length: usize) -> Attempt<()> {
        let session = self.context.session;
        let (first, end) = (position / PAGE_SIZE, pages_of(position + length as u64));
        let mut count = 0;
        for page in first..end {
            let place = self.context.data_page(self.file, page)?;
            count += usize::from(place.is_null() || !session.is_own(place));
        }
        if count == 0 {
            return Ok(());
        }
        let mut taken = vec![0; count];
        let stock = &session.state().data;
        stock.take_all(session, self.context.slot(), &mut taken)?;
        // The one that was found first is filled first.
        taken.reverse();
        self.taken = taken;
        Ok(())
    }

    /// Stores the bytes from `position`, the end, on.
    #[inline]
    fn fill(&mut self, position: u64, length: usize, parts: &[&[u8]]) -> Attempt<()> {
        let mut source = Source::of(parts);
        let mut done = 0;
        while done < length {
            let at = position + done as u64;
            let (page, within) = (at / PAGE_SIZE, (at % PAGE_SIZE) as usize);
            let here = (PAGE - within).min(length - done);
            let place = self.context.data_page(self.file, page)?;
            if !place.is_null() && self.context.session.is_own(place) {
                self.store_gathered(place, within, here, &mut source)?;
            } else {
                self.fill_fresh(page, place, within, here, &mut source)?;
            }
            done += here;
        }
        Ok(())
    }

    /// Stores so many bytes in one piece: a cache line in which two pieces meet would be flushed twice.
    fn store_gathered(
        &mut self,
        place: PagePtr,
        within: usize,
        length: usize,
        source: &mut Source<'_>,
    ) -> Attempt<()> {
        let first = source.next(length);
        if first.len() == length {
            return self.store(place, within, first);
        }
        let mut gathered = [0; PAGE];
        gathered[..first.len()].copy_from_slice(first);
        source.copy_to(&mut gathered[first.len()..length]);
        self.store(place, within, &gathered[..length])
    }

    /// A new page for the section's page `page`: what is there of `before`, `length` bytes of the source from
    /// `within` on, and zeroes.
    fn fill_fresh(
        &mut self,
        page: u64,
        before: PagePtr,
        within: usize,
        length: usize,
        source: &mut Source<'_>,
    ) -> Attempt<()> {
        let session = self.context.session;
        let height = index::height_for(page + 1);
        if self.index_of != (page / index::FANOUT, height) {
            let others = !self.fresh.is_empty();
            self.context
                .reserve_entry(self.file, page, others, &mut self.index)?;
            self.index_of = (page / index::FANOUT, height);
        }
        let new = PagePtr(self.taken.pop().ok_or(Errno::IO)?);
        self.fresh.push((page, new));
        if length == PAGE {
            return self.store_gathered(new, 0, PAGE, source);
        }
        // Nothing of what the page held before is anybody's to read.
        let mut whole = [0; PAGE];
        if !before.is_null() {
            let bytes = session.page_bytes(before);
            let bytes = bytes.ok_or_else(|| self.context.lost(&self.file))?;
            let copied = bytes.try_copy_to(0, &mut whole[..within]);
            copied.map_err(|error| error.errno())?;
        }
        source.copy_to(&mut whole[within..within + length]);
        self.store(new, 0, &whole)
    }

    fn store(&mut self, page: PagePtr, within: usize, bytes: &[u8]) -> Attempt<()> {
        let place = self.context.session.page_bytes(page).ok_or(Errno::IO)?;
        let stored = place.try_stream(within, bytes);
        let stored = stored.map_err(|error| error.errno())?;
        self.contents = Some(stored.describing().join_all(self.contents.take()));
        Ok(())
    }

    /// Publishes what was stored: the section grows from `size` to `end`.
    #[inline]
    fn publish(
        &mut self,
        branch: &mut Beginning,
        expected: &Expected,
        size: u64,
        end: u64,
    ) -> Attempt<()> {
        let (context, file, time) = (self.context, self.file, now());
        let ahead = self.set_entries_ahead(size)?;
        let (branch, (data, ahead)) = branch.begun_with((self.contents.take(), ahead));
        let data = data.ok_or(Errno::IO)?;
        let line = branch.line_0();
        let reached = if let Some(ahead) = ahead {
            Reached::Entries(data, ahead)
        } else if self.fresh.is_empty() {
            Reached::Contents(data)
        } else if self.is_first_page() {
            let (_, pointer) = self.fresh[0];
            let root = line.put_first_page(pointer, &data)?;
            file.set_delta_root(root, 1);
            self.are_published(size);
            Reached::Contents(data)
        } else {
            let entries = self.publish_entries(&branch, &data, size)?;
            Reached::Entries(data, order::fence(entries))
        };
        context.put_times(&file, &line, time)?;
        let (committed, stamped) = order::fence(branch.set_size(line, end, reached)?);
        let published = Published {
            offset: branch.offset_of_size(),
            word: end,
            before: size,
            length: 8,
        };
        context.confirm(&[(file.inode(), *expected)], published, committed)?;
        file.size.store(end, Ordering::Release);
        file.stamped(time, Some(stamped));
        Ok(())
    }

    /// Sets the entries of all fresh pages if they lie beyond `size`, where nothing reaches them yet, and the
    /// delta's index has a place for them. They become durable together with what they lead to.
    #[inline]
    fn set_entries_ahead(&mut self, size: u64) -> Attempt<Option<Flushed<Entries>>> {
        let (Some(&(first, _)), Some(&(last, _))) = (self.fresh.first(), self.fresh.last()) else {
            return Ok(None);
        };
        if first < pages_of(size) || last - first + 1 != self.fresh.len() as u64 {
            return Ok(None);
        }
        self.file.has_entries_to(last + 1);
        let entries = self.fresh.iter().map(|(_, pointer)| pointer.0);
        let (session, root) = (self.context.session, self.file.delta_root());
        let set = delta::set_entries_ahead(session, root, first, entries)?;
        if set.is_some() {
            self.are_published(size);
        }
        Ok(set)
    }

    /// Whether all there is is the first page of a section without an index, which stands in the branch, in the
    /// cache line of the size: put there before the size, it is durable whenever the size is.
    fn is_first_page(&self) -> bool {
        matches!(self.fresh[..], [(0, _)]) && self.file.delta_root().0 == 0
    }

    /// The fresh pages are the section's, which had `size` bytes.
    fn are_published(&mut self, size: u64) {
        let more = self
            .fresh
            .iter()
            .filter(|(page, _)| *page >= pages_of(size));
        self.file.part().has_more_pages(more.count() as u64);
        self.fresh.clear();
    }

    /// Publishes the entries of all fresh pages, one by one. Where that fails none beyond the size is left, to
    /// wait there for the section to grow.
    #[cold]
    fn publish_entries(
        &mut self,
        branch: &BegunBranch<'_>,
        data: &Durable<Contents>,
        size: u64,
    ) -> Attempt<Flushed<Entries>> {
        let (context, file) = (self.context, self.file);
        let mut token = None;
        for at in 0..self.fresh.len() {
            let (page, pointer) = self.fresh[at];
            let entry = Entry::Page(pointer.0, data);
            match context.set_entry(file, branch, page, entry, &mut self.index) {
                Ok(stored) => token = Some(stored.join_all(token)),
                Err(stop) => {
                    order::drain(token);
                    self.take_back(branch, at, size)?;
                    return Err(stop);
                }
            }
        }
        self.are_published(size);
        token.ok_or_else(|| Errno::IO.into())
    }

    /// Takes the entries of the first `count` fresh pages out again, but for one below the size: it holds what the one
    /// before it held, and stays the section's.
    #[cold]
    fn take_back(&mut self, branch: &BegunBranch<'_>, count: usize, size: u64) -> Attempt<()> {
        let (session, root) = (self.context.session, self.file.delta_root());
        let mut cleared = Vec::with_capacity(count);
        for (page, pointer) in &mut self.fresh[..count] {
            if *page < pages_of(size) {
                *pointer = PagePtr::NULL;
            } else {
                cleared.push(delta::clear_index_entry(session, branch, root, *page)?);
            }
        }
        order::drain(cleared);
        self.file.has_no_entries_from(pages_of(size));
        Ok(())
    }
}

impl Drop for Filling<'_, '_> {
    /// Gives back fresh pages that were not published.
    fn drop(&mut self) {
        let session = self.context.session;
        let taken = self.taken.iter().map(|&page| PagePtr(page));
        let fresh = self.fresh.iter().map(|&(_, page)| page);
        for page in taken.chain(fresh).filter(|page| !page.is_null()) {
            session.state().data.release(session, page);
        }
        self.context.give_index_pages(&mut self.index, 0);
    }
}

/// Where the kernel writes back, only the controller makes anything durable.
#[inline]
pub fn make_durable(session: &Session, inodes: &[u32]) -> Result<(), Errno> {
    if session.durability() != Durability::Paged {
        return Ok(());
    }
    let inodes = InodeList::new(inodes).ok_or(Errno::IO)?;
    session.ask(&Request::Sync { inodes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_gives_all_bytes_in_order_however_they_are_asked_for() {
        let parts: &[&[u8]] = &[b"", b"abc", b"", b"d", b"efgh", b""];
        for step in 1..10 {
            let mut source = Source::of(parts);
            let mut all = Vec::new();
            while all.len() < 8 {
                let mut some = vec![0; step.min(8 - all.len())];
                source.copy_to(&mut some);
                all.extend(some);
            }
            assert_eq!(all, b"abcdefgh", "by {step}");
            assert!(source.next(1).is_empty());
        }
        let mut source = Source::of(parts);
        let pieces: Vec<&[u8]> = (0..4).map(|_| source.next(3)).collect();
        assert_eq!(pieces, [&b"abc"[..], b"d", b"efg", b"h"]);
    }
}
