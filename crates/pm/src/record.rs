//! A trace of everything the process does to memory through this crate, for the
//! crash explorer.
//!
//! Recording is a switch at run time, not a cargo feature: the bit lies in the
//! same byte as the flush policy, which every flush and fence loads anyway, so
//! stores alone pay for it (one relaxed load of a line nobody writes, and a
//! branch that is never taken); the explorer then runs the very code that
//! ships, and one build serves both, where features would be unified across
//! the workspace in any case.
//!
//! Invariants:
//!
//! * While a trace is recorded, a store and its event happen under one lock, so
//!   the order of the trace is the order of memory.
//! * Flushes and fences are traced whatever the policy: the trace says what the
//!   program asked for, so it can be explored on volatile memory.
//! * Every event names its thread, because a fence only concerns what its own
//!   thread has flushed, and the place in the source that asked for it, so that a
//!   replay can leave out what one place does.
//! * What is done to files by system calls is traced by whoever does it ([`file`]), and a word that
//!   was stored by other means than this crate's right behind its store ([`stored`]).
//!
//! Addresses are those of this process. A file mapped twice (controller and
//! LibFS in one test process) is told apart by [`EventKind::Map`], which each
//! [`crate::Mapping`] and [`crate::AddressSpace`] records.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::control;
use crate::error::{Error, Fault, Result};
use crate::lines::{CACHE_LINE, Parts, Stores, lines_of};
use crate::routines::copy_bytes;
use crate::untraced::guarded_store_untraced;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The thread: small numbers in order of first appearance in the process.
    pub thread: u32,
    /// Who asked for it: the first caller outside this crate that is not itself marked
    /// `track_caller`.
    pub site: Site,
    /// What happened.
    pub kind: EventKind,
}

/// A place in the source.
pub type Site = &'static Location<'static>;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// `len` bytes at `address` became a mapping of `file` from byte `offset` on.
    Map {
        /// First byte.
        address: u64,
        /// Bytes.
        len: u64,
        /// The file.
        file: FileId,
        /// Byte offset in the file.
        offset: u64,
    },
    /// A mapping went away.
    Unmap {
        /// First byte.
        address: u64,
        /// Bytes.
        len: u64,
    },
    /// Ordinary stores.
    Store {
        /// First byte.
        address: u64,
        /// What was stored.
        bytes: Vec<u8>,
    },
    /// Streaming stores.
    Stream {
        /// First byte.
        address: u64,
        /// What was stored.
        bytes: Vec<u8>,
    },
    /// A flush of one line.
    Flush {
        /// Address of the line, a multiple of 64.
        line: u64,
    },
    /// A fence.
    Fence,
    /// A system call changed a file of the pool.
    File(FileChange),
    /// A note by the program under test.
    Mark(String),
}

/// What a system call did to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileChange {
    /// The file has this name in the pool now (created or renamed), and no other; what had the name
    /// before is gone.
    Named {
        /// The file.
        file: FileId,
        /// Path from the pool's directory on.
        name: String,
    },
    /// The name is gone, and the file with it.
    Removed {
        /// Path from the pool's directory on.
        name: String,
    },
    /// The file has this length now; what is new is zeroes.
    Length {
        /// The file.
        file: FileId,
        /// Bytes.
        len: u64,
    },
    /// Bytes were written; durable after the next [`FileChange::Synced`] of the file.
    Written {
        /// The file.
        file: FileId,
        /// Byte offset in it.
        offset: u64,
        /// What was written.
        bytes: Vec<u8>,
    },
    /// Everything written to the file is durable.
    Synced {
        /// The file.
        file: FileId,
    },
    /// A range was punched: it is zeroes now.
    Punched {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

/// A file, as `fstat` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

/// Called at each event, when it has happened, by the thread that it is of. It may panic, as if that were killed there.
pub type Watch = fn(&EventKind);

static TRACE: Mutex<Option<Vec<Event>>> = Mutex::new(None);
static WATCH: OnceLock<Watch> = OnceLock::new();
static NEXT_THREAD: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(u32::MAX) };
}

fn this_thread() -> u32 {
    THREAD.with(|thread| {
        if thread.get() == u32::MAX {
            thread.set(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
        }
        thread.get()
    })
}

fn trace() -> MutexGuard<'static, Option<Vec<Event>>> {
    // Whoever panicked with the lock held was pushing an event at most.
    TRACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recording in progress; one per process. Dropping it ends it.
#[must_use = "dropping a recording ends it"]
#[derive(Debug)]
pub struct Recording(());

impl Recording {
    /// Starts recording, from here on, what every thread of the process does.
    ///
    /// # Errors
    /// [`Error::AlreadyRecording`].
    pub fn start() -> Result<Recording> {
        let mut trace = trace();
        if trace.is_some() {
            return Err(Error::AlreadyRecording);
        }
        *trace = Some(Vec::new());
        control::set_recording(true);
        Ok(Recording(()))
    }

    /// The events so far, which are then forgotten; recording goes on.
    pub fn take(&self) -> Vec<Event> {
        trace().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Has each event watched from here on, by the first who asks in this process.
    pub fn watch(&self, watch: Watch) {
        WATCH.get_or_init(|| watch);
    }

    /// Ends the recording.
    pub fn finish(self) -> Vec<Event> {
        self.take()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        control::set_recording(false);
        *trace() = None;
    }
}

/// Whether a trace is being recorded.
pub fn is_recording() -> bool {
    control::load().records()
}

/// Puts a note into the trace, if one is recorded.
#[track_caller]
pub fn mark(label: &str) {
    if control::load().records() {
        push(&mut trace(), EventKind::Mark(label.to_owned()));
    }
}

/// Tells the trace that memory is a mapping of a file; for mappings made before
/// the recording started or by other means.
pub fn mapped(address: *const u8, len: usize, file: FileId, offset: u64) {
    if control::load().records() {
        let kind = EventKind::Map {
            address: address as u64,
            len: len as u64,
            file,
            offset,
        };
        push(&mut trace(), kind);
    }
}

/// The file behind a descriptor; zeroes, which are nobody's, if the kernel does not say.
pub fn file_id(file: impl AsFd) -> FileId {
    rustix::fs::fstat(file.as_fd()).map_or(
        FileId {
            device: 0,
            inode: 0,
        },
        |status| FileId {
            device: status.st_dev,
            inode: status.st_ino,
        },
    )
}

/// Puts what a system call did to a file into the trace, if one is recorded; `change` is not called
/// otherwise. Called right after the system call.
#[inline]
#[track_caller]
pub fn file(change: impl FnOnce() -> FileChange) {
    if control::load().records() {
        let change = EventKind::File(change());
        push(&mut trace(), change);
    }
}

/// Puts a word of mapped memory into the trace as it stands, if one is recorded: right after a store
/// that was not made through this crate, by the only thread that stores to the word.
#[inline]
#[track_caller]
pub fn stored(word: &AtomicU64) {
    if control::load().records() {
        let kind = EventKind::Store {
            address: word.as_ptr() as u64,
            bytes: word.load(Ordering::Relaxed).to_ne_bytes().to_vec(),
        };
        push(&mut trace(), kind);
    }
}

pub(crate) fn unmapped(address: *const u8, len: usize) {
    if control::load().records() {
        let kind = EventKind::Unmap {
            address: address as u64,
            len: len as u64,
        };
        push(&mut trace(), kind);
    }
}

#[track_caller]
fn push(trace: &mut Option<Vec<Event>>, kind: EventKind) {
    if let Some(events) = trace {
        events.push(Event {
            thread: this_thread(),
            site: Location::caller(),
            kind,
        });
        if let (Some(watch), Some(event)) = (WATCH.get(), events.last()) {
            watch(&event.kind);
        }
    }
}

#[cold]
#[track_caller]
pub(crate) fn flush(address: *const u8, len: usize) {
    push_flushes(&mut trace(), address as usize, len);
}

#[track_caller]
fn push_flushes(trace: &mut Option<Vec<Event>>, address: usize, len: usize) {
    let (first, count) = lines_of(address, len);
    for index in 0..count {
        push(
            trace,
            EventKind::Flush {
                line: (first + index * CACHE_LINE) as u64,
            },
        );
    }
}

#[cold]
#[track_caller]
pub(crate) fn fence() {
    push(&mut trace(), EventKind::Fence);
}

/// Makes an atomic store and traces the bytes it says it stored, if any.
#[cold]
#[track_caller]
pub(crate) fn atomic_store<R, const N: usize>(
    address: *const u8,
    store: impl FnOnce() -> (R, Option<[u8; N]>),
) -> R {
    let mut trace = trace();
    let (result, stored) = store();
    if let Some(bytes) = stored {
        let kind = EventKind::Store {
            address: address as u64,
            bytes: bytes.to_vec(),
        };
        push(&mut trace, kind);
    }
    result
}

/// Copies and traces. The bytes are taken from the source once, so the trace
/// holds what memory holds.
///
/// # Safety
/// As [`crate::copy::copy`].
#[cold]
#[track_caller]
pub(crate) unsafe fn store(destination: *mut u8, source: *const u8, len: usize, stores: Stores) {
    let mut bytes = vec![0; len];
    // SAFETY: the source is the caller's, the buffer as long.
    unsafe { copy_bytes(bytes.as_mut_ptr(), source, len) };
    let mut trace = trace();
    // Ordinary stores even for streaming ones: the difference is in the trace.
    // SAFETY: the destination is the caller's, the buffer as long.
    unsafe { copy_bytes(destination, bytes.as_ptr(), len) };
    push_stores(&mut trace, destination as usize, &bytes, stores);
}

/// Copies with the guard on both sides and traces what was surely copied.
///
/// # Safety
/// As [`crate::copy::guarded_store`].
#[cold]
#[track_caller]
pub(crate) unsafe fn guarded_store(
    destination: *mut u8,
    source: *const u8,
    len: usize,
    stores: Stores,
) -> std::result::Result<(), Fault> {
    let mut bytes = vec![0; len];
    // SAFETY: the source is the caller's, the buffer as long.
    unsafe { crate::guarded::guarded_copy(bytes.as_mut_ptr(), source, len) }?;
    let mut trace = trace();
    // SAFETY: the destination is the caller's, the buffer as long.
    let outcome = unsafe { guarded_store_untraced(destination, bytes.as_ptr(), len, stores) };
    let stored = outcome.map_or_else(|fault| fault.copied, |()| len);
    push_stores(&mut trace, destination as usize, &bytes[..stored], stores);
    outcome
}

#[track_caller]
fn push_stores(trace: &mut Option<Vec<Event>>, address: usize, bytes: &[u8], stores: Stores) {
    if stores == Stores::Cached {
        push_cached(trace, address, bytes);
    } else if bytes.len() == 8 && address.is_multiple_of(8) {
        push_streamed(trace, address, bytes);
    } else {
        let parts = Parts::of(address, bytes.len());
        let (head, rest) = bytes.split_at(parts.head);
        let (lines, tail) = rest.split_at(parts.lines);
        push_cached(trace, address, head);
        push_flushes(trace, address, head.len());
        push_streamed(trace, address + head.len(), lines);
        let after = address + head.len() + lines.len();
        push_cached(trace, after, tail);
        push_flushes(trace, after, tail.len());
    }
}

#[track_caller]
fn push_cached(trace: &mut Option<Vec<Event>>, address: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        push(
            trace,
            EventKind::Store {
                address: address as u64,
                bytes: bytes.to_vec(),
            },
        );
    }
}

#[track_caller]
fn push_streamed(trace: &mut Option<Vec<Event>>, address: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        push(
            trace,
            EventKind::Stream {
                address: address as u64,
                bytes: bytes.to_vec(),
            },
        );
    }
}
