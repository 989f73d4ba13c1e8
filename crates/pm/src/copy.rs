//! Copies to and from memory that other threads and processes may change at
//! the same time.
//!
//! A plain Rust copy of such memory would be a data race, which the language
//! leaves undefined. Everything here is assembly: the compiler sees an opaque
//! access, so a race can only yield torn or stale *bytes*, which every caller
//! must expect (copy once, then check, then use). Words of 8 bytes at aligned
//! addresses are never torn by these copies unless they straddle the
//! ragged end of one. Under Miri plain copies stand in, which Miri may check
//! because its tests do not race.
//!
//! Invariants: no routine reads or writes a byte outside the two ranges; a
//! streaming copy leaves every byte either streamed or flushed, so that one
//! [`crate::fence`] makes the whole range durable; none of them fences.

use crate::control::{self, Control};
use crate::error::Fault;
use crate::flush::{flush_lines, store_fence};
use crate::guarded::guarded_copy;
use crate::lines::Parts;
use crate::medium::{self, BULK_READ, Way};
use crate::record;
use crate::routines::{copy_bytes, fetch_line, fill_bytes, stream_lines, stream_word};
use crate::untraced::guarded_store_untraced;

pub use crate::lines::Stores;

/// Has what lies here fetched into the caches, its first line at least, and does not wait for it: many can be on their
/// way at once, where a load would wait at some point.
#[inline(always)]
pub fn prefetch<T>(what: &T) {
    fetch_line(std::ptr::from_ref(what).cast());
}

/// Copies `len` bytes with ordinary stores.
///
/// # Safety
/// Both ranges are mapped for the access made, and do not overlap.
#[inline(always)]
#[track_caller]
pub unsafe fn copy(destination: *mut u8, source: *const u8, len: usize) {
    if control::load().records() {
        // SAFETY: as this function's contract says.
        unsafe { record::store(destination, source, len, Stores::Cached) };
        return;
    }
    // SAFETY: as this function's contract says.
    unsafe { copy_bytes(destination, source, len) }
}

/// Copies `len` bytes out of shared memory into private memory; never traced.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub unsafe fn copy_out(destination: *mut u8, source: *const u8, len: usize) {
    if len >= BULK_READ && control::load().emulates() {
        // SAFETY: as this function's contract says.
        return unsafe { slow_copy_out(destination, source, len) };
    }
    // SAFETY: as this function's contract says.
    unsafe { copy_bytes(destination, source, len) }
}

/// A bulk read of an emulated medium.
///
/// # Safety
/// As [`copy`].
#[cold]
#[inline(never)]
unsafe fn slow_copy_out(destination: *mut u8, source: *const u8, len: usize) {
    let begun = medium::copies(Way::Read, source);
    // SAFETY: as this function's contract says.
    unsafe { copy_bytes(destination, source, len) };
    medium::copied(begun, Way::Read, source, len);
}

/// Copies out of shared memory whose file somebody else may truncate.
///
/// # Errors
/// [`Fault`].
///
/// # Safety
/// As [`guarded_copy`](crate::guarded::guarded_copy).
#[inline(always)]
pub(crate) unsafe fn guarded_copy_out(
    destination: *mut u8,
    source: *const u8,
    len: usize,
) -> Result<(), Fault> {
    if len >= BULK_READ && control::load().emulates() {
        // SAFETY: as this function's contract says.
        return unsafe { slow_guarded_copy_out(destination, source, len) };
    }
    // SAFETY: as this function's contract says.
    unsafe { guarded_copy(destination, source, len) }
}

/// A bulk read of an emulated medium.
///
/// # Errors
/// [`Fault`].
///
/// # Safety
/// As [`guarded_copy`](crate::guarded::guarded_copy).
#[cold]
#[inline(never)]
unsafe fn slow_guarded_copy_out(
    destination: *mut u8,
    source: *const u8,
    len: usize,
) -> Result<(), Fault> {
    let begun = medium::copies(Way::Read, source);
    // SAFETY: as this function's contract says.
    let outcome = unsafe { guarded_copy(destination, source, len) };
    medium::copied(begun, Way::Read, source, done(outcome, len));
    outcome
}

/// How many bytes were copied.
fn done(outcome: Result<(), Fault>, len: usize) -> usize {
    outcome.map_or_else(|fault| fault.copied, |()| len)
}

/// Copies `len` bytes, of any length and alignment, past the cache: streaming
/// stores for the whole lines, ordinary stores and a flush for the ragged ends.
/// Durable after the next [`crate::fence`]. Under
/// [`NoFlush`](crate::PersistPolicy::NoFlush) it is an ordinary copy, since
/// streaming stores would need a real fence before anyone else may see them
/// in order.
///
/// # Safety
/// As [`copy`].
#[inline]
#[track_caller]
pub unsafe fn stream(destination: *mut u8, source: *const u8, len: usize) {
    let control = control::load();
    if control.is_watched() {
        // SAFETY: as this function's contract says.
        unsafe { watched_stream(control, destination, source, len) };
        return;
    }
    // SAFETY: as this function's contract says.
    unsafe { bare_stream(control, destination, source, len) }
}

/// Streams, and is traced, or slow.
///
/// # Safety
/// As [`copy`].
#[cold]
#[inline(never)]
#[track_caller]
unsafe fn watched_stream(control: Control, destination: *mut u8, source: *const u8, len: usize) {
    let begun = control
        .emulates()
        .then(|| medium::copies(Way::Write, destination));
    // SAFETY: as this function's contract says.
    unsafe {
        match control.records() {
            true => record::store(destination, source, len, Stores::Streaming),
            false => bare_stream(control, destination, source, len),
        }
    }
    if let Some(begun) = begun {
        medium::copied(begun, Way::Write, destination, len);
    }
}

/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn bare_stream(control: Control, destination: *mut u8, source: *const u8, len: usize) {
    if !control.flushes() {
        // SAFETY: as this function's contract says.
        unsafe { copy_bytes(destination, source, len) };
        return;
    }
    let parts = Parts::of(destination as usize, len);
    // SAFETY: the three parts make up exactly the range of the contract; the
    // middle starts and ends on a line.
    unsafe {
        if parts.head != 0 {
            copy_bytes(destination, source, parts.head);
            flush_lines(control, destination, parts.head);
        }
        if parts.lines != 0 {
            stream_lines(
                destination.add(parts.head),
                source.add(parts.head),
                parts.lines,
            );
        }
        if parts.tail != 0 {
            let done = parts.head + parts.lines;
            copy_bytes(destination.add(done), source.add(done), parts.tail);
            flush_lines(control, destination.add(done), parts.tail);
        }
    }
}

/// Streams whatever the policy says and fences before it returns, so that the
/// bytes are visible in order even under `NoFlush`. For large copies to memory
/// that is not in the cache, where streaming is faster than ordinary stores.
///
/// # Safety
/// As [`copy`].
#[track_caller]
pub unsafe fn stream_and_fence(destination: *mut u8, source: *const u8, len: usize) {
    let control = control::load();
    if control.is_watched() || control.flushes() {
        // SAFETY: as this function's contract says.
        unsafe { stream(destination, source, len) };
        crate::fence();
        return;
    }
    let parts = Parts::of(destination as usize, len);
    // SAFETY: as in `stream`.
    unsafe {
        copy_bytes(destination, source, parts.head);
        if parts.lines != 0 {
            stream_lines(
                destination.add(parts.head),
                source.add(parts.head),
                parts.lines,
            );
        }
        let done = parts.head + parts.lines;
        copy_bytes(destination.add(done), source.add(done), parts.tail);
    }
    store_fence();
}

/// Streams one 8-byte word, in one piece; durable after the next fence.
///
/// A streaming store may overtake earlier *ordinary* stores that no fence
/// has ordered. Under `NoFlush` it is an ordinary store.
///
/// # Safety
/// `destination` is aligned to 8 bytes and mapped writable.
#[inline(always)]
#[track_caller]
pub unsafe fn stream_u64(destination: *mut u64, value: u64) {
    let control = control::load();
    if control.is_watched() {
        // SAFETY: as this function's contract says.
        unsafe { watched_stream_u64(control, destination, value) };
        return;
    }
    // SAFETY: as this function's contract says.
    unsafe { bare_stream_u64(control, destination, value) }
}

/// Streams a word, and is traced, or slow.
///
/// # Safety
/// As [`stream_u64`].
#[cold]
#[inline(never)]
#[track_caller]
unsafe fn watched_stream_u64(control: Control, destination: *mut u64, value: u64) {
    if control.records() {
        // SAFETY: the value is 8 readable bytes, the destination as promised.
        unsafe {
            record::store(
                destination.cast(),
                (&raw const value).cast(),
                8,
                Stores::Streaming,
            )
        };
    } else {
        // SAFETY: as this function's contract says.
        unsafe { bare_stream_u64(control, destination, value) };
    }
    if control.emulates() {
        // A line of its own, as if it had been flushed.
        medium::flushed(destination.cast_const().cast(), 8);
    }
}

/// # Safety
/// As [`stream_u64`].
#[inline(always)]
unsafe fn bare_stream_u64(control: Control, destination: *mut u64, value: u64) {
    if control.flushes() {
        // SAFETY: as this function's contract says.
        unsafe { stream_word(destination, value) };
    } else {
        // SAFETY: aligned, mapped writable, and only accessed atomically or by assembly.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(destination) }
            .store(value, std::sync::atomic::Ordering::Release);
    }
}

/// Fills `len` bytes with zero, with ordinary stores.
///
/// # Safety
/// The range is mapped writable.
#[track_caller]
pub unsafe fn zero(destination: *mut u8, len: usize) {
    if control::load().records() {
        // SAFETY: as this function's contract says.
        unsafe { for_zeroes(destination, len, Stores::Cached) };
        return;
    }
    // SAFETY: as this function's contract says.
    unsafe { fill_bytes(destination, len) }
}

/// Fills `len` bytes with zero past the cache, as [`stream`] does.
///
/// # Safety
/// The range is mapped writable.
#[track_caller]
pub unsafe fn stream_zero(destination: *mut u8, len: usize) {
    // SAFETY: as this function's contract says.
    unsafe { for_zeroes(destination, len, Stores::Streaming) }
}

/// Stores zeroes, in successive parts of the range.
///
/// # Safety
/// The range is mapped writable.
#[track_caller]
unsafe fn for_zeroes(destination: *mut u8, len: usize, stores: Stores) {
    static ZEROES: [u8; 4096] = [0; 4096];
    let mut done = 0;
    while done < len {
        // The first part ends on a page, so that the following ones are whole lines.
        // SAFETY: `done < len`, inside the range of the contract.
        let to = unsafe { destination.add(done) };
        let part = (ZEROES.len() - to as usize % ZEROES.len()).min(len - done);
        // SAFETY: inside the range of the contract; the source is as long as a part.
        unsafe {
            match stores {
                Stores::Cached => copy(to, ZEROES.as_ptr(), part),
                Stores::Streaming => stream(to, ZEROES.as_ptr(), part),
            }
        }
        done += part;
    }
}

/// As [`copy`] or [`stream`], but a page missing from the file behind either range
/// is an error. The stores are traced, so this is for shared destinations; to copy
/// out into private memory use [`guarded_copy`](crate::guarded::guarded_copy).
///
/// # Errors
/// [`Fault`]; what was copied before it stays copied.
///
/// # Safety
/// As [`guarded_copy`](crate::guarded::guarded_copy).
#[track_caller]
pub unsafe fn guarded_store(
    destination: *mut u8,
    source: *const u8,
    len: usize,
    stores: Stores,
) -> Result<(), Fault> {
    let control = control::load();
    if control.is_watched() {
        // SAFETY: as this function's contract says.
        return unsafe { watched_guarded_store(control, destination, source, len, stores) };
    }
    // SAFETY: as this function's contract says.
    unsafe { guarded_store_untraced(destination, source, len, stores) }
}

/// A guarded store that is traced, or slow.
///
/// # Safety
/// As [`guarded_store`].
#[cold]
#[inline(never)]
#[track_caller]
unsafe fn watched_guarded_store(
    control: Control,
    destination: *mut u8,
    source: *const u8,
    len: usize,
    stores: Stores,
) -> Result<(), Fault> {
    let is_slow = control.emulates() && stores == Stores::Streaming;
    let begun = is_slow.then(|| medium::copies(Way::Write, destination));
    // SAFETY: as this function's contract says.
    let outcome = unsafe {
        match control.records() {
            true => record::guarded_store(destination, source, len, stores),
            false => guarded_store_untraced(destination, source, len, stores),
        }
    };
    if let Some(begun) = begun {
        medium::copied(begun, Way::Write, destination, done(outcome, len));
    }
    outcome
}
