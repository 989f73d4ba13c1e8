//! Credits for folds: metadata pages kept free for what sessions have in their deltas.
//!
//! A LibFS changes names and files in its arena without asking, and the fold that follows needs
//! metadata pages. So each session has *credits*: the number of delta pages that it may fill with
//! what adds to the verified state. It stands in control memory, is compared when the session
//! takes a delta page, and is granted by message.
//!
//! # Invariants
//! * For every session, delta pages whose folds may take metadata pages are no more than its
//!   credits. The session counts a page before it looks at its credits for the last time; here the credits
//!   are lowered, the heavy barrier issued, and then the count is read. So either the session sees
//!   the lower credits and gives the page back, or the page is seen here.
//! * A fold takes with it the credits of what it folds, and says so before the fold number by which
//!   the session learns that those pages are free.
//! * Free metadata pages are never fewer than [`PAGES_PER_DELTA_PAGE`] for each page of credits, and
//!   those promised to granted inode numbers: whatever else takes metadata pages or segments asks
//!   [`Owners::make_spare`](crate::ownership::Owners::make_spare) first. So what has succeeded can be folded.
//! * No session has more credits than [`CREDITS_MAX`], and no fold takes more than [`PAGES_AT_ONCE`].
//! * A session that says that it uses more than it does keeps no more than its credits; one that
//!   fills more than its credits are folded only as far as that leaves the credits of others.

use crate::pool::files::Pool;
use crate::sessions::Sessions;
use crate::sessions::session::Session;
use crate::state::marks::heavy_barrier;
use arck_controller_state::sessions as session_table;
use arck_core_state::geometry::SessionNumber;
use std::sync::atomic::Ordering;

/// Metadata pages that folding one delta page may take, without splits of buckets: an overflow
/// page for each of the at most 31 records that it holds. A page of a file's index takes at most
/// one, and the way to it from a higher root.
const PAGES_WITHOUT_SPLITS: u64 = 32;
/// Metadata pages for splits of buckets that there are for each delta page at least.
const PAGES_FOR_SPLITS: u64 = 8;
/// Metadata pages kept free for each delta page of credits.
pub const PAGES_PER_DELTA_PAGE: u64 = PAGES_WITHOUT_SPLITS + PAGES_FOR_SPLITS;

/// Delta pages granted at once, where there is plenty.
pub const CREDITS_STEP: u64 = 512;
/// Delta pages of credits that a session has at most: who needs more folds first. As with the arena that a
/// LibFS lets grow so far before it folds, what is pending is bounded, and so the time of a fold.
const CREDITS_MAX: u64 = 5120;
/// Delta pages that are folded at once: of credits, and a few that only take names away, for which none is
/// needed. Their records, 31 on a page, take a fraction of a second to verify.
pub const PAGES_AT_ONCE: u64 = CREDITS_MAX + 1024;
/// Delta pages that a new session may fill at once, where there is plenty.
const FIRST_CREDITS: u64 = 64;

/// Granted inode numbers for which one more metadata page is kept.
pub const NUMBERS_PER_PAGE: u64 = 32;

/// Metadata pages kept for granted inode numbers: the inodes, and what the controller makes by
/// itself. Their names are in delta pages.
fn promised_pages(numbers: u64) -> u64 {
    16 + numbers / NUMBERS_PER_PAGE
}

impl Session {
    /// Delta pages that it may fill with what adds to the verified state.
    pub fn credits(&self) -> u64 {
        self.credits
    }

    /// The pool's session table says it too, for a controller that comes after this one.
    pub fn set_credits(&mut self, pool: &Pool, pages: u64) {
        debug_assert!(pages <= CREDITS_MAX, "{pages} credits");
        self.credits = pages;
        let entry = session_table::entry_offset(self.index);
        // In range: the session has its place there.
        let _ = pool.session_table().store_u64(
            entry + session_table::CREDITS_OFFSET,
            pages,
            Ordering::Release,
        );
        if let Some(live) = &self.live {
            let credits = &live.control().header.delta_credits;
            credits.store(pages, Ordering::SeqCst);
        }
    }

    /// Delta pages that it says it uses; no more than it has.
    fn used(&self) -> u64 {
        let most = u64::from(self.arena.pages().1);
        self.live.as_ref().map_or(most, |live| {
            let used = live.control().header.delta_used.load(Ordering::SeqCst);
            used.min(most)
        })
    }
}

impl Sessions {
    /// Metadata pages that are kept for what sessions other than `session` have in their deltas,
    /// and for granted numbers.
    pub fn kept_for_others(&self, session: SessionNumber) -> u64 {
        let others = self.all.values().filter(|s| s.number != session);
        let credits: u64 = others.map(Session::credits).sum();
        promised_pages(self.state.granted).saturating_add(credits * PAGES_PER_DELTA_PAGE)
    }

    /// Metadata pages that are kept.
    pub fn kept_pages(&self) -> u64 {
        // No session has the number 0.
        self.kept_for_others(0)
    }

    pub fn spare_pages(&self) -> u64 {
        let free = self.state.space.metadata_headroom();
        free.saturating_sub(self.kept_pages())
    }

    /// Metadata pages that a fold of so many delta pages of a session may use for splits.
    pub fn pages_for_splits(&self, session: SessionNumber, delta_pages: u64) -> u64 {
        let least = delta_pages * PAGES_FOR_SPLITS;
        if self.recovering {
            // What the other sessions left is not known yet.
            return least;
        }
        let free = self.state.space.metadata_headroom();
        // What is kept for this session is five times this, and needed for the most part.
        least.max(free.saturating_sub(self.kept_for_others(session)) / 8)
    }

    /// Credits for a new session's first changes, if there is plenty.
    pub fn give_first_credits(&mut self, session: SessionNumber) {
        let plenty = self.spare_pages() / PAGES_PER_DELTA_PAGE / 4;
        if let Some(session) = self.all.get_mut(&session) {
            session.set_credits(&self.state.pool, plenty.min(FIRST_CREDITS));
        }
    }

    /// Metadata pages that granting so many more numbers promises.
    pub fn pages_for_numbers(&self, count: u64) -> u64 {
        let granted = self.state.granted;
        promised_pages(granted + count) - promised_pages(granted)
    }

    /// Takes back the credits that sessions do not use.
    pub fn lower_credits(&mut self) {
        let mut lowered = Vec::new();
        for session in self.all.values_mut().filter(|s| s.live.is_some()) {
            let (credits, used) = (session.credits(), session.used());
            if used < credits {
                session.set_credits(&self.state.pool, used);
                lowered.push((session.number, credits));
            }
        }
        if lowered.is_empty() {
            return;
        }
        heavy_barrier();
        for (number, before) in lowered {
            if let Some(session) = self.all.get_mut(&number) {
                let used = session.used().min(before);
                let credits = session.credits().max(used);
                session.set_credits(&self.state.pool, credits);
            }
        }
    }

    /// Gives a session that fills much the credits for as much again, so that it need not ask and wait: where there
    /// is plenty.
    pub fn keep_in_credits(&mut self, number: SessionNumber) {
        let plenty = self.spare_pages() / PAGES_PER_DELTA_PAGE / 8;
        if !self.recovering && plenty >= CREDITS_STEP {
            self.raise_credits(number, 1);
        }
    }

    /// Raises a session's credits, at best by a step; false if it cannot fill `pages` more than it
    /// says it has filled.
    pub fn raise_credits(&mut self, number: SessionNumber, pages: u64) -> bool {
        let spare = self.spare_pages() / PAGES_PER_DELTA_PAGE;
        // The last of it is for whoever asks first.
        let share = match self.all.len() {
            1 => spare,
            _ => (spare / 2).max(spare.min(pages)),
        };
        let Some(session) = self.all.get_mut(&number) else {
            return false;
        };
        let (credits, used) = (session.credits(), session.used());
        let raised = (used + CREDITS_STEP).min(credits + share).min(CREDITS_MAX);
        if raised > credits {
            session.set_credits(&self.state.pool, raised);
            debug_assert!(
                self.kept_pages() <= self.state.space.metadata_headroom(),
                "more is promised than there is"
            );
        }
        let Some(session) = self.all.get(&number) else {
            return false;
        };
        session.credits() >= used + pages
    }
}
