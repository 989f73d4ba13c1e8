//! Uncommitted inode numbers: those that a thread keeps at hand, so that making and removing files takes no
//! lock, and those of inodes that died before they were created, which are used again.
//!
//! # Invariants
//! * A number stands with one thread, in the session's queue or stock, or is in use.
//! * The number of a dead inode is handed out only when no thread can still look at the inode that had it:
//!   two epochs of the region later. A thread's own dead need no lock; the session's queue of them has
//!   `reuse_lock`.
//! * A thread's numbers are changed by that thread alone. They stand in the region by its slot there,
//!   so whoever claims the slot when the thread is gone, in whichever process, goes on with them;
//!   slots change hands with the ordering of their claim. They are atomics, each used relaxed.

use crate::need::{Attempt, Need};
use crate::region::{AtomicOffset, Offset, ThreadSlot};
use crate::state::at_hand::NUMBERS;
use crate::views::{CachedInode, Viewing, Views};
use arck_core_state::InodeNumber;
use std::sync::atomic::Ordering;

pub use crate::state::at_hand::ThreadNumbers;

/// Dead inodes that a thread keeps for itself at most.
const DEAD_MOST: u32 = 64;

impl ThreadNumbers {
    /// Those of the thread with this slot.
    #[inline]
    pub fn of<'r>(views: &Views, slot: &ThreadSlot<'r>) -> Option<&'r ThreadNumbers> {
        let place = u64::from(slot.holder().thread) * size_of::<ThreadNumbers>() as u64;
        let first = views.thread_numbers.load(Ordering::Acquire);
        slot.region().try_get(Offset::from_raw(first.raw() + place))
    }

    /// An uncommitted number; `refill` gives more, until there is none or no room.
    #[inline]
    fn take(&self, refill: impl FnMut() -> Option<InodeNumber>) -> Option<InodeNumber> {
        let count = match self.count.load(Ordering::Relaxed) {
            0 => self.refill(refill),
            count => count,
        };
        let last = count.checked_sub(1)?;
        let number = self.numbers.get(last as usize)?.load(Ordering::Relaxed);
        self.count.store(last, Ordering::Relaxed);
        Some(number)
    }

    #[cold]
    fn refill(&self, mut refill: impl FnMut() -> Option<InodeNumber>) -> u32 {
        // Handed out from the end: the first ones given are to be the first ones used.
        let mut given = [0; NUMBERS / 2];
        let mut count = 0;
        while count < given.len()
            && let Some(number) = refill()
        {
            given[count] = number;
            count += 1;
        }
        for (place, number) in self.numbers.iter().zip(given[..count].iter().rev()) {
            place.store(*number, Ordering::Relaxed);
        }
        self.count.store(count as u32, Ordering::Relaxed);
        count as u32
    }

    /// Keeps a number whose creation did not happen; false if there is no room.
    fn keep(&self, number: InodeNumber) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let Some(place) = self.numbers.get(count as usize) else {
            return false;
        };
        place.store(number, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
        true
    }

    /// The place in the open table that this thread cleared last; it may be in use again.
    #[inline]
    pub fn take_place(&self) -> Option<usize> {
        let place = self.place.load(Ordering::Relaxed).checked_sub(1)?;
        self.place.store(0, Ordering::Relaxed);
        Some(place as usize)
    }

    /// Remembers a place just cleared; false if another one is remembered already.
    #[inline]
    pub fn keep_place(&self, place: usize) -> bool {
        if self.place.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.place.store(place as u32 + 1, Ordering::Relaxed);
        true
    }
}

/// Whether the number that is next of those that died is dead for long enough to be used again; `None`: there is
/// none that the thread could have. Inside.
pub fn next_dead(views: &Views, slot: &ThreadSlot<'_>) -> Option<bool> {
    let region = slot.region();
    let is_over = |first: &AtomicOffset<CachedInode>| {
        let first = region.try_get(first.load(Ordering::Relaxed))?;
        Some(first.reuse_epoch.load(Ordering::Relaxed) + 2 <= region.epoch())
    };
    let own = ThreadNumbers::of(views, slot).and_then(|own| is_over(&own.dead.first));
    let _locked = views.reuse_lock.lock(slot.holder());
    own.max(is_over(&views.reuse_first))
}

impl Viewing<'_> {
    /// Queues the number of an inode that died uncommitted, until no thread looks at it any more: with
    /// the thread's own first, many of which are handed on at once.
    pub fn queue_reuse(&self, inode: &'static CachedInode) {
        let region = self.session.region();
        let offset = self.offset_of(inode.number());
        inode.reuse_epoch.store(region.epoch(), Ordering::Relaxed);
        inode.reuse_next.store(Offset::NULL, Ordering::Relaxed);
        let Some(own) = ThreadNumbers::of(self.views, self.slot()) else {
            return self.hand_on(offset, inode);
        };
        let dead = &own.dead;
        match region.try_get(dead.last.load(Ordering::Relaxed)) {
            Some(last) => last.reuse_next.store(offset, Ordering::Relaxed),
            None => dead.first.store(offset, Ordering::Relaxed),
        }
        dead.last.store(offset, Ordering::Relaxed);
        let count = dead.count.load(Ordering::Relaxed) + 1;
        dead.count.store(count, Ordering::Relaxed);
        if count < DEAD_MOST {
            return;
        }
        let first = dead.first.swap(Offset::NULL, Ordering::Relaxed);
        dead.last.store(Offset::NULL, Ordering::Relaxed);
        dead.count.store(0, Ordering::Relaxed);
        self.hand_on(first, inode);
    }

    /// Appends a list of dead inodes, from `first` to `last`, to the session's queue.
    fn hand_on(&self, first: Offset<CachedInode>, last: &'static CachedInode) {
        let region = self.session.region();
        let end = self.offset_of(last.number());
        let _locked = self.views.reuse_lock.lock(self.slot().holder());
        match region.try_get(self.views.reuse_last.load(Ordering::Relaxed)) {
            Some(last) => last.reuse_next.store(first, Ordering::Relaxed),
            None => self.views.reuse_first.store(first, Ordering::Relaxed),
        }
        self.views.reuse_last.store(end, Ordering::Relaxed);
    }

    /// A number of the thread's own dead, if the oldest has been dead long enough.
    fn take_dead_number(&self) -> Option<InodeNumber> {
        let region = self.session.region();
        let dead = &ThreadNumbers::of(self.views, self.slot())?.dead;
        let first = region.try_get(dead.first.load(Ordering::Relaxed))?;
        if first.reuse_epoch.load(Ordering::Relaxed) + 2 > region.epoch() {
            return None;
        }
        let next = first.reuse_next.load(Ordering::Relaxed);
        dead.first.store(next, Ordering::Relaxed);
        if next.is_null() {
            dead.last.store(Offset::NULL, Ordering::Relaxed);
        }
        let count = dead.count.load(Ordering::Relaxed);
        dead.count.store(count.saturating_sub(1), Ordering::Relaxed);
        Some(first.number())
    }

    /// An uncommitted number: one that died long enough ago, or a new one from the stock.
    pub fn take_number(&self) -> Attempt<InodeNumber> {
        if let Some(own) = ThreadNumbers::of(self.views, self.slot()) {
            let refill = || {
                self.take_dead_number()
                    .or_else(|| self.take_shared_number().ok())
            };
            if let Some(number) = own.take(refill) {
                return Ok(number);
            }
        }
        // There is none, or this thread keeps none.
        Ok(self.take_shared_number()?)
    }

    /// Gives back a number whose creation did not happen, and of which nobody has seen anything.
    pub fn give_number_back(&self, number: InodeNumber) {
        let own = ThreadNumbers::of(self.views, self.slot());
        if !own.is_some_and(|own| own.keep(number)) {
            let numbers = &self.session.state().numbers;
            numbers.give_back(self.slot(), number);
        }
    }

    fn take_shared_number(&self) -> Result<InodeNumber, Need> {
        let region = self.session.region();
        {
            let _locked = self.views.reuse_lock.lock(self.slot().holder());
            if let Some(first) = region.try_get(self.views.reuse_first.load(Ordering::Relaxed))
                && first.reuse_epoch.load(Ordering::Relaxed) + 2 <= region.epoch()
            {
                let next = first.reuse_next.load(Ordering::Relaxed);
                self.views.reuse_first.store(next, Ordering::Relaxed);
                if next.is_null() {
                    self.views.reuse_last.store(Offset::NULL, Ordering::Relaxed);
                }
                return Ok(first.number());
            }
        }
        self.session.state().numbers.take(self.session, self.slot())
    }
}
