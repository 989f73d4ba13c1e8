//! Folding ahead: a directory that changes much is folded while its owner goes on (DESIGN section 5, *seal*).
//!
//! When a log shard has [`AHEAD`] pages, its directory is to be folded: the request is submitted, and nobody waits for
//! the answer. What the owner does meanwhile goes into another delta. Where that one becomes large, too, the
//! controller is slower than the owner, who then makes short pauses, the longer the larger it is, as stores do that
//! merge sorted files behind their writers: so the time of a fold is bounded, for which others may have to wait, and
//! that of a call. Where that does not help, since the controller does not come to it at all, he waits at [`MOST`] pages
//! until the delta is sealed, not until it is folded.
//!
//! What only takes names away pauses, but does not wait: it must be possible always.
//!
//! Who changes few names in each of many directories has as much to fold. So a directory with a tail waits in a ring, and
//! when the session has [`ALL_AHEAD`] pages of names, those that wait longest are folded together. Their owner may not come
//! back to them: when that is answered their views are brought up to date ([`Need::Refresh`]), which gives their pages
//! back. Where a tree is being removed that comes sooner ([`REMOVED_AHEAD`], [`REMOVED_NEXT`]): those that are gone are
//! folded with the directory that held them, and with each other.
//!
//! # Invariants
//! * One request is under way at a time: see [`changing::ahead`](crate::changing). The ring and what was asked about are
//!   under `ahead_lock`, too.

use super::Context;
use crate::need::{Attempt, Need};
use crate::session::Session;
use crate::state::views::WAITING;
use crate::views::locks::InShard;
use crate::views::refresh::known_in;
use crate::views::{CachedInode, Directory, Shard, Views, flag};
use arck_core_state::InodeNumber;
use arck_protocol::message::INODES_MAX;
use arck_protocol::wait::{now, sleep};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Pages of a directory's shards with which a fold is asked for: four thousand names or so. Small where tests run, so
/// that they meet it.
const AHEAD: u32 = if cfg!(debug_assertions) { 32 } else { 128 };
/// Pages from which on an owner pauses: eight thousand names beside those that are folded, so that who makes fewer runs
/// beside the controller.
const PACED: u32 = if cfg!(debug_assertions) { 48 } else { 256 };
/// Pages at most, before an owner who adds names waits.
const MOST: u32 = if cfg!(debug_assertions) { 512 } else { 1024 };
/// Names of a directory from which on each name of a fold is in another page, so that it takes twice as long.
const LARGE: u32 = if cfg!(debug_assertions) {
    2_000
} else {
    300_000
};
/// Pages of names, of the whole session's, with which directories are folded that wait for it.
const ALL_AHEAD: u32 = if cfg!(debug_assertions) { 96 } else { 512 };
/// Pages on which names only go, in a tree that is being removed, with which that is folded: what was removed with one of
/// its directories is one step of a fold, and the directory that holds them is marked while that is copied.
const REMOVED_AHEAD: u64 = ALL_AHEAD as u64 / 4;
/// The same once that is being folded: who removes less than the above has it folded later, together with what else he does.
const REMOVED_NEXT: u64 = ALL_AHEAD as u64 / 8;
/// Nanoseconds after such a fold was asked for in which the removal of the tree is taken to go on.
const REMOVING: u64 = 100_000_000;
/// Pages in use, of whatever kind, from which on all views are brought up to date whose deltas were folded.
const ALL_REFRESHED: u64 = 2 * ALL_AHEAD as u64;
/// From so many on at the latest.
const REFRESHED_LATEST: u64 = 3 * ALL_REFRESHED;
/// Fewer pages of those that wait are not worth a fold.
const LEAST: u32 = 16;
/// Microseconds of a pause for each page beyond [`PACED`], while what was sealed before is folded.
const PAUSE: u32 = 4;
/// No pause is shorter: whoever sleeps may find the processor taken.
const PAUSE_LEAST: u32 = 64;
/// None is longer.
const PAUSE_MOST: u32 = 2_000;
/// Microseconds after which who pauses looks whether he still has to.
const LOOKS_AGAIN: u32 = 100;
/// Nanoseconds between two pauses.
const PACE: u64 = 250_000;

/// How long whoever has so many unfolded pages pauses before the next one, microseconds.
fn pause_at(pages: u32) -> Option<u32> {
    let pause = pages.saturating_sub(PACED).saturating_mul(PAUSE);
    (pause >= PAUSE_LEAST).then_some(pause.min(PAUSE_MOST))
}

impl Views {
    /// The directory that has waited longest but for so many.
    fn waiting_at(&self, behind: u32) -> Option<InodeNumber> {
        let first = self.waiting_first.load(Ordering::Relaxed);
        let end = self.waiting_end.load(Ordering::Relaxed);
        let is_there = behind < end.wrapping_sub(first);
        let place = first.wrapping_add(behind) as usize % WAITING;
        is_there.then(|| self.waiting[place].load(Ordering::Relaxed))
    }

    /// Where the ring is full, it is folded when the arena is.
    fn add_waiting(&self, number: InodeNumber) {
        let first = self.waiting_first.load(Ordering::Relaxed);
        let end = self.waiting_end.load(Ordering::Relaxed);
        if (end.wrapping_sub(first) as usize) < WAITING {
            self.waiting[end as usize % WAITING].store(number, Ordering::Relaxed);
            self.waiting_end
                .store(end.wrapping_add(1), Ordering::Relaxed);
        }
    }

    fn remove_waiting(&self, count: u32) {
        self.waiting_first.fetch_add(count, Ordering::Relaxed);
    }

    /// Pages of all tails, about.
    fn tail_pages(&self) -> u32 {
        let pages = self.tail_pages.load(Ordering::Relaxed);
        u32::try_from(pages.cast_signed()).unwrap_or(0)
    }

    fn has_tail_pages(&self, more: u32) {
        self.tail_pages.fetch_add(more, Ordering::Relaxed);
    }

    /// So many are given back.
    pub(crate) fn has_released_tail(&self, pages: u32) {
        self.tail_pages.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Takes what the request under way is about, if that is over: 0 behind the last. Under `ahead_lock`.
    pub(crate) fn take_asked(&self) -> [InodeNumber; INODES_MAX] {
        std::array::from_fn(|place| self.asked[place].swap(0, Ordering::Relaxed))
    }

    /// Whether the controller is at what was asked for ahead.
    fn is_folding_ahead(&self, session: &Session) -> bool {
        let pending = self.ahead.load(Ordering::Relaxed).checked_sub(1);
        pending.is_some_and(|index| !session.is_answered(index as usize))
    }

    /// Pauses for so many microseconds, or until what was asked for ahead is folded. Blocks.
    pub(crate) fn pause(&self, session: &Session, microseconds: u32) {
        let mut left = microseconds;
        while left != 0 && self.is_folding_ahead(session) {
            let part = left.min(LOOKS_AGAIN);
            sleep(Duration::from_micros(part.into()));
            left -= part;
        }
        self.go_on_without_pause();
    }

    /// A pause is over: there is none for some time.
    fn go_on_without_pause(&self) {
        self.paced.store(now() + PACE, Ordering::Relaxed);
    }
}

impl Context<'_> {
    /// Before a shard gets one more page: pauses or waits for a seal first, if it has enough. `adds`: names are added.
    pub(super) fn expect_few_pages(
        &self,
        directory: Directory,
        own: &InShard,
        adds: bool,
    ) -> Attempt<()> {
        if self.has_folded_ahead() {
            return Err(Need::Refresh.into());
        }
        let pages = own.shard.pages() * own.apart;
        if adds && pages >= MOST {
            return Err(Need::Seal(directory.number()).into());
        }
        let pages = pages * self.weight(directory);
        let others = self.views.tail_pages().saturating_sub(2 * ALL_AHEAD);
        match pause_at(pages.max(others)) {
            Some(pause) if self.is_due_to_pause() => Err(Need::Pause(pause).into()),
            _ => Ok(()),
        }
    }

    /// Whether the controller is at what was asked for ahead, and the last pause for that is long enough ago.
    fn is_due_to_pause(&self) -> bool {
        self.is_folding_ahead() && now() >= self.views.paced.load(Ordering::Relaxed)
    }

    /// A shard has got so many pages more, for names that are added or only go: asks for a fold, if it is time.
    #[inline]
    pub(super) fn fold_ahead(&self, directory: Directory, own: &InShard, added: u32, adds: bool) {
        self.views.has_tail_pages(added);
        if !adds {
            self.views
                .removed_pages
                .fetch_add(added.into(), Ordering::Relaxed);
        }
        let pages = own.shard.pages();
        let enough = AHEAD / (own.apart * self.weight(directory));
        if pages >= enough && pages.is_multiple_of(AHEAD / 8) {
            self.ask_ahead(Some(directory));
        } else if (self.views.tail_pages() >= ALL_AHEAD || self.has_removed_much(directory))
            && !self.is_folding_ahead()
        {
            self.ask_ahead(None);
        }
    }

    /// Whether so much of a tree was removed, in this directory last, that it is time for a fold.
    fn has_removed_much(&self, directory: Directory) -> bool {
        let views = self.views;
        let pages = views.removed_pages.load(Ordering::Relaxed);
        if pages < REMOVED_NEXT || !self.is_removed_with_others(directory) {
            return false;
        }
        let goes_on = now() < views.removing.load(Ordering::Relaxed);
        pages >= if goes_on { REMOVED_NEXT } else { REMOVED_AHEAD }
    }

    /// Whether directories are being removed from this one, or from the one that holds it.
    fn is_removed_with_others(&self, directory: Directory) -> bool {
        let inodes = self.views.inodes.load(Ordering::Acquire);
        let holder = directory.inode().holder.load(Ordering::Relaxed);
        let holder = known_in(self.session, inodes, holder);
        let is_removed_from = |inode: &CachedInode| inode.has(flag::REMOVING);
        is_removed_from(directory.inode()) || holder.is_some_and(is_removed_from)
    }

    /// How many times as long as elsewhere the fold of a page takes: so much earlier it is asked for, and paused.
    fn weight(&self, directory: Directory) -> u32 {
        1 + u32::from(self.entries(directory) >= LARGE)
    }

    fn is_folding_ahead(&self) -> bool {
        self.views.is_folding_ahead(self.session)
    }

    /// Whether directories that waited have been folded, and their views do not show it yet.
    fn has_folded_ahead(&self) -> bool {
        self.views.asked[0].load(Ordering::Relaxed) != 0 && !self.is_folding_ahead()
    }

    /// A directory begins a tail: it waits to be folded. Under the lock of its shard.
    pub(super) fn waits_to_be_folded(&self, directory: Directory) {
        let _locked = self.views.ahead_lock.lock(self.slot().holder());
        self.views.add_waiting(directory.number());
    }

    /// Of one directory, or of those that wait longest.
    #[cold]
    fn ask_ahead(&self, directory: Option<Directory>) {
        self.ask_ahead_about(directory.is_none(), |into| match directory {
            Some(directory) => {
                into[0] = directory.number();
                1
            }
            None => {
                if self.views.removed_pages.swap(0, Ordering::Relaxed) >= REMOVED_NEXT {
                    let until = now() + REMOVING;
                    self.views.removing.store(until, Ordering::Relaxed);
                }
                self.take_waiting(into)
            }
        });
    }

    /// Takes directories that wait longest: as many as are worth a fold, and no more; how many. Under `ahead_lock`.
    fn take_waiting(&self, into: &mut [InodeNumber; INODES_MAX]) -> usize {
        let (mut pages, mut count, mut looked_at) = (0, 0, 0);
        while count < into.len() && pages < AHEAD {
            let Some(number) = self.views.waiting_at(looked_at) else {
                break;
            };
            looked_at += 1;
            let inodes = self.views.inodes.load(Ordering::Acquire);
            let inode = known_in(self.session, inodes, number);
            let has = inode.map_or(0, |inode| self.shards(inode).map(Shard::pages).sum::<u32>());
            if has != 0 && !into[..count].contains(&number) {
                into[count] = number;
                count += 1;
                pages += has;
            }
        }
        // Those that were folded otherwise wait no more.
        self.views.remove_waiting(looked_at);
        if pages < LEAST {
            let waiting = &into[..count];
            waiting
                .iter()
                .for_each(|&number| self.views.add_waiting(number));
            return 0;
        }
        count
    }

    /// What was asked for ahead was folded: brings the views of that up to date, and of all if much is in use still.
    /// What cannot be now is when somebody comes to it.
    pub(crate) fn refresh_folded_ahead(&self, asked: &[InodeNumber]) -> Attempt<()> {
        let inodes = self.views.inodes.load(Ordering::Acquire);
        let known = asked.iter();
        let known = known.filter_map(|&number| known_in(self.session, inodes, number));
        known.for_each(|inode| _ = self.refresh_folded(inode, false));
        // There may be thousands with deltas that were not folded: they are looked at again when half as much more is in
        // use as was left then.
        let used = || self.session.state().arena.used();
        if used()
            >= self
                .views
                .refreshed_at
                .load(Ordering::Relaxed)
                .max(ALL_REFRESHED)
        {
            let _ = self.refresh_dirty();
            let next = (used() + used() / 2).min(REFRESHED_LATEST);
            self.views.refreshed_at.store(next, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_what_is_not_folded() {
        let least = PACED + PAUSE_LEAST.div_ceil(PAUSE);
        let cases = [
            (0, None),
            (PACED, None),
            (least - 1, None),
            (least, Some(PAUSE_LEAST)),
            (PACED + 100, Some(100 * PAUSE)),
            (PACED + PAUSE_MOST / PAUSE, Some(PAUSE_MOST)),
            (u32::MAX, Some(PAUSE_MOST)),
        ];
        for (pages, pause) in cases {
            assert_eq!(pause_at(pages), pause, "{pages} pages");
        }
        // Who adds names pauses long before he waits.
        assert!(pause_at(MOST / 2).is_some());
    }
}
