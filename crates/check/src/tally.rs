//! What inodes add up to: tables of atomics that threads fill together.

use crate::classes::labels::Labels;
use crate::finding::Finding;
use crate::inode::Use;
use crate::lost::Lost;
use crate::pool::Pool;
use crate::report::Options;
use crate::shared::lock;
use arck_core_state::{InodeNumber, PagePtr};
use foldhash::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Bits of what is known of a number.
pub(crate) const ALIVE: u8 = 1;
pub(crate) const DIRECTORY: u8 = 2;
pub(crate) const ORPHAN: u8 = 4;

/// What the inodes add up to.
pub(crate) struct Tally<'a> {
    pub pool: &'a Pool,
    /// The numbers that are looked at.
    pub numbers: Vec<Range<InodeNumber>>,
    /// The page bitmap as it was when the inodes were read.
    pub marked: Option<Vec<u64>>,
    /// Pages that one inode has.
    pub used: Vec<AtomicU64>,
    /// Pages that hold inodes.
    pub inode_pages: Vec<AtomicU64>,
    /// Of each number: what it is, its link count, the names that lead to it, and, of a
    /// directory, its parent.
    pub kinds: Vec<AtomicU8>,
    pub links: Vec<AtomicU32>,
    pub names: Vec<AtomicU32>,
    pub parents: Vec<AtomicU32>,
    /// Pages that more than one inode wants.
    pub twice: Mutex<HashSet<PagePtr>>,
    pub findings: Mutex<Vec<Finding>>,
    pub names_seen: AtomicU64,
    /// Where files of data are gone.
    pub lost: Option<Lost>,
    /// Where who may read what is looked at.
    pub labels: Option<Labels>,
    pub stop: &'a AtomicBool,
    pub findings_max: usize,
    pub findings_seen: AtomicU64,
}

pub(crate) fn words<T: Default>(count: u64) -> Vec<T> {
    (0..count).map(|_| T::default()).collect()
}

/// Sets a page's bit; whether it was set before.
pub(crate) fn set(bits: &[AtomicU64], page: PagePtr) -> bool {
    let bit = 1 << (page.0 % 64);
    bits.get((page.0 / 64) as usize)
        .is_none_or(|word| word.fetch_or(bit, Ordering::Relaxed) & bit != 0)
}

impl Tally<'_> {
    /// Keeps a finding, or counts it.
    pub fn keep(&self, finding: Finding) {
        let seen = self.findings_seen.fetch_add(1, Ordering::Relaxed);
        if seen < self.findings_max as u64 {
            lock(&self.findings).push(finding);
        }
    }
}

/// Who has which page.
pub(crate) type Users = HashMap<PagePtr, Vec<(InodeNumber, Use)>>;

/// Nobody wants it to stop.
pub(crate) static NEVER: AtomicBool = AtomicBool::new(false);

impl<'a> Tally<'a> {
    pub fn new(
        pool: &'a Pool,
        numbers: Vec<Range<InodeNumber>>,
        findings: Vec<Finding>,
        options: &Options<'a>,
    ) -> Tally<'a> {
        let end = u64::from(numbers.last().map_or(0, |range| range.end));
        let pages = pool.geometry.page_count().div_ceil(64);
        Tally {
            pool,
            numbers,
            marked: None,
            used: words(pages),
            inode_pages: words(pages),
            kinds: words(end),
            links: words(end),
            names: words(end),
            parents: words(end),
            twice: Mutex::new(HashSet::default()),
            findings_seen: AtomicU64::new(findings.len() as u64),
            findings: Mutex::new(findings),
            names_seen: AtomicU64::new(0),
            lost: Lost::of(pool),
            labels: Labels::of(pool),
            stop: options.stop.unwrap_or(&NEVER),
            findings_max: options.findings_max,
        }
    }

    /// The page bitmap as it was at that moment.
    pub fn set_marked(&mut self, marked: Vec<u64>) {
        self.marked = Some(marked);
    }
}
