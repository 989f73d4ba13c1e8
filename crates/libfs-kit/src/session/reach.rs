//! How far this process can reach into the long files of its session: the arena and the table of inode
//! headers.
//!
//! Both have room for far more than is ever in use, and grow by what others do: another member has the
//! controller allocate more of the arena, another session makes inodes. What is behind the end of what
//! this process has mapped becomes reachable when it is needed for the first time.
//!
//! # Invariants
//! * Of the arena exactly what the controller has allocated can be reached: a store elsewhere, or a scanner's
//!   load, would take memory of the pool's file system.
//! * What can be reached stays so.
//! * What is there and could not be reached, for lack of addresses or descriptors or of a controller, is noted
//!   for the thread ([`crate::ThreadContext::unreached`]): it is never taken for what the state says.

use super::Session;
use arck_core_state::arena::{ARENA_SPAN, DELTA_FIRST};
use arck_core_state::{Geometry, InodeNumber, PAGE_SIZE};
use arck_pm::long::{Part, is_limited};
use arck_pm::{LongFile, MapOptions, SharedBytes};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Where the arena's second part, that of the delta pages, begins, in bytes.
const DELTAS: usize = DELTA_FIRST as usize * PAGE_SIZE as usize;
/// The table of headers is reached by so many more.
const HEADERS_STEP: u32 = 1024;
const HEADER_SIZE: usize = 64;

/// The parts of an arena of so many pages, in bytes.
pub(super) fn arena_parts(branch_pages: u32, delta_pages: u32) -> [Part; 2] {
    let page = PAGE_SIZE as usize;
    let branches = Part {
        start: 0,
        end: ((1 + branch_pages as usize) * page).min(DELTAS),
    };
    let deltas = Part {
        start: DELTAS,
        // A new session has some.
        end: (DELTAS + delta_pages.max(1) as usize * page).min(ARENA_SPAN as usize),
    };
    [branches, deltas]
}

/// How many headers are reached at first.
pub(super) fn first_headers(geometry: &Geometry) -> u32 {
    HEADERS_STEP.min(geometry.inode_count)
}

/// The table of headers, with the first of them.
pub(super) fn headers(file: impl AsFd, geometry: &Geometry) -> arck_pm::Result<LongFile> {
    let length = usize::try_from(geometry.header_table_size()).unwrap_or(usize::MAX);
    let end = bytes_of(first_headers(geometry)).min(length);
    let first = Part { start: 0, end };
    LongFile::new(file, length, &[first], MapOptions::READ_ONLY)
}

/// Bytes of so many headers, in whole pages.
fn bytes_of(headers: u32) -> usize {
    (headers as usize * HEADER_SIZE).next_multiple_of(PAGE_SIZE as usize)
}

/// What to do about an error, where the limit of address space is to blame for it.
pub(super) fn hint(errno: Errno) -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    match limit {
        Some(limit) if errno == Errno::NOMEM => format!(
            "; this process may use {} MiB of address space (`ulimit -v`): allow it 64 MiB more than the \
             program needs, and what it and its group use of the pool",
            limit >> 20
        ),
        _ => String::new(),
    }
}

/// All sessions that this process has opened, those that have ended included, and their addresses.
struct Opened {
    session: &'static Session,
    addresses: [Range<usize>; 6],
    before: *const Opened,
}

static OPENED: AtomicPtr<Opened> = AtomicPtr::new(std::ptr::null_mut());

/// Whether an address is a session's, not the program's, and where the next is of which that may be
/// otherwise.
pub fn side_of(address: usize) -> (bool, usize) {
    let (mut is_sessions, mut next) = (false, usize::MAX);
    let mut at: *const Opened = OPENED.load(Ordering::Acquire);
    // SAFETY: never freed, and not changed once it is in the list.
    while let Some(opened) = unsafe { at.as_ref() } {
        for range in &opened.addresses {
            is_sessions |= range.contains(&address);
            let mut borders = [range.start, range.end].into_iter();
            next = next.min(
                borders
                    .find(|&border| border > address)
                    .unwrap_or(usize::MAX),
            );
        }
        at = opened.before;
    }
    (is_sessions, next)
}

/// This process's address space is about to be limited: its sessions reserve no more than they reach.
pub fn give_up_reservations() {
    let mut at: *const Opened = OPENED.load(Ordering::Acquire);
    // SAFETY: never freed, and not changed once it is in the list.
    while let Some(opened) = unsafe { at.as_ref() } {
        let session = opened.session;
        session.membership.region.give_up_reservation();
        session.pool.give_up_reservation();
        session.arena.give_up_reservation();
        session.headers.give_up_reservation();
        at = opened.before;
    }
}

/// In a forked child, where nothing is a session's yet.
pub(crate) fn forget_addresses() {
    OPENED.store(std::ptr::null_mut(), Ordering::Release);
    // Nor does what the parent wanted locked hold for it.
    arck_pm::mapping::note_locking_to_come(None);
}

impl Session {
    /// Says that the session's addresses are not the program's.
    pub(super) fn note_addresses(&'static self) {
        let opened = Box::leak(Box::new(Opened {
            session: self,
            addresses: self.addresses(),
            before: OPENED.load(Ordering::Acquire),
        }));
        loop {
            let before = opened.before.cast_mut();
            match OPENED.compare_exchange(before, opened, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => opened.before = now,
            }
        }
    }

    /// The arena, for what lies at `place`, in bytes, and in the same page; empty where nothing is
    /// allocated, or this process has no addresses left for it.
    #[inline(always)]
    pub fn arena_at(&self, place: usize) -> SharedBytes<'_> {
        let reached = &self.arena_reached[usize::from(place >= DELTAS)];
        match place < reached.load(Ordering::Acquire) || self.reach_arena(place) {
            true => self.arena.bytes(),
            // SAFETY: of no bytes at all.
            false => unsafe { SharedBytes::from_raw(std::ptr::NonNull::dangling(), 0) },
        }
    }

    /// Reaches as far into a part of the arena as is allocated; false if `place` is not.
    #[cold]
    fn reach_arena(&self, place: usize) -> bool {
        let (branch_pages, delta_pages) = self.state().arena.allocated();
        self.reach_arena_pages(branch_pages, delta_pages).is_ok()
            && place < self.arena_reached[usize::from(place >= DELTAS)].load(Ordering::Acquire)
    }

    /// Reaches so many pages of each part of the arena, which are allocated or are about to be. ENOMEM.
    pub(crate) fn reach_arena_pages(
        &self,
        branch_pages: u32,
        delta_pages: u32,
    ) -> Result<(), Errno> {
        let parts = arena_parts(branch_pages, delta_pages);
        for (part, reached) in parts.iter().zip(&self.arena_reached) {
            if part.end > reached.load(Ordering::Acquire) {
                let end = self
                    .arena
                    .reach(part.start, part.end)
                    .map_err(|error| self.note_unreached(error.errno()))?;
                reached.fetch_max(end, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Reaches as far into the table of headers as `number`; false beyond the table.
    #[cold]
    pub(super) fn reach_header(&self, number: InodeNumber) -> bool {
        let count = self.geometry().inode_count;
        if number >= count {
            return false;
        }
        let wanted = (number + 1).next_multiple_of(HEADERS_STEP).min(count);
        let end = bytes_of(wanted).min(self.headers.len());
        match self.headers.reach(0, end) {
            Ok(_) => {
                self.headers_reached.fetch_max(wanted, Ordering::Release);
                true
            }
            Err(error) => {
                self.note_unreached(error.errno());
                false
            }
        }
    }

    /// Before an operation, where address space is limited: all that the group uses of its shared memory
    /// can be reached, or ENOMEM.
    #[inline]
    pub fn keep_up(&self) -> Result<(), Errno> {
        match self.membership.region.is_limited() {
            true => self.reach_all_in_use(),
            false => Ok(()),
        }
    }

    #[cold]
    fn reach_all_in_use(&self) -> Result<(), Errno> {
        let prepared = self.membership.region.prepare().map_err(|_| Errno::NOMEM);
        prepared.and_then(|()| self.reach_deltas())
    }

    /// Under the lock of an inode that is about to be changed, where address space is limited: its delta can
    /// be reached, or ENOMEM. What others have made of it lies in what is allocated by now.
    #[inline]
    pub fn reach_delta(&self) -> Result<(), Errno> {
        match self.membership.region.is_limited() {
            true => self.reach_deltas(),
            false => Ok(()),
        }
    }

    /// Reaches all that is allocated of the arena. ENOMEM.
    #[cold]
    pub fn reach_deltas(&self) -> Result<(), Errno> {
        let (branch_pages, delta_pages) = self.state().arena.allocated();
        self.reach_arena_pages(branch_pages, delta_pages)
    }

    /// Notes for this thread why something that is there was not reached. Gives the error.
    #[cold]
    pub(super) fn note_unreached(&self, errno: Errno) -> Errno {
        // In nobody's use, as the controller says, or not for this session to see.
        if !matches!(errno, Errno::ACCESS | Errno::FAULT) {
            crate::thread::note_unreached(&self.membership, errno);
        }
        errno
    }

    /// Says once, where it is so, that a limit of address space is too low: for an error that the program
    /// gets. Gives it.
    #[cold]
    pub fn say_why(&self, errno: Errno) -> Errno {
        static IS_SAID: AtomicBool = AtomicBool::new(false);
        if errno == Errno::NOMEM && is_limited() && !IS_SAID.swap(true, Ordering::Relaxed) {
            let line =
                b"arck: the address space that this process may use (`ulimit -v`) has no room for \
what its group uses of the pool: calls fail with ENOMEM; allow it more\n";
            crate::telling::tell(line);
        }
        errno
    }

    /// Addresses that are the session's, not the program's, whether anything is mapped there or not.
    fn addresses(&self) -> [Range<usize>; 6] {
        let of = |base: *const u8, length: usize| base.addr()..base.addr() + length;
        [
            self.membership.region.addresses(),
            of(self.pool.base(), self.pool.len()),
            of(self.arena.as_ptr(), self.arena.len()),
            of(self.headers.as_ptr(), self.headers.len()),
            of(self.bitmap.as_ptr(), self.bitmap.len()),
            of(
                self.membership.control_mapping.as_ptr(),
                self.membership.control_mapping.len(),
            ),
        ]
    }
}
