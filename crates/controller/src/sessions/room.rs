//! Room for folds: metadata pages kept free for what sessions have in their deltas.
//!
//! A LibFS changes names and files in its arena without asking, and the fold that follows needs
//! metadata pages. So each session has a *room*: the number of delta pages that it may fill with
//! what adds to the verified state. It stands in control memory, is compared when the session
//! takes a delta page, and is granted by message.
//!
//! # Invariants
//! * For every session, delta pages whose folds may take metadata pages are no more than its
//!   room. The session counts a page before it looks at its room for the last time; here the room
//!   is lowered, the heavy barrier issued, and then the count is read. So either the session sees
//!   the lower room and gives the page back, or the page is seen here.
//! * A fold takes with it the room of what it folds, and says so before the fold number by which
//!   the session learns that those pages are free.
//! * Free metadata pages are never fewer than [`PAGES_PER_DELTA_PAGE`] for each page of room, and
//!   those promised to granted inode numbers: whatever else takes metadata pages or segments asks
//!   [`Core::make_spare`] first. So what has succeeded can be folded.
//! * No session has more room than [`ROOM_MAX`], and no fold takes more than [`PAGES_AT_ONCE`].
//! * A session that says that it uses more than it does keeps no more than its room; one that
//!   fills more than its room is folded only as far as that leaves the rooms of others.

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
/// Metadata pages kept free for each delta page of room.
pub const PAGES_PER_DELTA_PAGE: u64 = PAGES_WITHOUT_SPLITS + PAGES_FOR_SPLITS;

/// Delta pages granted at once, where there is plenty.
pub const ROOM_STEP: u64 = 512;
/// Delta pages of room that a session has at most: who needs more folds first. As with the arena that a
/// LibFS lets grow so far before it folds, what is pending is bounded, and so the time of a fold.
const ROOM_MAX: u64 = 5120;
/// Delta pages that are folded at once: of room, and a few that only take names away, for which none is
/// needed. Their records, 31 on a page, take a fraction of a second to verify.
pub const PAGES_AT_ONCE: u64 = ROOM_MAX + 1024;
/// Delta pages that a new session may fill at once, where there is plenty.
const FIRST_ROOM: u64 = 64;

/// Metadata pages kept for granted inode numbers: the inodes, and what the controller makes by
/// itself. Their names are in delta pages.
fn promised_pages(numbers: u64) -> u64 {
    16 + numbers / 32
}

impl Session {
    /// Delta pages that it may fill with what adds to the verified state.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// The pool's session table says it too, for a controller that comes after this one.
    pub fn set_room(&mut self, pool: &Pool, pages: u64) {
        self.room = pages;
        let entry = session_table::entry_offset(self.index);
        // In range: the session has its place there.
        let _ = pool.session_table().store_u64(
            entry + session_table::ROOM_OFFSET,
            pages,
            Ordering::Release,
        );
        if let Some(live) = &self.live {
            let room = &live.control().header.delta_room;
            room.store(pages, Ordering::SeqCst);
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
        let rooms: u64 = others.map(Session::room).sum();
        promised_pages(self.state.granted).saturating_add(rooms * PAGES_PER_DELTA_PAGE)
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

    /// Room for a new session's first changes, if there is plenty.
    pub fn give_first_room(&mut self, session: SessionNumber) {
        let plenty = self.spare_pages() / PAGES_PER_DELTA_PAGE / 4;
        if let Some(session) = self.all.get_mut(&session) {
            session.set_room(&self.state.pool, plenty.min(FIRST_ROOM));
        }
    }

    /// Metadata pages that granting so many more numbers promises.
    pub fn pages_for_numbers(&self, count: u64) -> u64 {
        let granted = self.state.granted;
        promised_pages(granted + count) - promised_pages(granted)
    }

    /// Takes back the room that sessions do not use.
    pub fn lower_rooms(&mut self) {
        let mut lowered = Vec::new();
        for session in self.all.values_mut().filter(|s| s.live.is_some()) {
            let (room, used) = (session.room(), session.used());
            if used < room {
                session.set_room(&self.state.pool, used);
                lowered.push((session.number, room));
            }
        }
        if lowered.is_empty() {
            return;
        }
        heavy_barrier();
        for (number, before) in lowered {
            if let Some(session) = self.all.get_mut(&number) {
                let used = session.used().min(before);
                let room = session.room().max(used);
                session.set_room(&self.state.pool, room);
            }
        }
    }

    /// Raises a session's room, at best by a step; false if it cannot fill `pages` more than it
    /// says it has filled.
    pub fn raise_room(&mut self, number: SessionNumber, pages: u64) -> bool {
        let spare = self.spare_pages() / PAGES_PER_DELTA_PAGE;
        // The last of it is for whoever asks first.
        let share = match self.all.len() {
            1 => spare,
            _ => (spare / 2).max(spare.min(pages)),
        };
        let Some(session) = self.all.get_mut(&number) else {
            return false;
        };
        let (room, used) = (session.room(), session.used());
        let raised = (used + ROOM_STEP).min(room + share).min(ROOM_MAX);
        if raised > room {
            session.set_room(&self.state.pool, raised);
        }
        session.room() >= used + pages
    }
}
