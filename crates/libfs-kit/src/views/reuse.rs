//! Uncommitted inode numbers: those that a thread keeps at hand, so that making and removing files takes no
//! lock, and those of inodes that died before they were created, which are used again.
//!
//! # Invariants
//! * A number stands with one thread, in the session's queue or stock, or is in use.
//! * The number of a dead inode is handed out only when no thread can still look at the inode that had it:
//!   two epochs of the region later. A thread's own dead need no lock; the session's queue of them has
//!   `reuse_lock`.
//! * So it is of a number that the controller has freed and granted once more, if the session has a view of what had it.
//! * A thread's numbers are changed by that thread alone. They stand in the region by its slot there,
//!   so whoever claims the slot when the thread is gone, in whichever process, goes on with them;
//!   slots change hands with the ordering of their claim. They are atomics, each used relaxed.

use crate::need::Attempt;
use crate::region::{AtomicOffset, Offset, ThreadSlot};
use crate::state::at_hand::NUMBERS;
use crate::views::refresh::known_in;
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

    /// An uncommitted number of those at hand; `refill` gives how many more it has put there, if there are.
    #[inline]
    fn take(
        &self,
        refill: impl FnOnce(&mut [InodeNumber]) -> Attempt<usize>,
    ) -> Attempt<InodeNumber> {
        let count = match self.count.load(Ordering::Relaxed) {
            0 => self.refill(refill)?,
            count => count,
        };
        let last = (count as usize - 1).min(NUMBERS - 1);
        let number = self.numbers[last].load(Ordering::Relaxed);
        self.count.store(last as u32, Ordering::Relaxed);
        Ok(number)
    }

    /// Gives how many are at hand now: one at least.
    #[cold]
    fn refill(&self, refill: impl FnOnce(&mut [InodeNumber]) -> Attempt<usize>) -> Attempt<u32> {
        // Room is left for numbers whose creation does not happen.
        let mut given = [0; NUMBERS / 2];
        let count = refill(&mut given)?.clamp(1, given.len());
        // Handed out from the end: the first ones given are to be the first ones used.
        for (place, number) in self.numbers.iter().zip(given[..count].iter().rev()) {
            place.store(*number, Ordering::Relaxed);
        }
        self.count.store(count as u32, Ordering::Relaxed);
        Ok(count as u32)
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
        Some(region.is_over(first.reuse_epoch.load(Ordering::Relaxed)))
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
        inode.reuse_epoch.store(region.epoch(), Ordering::Release);
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
        if !region.is_over(first.reuse_epoch.load(Ordering::Relaxed)) {
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
    #[inline]
    pub fn take_number(&self) -> Attempt<InodeNumber> {
        match ThreadNumbers::of(self.views, self.slot()) {
            Some(own) => own.take(|numbers| self.take_numbers(numbers)),
            // This thread keeps none.
            None => {
                let mut number = [0];
                self.take_numbers(&mut number)?;
                Ok(number[0])
            }
        }
    }

    /// As many as fit and there are, one at least: of the thread's own dead, of the session's, of the stock.
    fn take_numbers(&self, numbers: &mut [InodeNumber]) -> Attempt<usize> {
        let mut count = 0;
        while count < numbers.len()
            && let Some(number) = self.take_dead_number()
        {
            numbers[count] = number;
            count += 1;
        }
        count += self.take_shared_dead(&mut numbers[count..]);
        match count {
            0 => self.take_of_stock(numbers),
            count => Ok(count),
        }
    }

    /// Numbers that were granted. The controller knows nothing of who looks at what in this session: of those that were
    /// an inode's whose view there is, none is used before everybody has left who may have looked that up. They rest
    /// with the dead.
    fn take_of_stock(&self, numbers: &mut [InodeNumber]) -> Attempt<usize> {
        let region = self.session.region();
        loop {
            let stock = &self.session.state().numbers;
            let taken = stock.take_some(self.session, self.slot(), numbers)?;
            let mut count = 0;
            for place in 0..taken {
                let number = numbers[place];
                let header = self.header(number)?;
                let before = known_in(
                    self.session,
                    self.views.inodes.load(Ordering::Acquire),
                    number,
                )
                .filter(|inode| inode.generation() != header.generation());
                match before {
                    Some(inode) => self.rest(inode),
                    None => {
                        numbers[count] = number;
                        count += 1;
                    }
                }
            }
            if count > 0 {
                return Ok(count);
            }
            // A moment, and only once: somebody may be stopped in there.
            if let Some(wait) = self.wait_for_unseen(region.epoch()) {
                return Err(wait);
            }
        }
    }

    /// Queues the number of an inode that was committed and freed, and was granted once more, until no thread looks at it.
    fn rest(&self, inode: &'static CachedInode) {
        let epoch = self.session.region().epoch();
        inode.reuse_epoch.store(epoch, Ordering::Release);
        inode.reuse_next.store(Offset::NULL, Ordering::Relaxed);
        self.hand_on(self.offset_of(inode.number()), inode);
    }

    /// Gives back a number whose creation did not happen, and of which nobody has seen anything.
    pub fn give_number_back(&self, number: InodeNumber) {
        let own = ThreadNumbers::of(self.views, self.slot());
        if !own.is_some_and(|own| own.keep(number)) {
            let numbers = &self.session.state().numbers;
            numbers.give_back(self.slot(), number);
        }
    }

    /// Numbers of the session's queue that died long enough ago: how many.
    fn take_shared_dead(&self, numbers: &mut [InodeNumber]) -> usize {
        // Whoever hands on a thread's dead has it looked at once more.
        if numbers.is_empty() || self.views.reuse_first.load(Ordering::Relaxed).is_null() {
            return 0;
        }
        let region = self.session.region();
        let _locked = self.views.reuse_lock.lock(self.slot().holder());
        let mut count = 0;
        while count < numbers.len()
            && let Some(first) = region.try_get(self.views.reuse_first.load(Ordering::Relaxed))
            && region.is_over(first.reuse_epoch.load(Ordering::Relaxed))
        {
            let next = first.reuse_next.load(Ordering::Relaxed);
            self.views.reuse_first.store(next, Ordering::Relaxed);
            if next.is_null() {
                self.views.reuse_last.store(Offset::NULL, Ordering::Relaxed);
            }
            numbers[count] = first.number();
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::need::{Need, Stop};

    /// A thread's numbers, none at hand.
    fn of_a_thread() -> Box<ThreadNumbers> {
        // SAFETY: it is shared by processes, so that all zeroes are valid, which is how it begins in the region.
        unsafe { Box::<ThreadNumbers>::new_zeroed().assume_init() }
    }

    fn at_hand(numbers: &ThreadNumbers) -> u32 {
        numbers.count.load(Ordering::Relaxed)
    }

    /// A stock of so many numbers; counts how often it is asked, and for how many.
    struct Stock {
        next: InodeNumber,
        end: InodeNumber,
        asked: Vec<usize>,
    }

    impl Stock {
        fn of(count: InodeNumber) -> Stock {
            Stock {
                next: 1,
                end: 1 + count,
                asked: Vec::new(),
            }
        }

        fn give(&mut self, into: &mut [InodeNumber]) -> Attempt<usize> {
            self.asked.push(into.len());
            let left = (self.end - self.next) as usize;
            let count = left.min(into.len());
            for place in &mut into[..count] {
                *place = self.next;
                self.next += 1;
            }
            match count {
                0 => Err(Need::Numbers.into()),
                count => Ok(count),
            }
        }
    }

    #[test]
    fn the_stock_is_asked_for_half_of_the_places_when_nothing_is_at_hand() {
        let (numbers, mut stock) = (of_a_thread(), Stock::of(200));
        // In order, each once, and none is left out.
        for expected in 1..=200 {
            let was_empty = at_hand(&numbers) == 0;
            let asked = stock.asked.len();
            let taken = numbers.take(|into| stock.give(into));
            assert_eq!(taken.ok(), Some(expected));
            assert_eq!(
                stock.asked.len() - asked,
                usize::from(was_empty),
                "{expected}"
            );
        }
        assert_eq!(stock.asked, [NUMBERS / 2; 8]);
        assert_eq!((NUMBERS, at_hand(&numbers)), (54, 0));
    }

    #[test]
    fn an_empty_stock_is_told_of_each_time_and_does_no_harm() {
        let (numbers, mut stock) = (of_a_thread(), Stock::of(1));
        assert_eq!(numbers.take(|into| stock.give(into)).ok(), Some(1));
        for _ in 0..3 {
            let taken = numbers.take(|into| stock.give(into));
            assert!(matches!(taken, Err(Stop::Need(Need::Numbers))));
            assert_eq!(at_hand(&numbers), 0);
        }
        stock.end += 1;
        assert_eq!(numbers.take(|into| stock.give(into)).ok(), Some(2));
    }

    #[test]
    fn what_is_given_back_is_used_first_and_never_more_than_there_are_places() {
        let (numbers, mut stock) = (of_a_thread(), Stock::of(27));
        assert_eq!(numbers.take(|into| stock.give(into)).ok(), Some(1));
        let room = NUMBERS - 26;
        for back in 0..room as InodeNumber {
            assert!(numbers.keep(1000 + back), "{back}");
        }
        // Who has no room left gives it to the session.
        assert!(!numbers.keep(5000));
        assert_eq!(at_hand(&numbers) as usize, NUMBERS);
        let mut all = Vec::new();
        while let Ok(number) = numbers.take(|into| stock.give(into)) {
            all.push(number);
        }
        let expected = (1000..1000 + room as InodeNumber).rev().chain(2..28);
        assert_eq!(all, expected.collect::<Vec<_>>());
    }
}
