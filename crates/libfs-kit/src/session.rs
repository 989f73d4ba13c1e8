//! A session: this process's connection with the controller of a pool, and all that it was sent.
//!
//! # Invariants
//! * What is mapped is exactly what the controller sent: header table, page bitmap and other
//!   sessions' segments read-only; the arena, the control memory, the group region and this
//!   session's data segments read-write.
//! * What is long and mostly unused (arena, header table, region) is mapped as far as it is in use:
//!   see [`reach`].
//! * No pointer into the pool is followed unless its segment is mapped: `access` says so for
//!   each segment, and [`Session::page_bytes`] maps on first use.
//! * A session lives as long as the process (it is leaked on purpose): references to it and to
//!   its mappings never dangle. [`Session::end`] gives up the files behind the mappings and leaves
//!   zeroes in their place, so that whoever comes late does no harm, and the controller can grant
//!   again what the session had.
//!
//! It is opened in [`opening`]; [`calls`] and [`segments`] have what is asked for by the socket.
//!
//! Locks: the connection's, and never while another lock of this module is taken.

mod calls;
mod opening;
pub mod reach;
pub(crate) mod room;
pub use room::with_room;
mod segments;

use crate::connection::{Answered, Connection, PATIENCE};
use crate::membership::Membership;
use crate::memory::delegation::Gates;
use crate::received::Received;
use crate::region::Region;
use crate::telling::misused;
use crate::thread::ThreadContext;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::superblock::Durability;
use arck_core_state::{Geometry, HeaderCopy, Inode, InodeNumber, LiveHeader};
use arck_pm::copy::Stores;
use arck_pm::mapping::Mapping;
use arck_pm::{AddressSpace, LongFile};
use arck_protocol::control::{ATTACHED_MAX, ControlMemory, attachment_offset};
use arck_protocol::operation::LightBarrier;
use arck_protocol::ring::Ring;
use arck_protocol::socket::{Answer, Call, Welcome};
use arck_protocol::{Request, Response, ring};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::time::{Duration, Instant};

pub use crate::connection::connect_socket;
pub use crate::state::State;
pub use calls::{OpenedPipe, receive_pipe};
pub use opening::{ConnectError, SessionOptions};

/// Address space of the group region, in bytes, if nothing else is said; memory is used as it
/// fills. A build of the auxiliary state can have half of it.
pub use arck_protocol::socket::REGION_SIZE;

/// See the module's head.
pub struct Session {
    number: SessionNumber,
    welcome: Welcome,
    durability: Durability,
    connection: Connection,
    headers: LongFile,
    /// Headers that can be reached: see [`reach`].
    headers_reached: AtomicU32,
    bitmap: Mapping,
    arena: LongFile,
    /// Bytes from the arena's beginning to where its two parts can be reached.
    arena_reached: [AtomicUsize; 2],
    pool: AddressSpace,
    access: Box<[AtomicU8]>,
    /// How many times segments had been given back when this process last dropped its mappings.
    withdrawals_seen: AtomicU64,
    /// Segments may be mapped to be written that are not its own: see [`Session::can_write_together`].
    has_together: AtomicBool,
    is_of_group: bool,
    membership: Membership,
    state: std::sync::OnceLock<&'static State>,
    gates: std::sync::OnceLock<&'static Gates>,
    opened_before: AtomicPtr<Session>,
}

impl Session {
    /// The descriptors that this process keeps for the session.
    pub fn descriptors(&self) -> Vec<i32> {
        self.connection.descriptors()
    }

    /// Which member of the session this process is.
    pub fn member(&self) -> u16 {
        self.membership.member
    }

    /// Whether other processes may have the session too.
    #[inline]
    pub fn is_of_group(&self) -> bool {
        self.is_of_group
    }

    pub fn number(&self) -> SessionNumber {
        self.number
    }
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }
    pub fn geometry(&self) -> &Geometry {
        &self.welcome.geometry
    }
    pub fn durability(&self) -> Durability {
        self.durability
    }
    pub fn region(&self) -> &Region {
        &self.membership.region
    }
    /// The kit's own part of the auxiliary state.
    #[inline]
    pub fn state(&self) -> &State {
        // Set before `connect` gave anybody the session.
        match self.state.get() {
            Some(state) => state,
            None => self.region().get(crate::region::Offset::NULL),
        }
    }
    pub(crate) fn barrier(&self) -> LightBarrier {
        self.membership.barrier
    }
    #[inline]
    pub fn control(&self) -> &ControlMemory {
        self.membership.control()
    }

    /// The header of an inode number; `None` for 0 and beyond the table.
    #[inline]
    pub fn header(&self, number: InodeNumber) -> Option<&LiveHeader> {
        if number == 0
            || number >= self.headers_reached.load(Ordering::Acquire) && !self.reach_header(number)
        {
            return None;
        }
        // SAFETY: inside the part of the table that can be reached, aligned to 64 as the table
        // starts at a page; a header consists of atomics.
        Some(unsafe {
            &*self
                .headers
                .as_ptr()
                .cast::<LiveHeader>()
                .add(number as usize)
        })
    }

    /// The change clock of the headers ([`LiveHeader`]'s module): to be loaded after what is looked at in headers, or before
    /// it, with acquire order.
    #[inline]
    pub fn change_clock(&self) -> &AtomicU64 {
        // SAFETY: as above; the first page of the table is always reached.
        unsafe { &(*self.headers.as_ptr().cast::<LiveHeader>()).sequence }
    }

    /// One word (64 pages) of the page bitmap: a set bit is a page that the verified state uses.
    #[inline]
    pub fn bitmap_word(&self, word: usize) -> u64 {
        self.bitmap
            .bytes()
            .load_u64(word * 8, Ordering::Acquire)
            .unwrap_or(u64::MAX)
    }

    /// A header and its verified inode as one consistent state. `None`: the number is not alive.
    /// EAGAIN if the controller keeps changing it. EACCES if it lies where this session may not
    /// look: [`Request::Admit`], or for what is no directory [`Request::LookUp`], may help. What
    /// [`ThreadContext::unreached`] says if it could not be reached.
    pub fn verified(&self, number: InodeNumber) -> Result<Option<(HeaderCopy, Inode)>, Errno> {
        let header = self.header(number).ok_or(Errno::STALE)?;
        let mut since = None;
        for round in 0u32.. {
            if round > 1_000 {
                self.pause(*since.get_or_insert_with(Instant::now))?;
            }
            let Some(sequence) = header.read_begin() else {
                continue;
            };
            let copy = header.copy();
            if copy.inode == 0 {
                if header.read_end(sequence) {
                    return Ok(None);
                }
                continue;
            }
            let inode = Inode::read(self, copy.inode);
            if header.read_end(sequence) {
                if inode.is_none() {
                    if self.take_denied() {
                        return Err(Errno::ACCESS);
                    }
                    if let Some(errno) = crate::thread::unreached(&self.membership) {
                        return Err(errno);
                    }
                }
                return Ok(inode.map(|inode| (HeaderCopy { sequence, ..copy }, inode)));
            }
        }
        Err(Errno::AGAIN)
    }

    /// Waits, for no more than some time, for a controller that was in the middle of something
    /// when it was looked at; `since` when. EAGAIN if that is too long, EIO if the controller is
    /// gone and does not come back.
    pub(crate) fn pause(&self, since: Instant) -> Result<(), Errno> {
        let waited = since.elapsed();
        if waited > Duration::from_millis(50) && self.connection.is_cut() {
            self.connection.restore(self.control())?;
        } else if waited > PATIENCE.max(self.connection.patience()) {
            return Err(Errno::AGAIN);
        }
        arck_protocol::wait::sleep(Duration::from_micros(if waited.as_millis() < 10 {
            20
        } else {
            1000
        }));
        Ok(())
    }

    /// How long others are waited for (`ARCK_WAIT`).
    pub fn patience(&self) -> Duration {
        self.connection.patience()
    }

    /// Asks the controller. Blocks; not to be called inside an operation, since a fold waits
    /// for operations (EIO, or a panic: [`misused`]).
    pub fn request(&self, request: &Request) -> Result<Response, Errno> {
        self.answer_to(|control, wake, patience| {
            ring::submit_within(control, self.member(), wake, request, patience)
        })
    }

    /// As [`Session::request`], with bytes that go with it, [`ATTACHED_MAX`] at most. EFAULT where they are not all
    /// there: then nothing was asked.
    pub fn request_with(&self, request: &Request, attached: &[u8]) -> Result<Response, Errno> {
        if attached.len() > ATTACHED_MAX {
            return Err(Errno::INVAL);
        }
        let bytes = self.membership.control_mapping.bytes();
        let attach = |slot| {
            let place = attachment_offset(slot);
            let attached = bytes.try_copy_from(place, attached, Stores::Cached);
            attached.map_err(|error| error.errno())
        };
        self.answer_to(|control, wake, patience| {
            ring::submit_attached(control, self.member(), wake, request, attach, patience)
        })
    }

    /// What the controller answers to what is submitted.
    #[inline]
    fn answer_to(
        &self,
        submit: impl FnOnce(&ControlMemory, BorrowedFd<'_>, Duration) -> Result<usize, Errno>,
    ) -> Result<Response, Errno> {
        if self.has_ended() {
            return Err(Errno::IO);
        }
        if self.is_inside() {
            return Err(misused(
                "arck: a LibFS asks the controller inside an operation: let the attempt return a Need\n",
            ));
        }
        let (control, wake) = (self.control(), self.connection.wake());
        let index = submit(control, wake, self.connection.patience())?;
        match self.connection.finish(control, index)? {
            Response::Error(errno) => Err(Errno::from_raw_os_error(errno)),
            response => Ok(response),
        }
    }

    /// Submits a request without waiting; its answer is fetched by [`Session::finish`], by any
    /// member of the group.
    pub fn submit(&self, request: &Request) -> Result<usize, Errno> {
        ring::submit(self.control(), ring::ALL, self.connection.wake(), request)
    }

    /// Ends all requests that were so submitted, whatever their answers are. While no other thread
    /// submits or finishes any. Blocks.
    pub(crate) fn finish_all_submitted(&self) {
        let submitted = Ring::of(self.control(), ring::ALL).leave();
        for index in (0..u32::BITS).filter(|index| submitted & 1 << index != 0) {
            let _ = self.finish(index as usize, true);
        }
    }

    /// Whether a submitted request is answered.
    pub(crate) fn is_answered(&self, index: usize) -> bool {
        ring::is_answered(self.control(), index)
    }

    /// The answer to a submitted request: `wait` as long as for any other, or ETIMEDOUT if there
    /// is none yet.
    pub fn finish(&self, index: usize, wait: bool) -> Result<Response, Errno> {
        if !wait && !ring::is_answered(self.control(), index) {
            return Err(Errno::TIMEDOUT);
        }
        match self.connection.finish(self.control(), index)? {
            Response::Error(errno) => Err(Errno::from_raw_os_error(errno)),
            response => Ok(response),
        }
    }

    /// As [`Session::request`], for requests answered by `Done`. A violation is EIO.
    pub fn ask(&self, request: &Request) -> Result<(), Errno> {
        match self.request(request)? {
            Response::Done => Ok(()),
            Response::Violation(_) => Err(Errno::IO),
            _ => Err(Errno::PROTO),
        }
    }

    fn call(&self, call: &Call) -> Result<(Answer, Received), Errno> {
        self.call_with(call, &[])
    }

    fn call_with(
        &self,
        call: &Call,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Received), Errno> {
        self.call_for_any(call, descriptors)?.whole()
    }

    /// The same, also where the process may not have all the descriptors that come with the answer. ENFILE if
    /// it is the controller that has none.
    fn call_for_any(&self, call: &Call, descriptors: &[BorrowedFd<'_>]) -> Result<Answered, Errno> {
        const MFILE: i32 = Errno::MFILE.raw_os_error();
        const NFILE: i32 = Errno::NFILE.raw_os_error();
        let began = Instant::now();
        loop {
            let control = Some(self.control());
            let answered = self.connection.call(call, descriptors, control)?;
            match answered.answer {
                // It has no descriptors left: others give theirs back some time.
                Answer::Error(MFILE | NFILE, _) => {
                    if began.elapsed() >= self.connection.patience() {
                        return Err(Errno::NFILE);
                    }
                    arck_protocol::wait::sleep(Duration::from_millis(5));
                }
                Answer::Error(errno, _) => return Err(Errno::from_raw_os_error(errno)),
                _ => return Ok(answered),
            }
        }
    }

    /// Ends the session: the controller folds and releases everything before this returns.
    pub fn goodbye(&self) -> Result<(), Errno> {
        if !self.connection.is_of_process() {
            // It learns of the end when the connection is closed.
            return Err(Errno::PERM);
        }
        // A controller that is gone recovers the session when it is started again.
        match self.connection.call(&Call::Goodbye, &[], None)?.answer {
            Answer::Error(errno, _) => Err(Errno::from_raw_os_error(errno)),
            _ => Ok(()),
        }
    }

    /// Ends the session for this process, if that has not been done, and lets go of all that it has of
    /// files and shared memory; of a group others go on with that. To be called when no thread is
    /// inside an operation and none will begin one; a thread that does sees zeroes, and its stores
    /// reach nobody. Blocks as [`Session::goodbye`] does, unless the controller is gone.
    pub fn end(&'static self) {
        if self.membership.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        crate::thread::wait_for_leaving();
        // All of it first: from the goodbye on this process's places are cleared away by others, and
        // may be theirs.
        crate::thread::leave(&self.membership);
        // Where the kernel has no memory for another mapping the old one just stays.
        let _ = self.pool.replace_all_by_zeroes();
        for file in [&self.arena, &self.headers] {
            let _ = file.replace_by_zeroes();
        }
        if let Some(gates) = self.gates.get() {
            gates.let_go();
        }
        for mapping in [&self.bitmap, &self.membership.control_mapping] {
            let _ = mapping.replace_by_zeroes();
        }
        self.membership.region.let_go();
        // A controller that is gone, or was told already, ends the session by itself.
        let _ = self.goodbye();
        self.connection.close();
    }

    /// Whether the session has ended for this process ([`Session::end`]); in a forked child those of its
    /// parent have.
    pub fn has_ended(&self) -> bool {
        self.membership.has_ended()
    }

    /// Looks from now on as if this process had ended without a word, to a controller that is started
    /// later: for tests. Nothing of the session may be used any more.
    pub fn vanish(&self) {
        // Where the kernel has no memory for another mapping the old one just stays.
        let _ = self.arena.replace_by_zeroes();
    }

    pub(crate) fn opened_before(&self) -> &AtomicPtr<Session> {
        &self.opened_before
    }

    /// In a forked child, of a session of its parent's: it has ended here, and what it had open is closed.
    /// Nothing of it is mapped here.
    pub(crate) fn is_parents(&self) {
        let had_ended = self.membership.ended.swap(true, Ordering::AcqRel);
        self.connection.close_in_child(had_ended);
    }

    /// Whether this thread is inside an operation of the session.
    pub(crate) fn is_inside(&self) -> bool {
        crate::thread::is_inside(&self.membership)
    }

    /// This thread's place in the session.
    #[inline]
    pub fn thread(&'static self) -> Result<&'static ThreadContext, Errno> {
        crate::thread::context(&self.membership)
    }
}
