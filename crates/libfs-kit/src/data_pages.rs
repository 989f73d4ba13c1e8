//! Free pages in the data segments that this session owns.
//!
//! # Invariants
//! * A page is free if neither the controller's page bitmap (the verified state refers to it)
//!   nor `taken` (an unfolded delta of this session refers to it, or a thread is filling it)
//!   has its bit set. So a page that a fold drops becomes free here without a message.
//! * `taken` bits are set under `lock`; they are cleared, in any order, once nothing of this
//!   session refers to the page but the verified state.

use crate::region::{AtomicOffset, Lock, Offset, ThreadSlot};
use crate::region_shared;
use crate::session::Session;
use arck_core_state::{PagePtr, SegmentNumber};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Words of bits for the largest segment (16 MiB, 4096 pages).
const WORDS: usize = 64;

region_shared! {
    /// A data segment of this session.
    pub struct OwnSegment {
        number: AtomicU32,
        /// Word at which the next search begins.
        hint: AtomicU32,
        /// Next in the list of own segments.
        next: AtomicOffset<OwnSegment>,
        taken: [AtomicU64; WORDS],
    }

    /// In the auxiliary state.
    pub struct DataPages {
        lock: Lock,
        segments: AtomicU32,
        /// All own segments; the first is the one being filled.
        first: AtomicOffset<OwnSegment>,
    }
}

impl DataPages {
    fn find<'s>(&self, session: &'s Session, segment: SegmentNumber) -> Option<&'s OwnSegment> {
        // Own segments are never freed while the session lives: no epoch is needed.
        let mut at = self.first.load(Ordering::Acquire);
        while let Some(own) = session.region().try_get(at) {
            if own.number.load(Ordering::Relaxed) == segment {
                return Some(own);
            }
            at = own.next.load(Ordering::Acquire);
        }
        None
    }

    /// Takes a free page of an own segment. `None`: none is left, see [`DataPages::grow`].
    pub fn take(&self, session: &Session, slot: &ThreadSlot<'_>) -> Option<PagePtr> {
        let _locked = self.lock.lock(slot.holder());
        let region = session.region();
        let mut at = self.first.load(Ordering::Relaxed);
        while let Some(own) = region.try_get(at) {
            if let Some(page) = own.take(session) {
                return Some(page);
            }
            at = own.next.load(Ordering::Relaxed);
        }
        None
    }

    /// Whether some own segment has a free page.
    pub fn has_free(&self, session: &Session) -> bool {
        let mut at = self.first.load(Ordering::Acquire);
        while let Some(own) = session.region().try_get(at) {
            let first = session
                .geometry()
                .first_page(own.number.load(Ordering::Relaxed))
                .0
                / 64;
            let words = (session.geometry().pages_per_segment() / 64) as usize;
            let full = (0..words).all(|index| {
                own.taken[index].load(Ordering::Acquire)
                    | session.bitmap_word(first as usize + index)
                    == u64::MAX
            });
            if !full {
                return true;
            }
            at = own.next.load(Ordering::Acquire);
        }
        false
    }

    /// The page is no longer referred to by anything of this session's deltas.
    pub fn release(&self, session: &Session, page: PagePtr) {
        if !session.geometry().contains(page) {
            return;
        }
        let segment = session.geometry().segment_of(page);
        if let Some(own) = self.find(session, segment) {
            let index = page.0 - session.geometry().first_page(segment).0;
            if let Some(word) = own.taken.get((index / 64) as usize) {
                word.fetch_and(!(1 << (index % 64)), Ordering::Release);
            }
        }
    }

    /// Gets one more segment from the controller. Outside of operations. ENOSPC, ENOMEM.
    pub fn grow(&self, session: &Session, slot: &ThreadSlot<'_>) -> Result<(), Errno> {
        // Memory first: a segment that nobody knows of would be lost as long as the session lives.
        let own = OwnSegment {
            number: AtomicU32::new(0),
            hint: AtomicU32::new(0),
            next: AtomicOffset::default(),
            taken: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        let own = session
            .region()
            .allocate(slot, own)
            .map_err(|_| Errno::NOMEM)?;
        let number = session
            .grant_segment()
            .inspect_err(|_| session.region().free(slot, own))?;
        let granted = &session.region().get(own).number;
        granted.store(number, Ordering::Relaxed);
        let _locked = self.lock.lock(slot.holder());
        let first: Offset<OwnSegment> = self.first.load(Ordering::Relaxed);
        session
            .region()
            .get(own)
            .next
            .store(first, Ordering::Relaxed);
        self.first.store(own, Ordering::Release);
        self.segments.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl OwnSegment {
    fn take(&self, session: &Session) -> Option<PagePtr> {
        let geometry = session.geometry();
        let words = (geometry.pages_per_segment() / 64) as usize;
        let first = geometry.first_page(self.number.load(Ordering::Relaxed));
        let hint = self.hint.load(Ordering::Relaxed) as usize;
        for step in 0..words {
            let index = (hint + step) % words;
            let taken = self.taken[index].load(Ordering::Acquire);
            let used = taken | session.bitmap_word((first.0 / 64) as usize + index);
            if used != u64::MAX {
                let bit = used.trailing_ones();
                self.taken[index].fetch_or(1 << bit, Ordering::Relaxed);
                self.hint.store(index as u32, Ordering::Relaxed);
                let page = PagePtr(first.0 + index as u64 * 64 + u64::from(bit));
                // Page 0 of the pool is null and never handed out.
                return if page.is_null() {
                    self.take(session)
                } else {
                    Some(page)
                };
            }
        }
        // A full segment is not searched again word by word each time: the next search starts
        // where this one did, and pages that become free are found on the next round.
        None
    }
}
