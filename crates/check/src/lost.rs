//! Data that is gone because the file of its segment is, or the end of it; and whose it was.
//!
//! # Invariants
//! * A segment in which nothing is needs no file: where no room was left for a new one, it has none.
//! * One finding for an inode and a segment, however many pages it had there.

use crate::finding::{Finding, Place, Rule};
use crate::memory;
use crate::pool::{Pool, segment_name};
use crate::shared::lock;
use arck_controller_state::segments::SegmentKind;
use arck_core_state::{InodeNumber, PAGE_SIZE, PagePtr, SegmentNumber};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// A file of data that is not what it has to be.
pub(crate) struct File {
    /// Bytes of it, or why they cannot be told.
    has: Result<u64, Errno>,
    /// Bytes that it has to have.
    wanted: u64,
    /// Pages of it in use.
    used: u64,
}

/// What is wrong with a segment's file; `None` for segments of anything but data, and if nothing is.
pub(crate) fn of(pool: &Pool, segment: SegmentNumber) -> Option<File> {
    let entry = pool.segment_entry(segment);
    if entry.kind() != SegmentKind::Data {
        return None;
    }
    let (mut used, mut wanted) = (0, 0);
    let first = pool.geometry.first_page(segment).0 / 64;
    for index in 0..pool.geometry.pages_per_segment() / 64 {
        let bits = pool.bits(first + index);
        used += u64::from(bits.count_ones());
        if bits != 0 {
            wanted = (index * 64 + 64 - u64::from(bits.leading_zeros())) * PAGE_SIZE;
        }
    }
    let status = memory::open(&pool.directory, &segment_name(segment)).and_then(rustix::fs::fstat);
    let has = status.map(|status| u64::try_from(status.st_size).unwrap_or(0));
    let is_well = match has {
        Ok(has) => has >= wanted,
        Err(errno) => errno == Errno::NOENT && wanted == 0 && entry.owner == 0,
    };
    (!is_well).then_some(File { has, wanted, used })
}

impl File {
    /// In words.
    pub fn detail(&self) -> String {
        let File { has, wanted, used } = self;
        match has {
            Err(Errno::NOENT) if *used == 1 => "is missing, and a page of it is in use".into(),
            Ok(has) => format!("has {has} bytes, and {wanted} are in use"),
            Err(Errno::NOENT) => format!("is missing, and {used} pages of it are in use"),
            Err(errno) => format!("cannot be opened: {}", crate::error::plain(*errno)),
        }
    }
}

/// Files of data that are not what they have to be, and who had what in them.
pub(crate) struct Lost {
    /// Bytes of each.
    files: BTreeMap<SegmentNumber, u64>,
    /// Pages, and the first of them.
    pages: Mutex<BTreeMap<(InodeNumber, SegmentNumber), (u64, PagePtr)>>,
}

impl Lost {
    /// `None` if there are none.
    pub fn of(pool: &Pool) -> Option<Lost> {
        let segments = 0..pool.geometry.segment_count;
        let files = segments.filter_map(|segment| {
            let file = of(pool, segment)?;
            Some((segment, file.has.unwrap_or(0)))
        });
        let files: BTreeMap<_, _> = files.collect();
        let pages = Mutex::default();
        (!files.is_empty()).then_some(Lost { files, pages })
    }

    /// An inode has a page.
    pub fn note(&self, pool: &Pool, number: InodeNumber, page: PagePtr) {
        if !pool.geometry.contains(page) {
            return;
        }
        let segment = pool.geometry.segment_of(page);
        let end = (page.0 - pool.geometry.first_page(segment).0 + 1) * PAGE_SIZE;
        if self.files.get(&segment).is_some_and(|&has| has < end) {
            let mut pages = lock(&self.pages);
            let (count, first) = pages.entry((number, segment)).or_insert((0, page));
            *count += 1;
            *first = (*first).min(page);
        }
    }

    /// Whose pages are gone.
    pub fn findings(&self, pool: &Pool) -> Vec<Finding> {
        let pages = std::mem::take(&mut *lock(&self.pages));
        let told = pages.into_iter().map(|((number, segment), (count, page))| {
            let at = (page.0 - pool.geometry.first_page(segment).0) * PAGE_SIZE;
            let what = match count {
                1 => "a page of it was".to_owned(),
                _ => format!("{count} pages of it were"),
            };
            Finding {
                rule: Rule::Files,
                inode: Some(number),
                path: None,
                place: Place::Segment(segment, at),
                detail: format!("{what} in what is missing"),
            }
        });
        told.collect()
    }
}
