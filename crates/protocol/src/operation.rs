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
//!   fold copy.
//!
//! Model-checked under `--cfg shuttle` in `tests/ownership`.

use crate::message::{FOLD_COPY_MAX, Response};
use arck_core_state::cast;
use arck_core_state::primitive::{AtomicU64, Ordering, fence};
use arck_core_state::{LiveHeader, Ownership};
use rustix::io::Errno;
use std::sync::atomic::compiler_fence;

/// One thread's place in control memory. Odd = inside an operation.
#[repr(C, align(64))]
pub struct OperationSlot {
    counter: AtomicU64,
    /// Process id (low half) and the number of the member that it is (high half); 0 = free slot.
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

impl LightBarrier {
    /// The session's half, between a store that the controller is to see and a load of what the
    /// controller stores before its heavy barrier.
    pub fn between(self) {
        match self {
            // Under the model checker every access is sequentially consistent: nothing to do.
            LightBarrier::Registered => compiler_fence(Ordering::SeqCst),
            LightBarrier::Fence => fence(Ordering::SeqCst),
        }
    }
}

impl OperationSlot {
    /// Begins an operation. The slot belongs to the calling thread alone.
    pub fn enter(&self, barrier: LightBarrier) {
        let counter = self.counter.load(Ordering::Relaxed);
        self.counter.store(counter | 1, Ordering::Relaxed);
        barrier.between();
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

    /// Whether a thread of a member has the slot.
    pub fn is_of(&self, member: u16) -> bool {
        self.thread.load(Ordering::Acquire) >> 32 == u64::from(member)
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

    /// The arena slot of the inode's branch, if the inode is still as expected. To be asked
    /// inside the operation and kept for all of it: once the inode is taken away, the header
    /// tells another slot, perhaps one in which this session has another inode's branch.
    pub fn branch_slot(&self, header: &LiveHeader) -> Option<u32> {
        // The slot changes only while the header is marked and before the fold number does:
        // if the expectation holds after the load, the slot belongs to it.
        let slot = header.branch_slot();
        self.still_holds(header).then_some(slot)
    }
}

/// What became of bytes that an operation stored while a fold was under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Straddled {
    /// The branch still exists: there was no fold, or it was refused. The operation stands.
    NotFolded,
    /// The fold took them along. The operation is done.
    Included,
    /// The fold ended the branch without them. The operation is to be redone.
    Missed,
}

/// Decides what became of the bytes `stored` that an operation published under `expected`, when
/// its second check has failed. The operation has been left, and the header has been seen
/// without a mark since. `fold_copy` asks the controller for so many bytes, at most
/// [`FOLD_COPY_MAX`], of the fold copy of fold number `expected.fold`, from where the operation
/// stored them ([`Request::FoldCopy`](crate::Request::FoldCopy)). EIO if the fold copy is gone:
/// then nobody knows.
pub fn straddled(
    header: &LiveHeader,
    expected: &Expected,
    stored: &[u8],
    fold_copy: impl FnOnce(u32) -> Result<Response, Errno>,
) -> Result<Straddled, Errno> {
    straddled_after(header, expected, stored, stored, fold_copy)
}

/// As [`straddled`], of an operation that published and then took itself back by storing `last`
/// at the same place. The answer is about what it published: `NotFolded` says that the branch
/// still exists, in which `last` stands now.
pub fn straddled_after(
    header: &LiveHeader,
    expected: &Expected,
    published: &[u8],
    last: &[u8],
    fold_copy: impl FnOnce(u32) -> Result<Response, Errno>,
) -> Result<Straddled, Errno> {
    if header.fold() == expected.fold {
        return Ok(Straddled::NotFolded);
    }
    let length = published.len().min(FOLD_COPY_MAX);
    let folded = match fold_copy(cast::count(length)) {
        // No operation was in flight when the fold copied: what was stored last was taken.
        Ok(Response::Done) => last.get(..length).map(<[u8]>::to_vec),
        Ok(Response::Bytes(copied)) => Some(copied),
        Err(Errno::NODATA) => None,
        Ok(_) => return Err(Errno::PROTO),
        Err(Errno::STALE) => return Err(Errno::IO),
        Err(errno) => return Err(errno),
    };
    if folded.as_deref() == published.get(..length) {
        Ok(Straddled::Included)
    } else {
        Ok(Straddled::Missed)
    }
}

/// Whether the delta in which an operation published under `expected` is sealed, with what the operation stored there
/// last: nothing was in flight when it was copied for that, and nobody publishes in it any more. The operation has been
/// left, and the header has been seen without a mark since. It is done then, as part of what is sealed, and nobody has to
/// ask: the controller answers when all of it is verified state. Where it is not so, that says nothing.
pub fn is_sealed_with(header: &LiveHeader, expected: &Expected) -> bool {
    header.sealed() == expected.fold
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
#[derive(Clone, Debug, Default)]
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
