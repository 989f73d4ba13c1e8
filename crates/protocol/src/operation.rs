//! How an operation of a LibFS and a fold by the controller meet (DESIGN section 5).
//!
//! Operation: [`OperationSlot::enter`], check its headers with [`Expected::still_holds`],
//! prepare, publish with one store, check the headers **again**, [`OperationSlot::leave`].
//! Fold: [`mark`] every header of the set, heavy barrier, wait until everything in flight has
//! left ([`InFlight`], bounded), copy.
//!
//! # Invariants
//! * After the heavy barrier, an operation either sees the mark at its first check (and backs
//!   out) or is seen in flight by the controller. The session pays a plain store and a compiler
//!   fence: `membarrier` on the controller's side supplies the other half (the asymmetric
//!   barrier); where `membarrier` is missing the session fences itself.
//! * If the wait runs out, what straddles finds out by its second check and asks for the
//!   receipt.
//!
//! Model-checked under `--cfg shuttle` in `tests/ownership.rs`.

use arck_core_state::primitive::{AtomicU64, Ordering, fence};
use arck_core_state::{LiveHeader, Ownership};
use std::sync::atomic::compiler_fence;

/// One thread's place in control memory. Odd = inside an operation.
#[repr(C, align(64))]
pub struct OperationSlot {
    counter: AtomicU64,
    /// Process id (low half) and slot owner's thread id (high half); 0 = free slot.
    pub thread: AtomicU64,
    reserved: [AtomicU64; 6],
}

/// Which half of the asymmetric barrier a session pays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LightBarrier {
    /// The process is registered for `membarrier`: order for the compiler is enough.
    Registered,
    /// It is not: a full fence at every entry.
    Fence,
}

impl Default for OperationSlot {
    fn default() -> Self {
        OperationSlot {
            counter: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            reserved: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl OperationSlot {
    /// Begins an operation. The slot belongs to the calling thread alone.
    pub fn enter(&self, barrier: LightBarrier) {
        let counter = self.counter.load(Ordering::Relaxed);
        self.counter.store(counter | 1, Ordering::Relaxed);
        match barrier {
            // Under the model checker every access is sequentially consistent: nothing to do.
            LightBarrier::Registered => compiler_fence(Ordering::SeqCst),
            LightBarrier::Fence => fence(Ordering::SeqCst),
        }
    }

    /// Ends it. Release: who sees the even counter sees all that the operation stored.
    pub fn leave(&self) {
        let counter = self.counter.load(Ordering::Relaxed);
        self.counter
            .store((counter | 1).wrapping_add(1), Ordering::Release);
    }

    /// Raw counter.
    pub fn counter(&self) -> u64 {
        self.counter.load(Ordering::Acquire)
    }

    /// Frees the slot of a thread that is gone, whatever it was doing.
    pub fn clear(&self) {
        self.leave();
        self.thread.store(0, Ordering::Release);
    }
}

/// What an operation believes of an inode that it owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Unmarked.
    pub ownership: Ownership,
    pub fold: u64,
}

impl Expected {
    /// True if the inode is still owned, not marked and not folded since. Asked before the
    /// operation publishes and again before it returns.
    pub fn still_holds(&self, header: &LiveHeader) -> bool {
        // A fold advances the fold number while the header is marked. Ownership must be loaded
        // first: unmarked, and afterwards still the old fold number (which never comes back),
        // both were so at the moment of the first load. The other way round, a whole fold could
        // end between the two loads and go unseen.
        let ownership = header.ownership();
        let fold = header.fold();
        ownership == self.ownership && fold == self.fold
    }
}

/// Marks a header: no operation begins on its inode from now on (after a heavy barrier).
/// Controller only.
pub fn mark(header: &LiveHeader) {
    let ownership = header.ownership();
    header
        .ownership
        .store(ownership.marked().0, Ordering::SeqCst);
}

/// Ends a fold that left the owner in place or changed it: advances the fold number, then
/// stores the new ownership, unmarked. Controller only.
pub fn unmark(header: &LiveHeader, ownership: Ownership, fold: u64) {
    header.fold.store(fold, Ordering::Release);
    header
        .ownership
        .store(ownership.unmarked().0, Ordering::Release);
}

/// The operations that were in flight at the barrier.
#[derive(Debug, Default)]
pub struct InFlight {
    waiting: Vec<(usize, u64)>,
}

impl InFlight {
    /// Whoever is inside now; call after the heavy barrier.
    pub fn snapshot(slots: &[OperationSlot]) -> InFlight {
        let waiting = slots
            .iter()
            .enumerate()
            .map(|(index, slot)| (index, slot.counter()))
            .filter(|(_, counter)| counter & 1 == 1)
            .collect();
        InFlight { waiting }
    }

    /// Forgets those that have left since; true when none is left.
    pub fn all_left(&mut self, slots: &[OperationSlot]) -> bool {
        self.waiting.retain(|&(index, counter)| {
            slots
                .get(index)
                .is_some_and(|slot| slot.counter() == counter)
        });
        self.waiting.is_empty()
    }
}
