//! What a crash left of moves: contents in pages that nothing refers to, where others can see them.
//!
//! A page that moves is emptied after the step that moves it is committed, and what is new is
//! written before its step is. A controller that ends in between leaves text that belongs to
//! nothing in segments that sessions were sent, or will be.
//!
//! # Invariants
//! * Runs while a pool is opened, when nobody owns anything and no session is served; and before
//!   any segment is given back, whose file could be seen without being looked at here.
//! * Afterwards nothing but what the verified state refers to can be seen in a segment of a class,
//!   through a mapping that was kept from before either; and every data page that nothing refers to
//!   is free, unless it could not be emptied.
//! * A page is punched, and allocated in the backing again, before it is free.
//! * Files that somebody can still write are left alone: they show their writer what he wrote, and
//!   he could keep whoever punches them waiting.

use crate::access::Access;
use crate::fold::pages::contents;
use crate::pool::files::{allocate, numbered};
use crate::pool::reach::Reach;
use crate::space::slots::place;
use crate::state::change::{Change, Weight};
use crate::state::classes::NOBODY;
use arck_controller_state::segments::{CONTROLLER, HIDDEN, SegmentEntry, SegmentKind, TOGETHER};
use arck_core_state::header::HEADER_SIZE;
use arck_core_state::inode::INODE_SIZE;
use arck_core_state::{InodeNumber, PAGE_BYTES, PAGE_SIZE, PagePtr, Pages, SegmentNumber, layout};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// What the verified state refers to.
struct Referred {
    /// A bit for each page.
    pages: Vec<u64>,
    /// Of pages that hold inodes, which places are taken.
    places: HashMap<PagePtr, u32>,
    /// Something could not be read: what is not in here may be in use all the same.
    is_partial: bool,
}

impl Referred {
    fn add(&mut self, page: PagePtr) {
        if let Some(word) = self.pages.get_mut((page.0 / 64) as usize) {
            *word |= 1 << (page.0 % 64);
        }
    }

    fn has(&self, page: PagePtr) -> bool {
        let word = self.pages.get((page.0 / 64) as usize);
        word.is_some_and(|word| word >> (page.0 % 64) & 1 == 1)
    }
}

/// What became of pages that were to be emptied.
#[derive(Default)]
struct Emptied {
    /// Empty, and as good as new; or of use to none but who could see them before.
    fresh: Vec<PagePtr>,
    /// Empty, but with nothing behind them: a store would end in SIGBUS.
    unbacked: Vec<PagePtr>,
    /// They show what they have shown.
    pub shown: Vec<PagePtr>,
}

impl Access<'_> {
    /// Empties whatever a crash may have left where somebody can see it, and frees data pages that
    /// nothing refers to. Reads all that the pool holds but data; blocks. What fails is logged, and
    /// tried again at the next start that follows no clean end.
    pub(crate) fn clear_leftovers(&mut self) {
        if !self.sessions.state.space.shared {
            return;
        }
        let referred = self.referred();
        let mut emptied = Emptied::default();
        for segment in 0..self.sessions.state.pool.geometry().segment_count {
            let Some(entry) = self.sessions.state.space.entry(segment) else {
                continue;
            };
            match entry.kind() {
                SegmentKind::Free => {}
                SegmentKind::Metadata => self.zero_unused(segment, entry, &referred),
                SegmentKind::Data => self.punch_unused(segment, entry, &referred, &mut emptied),
            }
        }
        self.sessions.state.journal.make_durable();
        if let Err(errno) = self.note_emptied(&emptied) {
            tracing::error!("pages that a crash left in nobody's use stay so: {errno}");
        }
    }

    fn note_emptied(&mut self, emptied: &Emptied) -> Result<(), Errno> {
        if !emptied.shown.is_empty() {
            tracing::error!(
                "{} pages that moved can still be read by who could before",
                emptied.shown.len()
            );
            self.hide_segments(&emptied.shown);
        }
        let mut change = Change::new(&mut self.sessions.state);
        for &page in &emptied.fresh {
            if change.state.space.is_used(page) {
                change.set_data_page_used(page, false);
            }
        }
        for &page in &emptied.unbacked {
            if !change.state.space.is_used(page) {
                change.set_data_page_used(page, true);
            }
        }
        match change.is_empty() {
            true => Ok(()),
            false => change.commit(Weight::Fold),
        }
    }

    fn referred(&self) -> Referred {
        let geometry = self.sessions.state.pool.geometry();
        let words = usize::try_from(geometry.page_count().div_ceil(64)).unwrap_or(0);
        let mut referred = Referred {
            pages: vec![0; words],
            places: HashMap::new(),
            is_partial: false,
        };
        let end = self.sessions.state.pool.headers_end() / HEADER_SIZE as u64;
        for number in 1..InodeNumber::try_from(end).unwrap_or(InodeNumber::MAX) {
            let Some(header) = self.sessions.state.header_copy(number) else {
                break;
            };
            let Some(inode) = self.sessions.state.shadow(number) else {
                continue;
            };
            let (page, slot) = place(header.inode);
            *referred.places.entry(page).or_insert(0) |= 1 << slot;
            match contents(&self.sessions.state, inode) {
                Ok(pages) => pages.into_iter().for_each(|page| referred.add(page)),
                Err(errno) => {
                    tracing::error!("inode {number}: what is in it cannot be found: {errno}");
                    referred.is_partial = true;
                }
            }
        }
        referred
    }

    /// Zeroes what is free of a metadata segment of a class.
    fn zero_unused(&self, segment: SegmentNumber, entry: SegmentEntry, referred: &Referred) {
        if entry.class == NOBODY {
            return;
        }
        let geometry = self.sessions.state.pool.geometry();
        let first = geometry.first_page(segment).0;
        for page in (first..first + geometry.pages_per_segment()).map(PagePtr) {
            if !self.sessions.state.space.is_used(page) {
                self.zero(page, 0, PAGE_BYTES);
            } else if let Some(taken) = referred.places.get(&page) {
                for slot in (0..u32::BITS).filter(|slot| taken >> slot & 1 == 0) {
                    self.zero(page, slot as usize * INODE_SIZE, INODE_SIZE);
                }
            }
        }
    }

    fn zero(&self, page: PagePtr, at: usize, length: usize) {
        let Some(offset) = self.sessions.state.pool.mapped_offset(page) else {
            return;
        };
        let words = self.sessions.state.pool.page(page);
        let words = words.and_then(|words| words.get(at / 8..(at + length) / 8));
        let is_zero = |words: &[std::sync::atomic::AtomicU64]| {
            words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
        };
        if words.is_none_or(is_zero) {
            return;
        }
        let zeroes = [0u8; PAGE_BYTES];
        let memory = self.sessions.state.pool.space();
        // In range: the segment is mapped.
        if let Some(dirty) = memory.write(offset + at, &zeroes[..length]) {
            self.sessions.state.journal.await_fence(dirty.flush());
        }
        let written = memory.slice(offset + at, length);
        if let Some(Err(errno)) = written.map(|range| self.sessions.state.pool.write_back(range)) {
            tracing::error!("writing back what was zeroed: {errno}");
        }
    }

    /// Punches what nothing refers to in a data segment: of a class all of it, else what is marked
    /// as in use.
    fn punch_unused(
        &self,
        segment: SegmentNumber,
        entry: SegmentEntry,
        referred: &Referred,
        emptied: &mut Emptied,
    ) {
        let geometry = self.sessions.state.pool.geometry();
        let first = geometry.first_page(segment).0;
        let is_wanted = |page: &PagePtr| match self.sessions.state.space.is_used(*page) {
            true => !referred.is_partial && !referred.has(*page),
            false => entry.class != NOBODY,
        };
        let pages: Vec<PagePtr> = (first..first + geometry.pages_per_segment())
            .map(PagePtr)
            .filter(is_wanted)
            .collect();
        if pages.is_empty() {
            return;
        }
        let name = numbered(layout::SEGMENTS, segment);
        let was_sent = !matches!(entry.uid, CONTROLLER | HIDDEN);
        if was_sent && (entry.owner != 0 || self.sessions.state.pool.reach(&name) != Reach::Nobodys)
        {
            // Of what is together nobody gets what is free but the same file.
            if entry.flags & TOGETHER != 0 {
                emptied.fresh.extend(pages);
            }
            return;
        }
        let file = match self.sessions.state.pool.open_file(&name, OFlags::RDWR) {
            Ok(file) => file,
            Err(errno) => {
                tracing::error!("segment {segment}: what a crash left in it stays: {errno}");
                emptied.shown.extend(pages);
                return;
            }
        };
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let runs: Vec<&[PagePtr]> = pages.chunk_by(|a, b| a.0 + 1 == b.0).collect();
        let range = |run: &[PagePtr]| {
            let at = run.first().map_or(0, |page| page.address()) % geometry.segment_size;
            (at, run.len() as u64 * PAGE_SIZE)
        };
        // All of them before any is allocated again, which is what can fail.
        let (punched, shown): (Vec<&[PagePtr]>, Vec<&[PagePtr]>) = runs.iter().partition(|run| {
            let (at, length) = range(run);
            let done = rustix::fs::fallocate(&file, punch, at, length).is_ok();
            if done {
                crate::pool::files::punched(&file, at, length);
            }
            done
        });
        emptied.shown.extend(shown.concat());
        for run in punched {
            let (at, length) = range(run);
            match allocate(&file, at, length) {
                Ok(()) => emptied.fresh.extend(run),
                Err(_) => emptied.unbacked.extend(run),
            }
        }
    }
}
