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
//! # Invariants
//! * One request is under way at a time, of the session's: `ahead` of [`Views`](crate::views::Views), under `ahead_lock`.
//!   It is made and finished inside, where nobody builds the auxiliary state anew; what a member dies over is
//!   finished when that is done.
//! * Whether it is answered, and how, changes nothing: what is refused is told to whoever asks for a fold himself.

use super::Context;
use crate::need::{Attempt, Need};
use crate::views::Directory;
use crate::views::Views;
use crate::views::locks::InShard;
use arck_protocol::wait::now;
use arck_protocol::{InodeList, Request};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Pages of a directory's shards with which a fold is asked for: four thousand names or so. Small where tests run, so
/// that they meet it.
const AHEAD: u32 = if cfg!(debug_assertions) { 32 } else { 128 };
/// Pages from which on an owner pauses: eight thousand names beside those that are folded, so that who makes fewer runs
/// beside the controller.
const PACED: u32 = if cfg!(debug_assertions) { 48 } else { 256 };
/// Pages at most, before an owner who adds names waits.
const MOST: u32 = if cfg!(debug_assertions) { 512 } else { 1024 };
/// Microseconds of a pause for each page beyond [`PACED`], while what was sealed before is folded.
const PAUSE: u32 = 4;
/// No pause is shorter: whoever sleeps may find the processor taken.
const PAUSE_LEAST: u32 = 64;
/// None is longer.
const PAUSE_MOST: u32 = 2_000;
/// Nanoseconds between two pauses.
const PACE: u64 = 250_000;

/// How long whoever has so many unfolded pages pauses before the next one, microseconds.
fn pause_at(pages: u32) -> Option<u32> {
    let pause = pages.saturating_sub(PACED).saturating_mul(PAUSE);
    (pause >= PAUSE_LEAST).then_some(pause.min(PAUSE_MOST))
}

impl Views {
    /// A pause is over: there is none for some time.
    pub(crate) fn go_on_without_pause(&self) {
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
        let pages = own.shard.pages() * own.apart;
        if adds && pages >= MOST {
            return Err(Need::Seal(directory.number()).into());
        }
        match pause_at(pages) {
            Some(pause) if self.is_folding_ahead() => Err(Need::Pause(pause).into()),
            _ => Ok(()),
        }
    }

    /// Whether the controller is at what was asked for ahead, and the last pause for that is long enough ago.
    fn is_folding_ahead(&self) -> bool {
        let pending = self.views.ahead.load(Ordering::Relaxed).checked_sub(1);
        let is_at_it = |index: u32| !self.session.is_answered(index as usize);
        pending.is_some_and(is_at_it) && now() >= self.views.paced.load(Ordering::Relaxed)
    }

    /// A shard has got a page more: asks for a fold, if it is time.
    #[inline]
    pub(super) fn fold_ahead(&self, directory: Directory, own: &InShard) {
        let pages = own.shard.pages();
        if pages >= AHEAD / own.apart && pages.is_multiple_of(AHEAD / 4) {
            self.ask_ahead(directory);
        }
    }

    #[cold]
    fn ask_ahead(&self, directory: Directory) {
        let views = self.views;
        let Some(_locked) = views.ahead_lock.try_lock(self.slot().holder()) else {
            return;
        };
        let pending = views.ahead.load(Ordering::Relaxed);
        if pending != 0 {
            if self.session.finish(pending as usize - 1, false) == Err(Errno::TIMEDOUT) {
                return;
            }
            views.ahead.store(0, Ordering::Relaxed);
        }
        let Some(inodes) = InodeList::new(&[directory.number()]) else {
            return;
        };
        let request = Request::Commit {
            inodes,
            release: false,
        };
        if let Ok(index) = self.session.submit(&request) {
            views.ahead.store(index as u32 + 1, Ordering::Relaxed);
        }
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
