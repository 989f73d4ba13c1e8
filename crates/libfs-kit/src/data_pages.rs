//! Free pages in the data segments that this session owns.
//!
//! # Invariants
//! * A page is free if neither the controller's page bitmap (the verified state refers to it)
//!   nor `taken` (an unfolded delta of this session refers to it, or a thread is filling it)
//!   has its bit set. So a page that a fold drops becomes free here without a message.
//! * `taken` bits are set under `lock`; they are cleared, in any order, once nothing of this
//!   session refers to the page but the verified state.
//! * Of a segment that is given back ([`DataPages::withdraw`]) no page is taken any more; it has none
//!   that is not free, and whatever was read of it does not count.
//! * In a trust group each process has segments mapped that another one gives back. It drops such a
//!   mapping before its next operation: `withdrawals` counts them, and whoever pins the epoch compares
//!   it with what its process has seen ([`Session::has_missed_withdrawals`]). The controller is told
//!   only after a time in which every thread that was inside has left, so no operation is in between.
//! * Neither taking nor releasing a page takes longer the more segments there are: a segment is
//!   found by its number in `table`, and the search for a free page goes on where the last one
//!   ended, so that it passes each full segment once a round.

use crate::carried::Carried;
use crate::need::Need;
use crate::region::{AtomicOffset, Offset, ThreadSlot};
use crate::session::Session;
use crate::state::data_pages::{LEAF, OwnSegment, RECENT, SegmentLeaf, WORDS};

pub use crate::state::data_pages::DataPages;
use arck_core_state::{PagePtr, SegmentNumber};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Empty segments that a session keeps when it gives others back.
const KEPT_EMPTY: usize = 2;
/// It gives none back while the pool has so many times as much free as it holds.
const PLENTY: u64 = 4;
/// So long the group's other threads have to leave the operations that they are in.
const ALL_LEAVE: Duration = Duration::from_millis(100);
/// See [`DataPages::remember`]; the kit's own root is 0, the LibFS's from 1 on.
const OLD_SEGMENTS: usize = crate::region::ROOTS - 1;

/// A segment as a build of the auxiliary state had it.
pub struct OldSegment {
    number: SegmentNumber,
    is_withdrawn: bool,
    withdrawn_at: u64,
    taken: [u64; WORDS],
}

impl DataPages {
    /// Where the leaf of a segment hangs. `None`: there is no table yet, or no such segment.
    fn leaf<'s>(
        &self,
        session: &'s Session,
        segment: SegmentNumber,
    ) -> Option<&'s AtomicOffset<SegmentLeaf>> {
        let table = self.table.load(Ordering::Acquire).non_null()?;
        if segment >= session.geometry().segment_count {
            return None;
        }
        let place = segment as usize / LEAF * size_of::<AtomicOffset<SegmentLeaf>>();
        session
            .region()
            .try_get(Offset::from_raw(table.raw() + place as u64))
    }

    fn find<'s>(&self, session: &'s Session, segment: SegmentNumber) -> Option<&'s OwnSegment> {
        // Own segments, and the table, are never freed while the session lives: no epoch is needed.
        let region = session.region();
        let leaf = region.try_get(self.leaf(session, segment)?.load(Ordering::Acquire))?;
        region.try_get(leaf.segments[segment as usize % LEAF].load(Ordering::Acquire))
    }

    /// The segments that members of the group have mapped last to read. A hint: they may be nobody's.
    pub fn recent(&self) -> impl Iterator<Item = SegmentNumber> {
        let noted = self.recent.iter();
        noted.filter_map(|noted| noted.load(Ordering::Relaxed).checked_sub(1))
    }

    /// Notes one, in the place of that which was noted first.
    pub fn note_recent(&self, segment: SegmentNumber) {
        if self.recent().all(|noted| noted != segment) {
            let turn = self.noted.fetch_add(1, Ordering::Relaxed) as usize % RECENT;
            self.recent[turn].store(segment + 1, Ordering::Relaxed);
        }
    }

    pub fn forget_recent(&self) {
        for noted in &self.recent {
            noted.store(0, Ordering::Relaxed);
        }
    }

    /// Notes where the segments of the generation stand that is about to be replaced, for
    /// [`DataPages::begin_again`], however often that has to be begun.
    pub fn remember(&self, session: &Session) -> Result<(), Errno> {
        let first = self.first.load(Ordering::Acquire).raw();
        remembered(session)?.store(first, Ordering::Release);
        Ok(())
    }

    /// The segments of the generation that is being replaced. To be asked before anything is allocated
    /// in the new one, which may lie in the old one's place.
    pub fn look_at_old(&self, session: &Session) -> Result<Vec<OldSegment>, Errno> {
        let region = session.region();
        let before = remembered(session)?.load(Ordering::Acquire);
        let mut at = Offset::<OwnSegment>::from_raw(before);
        let mut old = Vec::new();
        let most = session.geometry().segment_count as usize;
        while old.len() < most
            && let Some(own) = region.try_get(at)
        {
            old.push(OldSegment {
                number: own.number.load(Ordering::Relaxed),
                is_withdrawn: own.is_withdrawn.load(Ordering::Relaxed) != 0,
                withdrawn_at: own.withdrawn_at.load(Ordering::Relaxed),
                taken: std::array::from_fn(|index| own.taken[index].load(Ordering::Relaxed)),
            });
            at = own.next.load(Ordering::Relaxed);
        }
        Ok(old)
    }

    /// In a new build of the auxiliary state, when no delta is left but those that go on: what
    /// neither they nor the verified state use is free, but where `keeping` not what was taken. ENOMEM.
    pub fn begin_again(
        &self,
        session: &Session,
        slot: &ThreadSlot<'_>,
        old: Vec<OldSegment>,
        keeping: bool,
        carried: &Carried,
    ) -> Result<(), Errno> {
        self.lock.reset();
        let region = session.region();
        self.segments.store(0, Ordering::Relaxed);
        self.first.store(Offset::NULL, Ordering::Relaxed);
        self.current.store(Offset::NULL, Ordering::Relaxed);
        self.table.store(Offset::NULL, Ordering::Release);
        self.make_table(session, slot)?;
        for before in old {
            let first = session.geometry().first_page(before.number).0 as usize / 64;
            let words = (session.geometry().pages_per_segment() / 64) as usize;
            // What the verified state uses need not be taken besides.
            let taken = |index: usize| match keeping && index < words {
                true => before.taken[index] & !session.bitmap_word(first + index),
                false => 0,
            };
            let own = OwnSegment::new(before.withdrawn_at, taken);
            let own = region.allocate(slot, own).map_err(|_| Errno::NOMEM)?;
            let leaf = region
                .allocate_zeroed::<SegmentLeaf>(slot, 1)
                .map_err(|_| Errno::NOMEM)?;
            let place = self.leaf(session, before.number).ok_or(Errno::IO)?;
            self.put(session, slot, before.number, (own, leaf), place);
            if before.is_withdrawn {
                region.get(own).is_withdrawn.store(1, Ordering::Release);
                self.segments.fetch_sub(1, Ordering::Relaxed);
            }
        }
        for &page in &carried.data_pages {
            self.change_taken(session, page, |word, bit| {
                word.fetch_or(bit, Ordering::Relaxed)
            });
        }
        Ok(())
    }

    /// Changes the bit of a page of an own segment.
    fn change_taken(
        &self,
        session: &Session,
        page: PagePtr,
        change: impl FnOnce(&AtomicU64, u64) -> u64,
    ) {
        if !session.geometry().contains(page) {
            return;
        }
        let segment = session.geometry().segment_of(page);
        if let Some(own) = self.find(session, segment) {
            let index = page.0 - session.geometry().first_page(segment).0;
            if let Some(word) = own.taken.get((index / 64) as usize) {
                change(word, 1 << (index % 64));
            }
        }
    }

    /// Whether a segment is one of the session's own.
    pub fn has(&self, session: &Session, segment: SegmentNumber) -> bool {
        let own = self.find(session, segment);
        own.is_some_and(|own| own.is_withdrawn.load(Ordering::Acquire) == 0)
    }

    /// Whether a segment is one that was given back, or is about to be. To be asked under the connection's
    /// lock by who is about to map it without having been led there by a pointer: who marks it waits for
    /// those that are inside, and who drops it does so under that lock.
    pub fn is_withdrawn(&self, session: &Session, segment: SegmentNumber) -> bool {
        let own = self.find(session, segment);
        own.is_some_and(|own| own.is_withdrawn.load(Ordering::Acquire) != 0)
    }

    /// Takes a free page of an own segment.
    pub fn take(&self, session: &Session, slot: &ThreadSlot<'_>) -> Result<PagePtr, Need> {
        let page = self.take_any(session, slot).ok_or(Need::DataPages(1))?;
        if !session.can_write(page) {
            // Another member was granted it, and this process can map nothing more.
            self.release(session, page);
            return Err(Need::DataPages(1));
        }
        session.bring_near(page);
        Ok(page)
    }

    /// Takes as many at once, or none.
    pub fn take_all(
        &self,
        session: &Session,
        slot: &ThreadSlot<'_>,
        pages: &mut [u64],
    ) -> Result<(), Need> {
        let mut count = 0;
        {
            let _locked = self.lock.lock(slot.holder());
            for place in pages.iter_mut() {
                let Some(page) = self.next(session) else {
                    break;
                };
                *place = page.0;
                count += 1;
            }
        }
        let is_enough = count == pages.len();
        if is_enough && pages.iter().all(|&page| session.can_write(PagePtr(page))) {
            pages
                .iter()
                .for_each(|&page| session.bring_near(PagePtr(page)));
            return Ok(());
        }
        for &page in &pages[..count] {
            self.release(session, PagePtr(page));
        }
        Err(Need::DataPages(
            u32::try_from(pages.len()).unwrap_or(u32::MAX),
        ))
    }

    fn take_any(&self, session: &Session, slot: &ThreadSlot<'_>) -> Option<PagePtr> {
        let _locked = self.lock.lock(slot.holder());
        self.next(session)
    }

    /// A free page, taken. Under the lock.
    fn next(&self, session: &Session) -> Option<PagePtr> {
        let region = session.region();
        let current = self.current.load(Ordering::Relaxed);
        let mut at = current;
        let mut is_again = false;
        loop {
            let Some(own) = region.try_get(at) else {
                if is_again || current.is_null() {
                    return None;
                }
                is_again = true;
                at = self.first.load(Ordering::Relaxed);
                continue;
            };
            if let Some(page) = own.take(session) {
                self.current.store(at, Ordering::Relaxed);
                return Some(page);
            }
            at = own.next.load(Ordering::Relaxed);
            if is_again && at == current {
                return None;
            }
        }
    }

    /// Whether own segments have so many free pages.
    pub fn has_free(&self, session: &Session, count: u32) -> bool {
        let geometry = session.geometry();
        let words = (geometry.pages_per_segment() / 64) as usize;
        let mut free = 0;
        let mut at = self.first.load(Ordering::Acquire);
        while free < count
            && let Some(own) = session.region().try_get(at)
        {
            at = own.next.load(Ordering::Acquire);
            if own.is_withdrawn.load(Ordering::Acquire) != 0 {
                continue;
            }
            let first = geometry.first_page(own.number.load(Ordering::Relaxed)).0 / 64;
            for index in 0..words {
                let taken = own.taken[index].load(Ordering::Acquire)
                    | session.bitmap_word(first as usize + index);
                free += taken.count_zeros();
            }
        }
        free >= count
    }

    /// The page is no longer referred to by anything of this session's deltas.
    pub fn release(&self, session: &Session, page: PagePtr) {
        self.change_taken(session, page, |word, bit| {
            word.fetch_and(!bit, Ordering::Release)
        });
    }

    /// Keeps pages from being taken, though nothing refers to them any more: another process may store to them through
    /// a map. They are nobody's until the session ends.
    pub fn withhold(&self, session: &Session, slot: &ThreadSlot<'_>, pages: &[PagePtr]) {
        let _locked = self.lock.lock(slot.holder());
        for &page in pages {
            self.change_taken(session, page, |word, bit| {
                word.fetch_or(bit, Ordering::Release)
            });
        }
    }

    /// Gets one more segment from the controller. Outside of operations. ENOSPC, ENOMEM.
    pub fn grow(&self, session: &Session, slot: &ThreadSlot<'_>) -> Result<(), Errno> {
        // Memory first: a segment that nobody knows of would be lost as long as the session lives.
        let own = OwnSegment::new(0, |_| 0);
        let region = session.region();
        self.make_table(session, slot)?;
        let leaf = region
            .allocate_zeroed::<SegmentLeaf>(slot, 1)
            .map_err(|_| Errno::NOMEM)?;
        let own = region
            .allocate(slot, own)
            .map_err(|_| Errno::NOMEM)
            .inspect_err(|_| region.free(slot, leaf))?;
        let granted = session.grant_segment().and_then(|number| {
            let place = self.leaf(session, number).ok_or(Errno::PROTO)?;
            Ok((number, place))
        });
        let (number, place) = granted.inspect_err(|_| {
            region.free(slot, leaf);
            region.free(slot, own);
        })?;
        self.put(session, slot, number, (own, leaf), place);
        Ok(())
    }

    /// Puts a segment into list and table; `leaf` is the table's there if it has none yet.
    fn put(
        &self,
        session: &Session,
        slot: &ThreadSlot<'_>,
        number: SegmentNumber,
        (own, leaf): (Offset<OwnSegment>, Offset<SegmentLeaf>),
        place: &AtomicOffset<SegmentLeaf>,
    ) {
        let region = session.region();
        region.get(own).number.store(number, Ordering::Relaxed);
        let _locked = self.lock.lock(slot.holder());
        let leaf =
            match place.compare_exchange(Offset::NULL, leaf, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => leaf,
                Err(other) => {
                    region.free(slot, leaf);
                    other
                }
            };
        self.segments.fetch_add(1, Ordering::Relaxed);
        let place = &region.get(leaf).segments[number as usize % LEAF];
        let former = place.load(Ordering::Acquire);
        if let Some(again) = region.try_get(former) {
            // It was given back, and is on the list.
            again.is_withdrawn.store(0, Ordering::Release);
            self.current.store(former, Ordering::Relaxed);
            region.free(slot, own);
            return;
        }
        place.store(own, Ordering::Release);
        let first: Offset<OwnSegment> = self.first.load(Ordering::Relaxed);
        region.get(own).next.store(first, Ordering::Relaxed);
        self.first.store(own, Ordering::Release);
        self.current.store(own, Ordering::Relaxed);
    }

    /// Files have lost so many pages.
    pub fn note_dropped(&self, pages: u64) {
        if pages != 0 {
            self.dropped.fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// Whether so much was dropped since this was last so, while others would get little, that giving
    /// back is worth a fold.
    #[inline]
    pub fn may_give_back(&self, session: &Session) -> bool {
        let pages = session.geometry().pages_per_segment();
        if self.dropped.load(Ordering::Relaxed) < KEPT_EMPTY as u64 * pages {
            return false;
        }
        self.dropped.store(0, Ordering::Relaxed);
        let own = u64::from(self.segments.load(Ordering::Relaxed)) * pages;
        let free = session.control().header.pages_free.load(Ordering::Relaxed);
        own > KEPT_EMPTY as u64 * pages && free < own * PLENTY
    }

    /// Gives back own segments in which nothing is, but for [`KEPT_EMPTY`]. Outside of operations.
    pub fn give_back(&self, session: &Session, slot: &ThreadSlot<'_>) -> Result<(), Errno> {
        let withdraw = || self.withdraw(session, slot);
        let Some(withdrawn) = slot.inside(withdraw).filter(|some| !some.is_empty()) else {
            return Ok(());
        };
        if session.is_of_group() && !all_have_left(slot) {
            while slot
                .inside(|| self.keep(session, slot, &withdrawn))
                .is_none()
            {
                arck_protocol::wait::sleep(Duration::from_millis(1));
            }
            return Err(Errno::AGAIN);
        }
        session.give_back(&withdrawn)
    }

    /// Own segments in which nothing is, but for some: no page of them is taken from now on.
    fn withdraw(&self, session: &Session, slot: &ThreadSlot<'_>) -> Vec<SegmentNumber> {
        let _locked = self.lock.lock(slot.holder());
        let next = self.withdrawals.load(Ordering::Relaxed) + 1;
        let mut kept = 0;
        let mut withdrawn = Vec::new();
        for own in self.own(session) {
            if own.is_withdrawn.load(Ordering::Relaxed) == 0 && own.is_empty(session) {
                kept += 1;
                if kept > KEPT_EMPTY {
                    own.withdrawn_at.store(next, Ordering::Relaxed);
                    own.is_withdrawn.store(1, Ordering::Release);
                    self.segments.fetch_sub(1, Ordering::Relaxed);
                    withdrawn.push(own.number.load(Ordering::Relaxed));
                }
            }
        }
        if !withdrawn.is_empty() {
            self.forget_recent();
        }
        // A full barrier before anybody looks who is inside: whoever pins the epoch after that sees it.
        self.withdrawals.store(next, Ordering::SeqCst);
        withdrawn
    }

    /// Takes back that segments were withdrawn, of which the controller has not been told.
    fn keep(&self, session: &Session, slot: &ThreadSlot<'_>, withdrawn: &[SegmentNumber]) {
        let _locked = self.lock.lock(slot.holder());
        for own in withdrawn.iter().filter_map(|&s| self.find(session, s)) {
            own.is_withdrawn.store(0, Ordering::Release);
            self.segments.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All segments that were ever granted, those given back too.
    fn own<'s>(&self, session: &'s Session) -> impl Iterator<Item = &'s OwnSegment> {
        let region = session.region();
        let first = region.try_get(self.first.load(Ordering::Acquire));
        std::iter::successors(first, |own| {
            region.try_get(own.next.load(Ordering::Acquire))
        })
    }

    /// How often segments were given back.
    #[inline]
    pub fn withdrawals(&self) -> u64 {
        self.withdrawals.load(Ordering::Acquire)
    }

    /// Segments that were given back since `withdrawals` was `since`; some of them may be own again.
    pub fn withdrawn_since<'s>(
        &self,
        session: &'s Session,
        since: u64,
    ) -> impl Iterator<Item = SegmentNumber> + use<'s, '_> {
        self.own(session)
            .filter(move |own| own.withdrawn_at.load(Ordering::Acquire) > since)
            .map(|own| own.number.load(Ordering::Relaxed))
    }

    /// The table's upper part, made with the first segment.
    fn make_table(&self, session: &Session, slot: &ThreadSlot<'_>) -> Result<(), Errno> {
        let _locked = self.lock.lock(slot.holder());
        if self.table.load(Ordering::Relaxed).is_null() {
            let leaves = (session.geometry().segment_count as usize).div_ceil(LEAF);
            let table = session
                .region()
                .allocate_zeroed::<AtomicOffset<SegmentLeaf>>(slot, leaves)
                .map_err(|_| Errno::NOMEM)?;
            self.table.store(table, Ordering::Release);
        }
        Ok(())
    }
}

/// The word of the region that leads to the segments of the generation that is being replaced.
fn remembered(session: &Session) -> Result<&AtomicU64, Errno> {
    session
        .region()
        .auxiliary_root(OLD_SEGMENTS)
        .ok_or(Errno::IO)
}

/// Waits until every thread that is inside the LibFS now has left, in whatever process of the group;
/// false if that takes too long: one may be stopped, or dead.
fn all_have_left(slot: &ThreadSlot<'_>) -> bool {
    let region = slot.region();
    // Twice, as for memory that is retired ([`crate::region`]).
    let wanted = region.epoch() + 2;
    let began = Instant::now();
    loop {
        slot.collect();
        if region.epoch() >= wanted {
            return true;
        }
        if began.elapsed() > ALL_LEAVE {
            return false;
        }
        arck_protocol::wait::sleep(Duration::from_micros(50));
    }
}

impl OwnSegment {
    fn new(withdrawn_at: u64, taken: impl Fn(usize) -> u64) -> OwnSegment {
        OwnSegment {
            number: AtomicU32::new(0),
            hint: AtomicU32::new(0),
            next: AtomicOffset::default(),
            is_withdrawn: AtomicU64::new(0),
            withdrawn_at: AtomicU64::new(withdrawn_at),
            taken: std::array::from_fn(|index| AtomicU64::new(taken(index))),
        }
    }

    /// Whether all its pages are free. Under the lock of [`DataPages`].
    fn is_empty(&self, session: &Session) -> bool {
        let geometry = session.geometry();
        let words = (geometry.pages_per_segment() / 64) as usize;
        let first = geometry.first_page(self.number.load(Ordering::Relaxed)).0 / 64;
        // In this order: what is not taken any more may be in use since.
        self.taken
            .iter()
            .take(words)
            .enumerate()
            .all(|(index, taken)| {
                taken.load(Ordering::Acquire) == 0
                    && session.bitmap_word(first as usize + index) == 0
            })
    }

    fn take(&self, session: &Session) -> Option<PagePtr> {
        if self.is_withdrawn.load(Ordering::Relaxed) != 0 {
            return None;
        }
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
        None
    }
}
