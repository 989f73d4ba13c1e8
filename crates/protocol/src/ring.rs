//! Small requests through control memory.
//!
//! The session claims a slot, fills it, submits, rings the doorbell and waits: first spinning
//! (an awake controller answers within microseconds) and giving way now and then, then on the slot's
//! futex. The controller
//! polls doorbells while there is work and sleeps in `epoll` on the wake descriptor otherwise.
//!
//! # Invariants
//! * A slot is written by the side whose turn its state says; the state is the last store.
//! * Sleeping is announced (`awake` = 0) before the doorbells are looked at a last time, and a
//!   session rings before it looks at `awake`, both sequentially consistent: no wake-up is lost.

use crate::control::{ControlHeader, ControlMemory, RequestSlot, slot_state};
use crate::message::{MESSAGE_MAX, Request, Response};
use crate::wait::{Courtesy, futex_wait, futex_wake, give_way};
use crate::wire::ERRNO_MAX;
use arck_core_state::cast;
use arck_core_state::primitive::{Ordering, spin_hint};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Rounds of spinning before a session sleeps.
#[cfg(not(shuttle))]
const SPIN_ROUNDS: u32 = 4_000;
#[cfg(shuttle)]
const SPIN_ROUNDS: u32 = 2;

/// Rounds between two occasions for others to run: the controller may be waiting for this very
/// processor.
const GIVE_WAY_ROUNDS: u32 = 128;
/// Before the first of them.
const FIRST_ROUNDS: u32 = 8;
/// This process's.
static COURTESY: Courtesy = Courtesy::new();

/// The part of control memory through which requests go.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    pub header: &'a ControlHeader,
    /// At most 32: [`Ring::rung`] has a bit for each.
    pub requests: &'a [RequestSlot],
    /// Who claims slots: the number of a member of the session, or [`ALL`].
    pub member: u16,
}

/// Claims for the session as a whole: what any member may finish, and no member's end gives up.
pub const ALL: u16 = 0;

impl<'a> Ring<'a> {
    /// A member's.
    pub fn of(control: &'a ControlMemory, member: u16) -> Ring<'a> {
        Ring {
            member,
            ..Ring::from(control)
        }
    }
}

impl<'a> From<&'a ControlMemory> for Ring<'a> {
    fn from(control: &'a ControlMemory) -> Ring<'a> {
        Ring {
            header: &control.header,
            requests: &control.requests,
            member: ALL,
        }
    }
}

fn put(slot: &RequestSlot, bytes: &[u8]) {
    for (word, chunk) in slot.payload.iter().zip(bytes.chunks(8)) {
        let mut value = [0; 8];
        value[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(value), Ordering::Relaxed);
    }
    slot.length
        .store(cast::count(bytes.len()), Ordering::Relaxed);
}

/// Copies a payload out, once. `None` if the length is not possible.
fn take(slot: &RequestSlot, buffer: &mut [u8; MESSAGE_MAX]) -> Option<usize> {
    let length = slot.length.load(Ordering::Relaxed) as usize;
    if length > MESSAGE_MAX {
        return None;
    }
    for (chunk, word) in buffer[..length.next_multiple_of(8).min(MESSAGE_MAX)]
        .chunks_mut(8)
        .zip(&slot.payload)
    {
        let value = word.load(Ordering::Relaxed).to_le_bytes();
        chunk.copy_from_slice(&value[..chunk.len()]);
    }
    Some(length)
}

/// The session's side of one request. Blocks until answered, at most `patience`: ETIMEDOUT
/// then, and the slot stays with the controller. EBUSY if no slot becomes free in that time.
pub fn request(
    control: &ControlMemory,
    member: u16,
    wake: BorrowedFd<'_>,
    request: &Request,
    patience: Duration,
) -> Result<Response, Errno> {
    let write = || {
        // A full counter means that the controller will wake anyway.
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    };
    Ring::of(control, member).request(write, request, patience)
}

/// Submits a request whose answer is fetched later by [`finish`]; does not block. The number of
/// its slot. EBUSY if no slot is free.
pub fn submit(
    control: &ControlMemory,
    member: u16,
    wake: BorrowedFd<'_>,
    request: &Request,
) -> Result<usize, Errno> {
    let write = || {
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    };
    let ring = Ring::of(control, member);
    ring.submit(ring.try_claim().ok_or(Errno::BUSY)?, write, request)
}

/// The same, waiting at most `patience` for a slot. EBUSY.
pub fn submit_within(
    control: &ControlMemory,
    member: u16,
    wake: BorrowedFd<'_>,
    request: &Request,
    patience: Duration,
) -> Result<usize, Errno> {
    submit_attached(control, member, wake, request, |_| Ok(()), patience)
}

/// The same of a request that has bytes besides: `attach` puts them where they belong, to the
/// slot that it is told; what it fails with ends it.
pub fn submit_attached(
    control: &ControlMemory,
    member: u16,
    wake: BorrowedFd<'_>,
    request: &Request,
    attach: impl FnOnce(usize) -> Result<(), Errno>,
    patience: Duration,
) -> Result<usize, Errno> {
    let write = || {
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    };
    let ring = Ring::of(control, member);
    let index = ring.claim(Instant::now() + patience)?;
    if let Err(errno) = attach(index) {
        ring.give_up(index);
        return Err(errno);
    }
    ring.submit(index, write, request)
}

/// A copy of the bytes that are attached to the request in a slot. EINVAL: no request has so many.
pub fn attached(control: &ControlMemory, index: usize, length: u32) -> Result<Vec<u8>, Errno> {
    let attachment = control.attachments.get(index).ok_or(Errno::INVAL)?;
    attachment.copy(length as usize).ok_or(Errno::INVAL)
}

/// Whether a submitted request has its answer, or will never have one.
pub fn is_answered(control: &ControlMemory, index: usize) -> bool {
    control.header.closed.load(Ordering::Acquire) != 0
        || control
            .requests
            .get(index)
            .is_none_or(|slot| slot.state.load(Ordering::Acquire) == slot_state::DONE)
}

/// The answer to a submitted request, which frees its slot. Blocks as [`request`].
pub fn finish(
    control: &ControlMemory,
    index: usize,
    patience: Duration,
) -> Result<Response, Errno> {
    Ring::from(control).finish(index, Instant::now() + patience)
}

/// Takes a submitted request back that no controller is there to answer; false if it has been
/// answered. To be called only while no controller can have the control memory.
pub fn withdraw(control: &ControlMemory, index: usize) -> bool {
    let Some(slot) = control.requests.get(index) else {
        return false;
    };
    let (from, to) = (slot_state::SUBMITTED, slot_state::FREE);
    let withdrawn = slot
        .state
        .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    withdrawn.is_ok()
}

/// For a controller that takes a session up: has every slot rung, since another controller may
/// have taken the bells of those that stand submitted.
pub fn ring_all(control: &ControlMemory) {
    control.header.doorbell.store(u64::MAX, Ordering::SeqCst);
}

/// The controller's side: takes the rung slots, as a bit set.
pub fn rung(control: &ControlMemory) -> u32 {
    Ring::from(control).rung()
}

/// Rings for slots that were taken and have not been looked at: they are looked at later.
pub fn ring_again(control: &ControlMemory, slots: u32) {
    let doorbell = &control.header.doorbell;
    doorbell.fetch_or(u64::from(slots), Ordering::SeqCst);
}

/// The request in a rung slot. `None` if the slot is not submitted (a false ring); `Some(Err)`
/// if it is malformed, to be answered EPROTO.
pub fn receive(control: &ControlMemory, index: usize) -> Option<Result<Request, Errno>> {
    Ring::from(control).receive(index)
}

/// Answers a slot and wakes its waiter.
pub fn respond(control: &ControlMemory, index: usize, response: &Response) {
    Ring::from(control).respond(index, response);
}

impl<'a> Ring<'a> {
    /// See [`request`]; `wake` wakes a sleeping controller.
    pub fn request(
        self,
        wake: impl FnOnce(),
        request: &Request,
        patience: Duration,
    ) -> Result<Response, Errno> {
        let deadline = Instant::now() + patience;
        let index = self.submit(self.claim(deadline)?, wake, request)?;
        self.finish(index, deadline)
    }

    /// Fills a claimed slot and rings.
    pub fn submit(
        self,
        index: usize,
        wake: impl FnOnce(),
        request: &Request,
    ) -> Result<usize, Errno> {
        let slot = self.requests.get(index).ok_or(Errno::INVAL)?;
        let mut buffer = [0u8; MESSAGE_MAX];
        let length = match request.encode(&mut buffer) {
            Ok(length) => length,
            Err(_) => {
                self.give_up(index);
                return Err(Errno::NAMETOOLONG);
            }
        };
        put(slot, &buffer[..length]);
        slot.count.fetch_add(1, Ordering::Relaxed);
        slot.state.store(slot_state::SUBMITTED, Ordering::Release);
        self.header.doorbell.fetch_or(1 << index, Ordering::SeqCst);
        if self.header.awake.load(Ordering::SeqCst) == 0 {
            wake();
        }
        Ok(index)
    }

    /// Frees a claimed slot.
    fn give_up(self, index: usize) {
        if let Some(slot) = self.requests.get(index) {
            slot.state.store(slot_state::FREE, Ordering::Release);
        }
    }

    /// See [`finish`].
    pub fn finish(self, index: usize, deadline: Instant) -> Result<Response, Errno> {
        let slot = self.requests.get(index).ok_or(Errno::INVAL)?;
        let mut rounds = 0;
        while slot.state.load(Ordering::Acquire) != slot_state::DONE {
            let closed = self.header.closed.load(Ordering::Acquire);
            if closed != 0 {
                // Every member can write it.
                return Err(match closed {
                    1..=ERRNO_MAX => Errno::from_raw_os_error(closed.cast_signed()),
                    _ => Errno::IO,
                });
            }
            rounds += 1;
            if rounds < SPIN_ROUNDS {
                if rounds % GIVE_WAY_ROUNDS != FIRST_ROUNDS {
                    spin_hint();
                    continue;
                }
                COURTESY.give_way();
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Errno::TIMEDOUT);
            }
            futex_wait(
                &slot.state,
                slot_state::SUBMITTED,
                left.min(Duration::from_millis(100)),
            );
        }
        let mut buffer = [0u8; MESSAGE_MAX];
        let response = take(slot, &mut buffer)
            .and_then(|length| Response::decode(&buffer[..length]).ok())
            .ok_or(Errno::PROTO);
        slot.state.store(slot_state::FREE, Ordering::Release);
        response
    }

    /// A free slot, claimed.
    pub fn try_claim(self) -> Option<usize> {
        let claimed = slot_state::claimed_by(self.member);
        let index = self.requests.iter().position(|slot| {
            slot.state.load(Ordering::Relaxed) == slot_state::FREE
                && slot
                    .state
                    .compare_exchange(
                        slot_state::FREE,
                        claimed,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok()
        })?;
        // The state says so no longer once the request is submitted.
        if let Some(claimer) = self.header.claimers.get(index) {
            claimer.store(u32::from(self.member), Ordering::Relaxed);
        }
        Some(index)
    }

    /// For a member that is gone: frees what it had claimed, and answers that nobody will fetch.
    /// Gives the slots that it has submitted and that are still to be served, as a bit set: to be
    /// freed by [`Ring::free`] instead of being answered. The controller's side; or a member's, of
    /// [`ALL`], while no other claims or finishes what is of them.
    pub fn leave(self) -> u32 {
        let mut submitted = 0;
        for (index, slot) in self.requests.iter().enumerate() {
            let claimed = slot_state::claimed_by(self.member);
            let _ = slot.state.compare_exchange(
                claimed,
                slot_state::FREE,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            // First the state, then whose: a slot that another member claims meanwhile is still of the
            // one before until just before it is submitted.
            let state = slot.state.load(Ordering::Acquire);
            let claimer = self.header.claimers.get(index);
            if claimer.is_some_and(|c| c.load(Ordering::Acquire) == u32::from(self.member)) {
                match state {
                    slot_state::DONE => slot.state.store(slot_state::FREE, Ordering::Release),
                    slot_state::SUBMITTED => submitted |= 1 << index,
                    _ => {}
                }
            }
        }
        submitted
    }

    /// Frees a slot whose answer nobody waits for.
    pub fn free(self, index: usize) {
        if let Some(slot) = self.requests.get(index) {
            slot.state.store(slot_state::FREE, Ordering::Release);
        }
    }

    fn claim(self, deadline: Instant) -> Result<usize, Errno> {
        loop {
            if let Some(index) = self.try_claim() {
                return Ok(index);
            }
            if Instant::now() > deadline {
                return Err(Errno::BUSY);
            }
            give_way();
        }
    }

    /// See [`rung`].
    pub fn rung(self) -> u32 {
        if self.header.doorbell.load(Ordering::SeqCst) == 0 {
            return 0;
        }
        cast::low(self.header.doorbell.swap(0, Ordering::SeqCst))
    }

    /// See [`receive`].
    pub fn receive(self, index: usize) -> Option<Result<Request, Errno>> {
        let slot = self.requests.get(index)?;
        if slot.state.load(Ordering::Acquire) != slot_state::SUBMITTED {
            return None;
        }
        let mut buffer = [0u8; MESSAGE_MAX];
        let request = take(slot, &mut buffer)
            .and_then(|length| Request::decode(&buffer[..length]).ok())
            .ok_or(Errno::PROTO);
        Some(request)
    }

    /// See [`respond`].
    pub fn respond(self, index: usize, response: &Response) {
        let Some(slot) = self.requests.get(index) else {
            return;
        };
        let mut buffer = [0u8; MESSAGE_MAX];
        let length = response
            .encode(&mut buffer)
            .or_else(|_| Response::Error(Errno::PROTO.raw_os_error()).encode(&mut buffer))
            .unwrap_or(0);
        put(slot, &buffer[..length]);
        slot.state.store(slot_state::DONE, Ordering::Release);
        futex_wake(&slot.state);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const REQUEST: Request = Request::CommitAll { release: false };

    fn states(control: &ControlMemory) -> Vec<u32> {
        let slots = control.requests.iter();
        slots.map(|s| s.state.load(Ordering::Relaxed)).collect()
    }

    /// A member's end takes what it has claimed or submitted, and nothing of all members'; that goes when
    /// it is said to.
    #[test]
    fn what_is_of_all_outlasts_members() {
        let control = ControlMemory::boxed();
        let [all, one, two] = [ALL, 1, 2].map(|member| Ring::of(&control, member));
        let claim = |ring: Ring<'_>| ring.try_claim().expect("a slot");
        let submit = |ring: Ring<'_>| ring.submit(claim(ring), || {}, &REQUEST).expect("a slot");
        let (answered, left) = (submit(all), submit(all));
        let (claimed, own, asked, others) = (claim(one), submit(one), submit(one), submit(two));
        let claimed_ahead = claim(all);
        respond(&control, answered, &Response::Done);
        respond(&control, own, &Response::Done);
        assert_eq!(one.leave(), 1 << asked);
        let now = states(&control);
        assert_eq!([now[claimed], now[own]], [slot_state::FREE; 2]);
        assert_eq!(now[answered], slot_state::DONE);
        assert_eq!([left, others].map(|at| now[at]), [slot_state::SUBMITTED; 2]);
        assert_eq!(now[claimed_ahead], slot_state::claimed_by(ALL));

        assert_eq!(all.leave(), 1 << left);
        let now = states(&control);
        assert_eq!([now[answered], now[claimed_ahead]], [slot_state::FREE; 2]);
        assert_eq!(now[others], slot_state::SUBMITTED);
    }

    /// What a member had written there ended the thread of another that waited for an answer.
    #[test]
    fn nothing_that_members_write_is_taken_for_an_error_that_is_none() {
        let control = ControlMemory::boxed();
        let ring = Ring::of(&control, 1);
        let wait = || {
            let slot = ring.submit(ring.try_claim().unwrap(), || {}, &REQUEST);
            let (slot, now) = (slot.unwrap(), Instant::now());
            (slot, move || {
                ring.finish(slot, now + Duration::from_secs(5))
            })
        };
        for (closed, error) in [
            (libc_errno(Errno::STALE), Errno::STALE),
            (ERRNO_MAX + 1, Errno::IO),
            (1 << 31, Errno::IO),
            (u32::MAX, Errno::IO),
        ] {
            let (_, finish) = wait();
            control.header.closed.store(closed, Ordering::SeqCst);
            assert_eq!(finish(), Err(error), "{closed}");
            control.header.closed.store(0, Ordering::SeqCst);
            ring.leave();
        }
        for (number, is_one) in [
            (0, false),
            (1, true),
            (4095, true),
            (4096, false),
            (i32::MAX, false),
        ] {
            let mut buffer = [0; MESSAGE_MAX];
            let length = Response::Error(number).encode(&mut buffer).unwrap();
            let decoded = Response::decode(&buffer[..length]);
            assert_eq!(decoded.is_ok(), is_one, "{number}: {decoded:?}");
        }
    }

    fn libc_errno(errno: Errno) -> u32 {
        errno.raw_os_error().unsigned_abs()
    }
}
