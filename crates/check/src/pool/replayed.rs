//! What the journal's last entry changes: words that lie over those in the files.
//!
//! # Invariants
//! * Over a word that is in place lies nothing.
//! * A record that addresses what is not there lies over nothing.

use arck_controller_state::header_runs::{HEADER_RUN_SIZE, HeaderRun};
use arck_controller_state::journal::{self, Record, Target};
use arck_controller_state::sessions::TABLE_SIZE;
use arck_core_state::header::{HEADER_SIZE, INODE_OFFSET, OWNERSHIP_OFFSET};
use arck_core_state::{Geometry, InodeNumber, Ownership, PAGE_SIZE, PagePtr, PageWords};
use foldhash::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is in place.
pub(super) trait Beneath {
    fn geometry(&self) -> &Geometry;
    /// A word of the header table, by byte offset.
    fn header_word(&self, at: u64) -> u64;
    fn bitmap_word(&self, at: u64) -> u64;
    fn page_beneath(&self, page: PagePtr) -> Option<&PageWords>;
}

/// Words of tables, by byte offset, and pages, as the entry leaves them.
#[derive(Default)]
pub(super) struct Replayed {
    headers: HashMap<u64, u64>,
    bitmap: HashMap<u64, u64>,
    pages: HashMap<u64, Box<PageWords>>,
    sessions: Vec<(u64, u64)>,
    /// Numbers of headers that it changes.
    pub numbers: Vec<Range<InodeNumber>>,
}

/// Words by their places.
pub(crate) type Words = Vec<(u64, u64)>;

impl Replayed {
    pub fn header_word(&self, at: u64) -> Option<u64> {
        word(&self.headers, at)
    }

    pub fn bitmap_word(&self, at: u64) -> Option<u64> {
        word(&self.bitmap, at)
    }

    pub fn page(&self, page: PagePtr) -> Option<&PageWords> {
        if self.pages.is_empty() {
            return None;
        }
        self.pages.get(&page.0).map(AsRef::as_ref)
    }

    /// Lays a record over what is in place; gives the number of words that differ. `None`: it
    /// addresses what is not there.
    pub fn lay(&mut self, beneath: &impl Beneath, record: &Record<'_>) -> Option<u64> {
        if record.target == Target::HeaderRuns {
            if !record.bytes.len().is_multiple_of(HEADER_RUN_SIZE) {
                return None;
            }
            let runs = journal::runs(record.bytes);
            return runs.map(|run| self.lay_run(beneath, &run)).sum();
        }
        let (words, rest) = record.bytes.as_chunks::<8>();
        if !rest.is_empty() || !record.offset.is_multiple_of(8) {
            return None;
        }
        let geometry = beneath.geometry();
        let mut late = 0;
        for (index, &word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(word);
            let at = record.offset.checked_add(index as u64 * 8)?;
            match record.target {
                Target::Headers => {
                    (at < geometry.header_table_size()).then_some(())?;
                    late += self.lay_in_header(beneath, at, word)?;
                }
                Target::Bitmap => {
                    (at < geometry.page_bitmap_size()).then_some(())?;
                    if beneath.bitmap_word(at) != word {
                        self.bitmap.insert(at, word);
                        late += 1;
                    }
                }
                // Segments are looked at before; runs of headers above.
                Target::Segments | Target::HeaderRuns => {}
                // Says nothing of what is stored: which requests were done.
                Target::Sessions => {
                    (at < TABLE_SIZE).then_some(())?;
                    self.sessions.push((at, word));
                }
                Target::Sequences => {
                    (word < u64::from(geometry.inode_count)).then_some(())?;
                }
                Target::Pages => late += self.lay_in_page(beneath, at, word)?,
            }
        }
        Some(late)
    }

    fn lay_run(&mut self, beneath: &impl Beneath, run: &HeaderRun) -> Option<u64> {
        run.is_within(beneath.geometry().inode_count)
            .then_some(())?;
        let mut late = 0;
        for (number, words) in run.headers() {
            let first = u64::from(number) * HEADER_SIZE as u64 + INODE_OFFSET;
            for (at, word) in (first..).step_by(8).zip(words) {
                late += self.lay_in_header(beneath, at, word)?;
            }
        }
        Some(late)
    }

    /// A word of the table of headers.
    fn lay_in_header(&mut self, beneath: &impl Beneath, at: u64, word: u64) -> Option<u64> {
        let old = beneath.header_word(at);
        // The last bits of an ownership change without the journal.
        let is_owner = at % HEADER_SIZE as u64 == OWNERSHIP_OFFSET;
        if old == word || (is_owner && Ownership(old).bare() == Ownership(word).bare()) {
            return Some(0);
        }
        self.headers.insert(at, word);
        let number = InodeNumber::try_from(at / HEADER_SIZE as u64).ok()?;
        self.numbers.push(number..number + 1);
        Some(1)
    }

    fn lay_in_page(&mut self, beneath: &impl Beneath, at: u64, word: u64) -> Option<u64> {
        let page = PagePtr::of_address(at);
        let slot = (at % PAGE_SIZE / 8) as usize;
        let words = beneath.page_beneath(page)?;
        if words[slot].load(Ordering::Relaxed) == word {
            return Some(0);
        }
        let copy = || {
            let word = |slot: usize| AtomicU64::new(words[slot].load(Ordering::Relaxed));
            Box::new(std::array::from_fn(word))
        };
        let over = self.pages.entry(page.0).or_insert_with(copy);
        over[slot].store(word, Ordering::Relaxed);
        Some(1)
    }

    /// All of it but the segment table, in the order in which it is applied.
    pub fn words(&self) -> Vec<(Target, Words)> {
        let sorted = |words: &HashMap<u64, u64>| {
            let mut words: Words = words.iter().map(|(&at, &word)| (at, word)).collect();
            words.sort_unstable();
            words
        };
        let mut pages = Words::new();
        for (&page, words) in &self.pages {
            let places = (PagePtr(page).address()..).step_by(8);
            pages.extend(places.zip(words.iter().map(|word| word.load(Ordering::Relaxed))));
        }
        pages.sort_unstable();
        vec![
            (Target::Headers, sorted(&self.headers)),
            (Target::Bitmap, sorted(&self.bitmap)),
            (Target::Pages, pages),
            (Target::Sessions, self.sessions.clone()),
        ]
    }
}

/// Mostly there is none.
fn word(words: &HashMap<u64, u64>, at: u64) -> Option<u64> {
    if words.is_empty() {
        return None;
    }
    words.get(&at).copied()
}
