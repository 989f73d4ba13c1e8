//! A live map, or a part of one: where it is, and what of which file it shows.

use super::places::{self as placed, Places};
use arck_libfs_kit::Session;
use arck_libfs_kit::format::{InodeNumber, PAGE_SIZE};
use arck_libfs_kit::memory::placing::Protection;
use arck_libfs_kit::views::CachedInode;
use arck_libfs_kit::views::open::Listed;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub const WRITE: Protection = libc::PROT_WRITE as Protection;
pub const READ: Protection = libc::PROT_READ as Protection;
pub const PAGE: usize = PAGE_SIZE as usize;

pub(super) fn address_of(session: &Session) -> usize {
    std::ptr::from_ref(session) as usize
}

/// One opening of an inode, shared by the parts of a map that was cut up.
pub struct Listing {
    pub number: InodeNumber,
    pub generation: u32,
    /// Address of the session in which it is listed.
    pub(super) session: AtomicUsize,
    /// See [`Listed::counted_in`].
    pub(super) counted_in: AtomicU64,
}

impl Listing {
    pub fn listed(&self) -> Listed {
        Listed {
            number: self.number,
            generation: self.generation,
            counted_in: self.counted_in.load(Ordering::Relaxed),
        }
    }

    /// It has been listed in this build of the auxiliary state.
    pub fn count_in(&self, build: u64) {
        self.counted_in.store(build, Ordering::Relaxed);
    }

    pub fn is_of(&self, session: &Session) -> bool {
        self.session.load(Ordering::Relaxed) == address_of(session)
    }
}

/// A live map, or a part of one.
pub struct Map {
    pub listing: Arc<Listing>,
    /// First address.
    pub start: usize,
    /// First page of the file.
    pub first: u64,
    pub protection: Protection,
    /// MAP_SHARED.
    pub is_shared: bool,
    /// The descriptor allowed writing.
    pub may_write: bool,
    /// Is or was writable.
    pub is_writable: bool,
    /// Made by a parent process, in whose session the pages may be.
    pub is_inherited: bool,
    pub placed: Places,
}

impl Map {
    pub fn new(
        session: &Session,
        inode: (InodeNumber, u32),
        start: usize,
        file_pages: Range<u64>,
        protection: Protection,
    ) -> Map {
        let listing = Listing {
            number: inode.0,
            generation: inode.1,
            session: AtomicUsize::new(address_of(session)),
            counted_in: AtomicU64::new(0),
        };
        Map {
            listing: Arc::new(listing),
            start,
            first: file_pages.start,
            protection,
            is_shared: true,
            may_write: false,
            is_writable: false,
            is_inherited: false,
            placed: Places::new(file_pages.end - file_pages.start),
        }
    }

    pub fn addresses(&self) -> Range<usize> {
        self.start..self.start + self.placed.len() * PAGE
    }

    pub fn file_pages(&self) -> Range<u64> {
        self.first..self.first + self.placed.len() as u64
    }

    pub(super) fn is_of(&self, session: &Session, inode: &CachedInode) -> bool {
        self.listing.number == inode.number() && self.listing.is_of(session)
    }

    /// Bytes from the start on up to where nothing is.
    pub fn filled(&self) -> usize {
        let mut runs = self.placed.runs();
        let nothing = runs.find(|&(_, value, _)| value == placed::NOTHING);
        nothing.map_or(self.placed.len(), |(first, ..)| first as usize) * PAGE
    }

    /// In bytes from the start, where something other than zeroes may stand before
    /// [`Map::filled`].
    pub fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        let end = self.filled() as u64;
        self.placed
            .runs()
            .filter(|&(_, value, _)| value != placed::HOLE)
            .map(move |(first, _, pages)| {
                let to = ((first + pages) * PAGE_SIZE).min(end);
                (first * PAGE_SIZE).min(to) as usize..to as usize
            })
    }

    /// A map that was never placed, without its first `length` bytes.
    pub fn rest_of(mut self, length: usize) -> Map {
        self.split_off(self.start + length)
    }

    /// Keeps the pages before `at` (an address inside) and gives the rest.
    pub(super) fn split_off(&mut self, at: usize) -> Map {
        let pages = ((at - self.start) / PAGE) as u64;
        Map {
            listing: self.listing.clone(),
            start: at,
            first: self.first + pages,
            placed: self.placed.split_off(pages),
            ..*self
        }
    }

    pub(super) fn joins(&self, next: &Map) -> bool {
        self.addresses().end == next.start
            && self.file_pages().end == next.first
            && self.listing.number == next.listing.number
            && self.listing.session.load(Ordering::Relaxed)
                == next.listing.session.load(Ordering::Relaxed)
            && (self.protection, self.is_shared) == (next.protection, next.is_shared)
            && (self.may_write, self.is_writable) == (next.may_write, next.is_writable)
            && self.is_inherited == next.is_inherited
    }
}
