//! Free delta pages of the arena, and its growth.
//!
//! # Invariants
//! * A delta page is handed out once until it is given back; it is given back when the branch
//!   that led to it does not exist any more (its fold number has passed) or no longer does.
//! * Pages that may hold what adds to the verified state are no more than the session's credits (see
//!   `delta_credits` in [`arck_protocol::control`]): an operation that has succeeded can be folded.
//!   A page is counted before the credits are looked at for the last time.
//! * A page whose bit is set in `clean` is zero behind its first line, durably: it held a small file's index
//!   ([`ArenaPages::release_front`]), and nobody has had it since.
//! * Only allocated parts of the arena are handed out: touching others could hit a full file
//!   system.

use crate::carried::Carried;
use crate::need::Need;
use crate::region::ThreadSlot;
use crate::session::Session;
use crate::state::arena_pages::WORDS;

pub use crate::state::arena_pages::ArenaPages;
use arck_core_state::PAGE_SIZE;
use arck_core_state::arena::{ARENA_PAGES, BRANCH_PAGES, BRANCHES_PER_PAGE, DELTA_FIRST};
use arck_protocol::Request;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Pages of 2 MiB, which may be one huge page, and begin where that does in the file.
const HUGE: u32 = 512;
/// Delta pages asked for at once, at least; then as many as end with a huge page.
const DELTA_STEP: u32 = 128;
/// Branch pages asked for at once, while there are few: 2,048 branches.
const BRANCH_STEP: u32 = 64;
/// So many are few.
const BRANCHES_FEW: u32 = 2 * BRANCH_STEP;

/// How many pages there are to be of a part that begins at page `first`, so that there are `least`, and the last one
/// ends a huge page.
fn to_huge_page(first: u32, least: u32) -> u32 {
    (first + least).next_multiple_of(HUGE) - first
}

/// Delta pages that the session may use for what adds to the verified state. Acquire: who has seen
/// a fold sees the credits without what was folded.
fn credits(session: &Session) -> u64 {
    session
        .control()
        .header
        .delta_credits
        .load(Ordering::Acquire)
}

impl ArenaPages {
    /// In a new build of the auxiliary state, when no delta is left but those that go on: all
    /// other pages are free. ENOMEM.
    pub fn begin_again(
        &self,
        session: &Session,
        slot: &ThreadSlot<'_>,
        carried: &Carried,
    ) -> Result<(), Errno> {
        self.lock.reset();
        let (delta_pages, branch_pages) = (&self.delta_pages, &self.branch_pages);
        let allocated = [delta_pages, branch_pages].map(|pages| pages.load(Ordering::Relaxed));
        self.begin(session.region(), slot, session.welcome())?;
        delta_pages.store(allocated[0], Ordering::Relaxed);
        branch_pages.store(allocated[1], Ordering::Relaxed);
        self.hint.store(0, Ordering::Relaxed);
        let bits = self.words(slot);
        let pages = carried.delta_pages.iter();
        for page in pages.filter_map(|page| page.checked_sub(DELTA_FIRST)) {
            if let Some(word) = bits.get((page / 64) as usize) {
                word.fetch_or(1 << (page % 64), Ordering::Relaxed);
            }
        }
        let used = carried.delta_pages.len() as i64 - self.used() as i64;
        self.count(session, used);
        Ok(())
    }

    fn words<'s>(&self, slot: &ThreadSlot<'s>) -> &'s [AtomicU64] {
        slot.region()
            .get_slice(self.taken.load(Ordering::Acquire), WORDS)
    }

    /// The word of a page in `clean`, and its bit there.
    fn clean_bit<'s>(&self, slot: &ThreadSlot<'s>, page: u32) -> Option<(&'s AtomicU64, u64)> {
        let index = page.checked_sub(DELTA_FIRST)?;
        let words = slot
            .region()
            .get_slice(self.clean.load(Ordering::Acquire), WORDS);
        Some((words.get((index / 64) as usize)?, 1 << (index % 64)))
    }

    /// A delta page, by its number in the arena, for what may add names or pages to the verified
    /// state.
    pub fn take(&self, session: &Session, slot: &ThreadSlot<'_>) -> Result<u32, Need> {
        Ok(self.take_for_index(session, slot)?.0)
    }

    /// The same, and whether the page is zero behind its first line.
    pub fn take_for_index(
        &self,
        session: &Session,
        slot: &ThreadSlot<'_>,
    ) -> Result<(u32, bool), Need> {
        let taken = self.take_within_credits(session, slot)?;
        session.bring_arena_near(u64::from(taken.0) * PAGE_SIZE);
        Ok(taken)
    }

    fn take_within_credits(
        &self,
        session: &Session,
        slot: &ThreadSlot<'_>,
    ) -> Result<(u32, bool), Need> {
        let _locked = self.lock.lock(slot.holder());
        if self.used() >= credits(session) {
            return Err(Need::Credits(1));
        }
        let (page, is_clean) = self.take_any(session, slot)?;
        if self.used() > credits(session) {
            // Credits was taken back while the page was counted.
            self.put_back(session, slot, page);
            return Err(Need::Credits(1));
        }
        Ok((page, is_clean))
    }

    /// A delta page for what takes names away, which must be possible where there is no credits at
    /// all; and whether there is credits for it to hold what adds something, too.
    pub fn take_for_removal(
        &self,
        session: &Session,
        slot: &ThreadSlot<'_>,
    ) -> Result<(u32, bool), Need> {
        let _locked = self.lock.lock(slot.holder());
        let (page, _) = self.take_any(session, slot)?;
        Ok((page, self.used() <= credits(session)))
    }

    /// A page, counted, and whether it is clean, which it is not from now on. Under the lock.
    fn take_any(&self, session: &Session, slot: &ThreadSlot<'_>) -> Result<(u32, bool), Need> {
        let limit = self.delta_pages.load(Ordering::Relaxed);
        let bits = self.words(slot);
        let words = (limit as usize).div_ceil(64);
        let hint = self.hint.load(Ordering::Relaxed) as usize;
        for step in 0..words {
            let index = (hint + step) % words;
            let taken = bits
                .get(index)
                .ok_or(Need::ArenaPages(1))?
                .load(Ordering::Acquire);
            let bit = taken.trailing_ones();
            let page = index as u32 * 64 + bit;
            if bit < 64 && page < limit {
                bits[index].store(taken | 1 << bit, Ordering::Relaxed);
                self.hint.store(index as u32, Ordering::Relaxed);
                self.count(session, 1);
                debug_assert!(
                    self.used() <= u64::from(limit),
                    "more in use than there are"
                );
                session.barrier().between();
                let (clean, bit) = self
                    .clean_bit(slot, DELTA_FIRST + page)
                    .ok_or(Need::ArenaPages(1))?;
                let before = clean.load(Ordering::Relaxed);
                clean.store(before & !bit, Ordering::Relaxed);
                return Ok((DELTA_FIRST + page, before & bit != 0));
            }
        }
        Err(Need::ArenaPages(1))
    }

    /// Asks for credits for so many pages more; `pressing`: this session has just folded. Outside of
    /// operations. ENOSPC.
    pub fn ask_for_credits(
        &self,
        session: &Session,
        pages: u32,
        pressing: bool,
    ) -> Result<(), Errno> {
        session.ask(&Request::MoreCredits { pages, pressing })
    }

    /// Under the lock.
    fn count(&self, session: &Session, by: i64) {
        let used = self.used().wrapping_add_signed(by);
        self.used.store(used, Ordering::Relaxed);
        let header = &session.control().header;
        header.delta_used.store(used, Ordering::Release);
    }

    /// Gives a page back.
    pub fn release(&self, session: &Session, slot: &ThreadSlot<'_>, page: u32) {
        let _locked = self.lock.lock(slot.holder());
        self.put_back(session, slot, page);
    }

    /// Gives the page of an index back that had entries in its first line alone, and was durable.
    pub fn release_front(&self, session: &Session, slot: &ThreadSlot<'_>, page: u32) {
        let _locked = self.lock.lock(slot.holder());
        if let Some((clean, bit)) = self.clean_bit(slot, page) {
            clean.store(clean.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        }
        self.put_back(session, slot, page);
    }

    /// Under the lock.
    fn put_back(&self, session: &Session, slot: &ThreadSlot<'_>, page: u32) {
        let Some(index) = page.checked_sub(DELTA_FIRST) else {
            return;
        };
        if let Some(word) = self.words(slot).get((index / 64) as usize) {
            let taken = word.load(Ordering::Relaxed);
            debug_assert!(
                taken & 1 << (index % 64) != 0,
                "arena page {page} is free already"
            );
            word.store(taken & !(1 << (index % 64)), Ordering::Release);
            self.count(session, -1);
        }
    }

    /// Whether so many pages are left of those that the arena has allocated.
    pub fn has_free(&self, pages: u32) -> bool {
        self.used() + u64::from(pages) <= u64::from(self.delta_pages.load(Ordering::Relaxed))
    }

    /// Pages of the branch table, and delta pages, that are allocated.
    pub fn allocated(&self) -> (u32, u32) {
        let of = |pages: &AtomicU32| pages.load(Ordering::Acquire);
        (of(&self.branch_pages), of(&self.delta_pages))
    }

    /// Delta pages in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// That branch `slot` lies in the allocated part of the table.
    #[inline(always)]
    pub fn expect_branch(&self, slot: u32) -> Result<(), Need> {
        match slot < self.branch_pages.load(Ordering::Acquire) * BRANCHES_PER_PAGE {
            true => Ok(()),
            false => Err(Need::BranchSlot(slot)),
        }
    }

    /// More delta pages. Outside of operations. ENOSPC.
    pub fn grow(&self, session: &Session) -> Result<(), Errno> {
        let delta_pages = self.delta_pages.load(Ordering::Relaxed);
        let wanted =
            to_huge_page(DELTA_FIRST, delta_pages + DELTA_STEP).min(ARENA_PAGES - DELTA_FIRST);
        if wanted == delta_pages {
            return Err(Errno::NOSPC);
        }
        session.ask(&Request::GrowArena {
            branch_pages: 0,
            delta_pages: wanted,
        })?;
        session.reach_arena_pages(0, wanted)?;
        let first = u64::from(DELTA_FIRST + delta_pages) * PAGE_SIZE;
        session.populate_arena(first, u64::from(wanted - delta_pages) * PAGE_SIZE);
        self.delta_pages.fetch_max(wanted, Ordering::Release);
        Ok(())
    }

    /// More branches, so that `slot` is usable. Outside of operations. ENOSPC.
    pub fn grow_branches(&self, session: &Session, slot: u32) -> Result<(), Errno> {
        let page = slot / BRANCHES_PER_PAGE + 1;
        let wanted = match page {
            0..=BRANCHES_FEW => page.next_multiple_of(BRANCH_STEP),
            _ => to_huge_page(1, page),
        };
        let wanted = wanted.min(BRANCH_PAGES);
        if page > BRANCH_PAGES {
            return Err(Errno::NOSPC);
        }
        let before = self.branch_pages.load(Ordering::Relaxed);
        session.ask(&Request::GrowArena {
            branch_pages: wanted,
            delta_pages: 0,
        })?;
        session.reach_arena_pages(wanted, 0)?;
        let length = u64::from(wanted.saturating_sub(before)) * PAGE_SIZE;
        session.populate_arena((1 + u64::from(before)) * PAGE_SIZE, length);
        self.branch_pages.fetch_max(wanted, Ordering::Release);
        Ok(())
    }
}
