//! Folding ahead: a directory that changes much is folded while its owner goes on (DESIGN section 5, *seal*).
//!
//! When a log shard has [`AHEAD`] pages, its directory is to be folded: the request is submitted, and nobody waits for
//! the answer. What the owner does meanwhile goes into another delta. It waits only when that one has [`MOST`] pages,
//! too, which is when the controller is slower than the owner for long: so neither the time of a fold grows
//! without bound, nor that of a call. Then it waits until the delta is sealed, not until it is folded.
//!
//! What only takes names away asks, and does not wait: it must be possible always.
//!
//! # Invariants
//! * One request is under way at a time, of the session's: `ahead` of [`Views`](crate::views::Views), under `ahead_lock`.
//!   It is made and finished inside, where nobody builds the auxiliary state anew; what a member dies over is
//!   finished when that is done.
//! * Whether it is answered, and how, changes nothing: what is refused is told to whoever asks for a fold himself.

use super::Context;
use crate::need::{Attempt, Need};
use crate::views::Directory;
use crate::views::locks::InShard;
use arck_protocol::{InodeList, Request};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Pages of a directory's shards with which a fold is asked for: fifteen thousand names or so, so that what makes fewer
/// has the processors for itself. Small where tests run, so that they meet it.
const AHEAD: u32 = if cfg!(debug_assertions) { 32 } else { 512 };
/// Pages at most, before an owner who adds names waits.
const MOST: u32 = if cfg!(debug_assertions) { 512 } else { 1024 };

impl Context<'_> {
    /// Before a shard gets one more page: waits for a seal first, if it has enough.
    pub(super) fn expect_few_pages(&self, directory: Directory, own: &InShard) -> Attempt<()> {
        match own.shard.pages() < MOST / own.apart {
            true => Ok(()),
            false => Err(Need::Seal(directory.number()).into()),
        }
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
