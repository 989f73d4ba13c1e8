//! What one thread hands to the threads of one node: a few places, each with a piece of an access.
//!
//! # Invariants
//! * One thread puts, and only it makes a place [`READY`]. Any thread of the node takes: by an exchange of the place's state, so that each
//!   piece is taken once.
//! * What stands in a place is written before it is [`READY`] (release) and read after it was taken (acquire); it is written again when it is
//!   [`FREE`], which it becomes after it has been read.

use super::primitive::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use super::rules::{Rule, Rules};
use crate::medium::Way;

/// Pieces that wait for the threads of a node, of one thread that asks.
const PLACES: usize = if cfg!(shuttle) { 2 } else { 8 };

const FREE: u32 = 0;
const READY: u32 = 1;
const TAKEN: u32 = 2;

/// Bytes that are to be copied.
pub(super) struct Piece {
    pub(super) way: Way,
    pub(super) to: *mut u8,
    pub(super) from: *const u8,
    pub(super) length: usize,
}

impl Piece {
    /// Whether another begins where this one ends, on both sides.
    pub(super) fn leads_to(&self, next: &Piece) -> bool {
        let ends = (
            self.to.wrapping_add(self.length),
            self.from.wrapping_add(self.length),
        );
        self.way == next.way && ends == (next.to, next.from)
    }
}

struct Place {
    state: AtomicU32,
    to: AtomicPtr<u8>,
    from: AtomicPtr<u8>,
    /// Shifted by one; the lowest bit says whether it is a write.
    length: AtomicUsize,
}

pub(super) struct Ring {
    places: [Place; PLACES],
    /// Places that are ready, or about to be: none, and nobody has to look.
    ready: AtomicU32,
}

impl Ring {
    pub(super) fn new() -> Ring {
        let place = |_| Place {
            state: AtomicU32::new(FREE),
            to: AtomicPtr::new(std::ptr::null_mut()),
            from: AtomicPtr::new(std::ptr::null_mut()),
            length: AtomicUsize::new(0),
        };
        Ring {
            places: std::array::from_fn(place),
            ready: AtomicU32::new(0),
        }
    }

    /// By the one thread that puts. False: it is full.
    pub(super) fn put(&self, piece: &Piece, rules: Rules) -> bool {
        let is_free = |place: &&Place| place.state.load(Ordering::Acquire) == FREE;
        let Some(place) = self.places.iter().find(is_free) else {
            return false;
        };
        let write = || {
            let way = usize::from(piece.way == Way::Write);
            place.to.store(piece.to, Ordering::Relaxed);
            place.from.store(piece.from.cast_mut(), Ordering::Relaxed);
            place
                .length
                .store(piece.length << 1 | way, Ordering::Relaxed);
        };
        let is_written_first = rules.hold(Rule::WritesBeforeReady);
        if is_written_first {
            write();
        }
        self.ready.fetch_add(1, Ordering::SeqCst);
        place.state.store(READY, Ordering::SeqCst);
        if !is_written_first {
            write();
        }
        true
    }

    /// By the one thread that puts.
    pub(super) fn is_full(&self) -> bool {
        let is_free = |place: &Place| place.state.load(Ordering::SeqCst) == FREE;
        !self.places.iter().any(is_free)
    }

    /// By any thread of the node.
    pub(super) fn take(&self, rules: Rules) -> Option<Piece> {
        if self.ready.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mine = self.places.iter().find(|place| place.take(rules))?;
        self.ready.fetch_sub(1, Ordering::SeqCst);
        if !rules.hold(Rule::ReadsBeforeFreeing) {
            mine.state.store(FREE, Ordering::Release);
            return Some(mine.read());
        }
        let piece = mine.read();
        mine.state.store(FREE, Ordering::Release);
        Some(piece)
    }
}

impl Place {
    /// Whether it was ready, and is the caller's now.
    fn take(&self, rules: Rules) -> bool {
        if self.state.load(Ordering::Relaxed) != READY {
            return false;
        }
        if !rules.hold(Rule::TakesByExchange) {
            self.state.store(TAKEN, Ordering::Relaxed);
            return true;
        }
        self.state
            .compare_exchange(READY, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn read(&self) -> Piece {
        let length = self.length.load(Ordering::Relaxed);
        let way = if length & 1 == 1 {
            Way::Write
        } else {
            Way::Read
        };
        Piece {
            way,
            to: self.to.load(Ordering::Relaxed),
            from: self.from.load(Ordering::Relaxed),
            length: length >> 1,
        }
    }
}
