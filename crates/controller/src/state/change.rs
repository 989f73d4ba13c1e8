//! A change of the verified state: prepared in private memory, committed in one atomic step.
//!
//! # Invariants
//! * Until [`Change::commit`] nothing that the verified state refers to is touched, and dropping
//!   a change undoes it: whatever fails, fails before anything is applied.
//! * Order of a commit: pages and inodes that are new are written in place and made durable; the
//!   journal entry is made durable; sequence words become odd; everything is applied; sequence
//!   words become even; fold numbers, then ownership words (which takes the marks away) are
//!   stored; all of it is made durable.
//! * A page freed here is not allocated again here.

mod bits;
mod commit;
mod labels;
mod noting;
mod numbered;
#[cfg(test)]
mod tests;

use crate::space::together;
use crate::state::classes::NOBODY;
use crate::state::searches::NewSearches;
use crate::state::tables::State;
use crate::state::watching::Noted;
use crate::state::working::{Edited, Seen, WorkingPage};
use arck_controller_state::segments::{CONTROLLER, FOREIGN, SegmentEntry, SegmentKind};
use arck_core_state::header::HeaderKind;
use arck_core_state::{
    FileKind, Inode, InodeNumber, Ownership, PagePtr, PageWords, Pages, SegmentNumber, Words,
};
use arck_verifier::ByNumber;
use bits::Bits;
use foldhash::{HashMap, HashSet};
pub use numbered::HeaderWords;
use numbered::Numbered;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// Whether a commit has to reach the medium in `paged` mode; elsewhere all do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// The verified state changes.
    Fold,
    /// Only who owns what changes, which a machine failure makes void in `paged` mode.
    Ownership,
}

/// See the module's head.
pub struct Change<'a> {
    pub state: &'a mut State,
    pages: HashMap<PagePtr, WorkingPage>,
    numbers: ByNumber<Numbered>,
    /// It changes some inode.
    changes_inodes: bool,
    bits: Bits,
    allocated: HashSet<PagePtr>,
    segments: BTreeMap<SegmentNumber, SegmentEntry>,
    /// What the private segment table said before.
    former_segments: Vec<(SegmentNumber, SegmentEntry)>,
    /// Places taken, to be given back if nothing comes of it.
    taken_places: Vec<u64>,
    freed_places: Vec<u64>,
    freed_numbers: Vec<InodeNumber>,
    /// Of those, how many were granted and uncommitted.
    freed_granted: u64,
    /// Pages that inodes lose of which other sessions have maps.
    kept: BTreeMap<InodeNumber, Vec<PagePtr>>,
    /// Numbers taken for what this change makes by itself.
    taken_numbers: Vec<InodeNumber>,
    /// Metadata pages that splits of buckets may still take.
    splits_left: u64,
    /// Class of the metadata pages that are allocated now.
    label: u32,
    /// Modes that inodes get in this change, for the classes of what is created beneath them.
    final_modes: HashMap<InodeNumber, u32>,
    /// Who may search the directories that it makes.
    searches: NewSearches,
    /// What has moved elsewhere, and is zeroed in its old place when the change is done.
    moved_pages: Vec<PagePtr>,
    moved_places: Vec<u64>,
    /// Word of the session table that says that a request was done.
    done: Option<(u64, u64)>,
    /// What of it is to be told to who watches.
    pub(super) noted: Noted,
    committed: bool,
}

impl Pages for Change<'_> {
    fn page(&self, pointer: PagePtr) -> Option<&PageWords> {
        match self.pages.get(&pointer) {
            Some(working) => match working.whole() {
                Some(words) => Some(words),
                None => Some(working.words(self.state.pool.page(pointer)?)),
            },
            None => self.state.pool.page(pointer),
        }
    }

    fn prefetch(&self, page: &PageWords, index: usize) {
        self.state.prefetch(page, index);
    }
}

impl<'a> Change<'a> {
    pub fn new(state: &'a mut State) -> Change<'a> {
        Change {
            state,
            pages: HashMap::default(),
            numbers: ByNumber::default(),
            changes_inodes: false,
            bits: Bits::default(),
            allocated: HashSet::default(),
            segments: BTreeMap::new(),
            former_segments: Vec::new(),
            taken_places: Vec::new(),
            freed_places: Vec::new(),
            freed_numbers: Vec::new(),
            freed_granted: 0,
            kept: BTreeMap::new(),
            taken_numbers: Vec::new(),
            splits_left: u64::MAX,
            done: None,
            label: NOBODY,
            final_modes: HashMap::default(),
            searches: NewSearches::default(),
            moved_pages: Vec::new(),
            moved_places: Vec::new(),
            noted: Noted::default(),
            committed: false,
        }
    }

    /// Room for what is said of so many more inode numbers.
    pub fn reserve_numbers(&mut self, more: usize) {
        self.numbers.reserve(more);
    }

    /// What is said of a number.
    fn numbered(&mut self, number: InodeNumber) -> &mut Numbered {
        let make = || Numbered::new(number);
        self.numbers.get_or_insert_with(number, make)
    }

    /// Whether the inode changes.
    fn says_inode(&self, number: InodeNumber) -> bool {
        self.numbers
            .get(number)
            .is_some_and(|said| said.inode.is_some())
    }

    /// An inode as it will be; `None` if it is not alive or dies here.
    pub fn inode(&self, number: InodeNumber) -> Option<Inode> {
        match self.numbers.get(number).and_then(|said| said.inode) {
            Some(changed) => changed,
            None => self.state.shadow(number).copied(),
        }
    }

    pub fn set_inode(&mut self, inode: Inode) {
        let number = inode.number;
        let said = self
            .numbers
            .get(number)
            .and_then(|said| said.inode.as_ref());
        let old = match said {
            Some(changed) => changed.as_ref(),
            None => self.state.shadow(number),
        };
        self.searches.note(old, &inode);
        self.put_inode(number, Some(inode));
    }

    /// Changes an inode where it is kept. EIO if it is not alive, or dies here.
    pub fn change_inode(
        &mut self,
        number: InodeNumber,
        change: impl FnOnce(&mut Inode),
    ) -> Result<(), Errno> {
        let make = || Numbered::new(number);
        let said = self.numbers.get_or_insert_with(number, make);
        if said.inode.is_none() {
            said.inode = Some(Some(*self.state.shadow(number).ok_or(Errno::IO)?));
        }
        let Some(Some(inode)) = &mut said.inode else {
            return Err(Errno::IO);
        };
        self.changes_inodes = true;
        let old = (inode.kind() == Some(FileKind::Directory)).then_some(*inode);
        change(inode);
        if old.is_some() {
            self.searches.note(old.as_ref(), inode);
        }
        Ok(())
    }

    fn put_inode(&mut self, number: InodeNumber, inode: Option<Inode>) {
        self.changes_inodes = true;
        self.numbered(number).inode = Some(inode);
    }

    /// A header to be changed. ENOENT beyond the table.
    pub fn header(&mut self, number: InodeNumber) -> Result<&mut HeaderWords, Errno> {
        let state = &*self.state;
        let make = || Numbered::new(number);
        let said = self.numbers.get_or_insert_with(number, make);
        Ok(match &mut said.header {
            Some(header) => header,
            header => {
                let copy = state.header_copy(number).ok_or(Errno::NOENT)?;
                header.insert(HeaderWords::of(&copy))
            }
        })
    }

    /// A new place for the inode of a number that comes alive, of the class that metadata pages
    /// are allocated for. ENOSPC.
    pub fn place_inode(&mut self, inode: Inode) -> Result<u64, Errno> {
        let address = match self.state.slots.take(self.label) {
            Some(address) => address,
            None => {
                let page = match self.allocate_labelled(SegmentKind::Metadata) {
                    Ok(page) => Ok(self.allocated(page)),
                    Err(_) => match self.state.slots.take(NOBODY) {
                        Some(address) => Err(address),
                        None => Ok(self.allocate()?),
                    },
                };
                page.map_or_else(
                    |address| address,
                    |page| {
                        let label = self.state.space.label_of(page);
                        self.state.slots.add_page(label, page)
                    },
                )
            }
        };
        self.taken_places.push(address);
        self.changes_inodes = true;
        let said = self.numbered(inode.number);
        said.inode = Some(Some(inode));
        said.place = address;
        Ok(address)
    }

    /// The inode and its number are free from now on. Its pages are the caller's business.
    pub fn free_inode(&mut self, number: InodeNumber) -> Result<(), Errno> {
        let header = self.header(number)?;
        let address = header.inode;
        debug_assert_ne!(header.kind, HeaderKind::Free, "{number} is free already");
        let is_uncommitted = header.kind == HeaderKind::Granted;
        header.inode = 0;
        header.kind = HeaderKind::Free;
        header.file_kind = None;
        header.generation = header.generation.wrapping_add(1).max(1);
        header.ownership = Ownership::SHARED;
        header.branch_slot = 0;
        self.freed_granted += u64::from(is_uncommitted);
        if address != 0 {
            self.freed_places.push(address);
        }
        self.put_inode(number, None);
        self.numbered(number).place = 0;
        self.freed_numbers.push(number);
        Ok(())
    }

    /// Another place for a living inode, of the class that metadata pages are allocated for; the
    /// old one is zeroed when the change is done. ENOSPC.
    pub fn move_inode(&mut self, number: InodeNumber) -> Result<(), Errno> {
        let inode = self.inode(number).ok_or(Errno::STALE)?;
        let old = self.header(number)?.inode;
        let address = self.place_inode(inode)?;
        self.header(number)?.inode = address;
        if old != 0 {
            self.freed_places.push(old);
            self.moved_places.push(old);
        }
        Ok(())
    }

    fn allocate(&mut self) -> Result<PagePtr, Errno> {
        let page = match self.allocate_labelled(SegmentKind::Metadata) {
            Ok(page) => page,
            // Of nobody: those who may read it have to ask for it.
            Err(_) => match self.state.space.allocate_metadata() {
                Some(page) => page,
                None => {
                    self.add_metadata_segment()?;
                    self.state.space.allocate_metadata().ok_or(Errno::NOSPC)?
                }
            },
        };
        Ok(self.allocated(page))
    }

    fn allocated(&mut self, page: PagePtr) -> PagePtr {
        self.allocated.insert(page);
        self.bits.insert(page.0, true);
        page
    }

    /// A page of the class that is allocated for. ENOSPC; also for metadata of nobody's.
    fn allocate_labelled(&mut self, kind: SegmentKind) -> Result<PagePtr, Errno> {
        let label = self.label;
        if label == NOBODY && kind == SegmentKind::Metadata {
            return Err(Errno::NOSPC);
        }
        if let Some(page) = self.state.space.allocate_labelled(kind, label) {
            return Ok(page);
        }
        if kind == SegmentKind::Metadata && !self.state.space.has_segment_for_class() {
            return Err(Errno::NOSPC);
        }
        self.add_segment_of(kind, label)?;
        let page = self.state.space.allocate_labelled(kind, label);
        page.ok_or(Errno::NOSPC)
    }

    /// A segment for a class. ENOSPC.
    pub fn add_segment_of(&mut self, kind: SegmentKind, label: u32) -> Result<(), Errno> {
        let state = &mut *self.state;
        let is_conjunction = |label| state.classes.is_conjunction(label);
        if is_conjunction(label) && !state.space.has_segment_for_conjunction(is_conjunction) {
            return Err(Errno::NOSPC);
        }
        let segment = state.space.find_class_segment(&state.pool, kind)?;
        if kind == SegmentKind::Metadata {
            state.pool.map_metadata(segment)?;
        }
        let entry = SegmentEntry {
            kind: kind as u32,
            class: label,
            uid: CONTROLLER,
            ..SegmentEntry::default()
        };
        self.set_segment(segment, entry);
        Ok(())
    }

    /// A page for data that the controller moves to the class that is allocated for. ENOSPC.
    pub fn new_data_page(&mut self) -> Result<PagePtr, Errno> {
        let page = self.allocate_labelled(SegmentKind::Data)?;
        Ok(self.allocated(page))
    }

    /// What is allocated from now on is for those who may read a file; gives their label.
    pub fn allocate_for_readers(&mut self, inode: &Inode) -> u32 {
        let class = self.read_class(inode);
        let label = self.state.label(class.as_ref());
        self.allocate_for_class(label);
        label
    }

    /// A page that all sessions can store to which have maps of a file of this user, of the class that is allocated for.
    /// ENOSPC.
    pub fn new_page_together(
        &mut self,
        file: (InodeNumber, u32),
        uid: u32,
    ) -> Result<PagePtr, Errno> {
        let label = self.label;
        let found = match self.state.space.allocate_together(file, label) {
            None if self.state.space.has_segment_together(file) => {
                let state = &mut *self.state;
                let kind = SegmentKind::Data;
                let segment = state.space.find_class_segment(&state.pool, kind)?;
                self.set_segment(segment, together::entry(file, uid, label));
                self.state.space.allocate_together(file, label)
            }
            found => found,
        };
        found.map(|page| self.allocated(page)).ok_or(Errno::NOSPC)
    }

    /// The segment of a page. `None` if there is no such page.
    pub fn segment_of(&self, page: PagePtr) -> Option<SegmentNumber> {
        let geometry = self.state.pool.geometry();
        geometry.contains(page).then(|| geometry.segment_of(page))
    }

    /// A data page becomes part of a file of this user: its segment goes to nobody who might not
    /// write that file.
    pub fn note_user(&mut self, page: PagePtr, uid: u32) {
        if !self.state.space.shared || !self.state.pool.geometry().contains(page) {
            return;
        }
        let segment = self.state.pool.geometry().segment_of(page);
        if let Some(entry) = self.state.space.entry(segment)
            && entry.kind() == SegmentKind::Data
            && entry.uid != uid
            && entry.uid != CONTROLLER
            && entry.uid != 0
            && entry.flags & FOREIGN == 0
        {
            let flags = entry.flags | FOREIGN;
            self.set_segment(segment, SegmentEntry { flags, ..entry });
        }
    }

    /// Frees a metadata page whose content has moved: it is zeroed when the change is done.
    pub fn move_page(&mut self, page: PagePtr) {
        let was_there = !self.pages.get(&page).is_some_and(WorkingPage::is_fresh);
        self.free_page(page);
        if was_there {
            self.moved_pages.push(page);
        }
    }

    fn add_metadata_segment(&mut self) -> Result<(), Errno> {
        let state = &mut *self.state;
        let segment = state
            .space
            .find_segment(&state.pool, SegmentKind::Metadata, 0)?;
        state.pool.map_metadata(segment)?;
        self.set_segment(
            segment,
            SegmentEntry {
                kind: SegmentKind::Metadata as u32,
                ..SegmentEntry::default()
            },
        );
        Ok(())
    }

    /// Changes an entry of the segment table.
    pub fn set_segment(&mut self, segment: SegmentNumber, entry: SegmentEntry) {
        if let Some(former) = self.state.space.entry(segment) {
            self.former_segments.push((segment, former));
        }
        self.state.space.set_entry(segment, entry);
        self.segments.insert(segment, entry);
    }

    /// A new metadata page, zeroed. ENOSPC.
    pub fn new_page(&mut self) -> Result<PagePtr, Errno> {
        let page = self.allocate()?;
        self.pages.insert(page, WorkingPage::fresh());
        Ok(page)
    }

    /// A new metadata page with the contents of another. ENOSPC; EIO if the page is none.
    pub fn copy_page(&mut self, from: PagePtr) -> Result<PagePtr, Errno> {
        let page = self.new_page()?;
        let copy = WorkingPage::copy_of(self.page(from).ok_or(Errno::IO)?);
        self.pages.insert(page, copy);
        Ok(page)
    }

    /// Frees a metadata page.
    pub fn free_page(&mut self, page: PagePtr) {
        if let Some(working) = self.pages.remove(&page)
            && working.is_fresh()
        {
            // Nothing durable ever knew of it: usable again at once.
            self.allocated.remove(&page);
            self.bits.remove(page.0);
            self.state.space.set_used(page, false);
            return;
        }
        self.bits.insert(page.0, false);
    }

    /// Frees a page of names. Whoever could read them may have it mapped, and others will: where there
    /// are such, it is zeroed when the change is done.
    pub fn free_names(&mut self, page: PagePtr) {
        match self.state.space.shared && self.state.space.label_of(page) != NOBODY {
            true => self.move_page(page),
            false => self.free_page(page),
        }
    }

    /// A data page is referred to from now on, or no longer.
    pub fn set_data_page_used(&mut self, page: PagePtr, is: bool) {
        self.bits.insert(page.0, is);
    }

    /// Splits of buckets may take so many metadata pages. Names go into longer chains then.
    pub fn limit_splits(&mut self, pages: u64) {
        self.splits_left = pages;
    }

    /// Runs a split that takes at most `most` pages, unless too many have been taken by others.
    pub fn within_splits(
        &mut self,
        most: u64,
        split: impl FnOnce(&mut Self) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if most > self.splits_left {
            return Ok(());
        }
        let before = self.state.space.metadata_headroom();
        let result = split(self);
        let after = self.state.space.metadata_headroom();
        let taken = before.saturating_sub(after);
        self.splits_left = self.splits_left.saturating_sub(taken);
        result
    }

    /// Whether metadata pages have been allocated for it.
    pub fn has_allocated(&self) -> bool {
        !self.allocated.is_empty()
    }

    /// From now on the data pages that this inode loses are kept: see [`crate::sessions::maps`].
    pub fn keep_pages_of(&mut self, number: InodeNumber) {
        self.kept.entry(number).or_default();
    }

    /// A data page is no longer part of the inode.
    pub fn drop_data_page(&mut self, of: InodeNumber, page: PagePtr) {
        match self.kept.get_mut(&of) {
            Some(kept) => {
                kept.push(page);
                // It may have become part of the inode in this very change, before what is in there
                // moved: only what is set after this is part of it.
                self.bits.remove(page.0);
            }
            None => self.set_data_page_used(page, false),
        }
    }

    /// What was dropped of inodes whose pages are kept, and did not become part of anything after
    /// that.
    pub fn take_kept(&mut self) -> Vec<(InodeNumber, Vec<PagePtr>)> {
        let mut kept = std::mem::take(&mut self.kept);
        for pages in kept.values_mut() {
            pages.retain(|page| self.bits.get(page.0) != Some(true));
            pages.sort_unstable();
            pages.dedup();
        }
        kept.retain(|_, pages| !pages.is_empty());
        kept.into_iter().collect()
    }

    /// An inode number for what this change makes by itself. ENOSPC.
    pub fn take_number(&mut self) -> Result<InodeNumber, Errno> {
        let number = self.state.numbers.take().ok_or(Errno::NOSPC)?;
        self.taken_numbers.push(number);
        // As if granted: its place is counted when the change is done.
        self.state.granted += 1;
        Ok(number)
    }

    /// The live page, if it has a word of that index.
    fn live(&self, page: PagePtr, index: usize) -> Result<&PageWords, Errno> {
        let live = self.state.pool.page(page).ok_or(Errno::IO)?;
        live.get(index).map(|_| live).ok_or(Errno::IO)
    }

    /// A word of a metadata page. EIO if the page is none.
    pub fn word(&self, page: PagePtr, index: usize) -> Result<u64, Errno> {
        let live = self.live(page, index)?;
        Ok(match self.pages.get(&page) {
            Some(working) => working.word(live, index),
            None => live.word(index),
        })
    }

    /// A metadata page as this change leaves it, of which little is to be looked at. `None` if the page is none.
    pub fn seen(&self, page: PagePtr) -> Option<Seen<'_>> {
        let live = self.state.pool.page(page)?;
        let working = self.pages.get(&page);
        Some(Seen { working, live })
    }

    /// Sets a word of a metadata page. EIO if the page is none.
    pub fn set_word(&mut self, page: PagePtr, index: usize, value: u64) -> Result<(), Errno> {
        let live = self.state.pool.page(page).ok_or(Errno::IO)?;
        live.get(index).ok_or(Errno::IO)?;
        let working = self.pages.entry(page);
        let working = working.or_insert_with(WorkingPage::of_live);
        working.set(live, index, value);
        Ok(())
    }

    /// A metadata page to be changed in place. EIO if the page is none.
    pub fn edit(&mut self, page: PagePtr) -> Result<Edited<'_>, Errno> {
        let live = self.state.pool.page(page).ok_or(Errno::IO)?;
        let working = self.pages.entry(page);
        let working = working.or_insert_with(WorkingPage::of_live);
        Ok(Edited { working, live })
    }

    /// The same, of which much is to be changed: all of it is copied at once.
    pub fn edit_much(&mut self, page: PagePtr) -> Result<Edited<'_>, Errno> {
        let edited = self.edit(page)?;
        edited.working.words(edited.live);
        Ok(edited)
    }

    /// Whether nothing changes but, perhaps, marks.
    pub fn is_empty(&self) -> bool {
        let same = |said: &Numbered| {
            said.header.is_none_or(|header| {
                let live = self.state.header_copy(said.number);
                live.is_some_and(|live| HeaderWords::of(&live) == header)
            })
        };
        self.is_ownership_only() && self.numbers.entries().iter().all(same)
    }

    /// Says, in the same atomic step, that the request that is served now was done: it must not be
    /// done again for a session that outlives this controller.
    pub fn completes_request(&mut self) {
        self.done = self.state.serving;
    }

    /// Whether nothing but headers changes.
    pub fn is_ownership_only(&self) -> bool {
        self.pages.is_empty()
            && !self.changes_inodes
            && self.bits.is_empty()
            && self.segments.is_empty()
    }
}

impl Drop for Change<'_> {
    /// A change that was not committed never was.
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        for number in std::mem::take(&mut self.taken_numbers) {
            self.state.numbers.give_back(number);
            self.state.granted -= 1;
        }
        for address in std::mem::take(&mut self.taken_places) {
            // A page that is empty now was allocated here, and goes below.
            let label = self.state.space.label_of(PagePtr::of_address(address));
            self.state.slots.free(label, address);
        }
        for page in std::mem::take(&mut self.allocated) {
            self.state.space.set_used(page, false);
        }
        for (segment, former) in std::mem::take(&mut self.former_segments).into_iter().rev() {
            self.state.space.set_entry(segment, former);
            if former.kind() != SegmentKind::Metadata {
                self.state.pool.unmap_metadata(segment);
            }
        }
    }
}
