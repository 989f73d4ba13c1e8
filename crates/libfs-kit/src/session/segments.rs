//! The segments of the pool in this process: mapped on first use, those of the session's own for
//! writing.
//!
//! # Invariants
//! * `access` says how a segment is mapped; it changes under the connection's lock, after the mapping.
//! * Own segments are mapped until they are given back ([`Session::give_back`]); then zeroes stand in
//!   their place, until they are mapped anew. Those that another member of the group has given back
//!   are dropped before the next operation ([`Session::drop_withdrawn`]).

use super::Session;
use super::room::with_room;
use crate::received::Received;
use arck_core_state::superblock::Durability;
use arck_core_state::{PAGE_SIZE, PagePtr, PageWords, Pages, SegmentNumber};
use arck_pm::SharedBytes;
use arck_pm::mapping::{Access, MapOptions};
use arck_pm::placing::{self, Protection};
use arck_protocol::Request;
use arck_protocol::message::GIVE_BACK_MAX;
use arck_protocol::socket::{Answer, Call};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::Ordering;

thread_local! {
    /// Set where a segment could not be mapped for lack of permission.
    static DENIED: Cell<bool> = const { Cell::new(false) };
}

pub(super) const UNMAPPED: u8 = 0;
const READ_ONLY: u8 = 1;
/// For writing, as others may have it too, who have maps of the same file.
const TOGETHER: u8 = 2;
const OWN: u8 = 3;
/// [`OWN`], with all of its pages faulted in.
const POPULATED: u8 = 4;

const READ: Protection = libc::PROT_READ as Protection;
const WRITE: Protection = libc::PROT_WRITE as Protection;

impl Session {
    /// Whether this thread has met a segment that the controller did not let it map, since it last
    /// asked: then a page that cannot be reached is there, and [`Request::Admit`] may help.
    #[cold]
    pub fn take_denied(&self) -> bool {
        DENIED.replace(false)
    }

    /// Bytes of the pool from a page on; the page's segment is mapped if it is not yet.
    #[inline]
    pub fn page_bytes(&self, page: PagePtr) -> Option<SharedBytes<'_>> {
        if !self.geometry().contains(page) {
            return None;
        }
        self.reach(page)?;
        self.pool
            .bytes()
            .slice(usize::try_from(page.address()).ok()?, PAGE_SIZE as usize)
    }

    #[inline]
    fn reach(&self, page: PagePtr) -> Option<u8> {
        let segment = self.geometry().segment_of(page);
        match self.access.get(segment as usize)?.load(Ordering::Acquire) {
            UNMAPPED => self
                .map_segment(segment, false)
                .map_err(|errno| self.note_unreached(errno))
                .ok(),
            access => Some(access),
        }
    }

    /// Whether this session may store to the page: it lies in a data segment of its own.
    #[inline]
    pub fn is_own(&self, page: PagePtr) -> bool {
        if !self.geometry().contains(page) {
            return false;
        }
        let segment = self.geometry().segment_of(page);
        match self.access.get(segment as usize) {
            Some(access) if access.load(Ordering::Acquire) >= OWN => true,
            // Another member may have been granted it.
            Some(_) if self.is_of_group && self.state().data.has(self, segment) => {
                self.can_write(page)
            }
            _ => false,
        }
    }

    /// Whether a page of a data segment of the session's can be written here, where perhaps
    /// another member was granted it.
    #[inline]
    pub fn can_write(&self, page: PagePtr) -> bool {
        let segment = self.geometry().segment_of(page);
        let access = self.access.get(segment as usize);
        access.is_some_and(|access| access.load(Ordering::Acquire) >= OWN)
            || self.is_of_group
                && self
                    .map_segment(segment, true)
                    .map_err(|errno| self.note_unreached(errno))
                    .is_ok_and(|access| access >= OWN)
    }

    /// Whether a page can be stored to through maps of its file, which sessions have mapped together: its segment is
    /// mapped so, if the controller lets this session.
    pub fn can_write_together(&self, page: PagePtr) -> bool {
        if !self.geometry().contains(page) {
            return false;
        }
        let segment = self.geometry().segment_of(page);
        let access = self.access.get(segment as usize);
        let is_writable =
            || access.is_some_and(|access| access.load(Ordering::Acquire) >= TOGETHER);
        is_writable()
            || self
                .map_together(segment)
                .map_err(|errno| self.note_unreached(errno))
                .is_ok_and(|()| is_writable())
    }

    #[cold]
    fn map_together(&self, segment: SegmentNumber) -> Result<(), Errno> {
        let descriptors = match self.call_for_segments(&[segment], true) {
            Err(Errno::ACCESS) => return Ok(()),
            called => called?,
        };
        let [descriptor] = &*descriptors else {
            return Err(Errno::PROTO);
        };
        if !rustix::fs::fcntl_getfl(descriptor)?.contains(OFlags::RDWR) {
            return Ok(());
        }
        let _one_at_a_time = self.connection.one_at_a_time();
        let access = self.access.get(segment as usize).ok_or(Errno::FAULT)?;
        if access.load(Ordering::Acquire) < TOGETHER {
            let options = self.mapped_as(MapOptions::READ_WRITE);
            let length = self.geometry().segment_size as usize;
            self.pool
                .map(self.offset_of(segment), length, descriptor, 0, options)
                .map_err(|error| error.errno())?;
            access.store(TOGETHER, Ordering::Release);
            self.has_together.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// This process has no map any more for which it needs to write what others may write, too: it can read that, as far as
    /// it may, and no more.
    #[cold]
    pub fn let_go_together(&self) {
        if !self.has_together.swap(false, Ordering::AcqRel) {
            return;
        }
        for (segment, access) in (0..).zip(self.access.iter()) {
            if access.load(Ordering::Acquire) == TOGETHER && self.only_read(segment).is_err() {
                // The controller finds that it can still be written, and has what is there moved.
                self.has_together.store(true, Ordering::Release);
            }
        }
    }

    fn only_read(&self, segment: SegmentNumber) -> Result<(), Errno> {
        let descriptors = self.call_for_segments(&[segment], false)?;
        let descriptor = descriptors.first().ok_or(Errno::PROTO)?;
        let _one_at_a_time = self.connection.one_at_a_time();
        let access = self.access.get(segment as usize).ok_or(Errno::FAULT)?;
        let length = self.geometry().segment_size as usize;
        let options = self.mapped_as(MapOptions::READ_ONLY);
        self.pool
            .map(self.offset_of(segment), length, descriptor, 0, options)
            .map_err(|error| error.errno())?;
        access.store(READ_ONLY, Ordering::Release);
        Ok(())
    }

    /// Brings a page near that is about to be stored to for the first time, most likely: of a segment that
    /// another process of the group was granted, pages are faulted in one by one. A load has the kernel map
    /// those around it too, if they are there already; a store would not. In memory: on storage the store
    /// would fault again.
    #[inline]
    pub fn bring_near(&self, page: PagePtr) {
        let segment = self.geometry().segment_of(page);
        let access = self.access.get(segment as usize);
        if self.durability == Durability::Volatile
            && access.is_some_and(|access| access.load(Ordering::Relaxed) == OWN)
        {
            let bytes = self.page_bytes(page);
            let first = bytes.and_then(|bytes| bytes.load_u64(0, Ordering::Relaxed));
            std::hint::black_box(first);
        }
    }

    /// The same of what lies at an offset in the arena, which another process may have stored to.
    #[inline]
    pub fn bring_arena_near(&self, offset: u64) {
        if self.durability == Durability::Volatile && self.is_of_group {
            let bytes = self.arena_at(offset as usize);
            std::hint::black_box(bytes.load_u64(offset as usize, Ordering::Relaxed));
        }
    }

    /// Maps `count` pages from `page` on, all of one segment, at `address` too, for the program
    /// itself. EACCES if `protection` asks for more than this session may do there; EFAULT if
    /// they are not of one segment; ENOMEM. The range stays mapped, as something, in any case.
    ///
    /// # Safety
    /// `address` is the start of `count` pages that [`arck_pm::placing::reserve`] reserved.
    pub unsafe fn place_pages(
        &self,
        page: PagePtr,
        count: u64,
        address: usize,
        protection: Protection,
    ) -> Result<(), Errno> {
        let last = PagePtr(page.0 + count.saturating_sub(1));
        let geometry = self.geometry();
        if !geometry.contains(page)
            || !geometry.contains(last)
            || geometry.segment_of(page) != geometry.segment_of(last)
        {
            return Err(Errno::FAULT);
        }
        let given = match self.reach(page) {
            Some(access) if access == TOGETHER || self.is_own(page) => READ | WRITE,
            Some(_) if protection & WRITE == 0 => READ,
            Some(_) | None => return Err(Errno::ACCESS),
        };
        let offset = usize::try_from(page.address()).map_err(|_| Errno::FAULT)?;
        let length = usize::try_from(count * PAGE_SIZE).map_err(|_| Errno::FAULT)?;
        let source = self
            .pool
            .bytes()
            .slice(offset, length)
            .ok_or(Errno::FAULT)?;
        // SAFETY: the caller's promise; the segment is mapped as a whole.
        unsafe { placing::duplicate(source, given, address, protection) }
    }

    /// How many segments this process has mapped.
    pub fn mapped_segments(&self) -> usize {
        let mapped = self.access.iter();
        mapped
            .filter(|access| access.load(Ordering::Relaxed) != UNMAPPED)
            .count()
    }

    fn offset_of(&self, segment: SegmentNumber) -> usize {
        segment as usize * self.geometry().segment_size as usize
    }

    /// `to_write`: for writing, if it is the session's own.
    #[cold]
    fn map_segment(&self, segment: SegmentNumber, to_write: bool) -> Result<u8, Errno> {
        let access = self.access.get(segment as usize).ok_or(Errno::FAULT)?;
        let mut segments = vec![segment];
        if !to_write {
            // What others of the group have just mapped is wanted next, most likely: a short program
            // gets all that it will read by one question.
            segments.extend(self.recent().filter(|&other| {
                let access = self.access.get(other as usize);
                other != segment
                    && access.is_some_and(|access| access.load(Ordering::Relaxed) == UNMAPPED)
            }));
        }
        let mut called = self.call_for_segments(&segments, to_write);
        if called.is_err() && segments.len() > 1 {
            // One of the others is nobody's any more.
            self.forget_recent();
            segments.truncate(1);
            called = self.call_for_segments(&segments, to_write);
        }
        // EACCES (it is in nobody's use) is not remembered: a pointer into it was read while it
        // changed, as a rule, and the segment may be in use a moment later.
        if matches!(called, Err(Errno::ACCESS)) {
            DENIED.set(true);
        }
        let descriptors = called?;
        // Another thread may have been granted or have mapped it meanwhile: mapping a second
        // time read-only would take a writable mapping away, so it is decided under the lock.
        let _one_at_a_time = self.connection.one_at_a_time();
        for (&other, descriptor) in segments.iter().zip(&*descriptors) {
            if other != segment && self.state().data.is_withdrawn(self, other) {
                // Nothing has led there, and whoever gives it back would not wait for us.
                continue;
            }
            let mapped = self.map_by(other, descriptor.as_fd());
            if other == segment {
                mapped?;
            }
        }
        if !to_write {
            self.note_recent(segment);
        }
        Ok(access.load(Ordering::Acquire))
    }

    /// One descriptor for each.
    fn call_for_segments(
        &self,
        segments: &[SegmentNumber],
        to_write: bool,
    ) -> Result<Received, Errno> {
        let count = segments.len();
        let (answer, descriptors) = with_room(|| {
            let segments = segments.to_vec();
            self.call(&match to_write {
                true => Call::MapSegments { segments },
                false => Call::ReadSegments { segments },
            })
        })?;
        match answer {
            Answer::Segments(_) if descriptors.len() == count => Ok(descriptors),
            _ => Err(Errno::PROTO),
        }
    }

    /// Maps a segment as its descriptor allows, unless it is mapped so, or better. Under the connection's
    /// lock.
    fn map_by(&self, segment: SegmentNumber, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        let access = self.access.get(segment as usize).ok_or(Errno::FAULT)?;
        let given = match rustix::fs::fcntl_getfl(descriptor)?.contains(OFlags::RDWR) {
            // Only what another member was granted; else it is one that was given back.
            true if self.is_of_group => OWN,
            _ => READ_ONLY,
        };
        if access.load(Ordering::Acquire) >= given {
            return Ok(());
        }
        let options = match given {
            OWN => self.mapped_as(MapOptions::READ_WRITE),
            _ => self.mapped_as(MapOptions::READ_ONLY),
        };
        let length = self.geometry().segment_size as usize;
        self.pool
            .map(self.offset_of(segment), length, descriptor, 0, options)
            .map_err(|error| error.errno())?;
        access.store(given, Ordering::Release);
        Ok(())
    }

    /// The segments that members of the group have mapped last to read; of no group: none.
    fn recent(&self) -> impl Iterator<Item = SegmentNumber> {
        let state = self.is_of_group.then(|| self.state());
        state.into_iter().flat_map(|state| state.data.recent())
    }

    fn note_recent(&self, segment: SegmentNumber) {
        if self.is_of_group {
            self.state().data.note_recent(segment);
        }
    }

    fn forget_recent(&self) {
        if self.is_of_group {
            self.state().data.forget_recent();
        }
    }

    /// One more data segment of this session's own, mapped read-write and populated. ENOSPC.
    pub fn grant_segment(&self) -> Result<SegmentNumber, Errno> {
        with_room(|| self.grant_segment_once())
    }

    fn grant_segment_once(&self) -> Result<SegmentNumber, Errno> {
        let answered = self.call_for_any(&Call::GrantSegment, &[])?;
        let Answer::Segments(segments) = &answered.answer else {
            return Err(Errno::PROTO);
        };
        let &[segment] = segments.as_slice() else {
            return Err(Errno::PROTO);
        };
        let mapped = match (&*answered.descriptors, answered.are_lost) {
            ([descriptor], false) => self.map_granted(segment, descriptor.as_fd()),
            (_, true) => Err(Errno::MFILE),
            _ => Err(Errno::PROTO),
        };
        if mapped.is_err() {
            // Else each attempt would cost one: it is the session's, and nobody knows of it.
            drop(answered);
            let segments = vec![segment];
            let _ = self.ask(&Request::GiveBack { segments });
        }
        mapped.map(|()| segment)
    }

    /// Maps a segment that was just granted, and populates it.
    fn map_granted(&self, segment: SegmentNumber, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        let access = self.access.get(segment as usize).ok_or(Errno::PROTO)?;
        let _one_at_a_time = self.connection.one_at_a_time();
        let length = self.geometry().segment_size as usize;
        let options = self.mapped_as(MapOptions::READ_WRITE);
        self.pool
            .map(self.offset_of(segment), length, descriptor, 0, options)
            .map_err(|error| error.errno())?;
        // Faults taken now, all at once, cost less than one by one on the path of a write;
        // failing to populate is no failure to map.
        let _ = self
            .pool
            .populate(self.offset_of(segment), length, self.populated_for());
        access.store(POPULATED, Ordering::Release);
        Ok(())
    }

    /// Gives data segments of this session's own back, in which nothing is, and will be: from now on
    /// nothing of them is reached here before it is mapped anew. Blocks for an answer.
    pub fn give_back(&self, segments: &[SegmentNumber]) -> Result<(), Errno> {
        for part in segments.chunks(GIVE_BACK_MAX) {
            {
                let _one_at_a_time = self.connection.one_at_a_time();
                for &segment in part {
                    self.drop_segment(segment)?;
                }
            }
            self.ask(&Request::GiveBack {
                segments: part.to_vec(),
            })?;
        }
        Ok(())
    }

    /// Whether another member of the group has given back segments that this process may have mapped.
    /// To be asked with the epoch pinned, before any page is reached.
    #[inline]
    pub fn has_missed_withdrawals(&self) -> bool {
        self.is_of_group
            && self.state().data.withdrawals() != self.withdrawals_seen.load(Ordering::Acquire)
    }

    /// Drops the mappings of segments that members of the group have given back. Outside of operations.
    #[cold]
    pub fn drop_withdrawn(&self) -> Result<(), Errno> {
        // To the end: a thread that goes on meanwhile must not find a segment dropped under it.
        let _one_at_a_time = self.connection.one_at_a_time();
        let data = &self.state().data;
        let now = data.withdrawals();
        let seen = self.withdrawals_seen.load(Ordering::Acquire);
        for segment in data.withdrawn_since(self, seen) {
            self.drop_segment(segment)?;
        }
        self.withdrawals_seen.store(now, Ordering::Release);
        Ok(())
    }

    /// Puts zeroes in a segment's place. Under the connection's lock.
    fn drop_segment(&self, segment: SegmentNumber) -> Result<(), Errno> {
        let access = self.access.get(segment as usize).ok_or(Errno::INVAL)?;
        let length = self.geometry().segment_size as usize;
        // A thread that reads by a pointer that counts no more sees zeroes.
        let replaced = self.pool.replace_by_zeroes(self.offset_of(segment), length);
        replaced.map_err(|error| error.errno())?;
        access.store(UNMAPPED, Ordering::Release);
        Ok(())
    }

    /// Faults in a part of the arena that was just allocated.
    pub fn populate_arena(&self, offset: u64, length: u64) {
        let range = self.arena.bytes().slice(offset as usize, length as usize);
        if let Some(range) = range {
            let _ = arck_pm::mapping::populate(range, self.populated_for());
        }
    }

    fn mapped_as(&self, options: MapOptions) -> MapOptions {
        options
            .synchronous(options.access == Access::ReadWrite && self.durability == Durability::Dax)
            .memory(self.durability != Durability::Paged)
    }

    /// What pages that are to be stored to are populated for: see [`arck_pm::mapping::populate`].
    fn populated_for(&self) -> Access {
        match self.durability {
            Durability::Volatile => Access::ReadOnly,
            Durability::Dax | Durability::Paged => Access::ReadWrite,
        }
    }
}

impl Pages for Session {
    #[inline]
    fn page(&self, page: PagePtr) -> Option<&PageWords> {
        let bytes = self.page_bytes(page)?;
        // SAFETY: 4096 mapped bytes, page aligned, alive as long as `self`; all atomics.
        Some(unsafe { &*bytes.as_ptr().cast::<PageWords>() })
    }
}
