//! The pages of an inode, and how they are moved: names or data, index, extended attributes.
//!
//! # Invariant
//! What is moved is copied, as far as the file reaches, with zeroes behind that; the old page is given
//! back, emptied, by who asked for the move.

use crate::state::apply::directory::edit;
use crate::state::apply::file::Setter;
use crate::state::change::Change;
use crate::state::classes::Class;
use crate::state::tables::State;
use arck_core_state::directory::{CHAIN_MAX, next_page};
use arck_core_state::superblock::Durability;
use arck_core_state::{
    FileKind, IndexRoot, Inode, InodeNumber, PAGE_BYTES, PAGE_SIZE, PagePtr, Pages, SegmentNumber,
    cast, index,
};
use arck_pm::{MapOptions, Mapping};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;

/// A page of an inode's index.
pub struct IndexPage {
    pointer: PagePtr,
    /// 0: what the index leads to; above: index pages.
    level: u32,
    /// First page number that it covers.
    first: u64,
}

impl IndexPage {
    pub fn pointer(&self) -> PagePtr {
        self.pointer
    }

    /// Whether it is a page of a file's data, and not behind the end of the file.
    pub fn is_data_before(&self, size: u64) -> bool {
        self.level == 0 && shown(self.first, size) != 0
    }
}

/// All pages of an index, those that lead to others first.
pub fn index_pages(pages: &impl Pages, root: IndexRoot) -> Result<Vec<IndexPage>, Errno> {
    let mut found = Vec::new();
    let mut waiting = vec![IndexPage {
        pointer: PagePtr(root.pointer()),
        level: root.height(),
        first: 0,
    }];
    while let Some(at) = waiting.pop() {
        if at.pointer.is_null() {
            continue;
        }
        if let Some(below) = at.level.checked_sub(1) {
            let step = index::capacity(below);
            let words = pages.page(at.pointer).ok_or(Errno::IO)?;
            for (slot, word) in words.iter().enumerate() {
                waiting.push(IndexPage {
                    pointer: PagePtr(word.load(Ordering::Relaxed)),
                    level: below,
                    first: at.first + slot as u64 * step,
                });
            }
        }
        found.push(at);
    }
    Ok(found)
}

/// Bytes of a page of a file that are before its end.
pub fn shown(first: u64, size: u64) -> usize {
    let before = size.saturating_sub(first.saturating_mul(PAGE_SIZE));
    before.min(PAGE_SIZE) as usize
}

/// The chain of a bucket.
pub fn chain(pages: &impl Pages, first: PagePtr) -> Result<Vec<PagePtr>, Errno> {
    let mut found = Vec::new();
    let mut at = first;
    while !at.is_null() && found.len() < CHAIN_MAX {
        found.push(at);
        let page = pages.page(at).ok_or(Errno::IO)?;
        at = next_page(page);
    }
    Ok(found)
}

/// All pages of what is in an inode: names or data, index, extended attributes.
pub fn contents(pages: &impl Pages, inode: &Inode) -> Result<Vec<PagePtr>, Errno> {
    let mut found = Vec::new();
    for page in index_pages(pages, inode.root)? {
        if page.level == 0 && inode.kind() == Some(FileKind::Directory) {
            found.extend(chain(pages, page.pointer)?);
        } else {
            found.push(page.pointer);
        }
    }
    if !inode.attributes.is_null() {
        found.push(inode.attributes);
    }
    Ok(found)
}

/// Reads and writes data pages, through mappings of their segments.
#[derive(Default)]
pub struct Copier {
    from: HashMap<SegmentNumber, Mapping>,
    to: HashMap<SegmentNumber, Mapping>,
}

/// The mapping of a page's segment, and where the page lies in it.
fn mapped<'m>(
    state: &State,
    mappings: &'m mut HashMap<SegmentNumber, Mapping>,
    page: PagePtr,
    flags: OFlags,
    options: MapOptions,
) -> Result<(&'m Mapping, usize), Errno> {
    let geometry = state.pool.geometry();
    let segment = geometry.segment_of(page);
    let mapping = match mappings.entry(segment) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => {
            let file = state.pool.open_segment(segment, flags)?;
            let length = usize::try_from(geometry.segment_size).map_err(|_| Errno::NOMEM)?;
            let dax = state.pool.durability() == Durability::Dax;
            let mapping = Mapping::new(&file, 0, length, options.synchronous(dax));
            entry.insert(mapping.map_err(|error| error.errno())?)
        }
    };
    Ok((mapping, cast::index(page.address() % geometry.segment_size)))
}

impl Copier {
    /// EIO: the session that has the page has cut the file off, or somebody has removed it.
    pub(crate) fn read(
        &mut self,
        state: &State,
        page: PagePtr,
        bytes: &mut [u8; PAGE_BYTES],
    ) -> Result<(), Errno> {
        let options = MapOptions::READ_ONLY;
        let (source, within) = mapped(state, &mut self.from, page, OFlags::RDONLY, options)?;
        source
            .bytes()
            .try_copy_to(within, bytes)
            .map_err(|error| error.errno())
    }

    /// Durable before the next entry of the journal.
    pub(crate) fn write(
        &mut self,
        state: &State,
        page: PagePtr,
        bytes: &[u8; PAGE_BYTES],
    ) -> Result<(), Errno> {
        let options = MapOptions::READ_WRITE;
        let (target, within) = mapped(state, &mut self.to, page, OFlags::RDWR, options)?;
        let target = target.bytes();
        let stored = target.stream(within, bytes).ok_or(Errno::IO)?;
        state.journal.await_fence(stored);
        let range = target.slice(within, bytes.len()).ok_or(Errno::IO)?;
        state.pool.write_back(range)
    }

    /// What is in a page of a file, of which so many bytes are shown; zeroes, if there is none. EIO.
    pub(crate) fn content(
        &mut self,
        state: &State,
        page: PagePtr,
        shown: usize,
    ) -> Result<[u8; PAGE_BYTES], Errno> {
        let mut content = [0; PAGE_BYTES];
        if !page.is_null() {
            self.read(state, page, &mut content)?;
            content[shown..].fill(0);
        }
        Ok(content)
    }

    /// [`Copier::write`] of a part of a page that sessions may be able to write, and cut off. EIO.
    pub(crate) fn write_reached(
        &mut self,
        state: &State,
        page: PagePtr,
        at: usize,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let options = MapOptions::READ_WRITE;
        let (target, within) = mapped(state, &mut self.to, page, OFlags::RDWR, options)?;
        let target = target.bytes();
        let stored = target.try_stream(within + at, bytes);
        state
            .journal
            .await_fence(stored.map_err(|error| error.errno())?);
        let range = target.slice(within + at, bytes.len());
        state.pool.write_back(range.ok_or(Errno::IO)?)
    }

    /// Copies the first bytes of a page; behind them are zeroes.
    pub(super) fn copy(
        &mut self,
        state: &State,
        from: PagePtr,
        to: PagePtr,
        shown: usize,
    ) -> Result<(), Errno> {
        let mut bytes = [0u8; PAGE_BYTES];
        self.read(state, from, &mut bytes)?;
        bytes[shown..].fill(0);
        self.write(state, to, &bytes)
    }

    /// Zeroes what is in a page from a place on, if there is anything. EIO: the session that has the page
    /// has cut the file off, or somebody has removed it.
    pub(crate) fn clear(&mut self, state: &State, page: PagePtr, from: usize) -> Result<(), Errno> {
        let mut bytes = [0u8; PAGE_BYTES];
        self.read(state, page, &mut bytes)?;
        if bytes[from..].iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let options = MapOptions::READ_WRITE;
        let (target, within) = mapped(state, &mut self.to, page, OFlags::RDWR, options)?;
        let length = bytes.len() - from;
        let target = target.bytes();
        bytes.fill(0);
        let zeroed = target.try_stream(within + from, &bytes[from..]);
        let zeroed = zeroed.map_err(|error| error.errno())?;
        state.journal.await_fence(zeroed);
        let range = target.slice(within + from, length).ok_or(Errno::IO)?;
        state.pool.write_back(range)
    }
}

/// Moves what is in an inode to a class.
pub struct Mover<'a> {
    /// To which.
    pub class: Option<Class>,
    /// Whether a data page may stay.
    pub stays: &'a dyn Fn(&State, PagePtr) -> bool,
    pub copier: Copier,
    /// Data pages that the inode has left; they are not free yet.
    pub left: Vec<PagePtr>,
}

impl Mover<'_> {
    pub fn contents(&mut self, change: &mut Change<'_>, number: InodeNumber) -> Result<(), Errno> {
        let mut inode = change.inode(number).ok_or(Errno::STALE)?;
        let label = change.state.label(self.class.as_ref());
        change.allocate_for_class(label);
        let is_directory = inode.kind() == Some(FileKind::Directory);
        let mut setter = Setter::new(IndexRoot::EMPTY);
        let pages = index_pages(change, inode.root)?;
        for page in &pages {
            if page.level != 0 {
                continue;
            }
            let new = if is_directory {
                bucket(change, page.pointer)?
            } else {
                self.data(change, page.pointer, shown(page.first, inode.size))?
            };
            setter.set(change, page.first, new)?;
        }
        for page in pages.iter().filter(|page| page.level != 0) {
            change.move_page(page.pointer);
        }
        inode.root = setter.root();
        if !inode.attributes.is_null() {
            inode.attributes = self.data(change, inode.attributes, PAGE_BYTES)?;
        }
        // What was copied is durable by the first fence of the change.
        change.set_inode(inode);
        Ok(())
    }

    /// `shown`: so many bytes of it are before the end of the file.
    pub fn data(
        &mut self,
        change: &mut Change<'_>,
        old: PagePtr,
        shown: usize,
    ) -> Result<PagePtr, Errno> {
        if (self.stays)(change.state, old) {
            return Ok(old);
        }
        let new = change.new_data_page()?;
        self.copier.copy(change.state, old, new, shown)?;
        self.left.push(old);
        Ok(new)
    }
}

/// Moves the chain of a bucket.
pub fn bucket(change: &mut Change<'_>, first: PagePtr) -> Result<PagePtr, Errno> {
    let mut next = PagePtr::NULL;
    for &old in chain(change, first)?.iter().rev() {
        let new = change.copy_page(old)?;
        edit(change, new)?.set_next(next);
        change.move_page(old);
        next = new;
    }
    Ok(next)
}
