//! Asking for folds ahead (DESIGN section 5, *seal*): what is asked for is submitted, and nobody waits for the answer.
//!
//! A file that grows is folded each time that it gets a page whose number is a multiple of [`FILE_AHEAD`], while its owner
//! writes on: so nobody who reads it, removes it, or ends its session waits until the controller has looked at all of its
//! pages. One that is written elsewhere, or from its end, is folded when somebody asks, or its session's arena fills, as
//! before. Directories are the business of [`names::ahead`](crate::names).
//!
//! # Invariants
//! * One request is under way at a time, of the session's: `ahead` of [`Views`](crate::views::Views), under `ahead_lock`,
//!   which comes after all others. It is made and finished inside, where nobody builds the auxiliary state anew; what
//!   a member dies over is finished when that is done.
//! * Whether it is answered, and how, changes nothing: what is refused is told to whoever asks for a fold himself.

use super::Changing;
use crate::views::File;
use arck_core_state::InodeNumber;
use arck_protocol::message::INODES_MAX;
use arck_protocol::{InodeList, Request};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Pages of a file that are folded at once: the controller takes about two milliseconds for them. Few where tests run, so
/// that they meet it.
const FILE_AHEAD: u64 = if cfg!(debug_assertions) {
    1 << 12
} else {
    1 << 15
};

impl Changing<'_> {
    /// An entry of this page is to be set: asks for a fold of what comes before it, if it is time.
    #[inline]
    pub(super) fn fold_file_ahead(&self, file: File, page: u64) {
        if page.is_multiple_of(FILE_AHEAD) && page != 0 && file.delta_root().0 != 0 {
            self.ask_ahead_for_file(file);
        }
    }

    #[cold]
    fn ask_ahead_for_file(&self, file: File) {
        let number = file.number();
        self.ask_ahead_about(false, |into| {
            into[0] = number;
            1
        });
    }

    /// Asks for a fold of what `pick` writes down, and says how many it is; nothing if another one is under way.
    /// `has_views`: their views are to be brought up to date when that is done.
    #[cold]
    pub(crate) fn ask_ahead_about(
        &self,
        has_views: bool,
        pick: impl FnOnce(&mut [InodeNumber; INODES_MAX]) -> usize,
    ) {
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
        if views.asked[0].load(Ordering::Relaxed) != 0 {
            // Theirs is to be given back first.
            return;
        }
        let mut numbers = [0; INODES_MAX];
        let count = pick(&mut numbers);
        let Some(inodes) = InodeList::new(&numbers[..count]).filter(|_| count != 0) else {
            return;
        };
        let request = Request::Commit {
            inodes,
            release: false,
        };
        if let Ok(index) = self.session.submit(&request) {
            views.ahead.store(index as u32 + 1, Ordering::Relaxed);
            if has_views {
                let asked = views.asked.iter().zip(numbers);
                asked.for_each(|(place, number)| place.store(number, Ordering::Relaxed));
            }
        }
    }
}
