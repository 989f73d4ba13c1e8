//! The commit of a change: see the order in the head of [`super`].

use crate::pool::journal::{self, Beforehand, Standing};
use crate::space::slots::place;
use crate::state::change::{Change, Numbered, Weight};
use crate::state::tables::State;
use arck_controller_state::journal::{Redo, Target};
use arck_controller_state::segments::entry_offset;
use arck_core_state::header::{HEADER_SIZE, SEALED_OFFSET};
use arck_core_state::inode::INODE_SIZE;
use arck_core_state::{FileKind, Inode, PAGE_BYTES, PAGE_SIZE, PagePtr, Pages, cast};
use arck_pm::record::stored;
use arck_pm::{Flushed, order};
use foldhash::HashMap;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

/// Bytes of an entry for each inode number, about: its sequence, its header, some words of the inode and of its name.
const BYTES_OF_NUMBER: usize = 160;

/// So many pages ahead of the one that is looked at are fetched into the caches.
const AHEAD: usize = 4;

/// What stands in a map, in the order in which it lies in memory.
fn in_order<K: Ord, V>(map: &HashMap<K, V>) -> Vec<(&K, &V)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

impl Change<'_> {
    /// Commits. ENOSPC (the journal cannot grow) and EIO come before anything is applied; then
    /// nothing has changed.
    pub fn commit(mut self, weight: Weight) -> Result<(), Errno> {
        self.free_empty_inode_pages();
        let order = self.order_of_numbers();
        let redo = self.redo(&order)?;
        let (pool, journal) = (&self.state.pool, &mut self.state.journal);
        pool.with_room(|| journal.reserve(redo.size()))?;
        let fresh = self.write_fresh(&order)?;
        let journal = &self.state.journal;
        fresh
            .into_iter()
            .for_each(|fresh| journal.await_fence(fresh));
        let prepared = journal.prepare();
        self.state.crash_point("fresh pages written");
        let sync = weight == Weight::Fold;
        self.state.names_changed += u64::from(self.changes_names());
        let State { pool, journal, .. } = &mut *self.state;
        let standing = journal.write(&redo, pool, sync, prepared)?;
        self.committed = true;
        self.state.crash_point("journal written");
        self.apply(&redo, sync, standing);
        self.state.crash_point("applied");
        self.update_tables();
        self.zero_moved();
        Ok(())
    }

    /// Zeroes what has moved: whoever mapped its old place sees nothing there any more. It is in
    /// nobody's use, and not allocated again before this.
    fn zero_moved(&self) {
        let zeroes = [0u8; PAGE_BYTES];
        let mut zeroed: Option<Flushed> = None;
        let pages = self
            .moved_pages
            .iter()
            .map(|page| (page.address(), PAGE_SIZE));
        let places = self.moved_places.iter();
        let places = places.map(|&address| (address, INODE_SIZE as u64));
        for (address, length) in pages.chain(places) {
            let page = PagePtr::of_address(address);
            let Some(offset) = self.state.pool.mapped_offset(page) else {
                continue;
            };
            let memory = self.state.pool.space();
            let at = offset + (address % PAGE_SIZE) as usize;
            // In range: the segment is mapped.
            if let Some(dirty) = memory.write(at, &zeroes[..cast::index(length)]) {
                zeroed = Some(dirty.flush().join_all(zeroed));
            }
        }
        if zeroed.is_some() {
            order::drain(zeroed);
        }
    }

    fn free_empty_inode_pages(&mut self) {
        let mut freed: BTreeMap<PagePtr, u32> = BTreeMap::new();
        for &address in &self.freed_places {
            let (page, slot) = place(address);
            *freed.entry(page).or_insert(0) |= 1 << slot;
        }
        for (page, mask) in freed {
            let label = self.state.space.label_of(page);
            if self.state.slots.would_be_empty(label, page, mask) {
                self.bits.insert(page.0, false);
            }
        }
    }

    /// What is said of inode numbers, in the order in which headers lie: places among the entries.
    fn order_of_numbers(&self) -> Vec<usize> {
        let entries = self.numbers.entries();
        let mut order: Vec<usize> = (0..entries.len()).collect();
        let number = |&at: &usize| entries[at].number;
        if !order.is_sorted_by_key(number) {
            order.sort_unstable_by_key(number);
        }
        order
    }

    fn in_order(&self, order: &[usize]) -> impl Iterator<Item = &Numbered> {
        let entries = self.numbers.entries();
        order.iter().map(|&at| &entries[at])
    }

    /// Everything that changes in place, as redo records.
    fn redo(&self, order: &[usize]) -> Result<Redo, Errno> {
        let mut redo = Redo::with_room(order.len() * BYTES_OF_NUMBER);
        let mut sequenced: Vec<u64> = Vec::with_capacity(order.len());
        let all = self.in_order(order);
        sequenced.extend(
            all.filter(|said| self.is_sequenced(said))
                .map(|said| u64::from(said.number).to_le()),
        );
        if !sequenced.is_empty() {
            redo.put(Target::Sequences, 0, sequenced.as_bytes());
        }
        if let Some((offset, word)) = self.done {
            redo.put(Target::Sessions, offset, &word.to_le_bytes());
        }
        for (&segment, entry) in &self.segments {
            let offset = entry_offset(segment);
            redo.put(Target::Segments, offset, entry.as_bytes());
        }
        let pages = in_order(&self.pages);
        for (at, &(&page, working)) in pages.iter().enumerate() {
            // They were made in another order: what comes soon is not in the cache.
            if let Some((_, later)) = pages.get(at + 2 * AHEAD) {
                later.prefetch();
            }
            if let Some((_, next)) = pages.get(at + AHEAD) {
                next.prefetch_lines();
            }
            if working.is_fresh() {
                continue;
            }
            // A page freed after it was changed need not be written.
            if self.bits.get(page.0) == Some(false) {
                continue;
            }
            let live = self.state.pool.page(page).ok_or(Errno::IO)?;
            // Those that follow each other become one record.
            working.for_changed(live, |index, word| {
                let address = page.address() + index as u64 * 8;
                redo.put(Target::Pages, address, &word.to_le_bytes());
            });
        }
        for said in self.in_order(order).filter(|said| said.place == 0) {
            let Some(Some(new)) = &said.inode else {
                continue;
            };
            let Some(old) = self.state.shadow(said.number) else {
                continue;
            };
            let header = self.state.header_copy(said.number).ok_or(Errno::IO)?;
            let address = header.inode;
            let (new, _) = new.as_bytes().as_chunks::<8>();
            let (old, _) = old.as_bytes().as_chunks::<8>();
            for (index, (new, old)) in new.iter().zip(old).enumerate() {
                if new != old {
                    redo.put(Target::Pages, address + index as u64 * 8, new);
                }
            }
        }
        for (index, said) in self.bits.in_order() {
            let word = self.state.space.word(index) & !said.of | said.used;
            redo.put(Target::Bitmap, index * 8, &word.to_le_bytes());
        }
        for said in self.in_order(order) {
            let Some(header) = &said.header else { continue };
            let at = u64::from(said.number) * HEADER_SIZE as u64;
            let words = header.words();
            let live = self.state.pool.header(said.number).ok_or(Errno::IO)?;
            let stored = [
                &live.inode,
                &live.fold,
                &live.ownership,
                &live.identity,
                &live.state,
            ];
            let differs = |index: &usize| stored[*index].load(Ordering::Relaxed) != words[*index];
            // One record from the first to the last that differs: the words between stay what they are, and nobody
            // else changes any.
            if let Some(first) = (0..words.len()).find(differs) {
                let last = (0..words.len()).rfind(differs).unwrap_or(first);
                let changed = words[first..=last].as_bytes();
                redo.put(Target::Headers, at + 8 * (first as u64 + 1), changed);
            }
            if live.sealed.load(Ordering::Relaxed) != header.sealed {
                redo.put(
                    Target::Headers,
                    at + SEALED_OFFSET,
                    header.sealed.as_bytes(),
                );
            }
        }
        Ok(redo)
    }

    /// Pages and inodes that nothing refers to yet go to their place directly. [`Journal::prepare`] makes them
    /// durable; with them what was copied for this change, the entry of a session that is to own
    /// something by it, and what the change before this one, or recovery, has applied. So it fences
    /// even if nothing is fresh.
    ///
    /// [`Journal::prepare`]: journal::Journal::prepare
    fn write_fresh(&self, order: &[usize]) -> Result<Option<Flushed<Beforehand>>, Errno> {
        let mut fresh: Option<Flushed<Beforehand>> = None;
        let space = self.state.pool.space();
        let mut bytes = [0u8; PAGE_BYTES];
        for (&page, working) in in_order(&self.pages) {
            if !working.is_fresh() {
                continue;
            }
            let offset = self.state.pool.mapped_offset(page).ok_or(Errno::IO)?;
            let (chunks, _) = bytes.as_chunks_mut::<8>();
            let words = working.whole().ok_or(Errno::IO)?;
            for (chunk, word) in chunks.iter_mut().zip(words) {
                *chunk = word.load(Ordering::Relaxed).to_le_bytes();
            }
            let stored = space.stream(offset, &bytes).ok_or(Errno::IO)?;
            fresh = Some(stored.describing().join_all(fresh));
            self.write_back(offset, bytes.len())?;
        }
        let placed = self.in_order(order).filter_map(|said| match &said.inode {
            Some(Some(inode)) if said.place != 0 => Some((said.place, inode)),
            _ => None,
        });
        let mut placed: Vec<(u64, &Inode)> = placed.collect();
        if !placed.is_sorted_by_key(|&(address, _)| address) {
            placed.sort_unstable_by_key(|&(address, _)| address);
        }
        // Those that stand behind each other in a page, at once.
        let follows = |&(one, _): &(u64, &Inode), &(next, _): &(u64, &Inode)| {
            next == one + INODE_SIZE as u64 && !next.is_multiple_of(PAGE_SIZE)
        };
        for run in placed.chunk_by(follows) {
            let Some(&(address, _)) = run.first() else {
                continue;
            };
            let page = PagePtr::of_address(address);
            let offset = self.state.pool.mapped_offset(page).ok_or(Errno::IO)?
                + (address % PAGE_SIZE) as usize;
            let (places, _) = bytes.as_chunks_mut::<INODE_SIZE>();
            for (place, (_, inode)) in places.iter_mut().zip(run) {
                place.copy_from_slice(inode.as_bytes());
            }
            let bytes = &bytes[..run.len() * INODE_SIZE];
            let stored = space.stream(offset, bytes).ok_or(Errno::IO)?;
            fresh = Some(stored.describing().join_all(fresh));
            self.write_back(offset, bytes.len())?;
        }
        Ok(fresh)
    }

    fn write_back(&self, offset: usize, length: usize) -> Result<(), Errno> {
        match self.state.pool.space().slice(offset, length) {
            Some(range) => self.state.pool.write_back(range),
            None => Ok(()),
        }
    }

    /// Whether readers must see all that changes of an inode in one step.
    fn is_sequenced(&self, said: &Numbered) -> bool {
        said.inode.is_some()
            || said.header.is_some_and(|header| {
                let live = self.state.header_copy(said.number);
                live.is_some_and(|live| {
                    let is_applied = live.sealed != 0 && header.sealed == 0;
                    is_applied
                        || (live.inode, live.kind, live.generation)
                            != (header.inode, header.kind, header.generation)
                })
            })
    }

    /// Whether names of some directory may be others: pages of names and the ways to them change, or a directory.
    fn changes_names(&self) -> bool {
        let is_directory = |inode: Option<&Inode>| {
            inode.is_some_and(|inode| inode.kind() == Some(FileKind::Directory))
        };
        let mut said = self.numbers.entries().iter();
        !self.pages.is_empty()
            || said.any(|said| {
                said.inode.is_some_and(|new| {
                    is_directory(new.as_ref()) || is_directory(self.state.shadow(said.number))
                })
            })
    }

    /// Applies what the journal holds. Nothing can fail any more.
    fn apply(&mut self, redo: &Redo, sync: bool, standing: Standing) {
        let pool = &self.state.pool;
        let half = || self.state.crash_point("half applied");
        journal::store(redo, pool, &standing, half);
        for said in self.numbers.entries() {
            // A mark on a header whose ownership does not change has no redo record.
            if said.header.is_some()
                && let Some(header) = pool.header(said.number)
            {
                let ownership = header.ownership();
                if ownership.is_marked() {
                    header
                        .ownership
                        .store(ownership.unmarked().0, Ordering::Release);
                    stored(&header.ownership);
                }
            }
        }
        let applied = journal::flush(redo, pool, |range| {
            if sync && let Err(errno) = pool.write_back(range) {
                tracing::error!("writing the verified state back: {errno}");
            }
        });
        self.state.journal.has_applied(standing, applied);
        // No fence: until another entry takes the place of this one, it is applied again after a
        // failure of the machine, and the fence that comes before that (`Journal::prepare`, and in
        // `Core::open`) makes this durable. Whoever acts on what he sees here, a session that uses
        // a page which is free now, or begins another branch, acts on what the journal holds.
    }

    fn update_tables(&mut self) {
        let state = &mut *self.state;
        let created = self.taken_places.len() as u64;
        state.granted = state.granted.saturating_sub(created + self.freed_granted);
        for (index, said) in std::mem::take(&mut self.bits).in_order() {
            state.space.set_word(index, said);
        }
        if state.watching.is_any() {
            let said = self.numbers.entries().iter();
            let said = said.filter_map(|said| Some((said.number, said.inode?)));
            let inodes: Vec<_> = said
                .map(|(number, new)| (number, state.shadow(number).copied(), new))
                .collect();
            let noted = std::mem::take(&mut self.noted);
            state.watching.committed(noted, inodes.into_iter());
        }
        for said in self.numbers.entries() {
            if let Some(inode) = said.inode {
                state.set_shadow(said.number, inode);
            }
        }
        for address in std::mem::take(&mut self.freed_places) {
            let label = state.space.label_of(PagePtr::of_address(address));
            state.slots.free(label, address);
        }
        for number in std::mem::take(&mut self.freed_numbers) {
            state.orphans.remove(number);
            state.numbers.give_back(number);
        }
    }
}
