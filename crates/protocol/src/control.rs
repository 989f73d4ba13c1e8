//! Control memory: one sealed memfd per session, mapped by the session and by the controller.
//!
//! # Invariants
//! * Everything is an atomic word; both sides may write at any time, so neither believes what
//!   it has not copied and checked.
//! * What is attached to a request is written by who has claimed its slot, before it is submitted.
//! * `awake`, `closed`, `region_made`, the free counts and `delta_credits` are written by the controller; request
//!   slots pass back and forth by their state; operation slots, open table, table of maps and
//!   `delta_used`, the numbers of slots in use are written by the session.

use crate::operation::OperationSlot;
use arck_core_state::InodeNumber;
use arck_core_state::primitive::{AtomicU32, AtomicU64, Ordering};

/// Request slots of a session.
pub const REQUEST_SLOTS: usize = 32;
/// Words of a slot's payload.
pub const PAYLOAD_WORDS: usize = 254;
/// Threads of a session that can be inside the LibFS at once.
pub const THREAD_SLOTS: usize = 1024;
/// Inodes that a session can list as open.
pub const OPEN_SLOTS: usize = 1 << 17;
/// Members of a trust group, by their numbers; 0 is none.
pub const MEMBERS: usize = 256;
/// Inodes of which a session can have maps.
pub const MAP_SLOTS: usize = 1 << 13;

/// The whole of it; lives in shared memory, or in a `Box` for tests.
#[repr(C, align(4096))]
pub struct ControlMemory {
    pub header: ControlHeader,
    pub requests: [RequestSlot; REQUEST_SLOTS],
    pub threads: [OperationSlot; THREAD_SLOTS],
    pub open: [AtomicU64; OPEN_SLOTS],
    /// Entries by [`map_entry`]; of them, only as many as the header's `maps` says are in use.
    pub maps: [AtomicU64; MAP_SLOTS],
    /// Of each request slot, what comes with the request and is too long for its payload. Memory is there for those
    /// that were used.
    pub attachments: [Attachment; REQUEST_SLOTS],
}

/// Most bytes that one request has besides its payload.
pub const ATTACHED_MAX: usize = 64 << 10;

/// Bytes of the session's that belong to the request in a slot, and are written by who has claimed it.
#[repr(C, align(4096))]
pub struct Attachment(pub [AtomicU64; ATTACHED_MAX / 8]);

/// Where in control memory the attachment of a slot begins.
pub fn attachment_offset(slot: usize) -> usize {
    std::mem::offset_of!(ControlMemory, attachments) + slot * ATTACHED_MAX
}

impl Attachment {
    /// A copy of the first bytes, [`ATTACHED_MAX`] at most.
    pub fn copy(&self, length: usize) -> Option<Vec<u8>> {
        let words = self.0.get(..length.div_ceil(8))?;
        let mut bytes = vec![0; length.next_multiple_of(8)];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes.truncate(length);
        Some(bytes)
    }
}

#[repr(C, align(4096))]
pub struct ControlHeader {
    /// One bit per request slot, set by the session after submitting, taken by the controller.
    pub doorbell: AtomicU64,
    /// 1 while the controller polls; 0 = write to the wake descriptor after ringing.
    pub awake: AtomicU32,
    /// Not 0 once the session is closed; an errno to report from then on.
    pub closed: AtomicU32,
    /// Pages that the session can fill, those of its own that are free among them: for `statfs`; a
    /// hint.
    pub pages_free: AtomicU64,
    pub inodes_free: AtomicU64,
    /// Written by the session: one more than the highest place of `maps` that was ever used.
    pub maps: AtomicU32,
    /// Written by the session: one more than the highest place of `threads` that was ever used;
    /// 0 = it does not say. Before an operation is entered there, by a read-modify-write.
    pub threads: AtomicU32,
    /// Written by the session: one more than the highest place of `open` that was ever used; 0 = it
    /// does not say. Before anything is listed there.
    pub opens: AtomicU32,
    /// Written by the controller: 1 once a member has said that the group's region is whole. Until then
    /// nobody joins.
    pub region_made: AtomicU32,
    /// Delta pages that the session may use for what adds names or pages of files: for so many, a
    /// fold finds room.
    pub delta_credits: AtomicU64,
    /// Delta pages that the session uses. It counts a page, and then looks at `delta_credits` once
    /// more (after a [`light barrier`](crate::operation::LightBarrier)).
    pub delta_used: AtomicU64,
    /// Members of a trust group that are gone and not yet cleared away by others: one bit each. Set
    /// by the controller, which gives a number to nobody while its bit is set; taken by the member
    /// that has cleared it away.
    pub departed: [AtomicU64; MEMBERS / 64],
    /// For each request slot, the member that claimed it.
    pub claimers: [AtomicU32; REQUEST_SLOTS],
    /// Members that have connected and have not gone: one bit each, written by the controller. For the next
    /// one, to which they come back one by one.
    pub members: [AtomicU64; MEMBERS / 64],
}

/// One request and then its response.
#[repr(C)]
pub struct RequestSlot {
    /// [`slot_state`]; also the futex word on which the session waits.
    pub state: AtomicU32,
    /// Bytes of the payload in use.
    pub length: AtomicU32,
    /// Counts the requests that were submitted here: with the slot's number it names a request,
    /// so that none is done twice when the controller dies between doing and answering it.
    pub count: AtomicU64,
    pub payload: [AtomicU64; PAYLOAD_WORDS],
}

impl Default for ControlHeader {
    /// Zeroed, as a memfd begins; for private memory.
    fn default() -> Self {
        ControlHeader {
            doorbell: AtomicU64::new(0),
            awake: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            pages_free: AtomicU64::new(0),
            inodes_free: AtomicU64::new(0),
            maps: AtomicU32::new(0),
            threads: AtomicU32::new(0),
            opens: AtomicU32::new(0),
            region_made: AtomicU32::new(0),
            delta_credits: AtomicU64::new(0),
            delta_used: AtomicU64::new(0),
            departed: std::array::from_fn(|_| AtomicU64::new(0)),
            claimers: std::array::from_fn(|_| AtomicU32::new(0)),
            members: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Default for RequestSlot {
    /// Zeroed and therefore free, as a memfd begins; for private memory.
    fn default() -> Self {
        RequestSlot {
            state: AtomicU32::new(slot_state::FREE),
            length: AtomicU32::new(0),
            count: AtomicU64::new(0),
            payload: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// States of a request slot.
pub mod slot_state {
    pub const FREE: u32 = 0;
    pub const SUBMITTED: u32 = 2;
    pub const DONE: u32 = 3;

    /// A thread of this member of the session fills it in.
    pub const fn claimed_by(member: u16) -> u32 {
        1 | (member as u32) << 8
    }
}

/// Bytes of control memory.
pub const CONTROL_SIZE: usize = size_of::<ControlMemory>();
#[cfg(not(shuttle))]
const _: () = {
    assert!(size_of::<ControlHeader>() == 4096);
    assert!(size_of::<RequestSlot>() == 2048);
    assert!(size_of::<OperationSlot>() == 64);
    assert!(PAYLOAD_WORDS * 8 == crate::message::MESSAGE_MAX);
    assert!(
        CONTROL_SIZE
            == 4096
                + REQUEST_SLOTS * (2048 + ATTACHED_MAX)
                + THREAD_SLOTS * 64
                + (OPEN_SLOTS + MAP_SLOTS) * 8
    );
};

/// In an entry of the table of maps: one of the maps can be written. (Numbers are below it.)
pub const MAP_WRITABLE: u64 = 1 << 31;

/// An entry of the table of maps.
pub fn map_entry(number: InodeNumber, generation: u32, is_writable: bool) -> u64 {
    let writable = if is_writable { MAP_WRITABLE } else { 0 };
    open_entry(number, generation) | writable
}

/// In the open table: a place that [is kept](ControlMemory::list_made) for what the controller is asked to make. No inode has
/// the number 0. `mark`: not 0, and another one for each reservation.
pub fn open_reserved(mark: u32) -> u64 {
    open_entry(0, mark)
}

/// For [`Request::MakeName`](crate::Request::MakeName): what is made is not opened.
pub const NO_OPEN_PLACE: u32 = u32::MAX;

/// An entry of the open table: number (low half) and generation (high half); 0 = free.
pub fn open_entry(number: InodeNumber, generation: u32) -> u64 {
    u64::from(number) | u64::from(generation) << 32
}

impl ControlMemory {
    /// The control memory that starts at `pointer`.
    ///
    /// # Safety
    /// `pointer` is aligned to 4096 and the [`CONTROL_SIZE`] bytes behind it stay mapped,
    /// readable and writable, for `'a`. (Any content is valid: everything is atomic.)
    pub unsafe fn from_pointer<'a>(pointer: *const u8) -> &'a ControlMemory {
        // SAFETY: mapped and aligned by the caller's promise; all fields are atomics, so other
        // processes writing at the same time is no data race, and every bit pattern is valid.
        unsafe { &*pointer.cast() }
    }

    /// Zeroed control memory in this process, for tests.
    #[cfg(not(shuttle))]
    pub fn boxed() -> Box<ControlMemory> {
        // SAFETY: all-zero is a valid value of every field (atomic integers).
        unsafe { Box::<ControlMemory>::new_zeroed().assume_init() }
    }

    /// The table of maps, as far as it is in use.
    pub fn maps(&self) -> &[AtomicU64] {
        let used = self.header.maps.load(Ordering::Acquire) as usize;
        &self.maps[..used.min(MAP_SLOTS)]
    }

    /// The open table, as far as it is in use.
    pub fn opens(&self) -> &[AtomicU64] {
        match self.header.opens.load(Ordering::Acquire) as usize {
            0 => &self.open,
            used => &self.open[..used.min(OPEN_SLOTS)],
        }
    }

    /// The operation slots, as far as they are in use: a look at all of them is as long as many a fold.
    pub fn operations(&self) -> &[OperationSlot] {
        match self.header.threads.load(Ordering::Acquire) as usize {
            0 => &self.threads,
            used => &self.threads[..used.min(THREAD_SLOTS)],
        }
    }

    /// For the controller: lists what a session has asked it to make and open, where the session has reserved a place for
    /// it. So the inode stays, and rights to it are kept, from when it has its name; whatever becomes of that before the
    /// session itself can look. A place that is not reserved, or is none, stays as it is.
    pub fn list_made(&self, (place, mark): (u32, u32), number: InodeNumber, generation: u32) {
        if let Some(entry) = self.open.get(place as usize) {
            let made = open_entry(number, generation);
            let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
            // Another value is the session's own business.
            let _ = entry.compare_exchange(open_reserved(mark), made, success, failure);
        }
    }

    /// Whether the open table lists the inode. Reads all of the table that is in use.
    pub fn lists(&self, number: InodeNumber, generation: u32) -> bool {
        let wanted = open_entry(number, generation);
        self.opens()
            .iter()
            .any(|entry| entry.load(Ordering::Acquire) == wanted)
    }
}
